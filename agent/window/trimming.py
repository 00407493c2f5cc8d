"""Shortens the newest turn if no compaction of older messages can make the request fit.

Long results of the newest answer's calls, and long messages after that answer, are replaced by their beginning, a
notice and their end; the tool `read_output` can still read the whole text. All texts of the newest turn are shortened
to the same maximum size, so that small texts stay whole (water-filling). A trim is one line of compactions.jsonl
(`context.MessageStore.trim`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.context.message_records import is_legible, is_seen
from agent.context.shortened_message import LEAST, ROLES, shorten

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from agent.context import MessageStore
    from agent.values import Json
    from agent.window.assembler import ContextAssembler

SMALLEST = min(LEAST.values())


class Trimming:
    """Shortens the newest turn of one task's conversation."""

    def __init__(self, store: MessageStore, assembler: ContextAssembler) -> None:
        self.store = store
        self.assembler = assembler

    def newest(self) -> list[Json]:
        """The messages of the newest turn that can be shortened: those after the newest answer and after the newest
        cut, oldest first."""
        found: list[Json] = []
        for record in self.store.backwards():
            if not is_legible(record) or not is_seen(record):
                continue
            if record["seq"] <= self.store.index.cut.end_seq or record["role"] not in ROLES:
                break
            found.append(record)
        return found[::-1]

    def tokens(self, records: Sequence[Json], largest: int | None = None) -> int:
        """The tokens of the texts of `records`, each cut to at most `largest` bytes, by the learnt ratio and without
        the overhead of a message.

        If `largest` is None, each text counts with its present size in the view.
        """
        count, cut = self.store.plain.count, self.store.index.cut
        total = 0
        for record in records:
            known = cut.largest_of(record["seq"])
            size = known if largest is None else min(largest, known or largest)
            text = shorten(record, size)
            total += count(record["content"] if text is None else text)
        return self.assembler.scaled(total)

    def free_tokens(self, tokens: int) -> bool:
        """Free about `tokens` tokens in the newest turn, or as many as possible; returns whether the view became
        smaller."""
        records = self.newest()
        return bool(records) and self.fit(max(0, self.tokens(records) - tokens), records)

    def fit(self, room: int, records: Sequence[Json] | None = None) -> bool:
        """Shorten the texts of the newest turn to `room` tokens in sum, or as far as possible; returns whether the view
        became smaller."""
        records = self.newest() if records is None else records
        if not records:
            return False
        largest = common_size(records, room, lambda size: self.tokens(records, size))
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


def common_size(records: Sequence[Json], room: int, cost: Callable[[int], int]) -> int | None:
    """About the largest size in bytes for which `cost`, the sum of tokens of the texts cut to that size, is at most
    `room`.

    Returns SMALLEST if no size is small enough, and None if all texts fit unchanged.
    """
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
