"""What servers have reported of the prompts of one conversation, and what that says about the next request.

A server reports the prompt that it has read and the tokens that the model has written.  The next request has the same
prompt and what was stored of the answer: thinking is written and not sent again (docs/wire.md, "Usage").  `Survey`
feeds this account with its records; only reports behind the newest cut are in it.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log
from typing import TYPE_CHECKING

from agent.context.provider_fields import NAME, tokens_of
from agent.tokens.counters import PER_CALL, PER_MESSAGE

if TYPE_CHECKING:
    from agent.context.provider_fields import Origin
    from agent.values import Json

FURTHEST = 8
"""How many times an estimate of ordinary text can be off, both ways: a count further off is of something else."""

SLACK = 64
"""Tokens; less is not looked at: templates write a few tokens of their own."""

LEAST_FIELDS = 200
"""Tokens of provider fields; of fewer no report tells whether the server counts them."""


@dataclass(frozen=True, slots=True)
class Cost:
    """Estimated tokens of one message of the view: `text` is text, calls and overhead, `fields` its provider fields."""

    text: int = 0
    fields: int = 0

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.text + other.text, self.fields + other.fields)

    @property
    def tokens(self) -> int:
        """Both."""
        return self.text + self.fields

    @classmethod
    def of(cls, record: Json, origin: Origin | None) -> Cost:
        """Of a record in the view of `origin`."""
        calls = len(record.get("tool_calls") or ())
        whole, text = tokens_of(record, origin), tokens_of(record, None)
        return cls(text + PER_MESSAGE + PER_CALL * calls, whole - text)


NOTHING = Cost()


@dataclass(slots=True)
class Reports:
    """The account.  All in tokens: `read`, `stored`, `kept` by the server's count, a `Cost` by the counter's.

    `read` is the prompt of the newest report that still holds, 0 for none; `stored` what its answer adds to the next
    prompt, 0 where the server does not say; `since` what came after that and is not in `stored`.  `added` is all that
    came after the prompt, the answer included.  `thought` is the provider fields of the view up to that prompt.

    `kept` is what the server counts for messages that the newest compaction left whole, the difference of two prompts;
    `kept_cost` the estimate of the same.

    `is_partial`: a later prompt of the same view was reported as hardly longer, or shorter, so the server reports only
    what it had not cached.  `skips_fields`: its prompts do not grow by the provider fields that are sent back.
    """

    read: int = 0
    stored: int = 0
    since: Cost = NOTHING
    added: Cost = NOTHING
    thought: int = 0
    kept: int = 0
    kept_cost: Cost = NOTHING
    is_partial: bool = False
    skips_fields: bool = False
    _view: int = 0  # which view the report before was of, 0 for none
    _prompt: int = 0
    _growth: Cost = NOTHING  # since that report
    _fields: int = 0  # in the view up to that report
    _kept_from: int = 0
    _kept_so_far: Cost = NOTHING

    def answer(self, record: Json, cost: Cost, *, view: int, is_kept: bool, holds: bool) -> None:
        """Take in the report of an answer, before the answer itself (`see`).

        `view` tells apart the views between compactions; `is_kept`: the prompt is of the view that the newest
        compaction has changed; `holds`: of the view as it is now.
        """
        usage = record["usage"]
        prompt = int(usage.get("prompt_tokens") or 0)
        if self._view == view and self._prompt:
            self._compare(prompt)
        self._view, self._prompt = view, prompt
        self._fields += self._growth.fields
        self._growth = NOTHING
        if is_kept:
            # Between two compactions the view only grows: the difference of two prompts is what stands between them.
            self._kept_from = self._kept_from or prompt
            self.kept = prompt - self._kept_from
            self.kept_cost = self._kept_so_far
        if holds:
            self.read, self.thought = prompt, self._fields
            self.stored = stored(record, cost)
            self.since = Cost(-cost.text, 0) if self.stored else NOTHING
            self.added = NOTHING

    def see(self, cost: Cost) -> None:
        """Take in a message of the view."""
        self.since += cost
        self.added += cost
        self._growth += cost
        if self._kept_from:
            self._kept_so_far += cost

    def unseen(self) -> None:
        """The answer that was reported is not in the view: it has neither text nor calls."""
        self.stored, self.since = 0, NOTHING

    def lacks_growth(self, prompt: int) -> bool:
        """Whether a later prompt of the view is reported as hardly longer, or shorter, though there is more in it.
        Thinking of earlier turns may go from a prompt by itself, when a person's words end the turn."""
        growth, text = prompt - self._prompt + self._fields, self._growth.text
        return text > 0 and (growth <= 0 or (text >= SLACK and growth < text // FURTHEST))

    def _compare(self, prompt: int) -> None:
        """Learn from two prompts of one view."""
        growth, text, fields = prompt - self._prompt, self._growth.text, self._growth.fields
        self.is_partial |= self.lacks_growth(prompt)
        if fields >= LEAST_FIELDS and 4 * fields >= text and growth > 0:
            self.skips_fields = abs(log(growth / max(1, text))) < abs(log(growth / (text + fields)))


def stored(record: Json, cost: Cost) -> int:
    """Tokens that an answer adds to the next prompt by the server's own count: what it has written, less the thinking.

    0 where the server does not report the thinking apart, or reports none while some came, or where the rest cannot be
    of this text: gateways fill in 0 (docs/wire.md, "Usage").  Provider fields are not in it.
    """
    usage = record["usage"]
    thought = usage.get("reasoning_tokens")
    if thought is None or (not thought and record.get(NAME)):
        return 0
    rest = int(usage.get("completion_tokens") or 0) - int(thought)
    return rest if cost.text // FURTHEST <= rest <= FURTHEST * cost.text + SLACK else 0
