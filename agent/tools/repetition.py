"""The guard against going in circles: same calls, same results, again and again.

Calls stand in one row, each with a digest of name, arguments and result.  A circle is seen when the newest 2p + 1
calls repeat every p (p up to 8): A A A, A B A B A and so on, that is, one and the same call three times with nothing
new between.  Polling whose result changes and many edits of one file never look like that, nor do tests that fail the
same way between different edits.  First a nudge; the same circle again, or a fourth one, means stop.  Only digests are
kept, so memory is bounded; `restore` replays tools.jsonl.
"""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING, Any, Literal

import orjson

from agent.store.text import dumps

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from agent.values import ToolResult

PERIODS = 8
NUDGES = 3
# What differs between two runs of one command and means nothing: measured times, addresses, names of stored outputs.
# All begin with one of a few signs and say so first: that is what the search skips by.
_VOLATILE = re.compile(
    r"[0-9o](?:(?<=[0-9])[0-9]*\.[0-9]+ ?(?:m?s|sec|seconds)\b|(?<=\b[0-9])[0-9]* ?ms\b"
    r"|(?<=0)x[0-9a-f]{6,16}\b|(?<=o)utputs/[0-9]{4,9}\.txt)"
)

Verdict = Literal["nudge", "stop"]


def digest(name: str, arguments: object, content: str) -> bytes:
    """One call and its result in 16 bytes."""
    told = dumps([name, arguments], orjson.OPT_SORT_KEYS)
    plain = _VOLATILE.sub("~", content).encode("utf-8", "backslashreplace")
    return hashlib.blake2b(told + b"\0" + plain, digest_size=16).digest()


class Repetition:
    """One for a task."""

    def __init__(self) -> None:
        self._row: list[bytes] = []
        self._nudged: set[bytes] = set()
        self._nudges = 0

    def see(self, calls: Sequence[Mapping[str, Any]], results: Sequence[ToolResult]) -> Verdict | None:
        """Take in one group, calls with their results in order: None, "nudge" (tell the model) or "stop"."""
        return self._take(
            digest(str(call.get("name")), call.get("arguments"), result.content)
            for call, result in zip(calls, results, strict=True)
        )

    def restore(self, records: Iterable[Mapping[str, Any]]) -> None:
        """Replay the records of tools.jsonl, oldest first."""
        for record in records:
            content = record.get("result") or record.get("error") or ""
            self._take([digest(str(record.get("tool")), record.get("args"), str(content))])

    def _take(self, digests: Iterable[bytes]) -> Verdict | None:
        circle: set[bytes] = set()
        for one in digests:
            self._row = [*self._row, one][-(2 * PERIODS + 1) :]
            circle |= self._circle()
        if not circle:
            return None
        if circle & self._nudged or self._nudges >= NUDGES:
            return "stop"
        self._nudged |= circle
        self._nudges += 1
        return "nudge"

    def _circle(self) -> set[bytes]:
        """The calls of the circle that the newest call closes; empty when there is none."""
        for period in range(1, PERIODS + 1):
            newest = self._row[-(2 * period + 1) :]
            if len(newest) == 2 * period + 1 and newest[: period + 1] == newest[period:]:
                return set(newest)
        return set()
