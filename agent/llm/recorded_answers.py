"""Finds the answers in the file messages.jsonl of a recorded conversation: the assistant messages, by their offsets in
the file.

The recorded answers of a file are read when they are needed; only their offsets are in memory. Summaries (`kind:
summary`) are counted separately, since a replay returns them for summary requests.
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
    """The answers in one messages.jsonl, or in records that are passed directly."""

    def __init__(self, source: Path | Iterable[Mapping[str, Any]]) -> None:
        self._path = source if isinstance(source, Path) else None
        self._records: list[Json] = []
        if isinstance(source, Path):
            self._progress = RecordingReader(source, keep=True)
            try:
                self._progress.read_new()
            except OSError as error:
                raise ConfigError(
                    f"llm.replay.messages: cannot read {source}: {error.strerror}; name a messages.jsonl"
                ) from error
        else:
            self._progress = RecordingReader(None, keep=True)
            self._records = [dict(record) for record in source]
            for number, record in enumerate(self._records):
                self._progress.add(number, record)

    @property
    def name(self) -> str:
        """A name of the recording for messages to people: its path, or the number of its records."""
        return str(self._path) if self._path else f"of {len(self._records)} records"

    def count(self, what: str = "answer") -> int:
        """The number of recorded answers, or of recorded summaries if `what` is "summary"."""
        return self._progress.counts[what]

    def get(self, position: int, what: str = "answer") -> Json | None:
        """The recorded answer (or summary) number `position`, counted from 0; None if the recording has no such
        number."""
        if not 0 <= position < self.count(what):
            return None
        offset = self._progress.offsets[what][position]
        if self._path is None:
            return self._records[offset]
        with self._path.open("rb") as file:
            file.seek(offset)
            record: Json = orjson.loads(file.readline())
            return record


class RecordingReader:
    """Counts the answers and summaries in a messages.jsonl that may grow; a complete line is read once.

    With `keep` the offsets of answers and summaries are stored too. An incomplete last line in messages.jsonl, and
    lines that are not JSON, are ignored.
    """

    def __init__(self, path: Path | None, *, keep: bool = False) -> None:
        self.path = path
        self.keep = keep
        self.counts = {"answer": 0, "summary": 0}
        self.offsets = {"answer": array("Q"), "summary": array("Q")}
        self._seen = 0

    def read_new(self) -> None:
        """Count the answers and summaries in the lines that were appended to messages.jsonl since the last call. Raises
        OSError if the file cannot be read."""
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
                    self.add(self._seen, record)
                self._seen += len(line)

    def add(self, offset: int, record: Mapping[str, Any]) -> None:
        """Count the record `record` of messages.jsonl if it is an answer or a summary."""
        if record.get("role") != "assistant":
            return
        what = "summary" if record.get("kind") == "summary" else "answer"
        self.counts[what] += 1
        if self.keep:
            self.offsets[what].append(offset)


def _whole_lines(file: Iterable[bytes]) -> Iterator[bytes]:
    return (line for line in file if line.endswith(b"\n"))
