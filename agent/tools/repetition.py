"""Detects loops of the model: the same calls with the same results, again and again.

The calls of a task form one sequence, and each call has a digest of name, arguments and result. A loop is detected when
the newest 2p + 1 calls repeat with period p (p up to 8): A A A, A B A B A and so on; A A A is one call three times with
no other call in between. Polling with changing results and many edits of one file are no loops, and neither are tests
that fail in the same way between different edits. Each of the first three loops of a task leads to a hint for the
model; a further loop that contains a call of one of them, or a fourth loop, leads to "stop", which ends the run. Only
digests of the newest calls and of the calls in loops are in memory; `restore` computes them again from tools.jsonl.
"""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING, Any, Literal

import orjson

from agent.store.storable_text import dumps

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from agent.values import ToolResult

PERIODS = 8
NUDGES = 3
# Insignificant differences between two runs of one command: measured times, addresses, names of stored outputs.  Each
# alternative of the pattern begins with one of a few characters, which is tested first, so that the search skips other
# text quickly.
_VOLATILE = re.compile(
    r"[0-9o](?:(?<=[0-9])(?<![0-9][0-9])[0-9]*+\.[0-9]++ ?(?:m?s|sec|seconds)\b|(?<=\b[0-9])[0-9]*+ ?ms\b"
    r"|(?<=0)x[0-9a-f]{6,16}\b|(?<=o)utputs/[0-9]{4,9}\.txt)"
)

Reaction = Literal["nudge", "stop"]


def digest(name: str, arguments: object, content: str) -> bytes:
    """A 16-byte digest of one tool call and its result."""
    told = dumps([name, arguments], orjson.OPT_SORT_KEYS)
    plain = _VOLATILE.sub("~", content).encode("utf-8", "backslashreplace")
    return hashlib.blake2b(told + b"\0" + plain, digest_size=16).digest()


class Repetition:
    """Detects the loops of one task."""

    def __init__(self) -> None:
        self._row: list[bytes] = []
        self._nudged: set[bytes] = set()
        self._nudges = 0

    def check(self, calls: Sequence[Mapping[str, Any]], results: Sequence[ToolResult]) -> Reaction | None:
        """Add one group (calls with their results in order); returns None, "nudge" (give the model a hint) or
        "stop"."""
        return self._add_calls(
            digest(str(call.get("name")), call.get("arguments"), result.content)
            for call, result in zip(calls, results, strict=True)
        )

    def restore(self, records: Iterable[Mapping[str, Any]]) -> None:
        """Add the calls in the records of tools.jsonl, oldest first."""
        for record in records:
            content = record.get("result") or record.get("error") or ""
            self._add_calls([digest(str(record.get("tool")), record.get("args"), str(content))])

    def _add_calls(self, digests: Iterable[bytes]) -> Reaction | None:
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
        """The calls of the loop that ends with the newest call; an empty set if there is no loop."""
        for period in range(1, PERIODS + 1):
            newest = self._row[-(2 * period + 1) :]
            if len(newest) == 2 * period + 1 and newest[: period + 1] == newest[period:]:
                return set(newest)
        return set()
