"""docs/cli.md is made from the commands themselves: `scripts/write_docs.py` writes it, tests/docs checks that it is up
to date."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from collections.abc import Iterator

PROGRAM = "main.py"
PAGE_WIDTH = 120
"""The maximum length of a line of docs/cli.md."""


def markdown() -> str:
    """The text of docs/cli.md."""
    parts = [_HEAD]
    for name, command in commands():
        parts.append(f"\n## `{usage(name, command)}`\n\n{command.help}\n")
        rows = [_row(parameter) for parameter in command.params if parameter.name != "help"]
        if rows:
            parts.append("\n" + "".join(rows))
    return "".join(parts)


def commands() -> Iterator[tuple[str, Any]]:
    """(name, command) of every command, in the order of their names; the name of a command in a group is `group
    command`."""
    from agent.cli import command_registration as every  # noqa: F401 - each command registers itself on `app`
    from agent.cli.app import app

    yield from _inside("", typer.main.get_command(app))


def _inside(before: str, group: Any) -> Iterator[tuple[str, Any]]:
    for name, command in sorted(group.commands.items()):
        if hasattr(command, "commands"):
            yield from _inside(f"{before}{name} ", command)
        else:
            yield f"{before}{name}", command


def usage(name: str, command: Any) -> str:
    """The usage of a command, such as `stop UUID` or `cleanup [--days DAYS] [--dry-run]`."""
    words = [name]
    for parameter in command.params:
        if parameter.param_type_name == "argument":
            word = _metavar(parameter)
            words.append(word if parameter.required else f"[{word}]")
        elif parameter.name != "help":
            words.append(f"[{_option(parameter)}]")
    return " ".join(words)


def _row(parameter: Any) -> str:
    shown = _metavar(parameter) if parameter.param_type_name == "argument" else _option(parameter)
    return _item(f"`{shown}`", parameter.help or "")


def _item(name: str, meaning: str) -> str:
    text = f"- {name}: {meaning}" if meaning else f"- {name}"
    return (
        textwrap.fill(text, PAGE_WIDTH, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False) + "\n"
    )


def _option(parameter: Any) -> str:
    name = ", ".join(parameter.opts)
    return name if parameter.is_flag else f"{name} {_metavar(parameter)}"


def _metavar(parameter: Any) -> str:
    return str(parameter.metavar or parameter.name).upper()


_HEAD = f"""\
# Command line

`./{PROGRAM} COMMAND`; `./{PROGRAM} COMMAND --help` says the same of one command. This page is made from the program
(`scripts/write_docs.py`).

Everywhere, before or after the command:

- `--config PATH`: The configuration; without it `config.yaml` of the current folder, if there is one.
- `--json`: Print one JSON document instead of text; errors too. `run --json` prints it at the end:
  `{{exit_code, tasks: [{{uuid, status, error_code, url}}]}}`, of the last 10,000 tasks.
- `--version`: Print the version.

For every `UUID` the first characters are enough. On a terminal tables and progress are drawn; in a pipe
there is plain text, and nothing but the answer on standard output.

| exit code | meaning |
|---|---|
| 0 | done; also after a drain, and if a task waits for an answer |
| 1 | at least one task failed |
| 2 | wrong usage or configuration, or no task with this uuid |
| 3 | the server, the sandbox or the disk failed |
| 3 | a task is queued again, for any reason |
| 3 | `doctor`: a check failed |
| 130 | interrupted |
"""
