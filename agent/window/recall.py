"""Long-term memory for a briefing: layers asked side by side, the least relevant left out first, a broken layer left
out whole.

A layer is foreign code (`base.MEMORIES`): it may raise anything, answer nonsense or not answer, and the task begins
without it.  Memory is data: the caller fences what comes from here.  `assembler.py` asks once, at the start of a task.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from agent import clock
from agent.security.sanitise import clean

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from agent.values import MemoryLayer

HEADING = "## Related memories\n\n"
MOST_QUERY = 10_000
"""Characters of a query, as Bedrock AgentCore's RetrieveMemoryRecords takes."""

PATIENCE = 10.0
"""Seconds for all layers together; one that has not answered by then is left out."""


@dataclass(frozen=True, slots=True)
class Recalled:
    """`text` as it stands in the briefing, "" for none, with `count` memories in it; `missing` are the layers that
    could not be had, with the reason of each."""

    text: str = ""
    count: int = 0
    missing: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Unbuilt:
    """A layer that could not be built: it stands in its place and says why when it is asked."""

    error: Exception

    def recall(self, query: str, limit: int) -> Sequence[Mapping[str, Any]]:
        """Raise what building it raised."""
        del query, limit
        raise self.error


@dataclass(frozen=True, slots=True)
class _Memory:
    content: str
    source: str
    relevance: float


def recall(
    layers: Mapping[str, MemoryLayer],
    query: str,
    most: int,
    room: int,
    count: Callable[[str], int],
    *,
    patience: float = PATIENCE,
) -> Recalled:
    """At most `most` memories in at most `room` tokens by `count`, the most relevant of all layers first.  One that is
    too large for what is left is passed over."""
    missing: dict[str, str] = {}
    found: list[_Memory] = []
    for name, answer in _ask(layers, query[:MOST_QUERY], most, patience).items():
        if isinstance(answer, str):
            missing[name] = answer
        else:
            found += answer
    found.sort(key=lambda one: -one.relevance)
    room -= count(HEADING)
    kept: dict[str, str] = {}
    for one in found:
        if len(kept) == most:
            break
        text = f"{len(kept) + 1}. {one.content} (source: {one.source}, relevance {one.relevance:.2f})"
        if one.content in kept or (cost := count(text)) > room:
            continue
        room -= cost
        kept[one.content] = text
    return Recalled(HEADING + "\n".join(kept.values()) if kept else "", len(kept), missing)


def _ask(
    layers: Mapping[str, MemoryLayer], query: str, most: int, patience: float
) -> Mapping[str, Sequence[_Memory] | str]:
    """What each layer answers, or why it does not.  Each is asked in a thread of its own, which nobody waits for when
    the time is over."""
    answers: dict[str, Sequence[_Memory] | str] = {}

    def ask(name: str, layer: MemoryLayer) -> None:
        try:
            answers[name] = [_memory(one) for one in list(layer.recall(query, most))[:most]]
        except Exception as error:  # noqa: BLE001 - a layer is foreign code, and never ends a task
            answers[name] = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__

    threads = [
        threading.Thread(target=ask, args=asked, name=f"memory {asked[0]}", daemon=True) for asked in layers.items()
    ]
    for thread in threads:
        thread.start()
    until = clock.monotonic() + patience
    for thread in threads:
        thread.join(max(0.0, until - clock.monotonic()))
    return {name: answers.get(name, f"no answer within {patience:g} seconds") for name in layers}


def _memory(one: Any) -> _Memory:
    """One record of a layer.  ValueError for what is none."""
    content = one.get("content") if isinstance(one, Mapping) else None
    if not isinstance(content, str) or not content.strip():
        raise ValueError("a memory needs `content`, a text")
    relevance = float(one.get("relevance") or 0.0)
    if not math.isfinite(relevance):
        raise ValueError(f"relevance must be a finite number, not {relevance}")
    return _Memory(clean(content).text.strip(), clean(str(one.get("source") or "unknown")).text, relevance)
