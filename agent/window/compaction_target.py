"""Computes the numbers of tokens ("levels") to which compactions reduce the view, and how many of the newest groups fit
below a level.

A level is given as a share of the distance between the tokens of an empty conversation (tools, system prompt, briefing)
and the threshold at which a compaction starts. When the oldest groups are left out, the level is the same as for a
summary, so the fallback after a failed summary removes no more than a good summary would.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from agent.window.message_groups import Group, groups_of, kept_by_messages, kept_by_tokens

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from agent.context import MessageStore
    from agent.window.assembler import ContextAssembler
    from agent.window.limits import WindowLimits

PROGRESS = 0.10
"""The share of the view that a compaction must free at least, unless a compaction is necessary because the request does
not fit."""

LOW_WATER = 0.8
"""The level below which a compaction should bring the view, as a share of the way from the fixed parts of a request
(tools, system prompt, briefing) to the threshold.

If a mask leaves the view above LOW_WATER, the next means of compaction is used as well, since the next compaction would
be due soon. The newest messages that must stay may fill the view up to LOW_WATER.
"""

WINDOW_WATER = 0.6
"""The level at which a compaction aims; like LOW_WATER, it is a share of the way from the fixed parts of a request to
the threshold.

Each compaction invalidates the provider's prompt cache, so few large compactions are better than many small ones.
"""

LESS_WATER = 0.3
"""The level at which a compaction aims if it would free too little with WINDOW_WATER; like LOW_WATER, it is a share of
the way from the fixed parts of a request to the threshold."""


@dataclass(frozen=True, slots=True)
class CompactionNeed:
    """The state of the conversation before a compaction.

    `used` is the number of tokens in use (as the server reported it, if known), `estimate` the same number by the
    counter; `scale` converts an estimate into reported tokens. `must`: a compaction is necessary, because the request
    does not fit or the caller demands it. `view` is the number of tokens of the view.
    """

    groups: list[Group]
    used: int
    estimate: int
    view: int
    must: bool

    @property
    def scale(self) -> float:
        """Reported tokens divided by estimated tokens, limited to the range from 0.5 to 3."""
        return min(3.0, max(0.5, self.used / self.estimate)) if self.estimate else 1.0


class CompactionTarget:
    """Computes the levels for the compactions of one task.  `floor` is the number of newest messages to retain, if they
    fit."""

    def __init__(self, store: MessageStore, assembler: ContextAssembler, floor: int) -> None:
        self.store = store
        self.assembler = assembler
        self.floor = floor

    @property
    def limits(self) -> WindowLimits:
        """The token limits of the conversation."""
        return self.assembler.limits

    def need(self, *, force: bool) -> CompactionNeed:
        """The state of the conversation now, before a compaction."""
        store = self.store
        cut = store.index.cut
        used = self.assembler.tokens_in_use()
        return CompactionNeed(
            groups=groups_of(store.records(cut.end_seq + 1), cut, self.assembler.plain.count, store.origin),
            used=used,
            estimate=self.assembler.estimate(),
            view=store.get_current_token_count(),
            must=force or used > self.limits.input_limit,
        )

    def head(self) -> int:
        """The tokens of the parts that no compaction removes: tools, system prompt, briefing."""
        seen = self.assembler.view.read()
        return self.assembler.fixed_tokens() + seen.head + seen.briefing

    def level(self, need: CompactionNeed, share: float) -> int:
        """The level at `share` of the way from the fixed parts of a request to the threshold, in tokens by the
        counter."""
        head = self.head()
        return head + int((self.limits.compress_at / need.scale - head) * share)

    def room(self, need: CompactionNeed, share: float) -> int:
        """The number of tokens by the counter between the fixed parts (tools, system prompt, briefing) and a level."""
        return self.level(need, share) - self.head()

    def candidate_groups(
        self, need: CompactionNeed, strategy: str, brings: Callable[[int], Mapping[str, Any]]
    ) -> Iterator[int]:
        """The numbers of newest groups that a compaction may leave in the view: the largest first, then smaller ones,
        to be tried if too little is freed.

        Fewer than `floor` messages are retained only if a compaction is necessary, or if `floor` messages do not fit.
        `brings(end_seq)` is the content that the compaction adds to the view (`carried`, `summary`, `keep_summary`);
        its tokens are subtracted from the budget.
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

    def _brought(
        self, need: CompactionNeed, least: int, strategy: str, brings: Callable[[int], Mapping[str, Any]]
    ) -> int:
        """The tokens of the content that the compaction adds to the view: the summary and the carry-over.

        The tokens of the summary and the carry-over are computed for the case that only the `least` newest groups stay,
        in which the carry-over is largest."""
        end = need.groups[-least - 1].end if least else need.groups[-1].end
        seen = self.assembler.view.read()
        after = self.store.forecast(strategy=strategy, end_seq=end, **brings(end))
        kept = sum(group.tokens for group in need.groups[len(need.groups) - least :])
        return max(0, after - seen.head - seen.briefing - kept)

    def frees(self, need: CompactionNeed, strategy: str, end_seq: int, *, least: float = PROGRESS, **more: Any) -> bool:
        """Whether the view would become smaller by at least the share `least`; with `least` 0, whether a request that
        does not fit now would fit."""
        freed = self.freed(need, strategy, end_seq, **more)
        if least:
            return freed >= least * need.view
        return freed > 0 and need.used > self.limits.input_limit >= (need.estimate - freed) * need.scale

    def freed(self, need: CompactionNeed, strategy: str, end_seq: int, **more: Any) -> int:
        """The number of tokens by which the view would become smaller."""
        return need.view - self.store.forecast(strategy=strategy, end_seq=end_seq, **more)

    def fits(self, need: CompactionNeed, freed: int) -> bool:
        """Whether the request fits into the window if `freed` tokens are removed from it."""
        return (need.estimate - freed) * need.scale <= self.limits.input_limit
