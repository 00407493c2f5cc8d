"""Retrieves long-term memories for the model from all layers in parallel: for the briefing, and later in the task.

The layers are the long-term memory of this program (`OwnMemory`, docs/memory.md) and plug-ins (`base.MEMORIES`).
Memories that do not fit into the token budget are left out, the least relevant first; a layer that fails contributes
none. A memory plug-in may raise any error, return a value of any type, or not return at all; the task then begins
without its memories. The text of memories is data, so the caller puts the result into a fence.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from agent import clock
from agent.error_text import named, text_of
from agent.errors import MakimonoError, MemoryUnavailable
from agent.observe import log
from agent.security.sanitise import clean

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from agent.values import MemoryLayer

T = TypeVar("T")

HEADING = "## Related memories\n\n"
MOST_QUERY = 10_000
"""The maximum number of characters of a query, which is the limit of Bedrock AgentCore's RetrieveMemoryRecords."""

FILES_HEADING = "## Files that such changes touched\n\n"
OWN = "memory.db"
"""The name of the layer with the program's own memory in events and notices."""

PATIENCE = 10.0
"""The time limit in seconds for each plug-in; a layer that has no result at the time limit is left out."""
OWN_PATIENCE = 1.0
"""The time limit in seconds for the program's own memory."""
FILES_PART = 4
"""The files that similar changes touched get at most 1/FILES_PART of the tokens for memories."""

OVER_LIMIT = "over assembler.semantic_memory_limit"
NO_ROOM = "no room in the budget for memories"
TWICE = "the same text as another one"
BEFORE = "given before"


@dataclass(frozen=True, slots=True)
class Recalled:
    """The recalled memories as text for the model ("" if there are none), and their number.

    `missing`: name of each layer that was unavailable → the reason.  `hits` are the memories in the text, `dropped` the
    others, each with the reason, as `context.RecalledStore.add` takes them.
    """

    text: str = ""
    count: int = 0
    missing: Mapping[str, str] = field(default_factory=dict)
    hits: tuple[Mapping[str, Any], ...] = ()
    dropped: tuple[Mapping[str, Any], ...] = ()


class OwnMemory(Protocol):
    """The interface to the program's own long-term memory, for one task (`memory.recall.TaskRecall`)."""

    def recall(self, query: str) -> Sequence[Mapping[str, Any]]:
        """Records and files, each a mapping with `id`, `kind`, `content`, `source`, `relevance`, `pinned`."""
        ...

    def abandon(self) -> None:
        """End the call to the memory that runs in another thread, since no code waits for its result any more."""
        ...


@dataclass(frozen=True, slots=True)
class FailedLayer:
    """Takes the place of a memory layer that could not be constructed: each call raises the error of its
    constructor."""

    error: Exception

    def recall(self, query: str, limit: int) -> Sequence[Mapping[str, Any]]:
        """Raise the error of the layer's constructor."""
        del query, limit
        raise self.error


class MemoryUnreadable(MakimonoError):
    """The error that a memory layer returned something that is not a list of memories. `recall_layers.py` catches every
    MemoryUnreadable."""

    code = "memory_unreadable"


@dataclass(frozen=True, slots=True)
class _Memory:
    content: str
    source: str
    relevance: float
    id: str = ""
    kind: str = "memory"
    pinned: bool = False
    layer: str = ""

    def to_json(self, **more: Any) -> Mapping[str, Any]:
        """The memory as JSON for a record of the retrieval, without its text."""
        score = round(self.relevance, 4)
        return {
            "id": self.id,
            "kind": self.kind,
            "layer": self.layer,
            "score": score,
            "source": self.source,
            **more,
        }


def recall_memories(
    layers: Mapping[str, MemoryLayer],
    query: str,
    most: int,
    room: int,
    count: Callable[[str], int],
    *,
    patience: float = PATIENCE,
    own: OwnMemory | None = None,
    own_patience: float = OWN_PATIENCE,
    given: Collection[str] = (),
    kinds: Collection[str] | None = None,
) -> Recalled:
    """The memories of all layers, first the pinned ones and then the most relevant, in at most `room` tokens as `count`
    counts.

    `most` is the maximum number of memories from `layers`; `own` limits the number itself. `given` are the ids of
    memories that the model has got already, which are left out; `kinds` are the wanted kinds, None for all. A memory
    that needs more tokens than are left of the budget is skipped.
    """
    query = query[:MOST_QUERY]
    asked: dict[str, _Question] = {
        name: _Question(partial(layer.recall, query, most), most, patience) for name, layer in layers.items()
    }
    if own is not None:
        asked[OWN] = _Question(partial(own.recall, query), None, own_patience, own.abandon)
    missing: dict[str, str] = {}
    found: list[_Memory] = []
    for name, answer in _ask_layers(asked).items():
        if isinstance(answer, str):
            missing[name] = answer
        else:
            found += [replace(one, layer=name) for one in answer if kinds is None or one.kind in kinds]
    chosen = _Choice(room, count, most, given)
    files = [one for one in found if one.kind == "file"]
    chosen.take_files(files)
    chosen.add_memories(
        sorted((one for one in found if one.kind != "file"), key=lambda one: (not one.pinned, -one.relevance))
    )
    return Recalled(chosen.as_text(), len(chosen.hits), missing, tuple(chosen.hits), tuple(chosen.dropped))


