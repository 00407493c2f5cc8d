"""Collects the servers' reports on the prompts of one conversation, and computes from them the size of the next
request.

A server reports the tokens of the prompt and the tokens of the answer. The next request contains the same prompt and
the part of the answer that is sent again, usually without its thinking (docs/wire.md, "Usage"). `MessageIndex` passes
its records to this class; a report counts only if it came after the second newest compaction, with an answer that no
compaction has left out.
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
"""The maximum factor by which an estimate of ordinary text is wrong, in both directions; a server's number that differs
by a larger factor cannot be the size of that text."""

SLACK = 64
"""Differences of fewer than SLACK tokens are ignored, since chat templates add a few tokens."""

LEAST_FIELDS = 200
"""Minimum tokens of provider fields from which the program concludes whether the server counts them."""


@dataclass(frozen=True, slots=True)
class MessageCost:
    """Estimated tokens of one message of the view: `text` is text, calls and overhead, `fields` its provider fields."""

    text: int = 0
    fields: int = 0

    def __add__(self, other: MessageCost) -> MessageCost:
        return MessageCost(self.text + other.text, self.fields + other.fields)

    @property
    def tokens(self) -> int:
        """The tokens of the message's text and fields together."""
        return self.text + self.fields

    @classmethod
    def of_record(cls, record: Json, origin: Origin | None) -> MessageCost:
        """The estimated tokens of a record in the view of `origin`."""
        calls = len(record.get("tool_calls") or ())
        whole, text = tokens_of(record, origin), tokens_of(record, None)
        return cls(text + PER_MESSAGE + PER_CALL * calls, whole - text)


NOTHING = MessageCost()


@dataclass(slots=True)
class UsageReports:
    """The servers' reports about prompts of one conversation.

    All numbers are tokens: `read`, `stored` and `kept` by the server's count, a `MessageCost` by the program's counter.

    `read` is the prompt of the newest report about the present view, 0 if there is none; `stored` is the part of its
    answer that the next prompt contains, 0 if the server does not report it; `since` is the cost of later messages that
    are not in `stored`. `added` is the cost of all messages after the reported prompt, including its answer. `thought`
    is the tokens of the provider fields in the view up to the reported prompt.

    `kept` is the server's count for messages that the newest compaction left whole, the difference of two prompts;
    `kept_cost` is the estimate for the same messages.

    `is_partial` is True if the server seems to report only uncached tokens: it reported a later, longer prompt of the
    same view as hardly longer, or as shorter.  `skips_fields` is True if the prompts that the server reports do not
    grow by the provider fields that are sent back.
    """

    read: int = 0
    stored: int = 0
    since: MessageCost = NOTHING
    added: MessageCost = NOTHING
    thought: int = 0
    kept: int = 0
    kept_cost: MessageCost = NOTHING
    is_partial: bool = False
    skips_fields: bool = False
    _view: int = 0  # identifies the view of the previous report, 0 if there is none
    _prompt: int = 0
    _growth: MessageCost = NOTHING  # estimated tokens of the messages after the previous report
    _fields: int = 0  # tokens of the provider fields in the view up to the previous report
    _kept_from: int = 0
    _kept_so_far: MessageCost = NOTHING

    def add_answer(self, record: Json, cost: MessageCost, *, view: int, is_kept: bool, holds: bool) -> None:
        """Add the report that came with an answer, before the answer itself is added (`add_message`).

        `view` identifies the view between two compactions; `is_kept` is True if the prompt belongs to the view that the
        newest compaction changed, `holds` if it belongs to the present view.
        """
        usage = record["usage"]
        prompt = int(usage.get("prompt_tokens") or 0)
        if self._view == view and self._prompt:
            self._compare(prompt)
        self._view, self._prompt = view, prompt
        self._fields += self._growth.fields
        self._growth = NOTHING
        if is_kept:
            # Between two compactions the view only grows, so the difference of two prompts counts the text between
            # them.
            self._kept_from = self._kept_from or prompt
            self.kept = prompt - self._kept_from
            self.kept_cost = self._kept_so_far
        if holds:
            self.read, self.thought = prompt, self._fields
            self.stored = stored(record, cost)
            self.since = MessageCost(-cost.text, 0) if self.stored else NOTHING
            self.added = NOTHING

    def add_message(self, cost: MessageCost) -> None:
        """Add the estimated cost of a message that joined the view to every running sum."""
        self.since += cost
        self.added += cost
        self._growth += cost
        if self._kept_from:
            self._kept_so_far += cost

    def unseen(self) -> None:
        """Take back what `add_answer` added for the answer itself, which no later prompt contains because it has
        neither text nor calls.  The report that came with the answer stays valid, since its prompt stays the same."""
        self.stored, self.since = 0, NOTHING

    def lacks_growth(self, prompt: int) -> bool:
        """Whether the server reports a later prompt of the view as hardly longer, or as shorter, although the prompt
        has more text.

        The tokens of all provider fields are added to the growth of the prompt, since chat templates may drop the
        thinking of earlier turns when a message of a person ends the turn.
        """
        growth, text = prompt - self._prompt + self._fields, self._growth.text
        return text > 0 and (growth <= 0 or (text >= SLACK and growth < text // FURTHEST))

    def _compare(self, prompt: int) -> None:
        """Compare the reported prompt with the previous one of the same view, and set `is_partial` and
        `skips_fields`."""
        growth, text, fields = prompt - self._prompt, self._growth.text, self._growth.fields
        self.is_partial |= self.lacks_growth(prompt)
        if fields >= LEAST_FIELDS and 4 * fields >= text and growth > 0:
            self.skips_fields = abs(log(growth / max(1, text))) < abs(log(growth / (text + fields)))


def stored(record: Json, cost: MessageCost) -> int:
    """The tokens that an answer adds to the next prompt, by the server's own count: completion tokens less reasoning
    tokens.

    Returns 0 (not known) if the server does not report reasoning tokens, if it reports 0 of them for an answer with
    provider fields, or if the difference is too far from the estimate of the answer.  Some gateways report 0 where they
    have no number (docs/wire.md, "Usage").  The returned number does not include the tokens of provider fields."""
    usage = record["usage"]
    thought = usage.get("reasoning_tokens")
    if thought is None or (not thought and record.get(NAME)):
        return 0
    rest = int(usage.get("completion_tokens") or 0) - int(thought)
    return rest if cost.text // FURTHEST <= rest <= FURTHEST * cost.text + SLACK else 0
