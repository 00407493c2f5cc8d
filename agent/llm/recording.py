"""A recorded conversation, read for its answers: offsets of the assistant messages of a messages.jsonl.

The file stays the truth; what is in memory is one number a message.  Copies of summaries (`kind: summary`) are kept
apart: they answer summary requests.  Used by the replay server and client.
"""

from __future__ import annotations

from array import array
from pathlib import Path
from typing import TYPE_CHECKING

import orjson

from agent.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from typing import Any

    from agent.values import Json


class Recording:
    """The answers of one messages.jsonl, or of records given directly."""

    def __init__(self, source: Path | Iterable[Mapping[str, Any]]) -> None:
        self._path = source if isinstance(source, Path) else None
        self._records: list[Json] = []
        if isinstance(source, Path):
            self._progress = Progress(source, keep=True)
            try:
                self._progress.look()
            except OSError as error:
                raise ConfigError(
                    f"llm.replay.messages: cannot read {source}: {error.strerror}; name a messages.jsonl"
                ) from error
        else:
            self._progress = Progress(None, keep=True)
            self._records = [dict(record) for record in source]
            for number, record in enumerate(self._records):
                self._progress.take(number, record)

    @property
    def name(self) -> str:
        """The path, or how many records were given."""
        return str(self._path) if self._path else f"of {len(self._records)} records"

    def count(self, what: str = "answer") -> int:
        """How many answers (or summaries) are recorded."""
        return self._progress.counts[what]

    def get(self, position: int, what: str = "answer") -> Json | None:
        """The record at `position` from 0; None past the end."""
        if not 0 <= position < self.count(what):
            return None
        offset = self._progress.offsets[what][position]
        if self._path is None:
            return self._records[offset]
        with self._path.open("rb") as file:
            file.seek(offset)
            record: Json = orjson.loads(file.readline())
            return record


class Progress:
    """How many answers and summaries a growing messages.jsonl holds; each byte is read once.

    `keep` keeps their offsets too.  A torn last line and lines that are not JSON count for nothing.
    """

    def __init__(self, path: Path | None, *, keep: bool = False) -> None:
        self.path = path
        self.keep = keep
        self.counts = {"answer": 0, "summary": 0}
        self.offsets = {"answer": array("Q"), "summary": array("Q")}
        self._seen = 0

    def look(self) -> None:
        """Take in what was added since the last look."""
        if self.path is None:
            return
        with self.path.open("rb") as file:
            file.seek(self._seen)
            for line in _whole_lines(file):
                try:
                    record = orjson.loads(line)
                except orjson.JSONDecodeError:
                    record = None
                if isinstance(record, dict):
                    self.take(self._seen, record)
                self._seen += len(line)

    def take(self, offset: int, record: Mapping[str, Any]) -> None:
        """Count one record."""
        if record.get("role") != "assistant":
            return
        what = "summary" if record.get("kind") == "summary" else "answer"
        self.counts[what] += 1
        if self.keep:
            self.offsets[what].append(offset)


def _whole_lines(file: Iterable[bytes]) -> Iterator[bytes]:
    return (line for line in file if line.endswith(b"\n"))
