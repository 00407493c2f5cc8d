"""A plan as a table: which layer, from where to where, how large, and whether it is kept or cut and why.

For a person who looks (`request`); nothing is decided here.  Two passes over files that lie still: the view for what is
sent, messages.jsonl for what is not.  Tokens are those of the planner, so the kept rows add up to its estimate.
"""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

import orjson

from agent.context.carried import LEFT_OUT, has_references
from agent.context.projection import shorter
from agent.context.records import is_legible, is_seen
from agent.tokens import count_message
from agent.window.layers import MemoryLayer
from agent.window.view import fields_of, lines

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from agent.context import MessageStore
    from agent.values import Json, Span
    from agent.window.assembler import ContextAssembler

    Scaled = Callable[[int], int]

NOT_SENT = "not sent"
"""Lines of the view that the options of a plan leave out."""

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
class Part:
    """One row.  `span` says which lines of which file, `messages` how many; `state` is kept, cut, masked, left out or
    none."""

    layer: str
    span: str
    messages: int
    tokens: int
    state: str
    why: str

    def to_dict(self) -> Json:
        """For JSON."""
        return asdict(self)


def outline(assembler: ContextAssembler, store: MessageStore, spans: Sequence[Span] | None = None) -> list[Part]:
    """The rows, in the order in which the layers stand.  `spans`: the lines of the view that a plan sends, None for
    all."""
    cut = store.survey.cut
    sent = _sent(assembler, store, spans)
    memories, memory_tokens, missing = assembler.recalled()
    left, masked = _kept_back(store)
    scaled = assembler.scaled
    rows = [
        Part(
            "tools", "the head of the request", 0, scaled(assembler.fixed()), "kept", "the same bytes in every request"
        ),
        sent.row(MemoryLayer.SYSTEM, scaled, "never cut"),
        Part(
            MemoryLayer.SEMANTIC,
            "the head of the briefing" if memories else "",
            memories,
            scaled(memory_tokens),
            "kept" if memories else "none",
            f"{', '.join(missing)} could not be had"
            if missing
            else "never cut"
            if memories
            else "nothing was recalled for this task",
        ),
        sent.row(MemoryLayer.USER_MESSAGE, scaled, "the briefing: never cut", less=memory_tokens),
    ]
    if left.messages:
        by = MEANS.get(cut.strategy, cut.strategy)
        rows.append(left.row("left out", scaled, "cut", f"by {by}, to make room; still in messages.jsonl"))
    if cut.summary_id is not None:
        why = f"summary {cut.summary_id} stands for messages up to {cut.end_seq}"
        rows.append(sent.row(MemoryLayer.SESSION_SUMMARY, scaled, why))
    if sent.has("carried"):
        rows.append(sent.row("carried", scaled, f"said again: {_said_again(cut.carried)}"))
    if masked.messages:
        rows.append(
            masked.row("old tool results", scaled, "masked", f"up to message {cut.mask_end}; pointers stand for them")
        )
    if sent.has(NOT_SENT):
        rows.append(
            replace(sent.row(NOT_SENT, scaled, "by the options of the plan; the view has them"), state="left out")
        )
    rows.append(sent.row(MemoryLayer.WORKING, scaled, "all that came since"))
    return rows


def _said_again(carried: object) -> str:
    """The parts of what is carried, with how many items each has."""
    if not has_references(carried) or not isinstance(carried, dict):
        return "plan, files, open question and a person's newest words"
    parts = [
        f"{len(value)} {name}" if isinstance(value, list) else name
        for key, name in PARTS.items()
        if (value := carried.get(key))
    ]
    return ", ".join(parts) or "nothing"


class _Found:
    """Bytes, messages and tokens by layer of the view."""

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

    def row(self, layer: str, scaled: Scaled, why: str, less: int = 0) -> Part:
        """`less`: tokens that another row has."""
        if layer not in self.spans:
            return Part(layer, "", 0, 0, "none", "there is none")
        start, end = self.spans[layer]
        tokens = scaled(self.tokens[layer] - less)
        return Part(layer, f"current.jsonl bytes {start:,} to {end:,}", self.counts[layer], tokens, "kept", why)


@dataclass(slots=True)
class _Kept:
    """Messages of the record that are not sent, or not whole."""

    first: int = 0
    last: int = 0
    messages: int = 0
    tokens: int = 0

    def add(self, seq: int, tokens: int) -> None:
        self.first = self.first or seq
        self.last = seq
        self.messages += 1
        self.tokens += tokens

    def row(self, layer: str, scaled: Scaled, state: str, why: str) -> Part:
        span = f"messages.jsonl seq {self.first:,} to {self.last:,}"
        return Part(layer, span, self.messages, scaled(self.tokens), state, why)


def _sent(assembler: ContextAssembler, store: MessageStore, spans: Sequence[Span] | None) -> _Found:
    found = _Found()
    cut = store.survey.cut
    view = assembler.view
    descriptor = os.open(view.path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        start = 0
        for number, (end, line) in enumerate(lines(descriptor, 0, os.fstat(descriptor).st_size)):
            message = orjson.loads(line)
            layer = _layer(
                found, message, number, summarised=cut.summary_id is not None, speaks=store.survey.follows == "user"
            )
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
    """What is left out, and which tool results are pointers (with the tokens that those save)."""
    left, masked = _Kept(), _Kept()
    cut = store.survey.cut
    for record in _records(store):
        seq, tokens = record["seq"], int(record.get("tokens") or 0)
        if seq <= cut.end_seq:
            left.add(seq, tokens)
        elif seq > cut.mask_end:
            break
        elif record["role"] == "tool" and (pointer := shorter(record)) is not None:
            masked.add(seq, max(0, tokens - store.plain.count(pointer)))
    return left, masked


def _records(store: MessageStore) -> Iterable[Json]:
    return (record for record in store.records() if is_legible(record) and is_seen(record))
