"""Summarises a reviewer's reason by a request to a model, if the statements do not fit into a request
(`consensus.summaries`).

Each text is summarised at most once in a deliberation. If the request for a summary fails, or the summary is empty or
not shorter than the text, the result is None, and the caller uses the first sentences of the text instead. Since a
model writes the summary, it is cleaned and masked like a reviewer's text; it replaces only a reason, never a vote or an
objection.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from agent.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent.consensus.material import CleanedMaterial
    from agent.consensus.request import Templates
    from agent.consensus.reviewers import Reviewer

WORDS = 60
"""The maximum number of words of a summary."""
ANSWER = 200
"""The maximum number of tokens of the answer that contains the summary."""


@dataclass
class DeliberationSummaries:
    """The summaries of one deliberation.  Thread-safe: if two threads need the summary of the same text, one request is
    made."""

    templates: Templates
    prepared: CleanedMaterial
    plain: Callable[[str], str]
    _made: dict[str, str | None] = field(default_factory=dict)
    _locks: dict[str, threading.Lock] = field(default_factory=dict)
    _guard: threading.Lock = field(default_factory=threading.Lock)

    def summarise(self, reviewer: Reviewer, text: str) -> str | None:
        """The summary of a text, which the model of `reviewer` makes at the first call for this text; None if there is
        no usable summary.

        Raises Interrupted for a stop or a limit of the task.
        """
        with self._guard:
            lock = self._locks.setdefault(text, threading.Lock())
        with lock:
            if text not in self._made:
                self._made[text] = self._summary(reviewer, text)
            return self._made[text]

    def _summary(self, reviewer: Reviewer, text: str) -> str | None:
        system = self.templates.render("reviewer_summary", words=WORDS)
        try:
            answer = reviewer.ask_for_text(system, self.prepared.fenced("reviewer", text), output=ANSWER)
        except ModelError:
            return None
        short = self.plain(answer)
        return short if short and len(short) < len(text) else None
