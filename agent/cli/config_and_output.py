"""State that all commands share: the configuration of this call and the output streams.

`--config PATH` and `--json` may precede or follow the command; `take_global_options` removes them from the arguments,
so that no command needs to handle them. `config_and_output.py` sanitises text from models, forges and files for every
command, so that no control sequence reaches a terminal. If the reader closes the pipe (`| head -1`), the output ends,
but the work continues.
"""

from __future__ import annotations

import json
import os
import sys
from contextlib import suppress
from dataclasses import asdict, dataclass, field, is_dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from agent.errors import DiskError, UsageError
from agent.security.terminal import plain_json, strip_terminal_controls
from agent.store.storable_text import fit_json, replace_surrogates

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import TextIO

    from agent.config import Settings
    from agent.errors import MakimonoError


@dataclass
class CliState:
    """The options of one call of the program.  `overrides` are settings from the command line, by dotted key; they take
    precedence over environment variables."""

    config: Path | None = None
    json: bool = False
    overrides: dict[str, Any] = field(default_factory=dict)

    @cached_property
    def settings(self) -> Settings:
        """The validated configuration, loaded at the first use."""
        return self.load()

    @cached_property
    def settings_to_inspect(self) -> Settings:
        """The configuration for commands that only read: an unset `${NAME}` must not prevent their output."""
        return self.load(complete=False)

    def load(self, complete: bool = True) -> Settings:
        """Load the configuration, and set the program's folder for temporary files."""
        from agent import durable_files
        from agent.config import load
        from agent.errors import DiskError

        settings = load(self.config, overrides=self.overrides, complete=complete)
        with suppress(DiskError):  # if the folder cannot be made, a command that only reads works without it
            durable_files.temporary(settings.base_dir / "tmp")
        return settings

    def has_tasks(self) -> bool:
        """Whether the ledger (the database of tasks) exists; the check does not create it."""
        from agent.store.configured_ledger import LedgerKind

        return LedgerKind.from_settings(self.settings_to_inspect).exists()

    def require_tasks(self, prefix: str) -> None:
        """Raise UsageError when there is no ledger, so that no task can match the prefix."""
        if not self.has_tasks():
            raise UsageError(f"no task has a uuid that begins with {prefix!r}: {self.where_none()}")

    def where_none(self) -> str:
        """An error text: base_dir has no ledger, and the current folder may be the wrong one."""
        from agent.store.configured_ledger import LedgerKind

        said = f"{self.settings_to_inspect.base_dir} has no {LedgerKind.from_settings(self.settings_to_inspect).title}"
        if self.config is None and not Path("config.yaml").exists():
            said += f"; there is no config.yaml in {Path.cwd()}: call from the folder of yours, or give --config"
        return said

    # --- output -----------------------------------------------------------------------------------------------

    @property
    def is_stdout_terminal(self) -> bool:
        """Whether stdout is a terminal and the output is for a person (no `--json`)."""
        return not self.json and is_terminal(sys.stdout)

    @property
    def is_stderr_terminal(self) -> bool:
        """Whether stderr, on which progress is shown, is a terminal and the output is for a person (no `--json`)."""
        return not self.json and is_terminal(sys.stderr)

    def print_line(self, text: str = "") -> bool:
        """Print one line for a person; with `--json` print no line.

        Returns False when the reader has closed the pipe.
        """
        return self.json or write(sys.stdout, strip_terminal_controls(text) + "\n")

    def print_note(self, text: str) -> None:
        """Print a note on stderr, so that the output on stdout does not contain it."""
        write(sys.stderr, f"note: {strip_terminal_controls(text)}\n")

    def print_json(self, value: Any) -> None:
        """Print the result of a command as one JSON document; without `--json` print nothing."""
        if self.json:
            write(sys.stdout, _json(value) + "\n")

    def print_json_items(self, head: Mapping[str, Any], name: str, items: Iterable[Any]) -> None:
        """Print `head` as JSON with the list `items` under `name`; each item is written as soon as it is produced."""
        if not self.json:
            return
        opened = _json(head).removesuffix("\n}")
        going = write(sys.stdout, f"{opened},\n  {_json(name)}: [")
        comma = "\n    "
        for item in items:
            if not going:
                return
            going = write(sys.stdout, comma + _json(item, indent=False))
            comma = ",\n    "
        write(sys.stdout, "\n  ]\n}\n")

    def fail(self, error: MakimonoError) -> None:
        """Print the error on stderr; with `--json` also as an object on stdout."""
        with suppress(DiskError):  # if the error is a full disk, printing the message may fail too
            write(sys.stderr, f"error: {strip_terminal_controls(str(error))}\n")
            self.print_json(failure(error.code, replace_surrogates(str(error)), error.exit_code))


def failure(code: str, message: str, exit_code: int) -> dict[str, Any]:
    """An error of a command in the form of the JSON output."""
    return {"error": {"code": code, "message": message, "exit_code": exit_code}}


def is_terminal(stream: TextIO | None) -> bool:
    """Whether the stream is a terminal, which a person reads; False for a closed stream."""
    return stream is not None and not stream.closed and stream.isatty()


def write(stream: TextIO | None, text: str) -> bool:
    """Write `text` to the output stream and flush the stream.

    Returns False when the reader has closed the pipe; later output to the stream is then dropped without an error.
    Raises DiskError when the stream cannot be written for another reason, such as a full disk.
    """
    if stream is None:
        return False
    try:
        stream.write(text)
        stream.flush()
    except BrokenPipeError:
        _to_nowhere(stream)
        return False
    except OSError as error:
        _to_nowhere(stream)
        raise DiskError(f"the output cannot be written: {error.strerror or error}") from error
    return True


def _to_nowhere(stream: TextIO) -> None:
    """Direct the stream to /dev/null, since otherwise Python reports another error when it flushes the stream at
    exit."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def _json(value: Any, *, indent: bool = True) -> str:
    option = orjson.OPT_INDENT_2 if indent else 0
    try:
        data = orjson.dumps(value, default=str, option=option)
    except orjson.JSONEncodeError:  # a text in `value` has an unpaired surrogate, which a shell argument may contain
        data = orjson.dumps(fit_json(json.loads(json.dumps(value, default=_json_default))), option=option)
    return plain_json(data.decode())


def _json_default(value: Any) -> Any:
    return asdict(value) if is_dataclass(value) and not isinstance(value, type) else str(value)


def require_folder_of(file: Path) -> None:
    """Raise UsageError if the folder of a file that a command shall write does not exist; no command makes this
    folder."""
    if not file.absolute().parent.is_dir():
        raise UsageError(f"{file.parent} is no folder; make it, or name a file in another one")


def take_global_options(argv: Sequence[str], state: CliState) -> list[str]:
    """The arguments `argv` without `--config PATH`, `--config=PATH` and `--json`; the values of these options are
    stored in `state`.

    Arguments after `--` are not changed.
    """
    rest: list[str] = []
    words = iter(argv)
    for word in words:
        if word == "--":
            rest += [word, *words]
        elif word == "--json":
            state.json = True
        elif word == "--config":
            path = next(words, None)
            if path is None:
                raise UsageError("--config needs a path")
            state.config = Path(path)
        elif word.startswith("--config="):
            state.config = Path(word.partition("=")[2])
        else:
            rest.append(word)
    return rest
