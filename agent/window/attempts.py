"""When to ask for a summary again after some that could not be used, read from the files and not from this process.

A request with purpose `summary` (requests.jsonl) was wasted when the conversation went on without it: a compaction by
another means followed, or the next turn.  `requests` in a line of compactions.jsonl is how many requests there were, so
both files are put in one order by number.  What says nothing about the text (server away, a quota, a stop) is no waste.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from agent.context.survey import CUTTING
from agent.errors import AccessRefused, ModelStalled, ModelUnreachable, QuotaExhausted, RateLimited

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agent.context import MessageStore
    from agent.values import Json

AWAY = (ModelUnreachable, ModelStalled, RateLimited, QuotaExhausted, AccessRefused)
"""Errors that say nothing about the text that was to be summarised."""

PAUSES = (0, 1, 4, 8, 16)
"""Compactions by other means before the next summary is asked for, by how many were wasted in a row."""

_JUDGED = frozenset(("ok", "cut", "unreadable", "refused"))
_AWAY_CODES = tuple(kind.code for kind in AWAY)


@dataclass
class Attempts:
    """`wasted`: summaries in a row that were asked for and not used; `since`: compactions by other means after it."""

    wasted: int = 0
    since: int = 0

    @classmethod
    def of(cls, store: MessageStore) -> Attempts:
        """From requests.jsonl and compactions.jsonl of the task, no further back than the longest pause asks for."""
        found, pending = cls(), False
        for event in reversed(list(_events(store))):
            if event == "asked":
                pending = True
            elif event == "summary":
                found, pending = cls(), False
            else:
                if pending:
                    found.waste()
                    pending = False
                if event == "other":
                    found.since += 1
        return found

    def due(self) -> bool:
        """Whether a summary may be asked for."""
        return self.since >= PAUSES[min(self.wasted, len(PAUSES) - 1)]

    def waste(self) -> None:
        """One was asked for and not used."""
        self.wasted += 1
        self.since = 0

    def compacted(self, strategy: str) -> None:
        """A compaction was committed."""
        if strategy == "summary":
            self.wasted = self.since = 0
        elif strategy in CUTTING:
            self.since += 1


def _events(store: MessageStore) -> Iterator[str]:
    """Newest first: "asked" for a summary, "turn", and of compactions "summary" or "other"."""
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
