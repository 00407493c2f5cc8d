"""Shortens what a reviewer said by a request to a model, where the statements do not fit (`consensus.summaries`).

Each text is shortened once in a deliberation.  A summary that cannot be had, is empty, or is no shorter is None: the
first sentences of the text then take its place.  A summary is text of a model, so it is cleaned and masked like that of
a reviewer, and it can change no vote and no objection.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from agent.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent.consensus.material import Prepared
    from agent.consensus.request import Templates
    from agent.consensus.reviewers import Reviewer

WORDS = 60
"""The most words of a summary."""
ANSWER = 200
"""The most tokens of the answer."""


@dataclass
class Summaries:
    """The summaries of one deliberation.  Thread-safe; two threads that need the same one make one request."""

    templates: Templates
    prepared: Prepared
    plain: Callable[[str], str]
    _made: dict[str, str | None] = field(default_factory=dict)
    _locks: dict[str, threading.Lock] = field(default_factory=dict)
    _guard: threading.Lock = field(default_factory=threading.Lock)

    def of(self, reviewer: Reviewer, text: str) -> str | None:
        """The summary of a text, made by the model of `reviewer`, whose thread calls this; None if there is none.

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
