"""Shows the plan of a request as a table: each layer with its position, its size, its state, and the reason for the
state.

The table is for people (the command `request`); the planner does not use it.  The module reads the view, and
messages.jsonl for the messages that a compaction left out or masked; nothing may change the two files meanwhile.
The tokens are counted as the planner counts them, so the rows with the state "kept" add up to its estimate.
"""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

import orjson

from agent.context.carry_over_text import LEFT_OUT, has_references
from agent.context.message_records import is_legible, is_seen
from agent.context.projection import shorter_pointer
from agent.message_reader import lines
from agent.tokens import count_message
from agent.window.context_layers import MemoryLayer
from agent.window.counted_view import fields_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from agent.context import MessageStore
    from agent.values import Json, Span
    from agent.window.assembler import ContextAssembler

    Scaled = Callable[[int], int]

MEMORY_PLACES = {
    (True, False): "the head of the briefing",
    (True, True): "the head of the briefing, and behind it",
    (False, True): "behind the briefing",
    (False, False): "",
}
"""(whether the briefing has memories, whether later messages have memories) → where the memories are, as text."""

NOT_SENT = "not sent"
"""The name of the layer for lines of the view that the options of the plan exclude."""
LEFT_OUT_STATE = "left out"

PARTS = {
    "comments": "comments of people",
    "plan": "lines of the plan",
    "question": "the open question",
    "changed": "lines of files changed",
    "read": "lines of files read",
    "failures": "commands and errors",
    "notes": "sentences of the model",
    "files": "present content of files",
}
MEANS = {"summary": "a summary", "window": "the sliding window", "reset": "the reset"}


@dataclass(frozen=True, slots=True)
class OutlineRow:
    """One row of the table that shows a planned request.

    `span` says as text where the layer is, mostly as a range of bytes or messages of a file; `messages` is the number
    of its messages; `state` is "kept", "cut", "masked", "left out" or "none".
    """

    layer: str
    span: str
    messages: int
    tokens: int
    state: str
    why: str

    def to_dict(self) -> Json:
        """The fields of the row by name, for JSON."""
        return asdict(self)


def outline(
    assembler: ContextAssembler, store: MessageStore, spans: Sequence[Span] | None = None, *, summary: bool = True
) -> list[OutlineRow]:
    """The rows of the table of a planned request, in the order of the layers.

    `spans`: the lines of the view that the plan sends, None for all lines.  `summary`: whether the options of the plan
    include the summary.
    """
    sent = _sent(assembler, store, spans)
    recalled, later = assembler.recalled(), assembler.recalled_later()
    scaled = assembler.scaled
    tools = scaled(assembler.fixed_tokens())
    return [
        OutlineRow("tools", "the head of the request", 0, tools, "kept", "the same bytes in every request"),
        sent.row(MemoryLayer.SYSTEM, scaled, "never cut"),
        _memories(recalled, later, scaled),
        sent.row(MemoryLayer.USER_MESSAGE, scaled, "the briefing: never cut", less=recalled[1]),
        *_compacted(sent, store, scaled, summary=summary),
        sent.row(MemoryLayer.WORKING, scaled, "all that came since", less=later[1]),
    ]


def _memories(
    recalled: tuple[int, int, tuple[str, ...]], recalled_later: tuple[int, int], scaled: Scaled
) -> OutlineRow:
    """The row of the memories that were recalled from long-term memory, at the briefing and later."""
    memories, tokens, missing = recalled
    later, later_tokens = recalled_later
    place = MEMORY_PLACES[bool(memories), bool(later)]
    count = memories + later
    if missing:
        why = f"{', '.join(missing)} could not be had"
    else:
        why = "never cut in the briefing" if count else "nothing was recalled for this task"
    state = "kept" if count else "none"
    return OutlineRow(MemoryLayer.SEMANTIC, place, count, scaled(tokens + later_tokens), state, why)


def _compacted(sent: _Found, store: MessageStore, scaled: Scaled, *, summary: bool) -> Iterator[OutlineRow]:
    """Yields the rows of what a compaction left out, shortened or carried over, and of what the options of the plan
    exclude."""
    cut = store.index.cut
    left, masked = _kept_back(store)
    if left.messages:
        by = MEANS.get(cut.strategy, cut.strategy)
        yield left.row("left out", scaled, "cut", f"by {by}, to make room; still in messages.jsonl")
    if cut.summary_id is not None:
        why = f"summary {cut.summary_id} stands for messages up to {cut.end_seq}"
        if summary:
            yield sent.row(MemoryLayer.SESSION_SUMMARY, scaled, why)
        else:
            why = f"left out by --no-summary; {why}"
            yield OutlineRow(MemoryLayer.SESSION_SUMMARY, "", 0, 0, LEFT_OUT_STATE, why)
    if sent.has("carried"):
        yield sent.row("carried", scaled, f"said again: {_said_again(cut.carried)}")
    if masked.messages:
        yield masked.row("old tool results", scaled, "masked", f"up to message {cut.mask_end}; pointers stand for them")
    if sent.has(NOT_SENT):
        row = sent.row(NOT_SENT, scaled, "by the options of the plan; the view has them")
        yield replace(row, state=LEFT_OUT_STATE)


