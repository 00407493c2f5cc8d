"""What every command shares: the configuration that was named, and how its output is written.

`--config PATH` and `--json` may stand before or after the command; `front` takes them out of the arguments, so that no
command has to know them.  What others wrote is made harmless here, whatever the command: nothing reaches a terminal
that could move its cursor.  A reader who goes away (`| head -1`) ends the output, not the work.
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
from agent.security.terminal import plain, plain_json
from agent.store.text import fit, fit_json

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import TextIO

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
        return self.load()

    @cached_property
    def looking(self) -> Settings:
        """The same for commands that only look: a `${NAME}` that is not set is no reason to show nothing."""
        return self.load(complete=False)

    def load(self, complete: bool = True) -> Settings:
        """Load the configuration anew."""
        from agent import disk
        from agent.config import load
        from agent.errors import DiskError

        settings = load(self.config, overrides=self.overrides, complete=complete)
        with suppress(DiskError):  # a command that only looks does without
            disk.temporary(settings.base_dir / "tmp")
        return settings

    def has_tasks(self) -> bool:
        """Whether a ledger is there: looking makes none."""
        settings = self.looking
        return settings.taskqueue.ledger != "sqlite" or (settings.base_dir / "tasks.db").exists()

    def require_tasks(self, prefix: str) -> None:
        """UsageError where no task can be called so, since there is none."""
        if not self.has_tasks():
            raise UsageError(f"no task has a uuid that begins with {prefix!r}: {self.where_none()}")

    def where_none(self) -> str:
        """Where a ledger was looked for and is none: perhaps in the wrong folder."""
        said = f"{self.looking.base_dir} has no tasks.db"
        if self.config is None and not Path("config.yaml").exists():
            said += f"; there is no config.yaml in {Path.cwd()}: call from the folder of yours, or give --config"
        return said

    # --- output -----------------------------------------------------------------------------------------------

    @property
    def terminal(self) -> bool:
        """Whether a person looks at stdout."""
        return not self.json and is_terminal(sys.stdout)

    @property
    def watched(self) -> bool:
        """Whether a person looks at stderr, where progress goes."""
        return not self.json and is_terminal(sys.stderr)

    def say(self, text: str = "") -> bool:
        """One line for a person; nothing with `--json`.  False when nobody reads any more."""
        return self.json or write(sys.stdout, plain(text) + "\n")

    def data(self, value: Any) -> None:
        """The result as one JSON document, with `--json` only."""
        if self.json:
            write(sys.stdout, _json(value) + "\n")

    def stream(self, head: Mapping[str, Any], name: str, items: Iterable[Any]) -> None:
        """`data` of `head` with the list `items` under `name`, written as the items come."""
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
        """The error on stderr; with `--json` as an object on stdout too."""
        with suppress(DiskError):  # the error may be that nothing can be written
            write(sys.stderr, f"error: {plain(str(error))}\n")
            self.data(failure(error.code, fit(str(error)), error.exit_code))


def failure(code: str, message: str, exit_code: int) -> dict[str, Any]:
    """An error as a document."""
    return {"error": {"code": code, "message": message, "exit_code": exit_code}}


def is_terminal(stream: TextIO | None) -> bool:
    """Whether a person reads the stream; a closed one has no reader."""
    return stream is not None and not stream.closed and stream.isatty()


def write(stream: TextIO | None, text: str) -> bool:
    """Write and flush.  False when the reader is gone; what follows then goes nowhere, and no error comes of it.
    DiskError when it cannot be written for another reason (a full disk)."""
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
    """What follows is dropped, else Python complains once more when it ends."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def _json(value: Any, *, indent: bool = True) -> str:
    option = orjson.OPT_INDENT_2 if indent else 0
    try:
        data = orjson.dumps(value, default=str, option=option)
    except orjson.JSONEncodeError:  # half a character in a text, as an argument of a shell may hold
        data = orjson.dumps(fit_json(json.loads(json.dumps(value, default=_plain))), option=option)
    return plain_json(data.decode())


def _plain(value: Any) -> Any:
    return asdict(value) if is_dataclass(value) and not isinstance(value, type) else str(value)


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
