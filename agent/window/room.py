"""How far a compaction goes: the levels it aims at, and how many of the newest groups fit below them.

A level is a share of the way from an empty conversation (tools, system prompt, briefing) to the mark.  Every means aims
at the same one, so a failed summary takes no more away than a good one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from agent.window.groups import Group, groups_of, kept_by_messages, kept_by_tokens

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from agent.context import MessageStore
    from agent.window.assembler import ContextAssembler
    from agent.window.limits import Limits

PROGRESS = 0.10
"""Share of the view that a compaction must free."""

LOW_WATER = 0.8
"""Of the way to the mark: a mask that stays above it is followed by the next means, else it would soon come again.  The
messages that are always to be kept may reach up to it."""

WINDOW_WATER = 0.6
"""Of the way to the mark: the level that a compaction aims at.  Each one makes the provider's prompt cache useless, so
few large ones are better than many small ones."""

LESS_WATER = 0.3
"""The level that is tried where too little is freed otherwise."""


@dataclass(frozen=True, slots=True)
class Need:
    """One compaction's point of departure.

    `used` is the tokens in use (as reported, where that is known), `estimate` the same by the counter; `scale` makes
    one of the other.  `must`: the request does not fit, so something has to be done whatever it costs.
    """

    groups: list[Group]
    used: int
    estimate: int
    view: int
    must: bool

    @property
    def scale(self) -> float:
        """Reported over estimated."""
        return min(3.0, max(0.5, self.used / self.estimate)) if self.estimate else 1.0


class Room:
    """The levels of one task.  `floor` is the number of messages that are kept where they fit."""

    def __init__(self, store: MessageStore, assembler: ContextAssembler, floor: int) -> None:
        self.store = store
        self.assembler = assembler
        self.floor = floor

    @property
    def limits(self) -> Limits:
        """Those of the conversation."""
        return self.assembler.limits

    def need(self, *, force: bool) -> Need:
        """As it is now."""
        store = self.store
        cut = store.survey.cut
        used = self.assembler.tokens_in_use()
        return Need(
            groups=groups_of(store.records(cut.end_seq + 1), cut, self.assembler.plain.count, store.origin),
            used=used,
            estimate=self.assembler.estimate(),
            view=store.get_current_token_count(),
            must=force or used > self.limits.input_limit,
        )

    def head(self) -> int:
        """Tokens that no compaction takes away: tools, system prompt, briefing."""
        seen = self.assembler.view.read()
        return self.assembler.fixed() + seen.head + seen.briefing

    def level(self, need: Need, share: float) -> int:
        """`share` of the way from an empty conversation to the mark, in tokens of the counter."""
        head = self.head()
        return head + int((self.limits.compress_at / need.scale - head) * share)

    def room(self, need: Need, share: float) -> int:
        """Tokens (of the counter) between the head and a level."""
        return self.level(need, share) - self.head()

    def kept(self, need: Need, strategy: str, brings: Callable[[int], Mapping[str, Any]]) -> Iterator[int]:
        """How many of the newest groups a compaction keeps: most first, then fewer where that frees too little.  Fewer
        than `floor` messages, where those fit, only when something has to be done.

        `brings(end_seq)` is what it brings (`carried`, `summary`, `keep_summary`); its tokens are taken from the room.
        """
        groups = need.groups
        least = kept_by_tokens(groups, 0)
        if least >= len(groups):
            return
        brought = self._brought(need, least, strategy, brings)
        newest = kept_by_tokens(groups, self.room(need, WINDOW_WATER) - brought)
        floor = kept_by_messages(groups, self.floor, self.room(need, LOW_WATER) - brought)
        fewer = kept_by_tokens(groups, self.room(need, LESS_WATER) - brought)
        numbers = {max(newest, floor), max(fewer, floor), floor} | ({newest, fewer, least} if need.must else set())
        for number in sorted(numbers, reverse=True):
            if number < len(groups):
                yield number

    def _brought(self, need: Need, least: int, strategy: str, brings: Callable[[int], Mapping[str, Any]]) -> int:
        """Tokens of what stands between the head and the kept groups, at the most when all but the newest go."""
        end = need.groups[-least - 1].end if least else need.groups[-1].end
        seen = self.assembler.view.read()
        after = self.store.forecast(strategy=strategy, end_seq=end, **brings(end))
        kept = sum(group.tokens for group in need.groups[len(need.groups) - least :])
        return max(0, after - seen.head - seen.briefing - kept)

    def frees(self, need: Need, strategy: str, end_seq: int, *, least: float = PROGRESS, **more: Any) -> bool:
        """Whether the view would be a tenth smaller.  With `least` 0: whether the request would fit that does not."""
        freed = self.freed(need, strategy, end_seq, **more)
        if least:
            return freed >= least * need.view
        return freed > 0 and need.used > self.limits.input_limit >= (need.estimate - freed) * need.scale

    def freed(self, need: Need, strategy: str, end_seq: int, **more: Any) -> int:
        """Tokens by which the view would be smaller."""
        return need.view - self.store.forecast(strategy=strategy, end_seq=end_seq, **more)

    def fits(self, need: Need, freed: int) -> bool:
        """Whether the request fits once so many tokens are freed."""
        return (need.estimate - freed) * need.scale <= self.limits.input_limit
