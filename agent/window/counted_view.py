"""The planner's state of the file current.jsonl, of which each new line is checked and counted only once.

`message_reader.py` reads the file, and `message_list_check.py` has the rules; this module counts the tokens of the
parts of the view.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from agent.context.shortened_message import ROLES as ROLES_TRIMMED
from agent.message_list_check import CALL, MESSAGE
from agent.message_reader import MessageReader
from agent.tokens import count_fields, count_message
from agent.values import Span
from agent.window.base import IllegalContext

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from agent.message_reader import Reading
    from agent.values import Counter, Json

LEAST_TOKENS = 72
"""The minimum tokens to which a trim shortens a message: a notice and a little text around it."""


@dataclass(frozen=True, slots=True)
class Seen:
    """Token counts of the first `messages` lines of the view, which have `offset` bytes and contain `calls` tool calls.

    `head` is the number of tokens of the leading system message, `briefing` that of the user message after it. `tail`
    is the number of tokens of the newest turn: the last assistant message with calls and their results, or the messages
    after an answer without calls. `least` is the number of tokens of the newest turn if a trim shortens everything that
    it can (`context/shortened_message.py`). `fields` and `tail_fields` are the tokens, by field name, of the provider
    fields (fields of an answer that only its own server understands) that are included in `tokens` and in `tail`.
    """

    offset: int = 0
    messages: int = 0
    calls: int = 0
    tokens: int = 0
    head: int = 0
    briefing: int = 0
    tail: int = 0
    least: int = 0
    fields: Mapping[str, int] = field(default_factory=dict)
    tail_fields: Mapping[str, int] = field(default_factory=dict)


def fields_of(counter: Counter, message: Json) -> Mapping[str, int]:
    """The tokens of the provider fields of a message and of its calls, by name, as `count_message` counts them."""
    found: Mapping[str, int] = {
        name: count_fields(counter, {name: value}) for name, value in message.items() if name not in MESSAGE
    }
    calls = message.get("tool_calls")
    for call in calls if isinstance(calls, list) else ():
        if isinstance(call, dict):
            own = {name: value for name, value in call.items() if name not in CALL}
            found = added(found, {name: count_fields(counter, {name: value}) for name, value in own.items()})
    return found


def added(sums: Mapping[str, int], more: Mapping[str, int]) -> Mapping[str, int]:
    """The sums of the values of both mappings by key; `sums` itself if `more` is empty."""
    return {name: sums.get(name, 0) + more.get(name, 0) for name in (*sums, *more)} if more else sums


class View(MessageReader):
    """The view of one task, checked and counted. `path` is the path of the file with the view, current.jsonl.

    `spread` has two counters, for the lower and the upper bound of the tokens, if the tokenizer of the model is not
    known. `sums` has the total tokens by each counter in `spread`, until `forget_spread` is called."""

    def __init__(self, path: Path, counter: Counter, spread: Sequence[Counter] = ()) -> None:
        super().__init__()
        self.path = path
        self.counter = counter
        self.spread = tuple(spread)
        self._span = (Span(path),)
        self._seen = Seen()
        self.began()

    def began(self) -> None:
        self._tokens = self._head = self._briefing = self._tail = self._least = 0
        self._answered = True  # whether the newest turn has no message yet
        self._fields: Mapping[str, int] = {}
        self._tail_fields: Mapping[str, int] = {}
        self.sums = [0] * len(self.spread)

    def read(self) -> Seen:
        """Read the new lines of the view and return the counts. A message list that breaks a rule of
        `message_list_check.py` is counted as well."""
        before = self.messages
        count = self.messages.shape.count
        messages = self.read_list(self._span)
        if messages is not before or messages.shape.count != count:
            self._seen = Seen(
                offset=self.offset,
                messages=messages.shape.count,
                calls=len(messages.shape.ids),
                tokens=self._tokens,
                head=self._head,
                briefing=self._briefing,
                tail=self._tail,
                least=self._least,
                fields=self._fields,
                tail_fields=self._tail_fields,
            )
        return self._seen

    def complete(self) -> Seen:
        """Like `read`, but raises IllegalContext if the message list breaks a rule."""
        seen = self.read()
        if problem := self.messages.unfit(self.path.name):
            raise IllegalContext(problem)
        return seen

    def get_reading(self) -> Reading:
        """The lines of the view that were read and checked, for the code that sends the view to the model."""
        return self.reading(self.path)

    def forget_spread(self) -> None:
        """Stop counting with the counters of `spread`."""
        self.spread, self.sums = (), []

    def took(self, message: Json) -> None:
        role, number = str(message.get("role")), self.messages.shape.count
        tokens = count_message(self.counter, message)
        self._tokens += tokens
        for place, counter in enumerate(self.spread):
            self.sums[place] += count_message(counter, message)
        own = fields_of(self.counter, message) if role == "assistant" else {}
        self._fields = added(self._fields, own)
        if number == 1 and role == "system":
            self._head = tokens
        elif role == "user" and (number == 1 or (number == 2 and self._head)):
            self._briefing = tokens
        elif role != "assistant" or message.get("tool_calls"):
            self._take_tail(tokens, min(tokens, LEAST_TOKENS) if role in ROLES_TRIMMED else tokens, own, role)
            return
        self._tail = self._least = 0
        self._answered, self._tail_fields = True, {}

    def _take_tail(self, tokens: int, least: int, own: Mapping[str, int], role: str) -> None:
        """Add the tokens of one more message to those of the newest turn."""
        if role == "assistant" or self._answered:
            self._tail = self._least = 0
            self._tail_fields = {}
        self._tail += tokens
        self._least += least
        self._tail_fields = added(self._tail_fields, own)
        self._answered = False
