"""What every command shares: the configuration that was named, and how its output is written.

`--config PATH` and `--json` may stand before or after the command; `front` takes them out of the arguments, so that no
command has to know them.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from agent.errors import UsageError
from agent.security.terminal import plain

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agent.config import Settings
    from agent.errors import MakimonoError


@dataclass
class State:
    """One call of the program.  `overrides` are dotted keys from the command line, above the environment."""

    config: Path | None = None
    json: bool = False
    overrides: dict[str, Any] = field(default_factory=dict)

    @cached_property
    def settings(self) -> Settings:
        """The validated configuration."""
        from agent.config import load

        return load(self.config, overrides=self.overrides)

    @property
    def terminal(self) -> bool:
        """Whether a person looks at stdout."""
        return sys.stdout.isatty() and not self.json

    def say(self, text: str) -> None:
        """One line for a person; nothing with `--json`."""
        if not self.json:
            print(plain(text), flush=True)

    def data(self, value: Any) -> None:
        """The result as one JSON document, with `--json` only."""
        if self.json:
            sys.stdout.flush()
            sys.stdout.buffer.write(orjson.dumps(value, default=str, option=orjson.OPT_INDENT_2) + b"\n")
            sys.stdout.buffer.flush()

    def fail(self, error: MakimonoError) -> None:
        """The error on stderr; with `--json` as an object on stdout too."""
        print(f"error: {plain(str(error))}", file=sys.stderr, flush=True)
        self.data({"error": {"code": error.code, "message": str(error), "exit_code": error.exit_code}})


def front(argv: Sequence[str], state: State) -> list[str]:
    """`argv` without `--config PATH`, `--config=PATH` and `--json`, which go into `state`.  Nothing after `--`."""
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