def _said_again(carried: object) -> str:
    """The names of the parts of the carry-over, with the number of items in each."""
    if not has_references(carried) or not isinstance(carried, dict):
        return "plan, files, open question and a person's newest words"
    parts = [
        f"{len(value)} {name}" if isinstance(value, list) else name
        for key, name in PARTS.items()
        if (value := carried.get(key))
    ]
    return ", ".join(parts) or "nothing"


class _Found:
    """The range of bytes, the number of messages and the number of tokens of each layer in the view."""

    def __init__(self) -> None:
        self.spans: dict[str, tuple[int, int]] = {}
        self.counts: dict[str, int] = {}
        self.tokens: dict[str, int] = {}

    def add(self, layer: str, start: int, end: int, tokens: int) -> None:
        first, _ = self.spans.get(layer, (start, end))
        self.spans[layer] = (first, end)
        self.counts[layer] = self.counts.get(layer, 0) + 1
        self.tokens[layer] = self.tokens.get(layer, 0) + tokens

    def has(self, layer: str) -> bool:
        return layer in self.spans

    def row(self, layer: str, scaled: Scaled, why: str, less: int = 0) -> OutlineRow:
        """Make the row for one layer in the outline of a request. `less` is the number of tokens of the layer that are
        counted in another row already."""
        if layer not in self.spans:
            return OutlineRow(layer, "", 0, 0, "none", "there is none")
        start, end = self.spans[layer]
        tokens = scaled(self.tokens[layer] - less)
        return OutlineRow(layer, f"current.jsonl bytes {start:,} to {end:,}", self.counts[layer], tokens, "kept", why)


@dataclass(slots=True)
class _Kept:
    """The range, the number and the tokens of messages in messages.jsonl that the view leaves out or shortens."""

    first: int = 0
    last: int = 0
    messages: int = 0
    tokens: int = 0

    def add(self, seq: int, tokens: int) -> None:
        self.first = self.first or seq
        self.last = seq
        self.messages += 1
        self.tokens += tokens

    def row(self, layer: str, scaled: Scaled, state: str, why: str) -> OutlineRow:
        span = f"messages.jsonl seq {self.first:,} to {self.last:,}"
        return OutlineRow(layer, span, self.messages, scaled(self.tokens), state, why)


def _sent(assembler: ContextAssembler, store: MessageStore, spans: Sequence[Span] | None) -> _Found:
    # `whole` has the layers of all lines of the view; in `found` a line that is not sent has the layer NOT_SENT.
    found, whole = _Found(), _Found()
    cut = store.index.cut
    view = assembler.view
    descriptor = os.open(view.path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        start = 0
        for number, (end, line) in enumerate(lines(descriptor, 0, os.fstat(descriptor).st_size)):
            message = orjson.loads(line)
            layer = _layer(
                whole, message, number, summarised=cut.summary_id is not None, speaks=store.index.follows == "user"
            )
            whole.add(layer, start, end, 0)
            if spans is not None and not any(span.start <= start and end <= (span.end or end) for span in spans):
                layer = NOT_SENT
            own = fields_of(assembler.plain, message) if message.get("role") == "assistant" else {}
            found.add(layer, start, end, count_message(assembler.plain, message) - assembler.uncounted(own))
            start = end
    finally:
        os.close(descriptor)
    return found


def _layer(found: _Found, message: Json, number: int, *, summarised: bool, speaks: bool) -> str:
    role = message.get("role")
    if role == "system":
        return MemoryLayer.SYSTEM
    if role == "user" and not found.has(MemoryLayer.USER_MESSAGE) and number < 2:
        return MemoryLayer.USER_MESSAGE
    if found.has(MemoryLayer.WORKING):
        return MemoryLayer.WORKING
    if role == "assistant" and summarised and not found.has(MemoryLayer.SESSION_SUMMARY):
        return MemoryLayer.SESSION_SUMMARY
    if role == "assistant" and message.get("content") == LEFT_OUT:
        return "carried"
    behind = found.has(MemoryLayer.SESSION_SUMMARY) or found.has("carried")
    if role == "user" and behind and not speaks and found.counts.get("carried", 0) < 2:
        return "carried"
    return MemoryLayer.WORKING


def _kept_back(store: MessageStore) -> tuple[_Kept, _Kept]:
    """Returns (the messages that were left out, the tool results that were masked, with the number of tokens that
    masking saves)."""
    left, masked = _Kept(), _Kept()
    cut = store.index.cut
    for record in _records(store):
        seq, tokens = record["seq"], int(record.get("tokens") or 0)
        if seq <= cut.end_seq:
            left.add(seq, tokens)
        elif seq > cut.mask_end:
            break
        elif record["role"] == "tool" and (pointer := shorter_pointer(record)) is not None:
            masked.add(seq, max(0, tokens - store.plain.count(pointer)))
    return left, masked


def _records(store: MessageStore) -> Iterable[Json]:
    return (record for record in store.records() if is_legible(record) and is_seen(record))
