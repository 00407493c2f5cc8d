"""Recalls long-term memories for one task, records every retrieval, and reports the layers that were unavailable."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from agent.window.recall_layers import recall_memories

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from agent.observe.events import EventSink
    from agent.values import Json, MemoryLayer
    from agent.window.recall_layers import OwnMemory, Recalled


class RecalledRecords(Protocol):
    """The interface of `context.RecalledStore` that this module needs."""

    def add(
        self,
        purpose: str,
        query: str,
        *,
        hits: Sequence[Mapping[str, Any]],
        dropped: Sequence[Mapping[str, Any]],
        missing: Mapping[str, str],
        text: str,
        tokens: int,
        compactions: int = 0,
    ) -> int:
        """Record a retrieval; returns its number."""
        ...

    def briefing(self) -> Json | None:
        """The record of the newest retrieval for the briefing, None if there is none."""
        ...

    def given(self, purpose: str | None = None, numbers: Collection[int] = ()) -> frozenset[str]:
        """The ids of all memories that the model got so far; with `purpose`, only those from retrievals for that
        purpose or with a number in `numbers`."""
        ...


class RecallAssembler(Protocol):
    """The interface of `ContextAssembler` that `long_term_recall.py` needs: counters, the fence, and the events."""

    @property
    def fence(self) -> Callable[[str], str]:
        """The function that marks a text as data."""
        ...

    @property
    def plain(self) -> Any:
        """The token counter without its learnt ratio."""
        ...

    @property
    def events(self) -> EventSink | None:
        """The object that emits events to the listeners of the task, None if there is none."""
        ...

    def count(self, text: str) -> int:
        """The number of tokens of a text, counted as the model counts."""
        ...


class LongTermRecall:
    """The long-term memory of one task.

    `layers` are plug-ins by name; at most `most` memories come from them together. `own` is the long-term memory of
    this program, None if it is off. `records` stores each retrieval of memories.
    """

    def __init__(
        self,
        layers: Mapping[str, MemoryLayer],
        most: int,
        own: OwnMemory | None = None,
        records: RecalledRecords | None = None,
    ) -> None:
        self.layers = layers
        self.most = most
        self.own = own
        self.records = records

    def for_briefing(self, query: str, room: int, assembler: RecallAssembler) -> tuple[str, Json | None]:
        """Returns (memories for the briefing inside a fence, or ""; their record, or None if there is no layer).

        The least relevant memories are left out until the others fit into `room` tokens. For an unavailable layer of
        memory an event is emitted. If a process died between the retrieval and the briefing, the result of that
        retrieval is used again.
        """
        if not self.layers and self.own is None:
            return "", None
        if self.records is not None and (known := self.records.briefing()) is not None:
            return str(known["text"]), message_data(known) | {"missing": dict(known["missing"])}
        found = recall_memories(self.layers, query, self.most, room, assembler.count, own=self.own)
        text = f"{assembler.fence(found.text)}\n\n" if found.text else ""
        tokens = assembler.plain.count(text) if text else 0
        number = self._record("briefing", query, found, text, tokens, assembler.events)
        data = {"count": found.count, "tokens": tokens, "recalled": number, "missing": dict(found.missing)}
        return text, data

    def again(
        self,
        purpose: str,
        query: str,
        room: int,
        assembler: RecallAssembler,
        given: Collection[str],
        compactions: int = 0,
        kinds: Collection[str] | None = None,
    ) -> tuple[str, Json | None]:
        """Retrieve memories after the briefing, as often as the caller needs, from the program's own memory alone.

        Returns the memories that the model has not got yet, inside a fence ("" for none), and the data for their
        message (None for none).

        `given` are the ids of memories that the model has got, `compactions` is the number of compactions so far,
        `kinds` are the wanted kinds of memories, None for all.
        """
        if self.own is None:
            return "", None
        found = recall_memories({}, query, 0, room, assembler.count, own=self.own, given=given, kinds=kinds)
        text = assembler.fence(found.text) if found.text else ""
        tokens = assembler.plain.count(text) if text else 0
        number = self._record(purpose, query, found, text, tokens, assembler.events, compactions)
        return text, {"count": found.count, "tokens": tokens, "recalled": number} if text else None

    def _record(
        self,
        purpose: str,
        query: str,
        found: Recalled,
        text: str,
        tokens: int,
        events: EventSink | None,
        compactions: int = 0,
    ) -> int:
        """Record a retrieval of memories in recalled.jsonl, and emit an event for each unavailable layer; returns the
        number of the line, 0 without `records`."""
        for layer, why in found.missing.items():
            if events:
                events.emit("layer_failed", layer=layer, error=why)
        if self.records is None:
            return 0
        return self.records.add(
            purpose,
            query,
            hits=found.hits,
            dropped=found.dropped,
            missing=found.missing,
            text=text,
            tokens=tokens,
            compactions=compactions,
        )


def message_data(line: Json) -> Json:
    """The fields about long-term memory for a message, from a line of recalled.jsonl that has the text of the
    message."""
    return {"count": len(line["hits"]), "tokens": int(line["tokens"]), "recalled": line["seq"]}