class _Choice:
    """Selects the memories that fit into a budget of tokens."""

    def __init__(self, room: int, count: Callable[[str], int], most: int, given: Collection[str]) -> None:
        self.room = room
        self.count = count
        self.most = most
        self.given = given
        self.lines: dict[str, str] = {}  # content of a memory → its line for the model
        self.files: list[str] = []
        self.hits: list[Mapping[str, Any]] = []
        self.dropped: list[Mapping[str, Any]] = []

    def take_files(self, found: Sequence[_Memory]) -> None:
        """Add files that fit into their part of the token budget."""
        room = self.room // FILES_PART - self.count(FILES_HEADING)
        for one in found:
            text = f"- {one.content} ({one.source}, relevance {one.relevance:.2f})"
            cost = self.count(text)
            if one.id in self.given:
                self.dropped.append(one.to_json(why=BEFORE))
            elif cost > room:
                self.dropped.append(one.to_json(why=NO_ROOM))
            else:
                room -= cost
                self.room -= cost if self.files else cost + self.count(FILES_HEADING)
                self.files.append(text)
                self.hits.append(one.to_json(tokens=cost))

    def add_memories(self, found: Sequence[_Memory]) -> None:
        """Add memories, in the given order, if they fit into the token budget."""
        self.room -= self.count(HEADING)
        for one in found:
            text = f"{len(self.lines) + 1}. {one.content} (source: {one.source}, relevance {one.relevance:.2f})"
            why = self._why_not(one, cost := self.count(text))
            if why:
                self.dropped.append(one.to_json(why=why))
                continue
            self.room -= cost
            self.most -= one.layer != OWN
            self.lines[one.content] = text
            self.hits.append(one.to_json(tokens=cost))

    def _why_not(self, one: _Memory, cost: int) -> str:
        if one.id and one.id in self.given:
            return BEFORE
        if one.content in self.lines:
            return TWICE
        if self.most <= 0 and one.layer != OWN:
            return OVER_LIMIT
        return NO_ROOM if cost > self.room else ""

    def as_text(self) -> str:
        """The text for the model about the selected memories."""
        parts = [HEADING + "\n".join(self.lines.values())] if self.lines else []
        return "\n\n".join([*parts, *([FILES_HEADING + "\n".join(self.files)] if self.files else [])])


@dataclass(frozen=True, slots=True)
class _Question:
    """One call to a memory layer. With `most` None, the memory layer limits the number of its memories by itself.
    `abandon` ends the call to a memory layer if it has no result at the time limit."""

    call: Callable[[], Any]
    most: int | None
    patience: float
    abandon: Callable[[], None] | None = None


def _ask_layers(questions: Mapping[str, _Question]) -> Mapping[str, Sequence[_Memory] | str]:
    """The memories of each layer, or the reason why the layer has none.

    Each memory layer is called in a thread of its own; at the time limit the caller no longer waits for the thread, in
    which a plug-in may continue to run.
    """
    answers: dict[str, Sequence[_Memory] | str] = {}

    def ask(name: str, question: _Question) -> None:
        try:
            answers[name] = _memories(question.call(), question.most)
        except (MemoryUnreadable, MemoryUnavailable) as error:
            answers[name] = str(error)
        except Exception as error:  # noqa: BLE001 - an error of a plug-in must never end a task
            log.mistake("memory", name, error)
            answers[name] = named(error) if text_of(error) else type(error).__name__

    threads = {
        name: threading.Thread(target=ask, args=(name, question), name=f"memory {name}", daemon=True)
        for name, question in questions.items()
    }
    started = clock.monotonic()
    for thread in threads.values():
        thread.start()
    for name, thread in threads.items():
        thread.join(max(0.0, started + questions[name].patience - clock.monotonic()))
    taken = dict(answers)
    for name, question in questions.items():
        if name not in taken and question.abandon is not None:
            question.abandon()
    return {
        name: taken.get(name, f"no answer within {question.patience:g} seconds") for name, question in questions.items()
    }


def answer_within(seconds: float, call: Callable[[], T], abandon: Callable[[], None]) -> T | None:
    """The result of `call`, which runs in a thread of its own; None if `call` raises a MakimonoError, or takes longer
    than `seconds` and is abandoned."""
    found: list[T] = []

    def ask() -> None:
        with suppress(MakimonoError):
            found.append(call())

    thread = threading.Thread(target=ask, name=f"memory {OWN}", daemon=True)
    thread.start()
    thread.join(seconds)
    if thread.is_alive():
        abandon()
        return None
    return found[0] if found else None


def _memories(answer: Any, most: int | None) -> list[_Memory]:
    """The first `most` memories in the answer of a layer (all if `most` is None), as objects. Raises MemoryUnreadable
    if the answer of the layer is not a list of memories."""
    if isinstance(answer, str | Mapping) or not isinstance(answer, Iterable):
        raise MemoryUnreadable(f"`recall` answered with {type(answer).__name__}; it must answer with a list of records")
    return [_memory(one) for one in islice(answer, most)]


def _memory(one: Any) -> _Memory:
    """Make a memory from an item of the answer of a layer. Raises MemoryUnreadable for an invalid item."""
    content = one.get("content") if isinstance(one, Mapping) else None
    if not isinstance(content, str) or not content.strip():
        raise MemoryUnreadable(f"a record of type {type(one).__name__} has no `content`; each needs it, as a text")
    said = one.get("relevance") or 0.0
    try:
        relevance = float(said)
    except (TypeError, ValueError):
        relevance = math.nan
    if not math.isfinite(relevance):
        raise MemoryUnreadable(
            f"`relevance` of a record is {str(said)[:80]!r}; it must be a finite number, or be left out"
        )
    return _Memory(
        clean(content).text.strip(),
        clean(str(one.get("source") or "unknown")).text,
        relevance,
        id=str(one.get("id") or ""),
        kind=str(one.get("kind") or "memory"),
        pinned=one.get("pinned") is True,
    )
