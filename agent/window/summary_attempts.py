"""Decides when the next summary may be requested after summaries that could not be used; the decision depends only on
the task's files, so a restart does not change it.

A request with the purpose `summary` (requests.jsonl) was wasted if the conversation continued without its summary: the
next event was a compaction by another means, or a turn. `requests` in a line of compactions.jsonl is the number of
requests before that compaction; by it the lines of both files are put in one order. A failed summary request does not
count as wasted if the failure does not depend on the text (the server cannot be reached, a quota is used up, the task
is stopped).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from agent.context.index import CUTTING
from agent.errors import AccessRefused, ModelStalled, ModelUnreachable, QuotaExhausted, RateLimited

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agent.context import MessageStore
    from agent.values import Json

AWAY = (ModelUnreachable, ModelStalled, RateLimited, QuotaExhausted, AccessRefused)
"""Errors of a request that have nothing to do with the text to summarise: such a request does not count as wasted."""

PAUSES = (0, 1, 4, 8, 16)
"""The number of compactions by other means that must come before the next request for a summary, indexed by the number
of consecutive wasted summary requests."""

_JUDGED = frozenset(("ok", "cut", "unreadable", "refused"))
_AWAY_CODES = tuple(kind.code for kind in AWAY)


@dataclass
class SummaryAttempts:
    """`wasted` is the number of consecutive requests for a summary that were wasted; `since` is the number of
    compactions by other means after the last of them."""

    wasted: int = 0
    since: int = 0

    @classmethod
    def read(cls, store: MessageStore) -> SummaryAttempts:
        """Read the state of summary attempts from requests.jsonl and compactions.jsonl of the task, only as far back as
        the longest pause requires."""
        found, pending = cls(), False
        for event in reversed(list(_events(store))):
            if event == "asked":
                pending = True
            elif event == "summary":
                found, pending = cls(), False
            else:
                if pending:
                    found.record_unused()
                    pending = False
                if event == "other":
                    found.since += 1
        return found

    def is_due(self) -> bool:
        """Whether a summary may be requested from the model now."""
        return self.since >= PAUSES[min(self.wasted, len(PAUSES) - 1)]

    def record_unused(self) -> None:
        """Record that a summary was requested and not used."""
        self.wasted += 1
        self.since = 0

    def record_compaction(self, strategy: str) -> None:
        """Count a compaction by its means: "summary" resets the counters, "window" and "reset" add to `since`."""
        if strategy == "summary":
            self.wasted = self.since = 0
        elif strategy in CUTTING:
            self.since += 1


def _events(store: MessageStore) -> Iterator[str]:
    """The events of the task, newest first: "asked" for a request for a summary that may count as wasted, "turn" for a
    turn, and "summary" or "other" for a compaction that left messages out."""
    requests = store.requests.file.backwards()
    request = next(requests, None)
    for number, compaction in enumerate(one for one in store.compactions.newest() if one["strategy"] in CUTTING):
        upto = compaction.get("requests")
        if not isinstance(upto, int) or number > 2 * PAUSES[-1]:
            return
        while request is not None and request["seq"] > upto:
            yield from _event(request)
            request = next(requests, None)
        yield "summary" if compaction["strategy"] == "summary" else "other"
        if compaction["strategy"] == "summary":
            return
    while request is not None:
        yield from _event(request)
        request = next(requests, None)


def _event(request: Json) -> Iterator[str]:
    purpose, away = request.get("purpose"), str(request.get("error") or "").startswith(_AWAY_CODES)
    if purpose == "turn":
        yield "turn"
    elif purpose == "summary" and request.get("status") in _JUDGED and not away:
        yield "asked"
