"""Shortens the newest turn: the means for a request that no compaction of older messages can make fit.

Tool results of the newest answer, and messages that came behind it, become head, statement and tail; the whole stays
where `read_output` finds it.  One size holds for all of them (water-filling), so that small ones stay whole.  What is
done is one line of compactions.jsonl (`context.MessageStore.trim`).  Called by `window.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.context.records import is_legible, is_seen
from agent.context.trims import LEAST, ROLES, trimmed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from agent.context import MessageStore
    from agent.values import Json
    from agent.window.assembler import ContextAssembler

SMALLEST = min(LEAST.values())


class Trimming:
    """The trims of one task."""

    def __init__(self, store: MessageStore, assembler: ContextAssembler) -> None:
        self.store = store
        self.assembler = assembler

    def newest(self) -> list[Json]:
        """The messages of the newest turn that can be shortened: those behind the newest answer, oldest first."""
        found: list[Json] = []
        for record in self.store.backwards():
            if not is_legible(record) or not is_seen(record):
                continue
            if record["seq"] <= self.store.survey.cut.end_seq or record["role"] not in ROLES:
                break
            found.append(record)
        return found[::-1]

    def tokens(self, records: Sequence[Json], largest: int | None = None) -> int:
        """Tokens (of the model, without what surrounds a message) of the texts when none has more than `largest` bytes;
        None: as they are shown now."""
        count, cut = self.store.plain.count, self.store.survey.cut
        total = 0
        for record in records:
            known = cut.largest_of(record["seq"])
            size = known if largest is None else min(largest, known or largest)
            text = trimmed(record, size)
            total += count(record["content"] if text is None else text)
        return self.assembler.scaled(total)

    def free(self, tokens: int) -> bool:
        """Make the newest turn smaller by about `tokens`, or as small as it can be; whether the view became smaller."""
        records = self.newest()
        return bool(records) and self.to(max(0, self.tokens(records) - tokens), records)

    def to(self, room: int, records: Sequence[Json] | None = None) -> bool:
        """Make the texts of the newest turn fit in `room` tokens, or as small as they can be; whether the view became
        smaller."""
        records = self.newest() if records is None else records
        if not records:
            return False
        largest = level(records, room, lambda size: self.tokens(records, size))
        if largest is None:
            return False
        before = self.store.get_current_token_count()
        start, end = records[0]["seq"], records[-1]["seq"]
        if self.store.forecast_trim(start, end, largest) >= before:
            return False
        self.store.trim(start_seq=start, end_seq=end, largest=largest)
        self.assembler.emit(
            "compaction",
            strategy="trim",
            start_seq=start,
            end_seq=end,
            tokens_before=self.assembler.scaled(before),
            tokens_after=self.assembler.scaled(self.store.get_current_token_count()),
        )
        return True


def level(records: Sequence[Json], room: int, cost: Callable[[int], int]) -> int | None:
    """The largest size in bytes with which the `cost` of all is at most `room`; SMALLEST where none is; None where all
    fit as they are."""
    high = max(len(record["content"].encode("utf-8", "backslashreplace")) for record in records)
    if cost(high) <= room:
        return None
    low = SMALLEST
    while high - low > SMALLEST // 8:
        middle = (low + high) // 2
        if cost(middle) <= room:
            low = middle
        else:
            high = middle
    return low
