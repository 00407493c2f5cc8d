"""Long-term memory for a briefing: asked side by side, the least relevant left out first, a broken one left out whole.

Memory is data: the caller fences what comes from here (design: section 5; seed 000, 3.2).  `assembler.py` asks once, at
the start of a task.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from agent.errors import MakimonoError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from agent.values import MemoryLayer

    Records = Sequence[Mapping[str, Any]]

CANNOT = (MakimonoError, OSError, ValueError, LookupError)
"""What a layer raises when it cannot be had."""


@dataclass(frozen=True, slots=True)
class Recalled:
    """`lines` as they will be sent; `missing` are the layers that could not be had, with the reason of each."""

    lines: tuple[str, ...] = ()
    missing: Mapping[str, str] | None = None


def recall(
    layers: Mapping[str, MemoryLayer], query: str, most: int, room: int, count: Callable[[str], int]
) -> Recalled:
    """At most `most` memories in at most `room` tokens, the most relevant of all layers first."""
    missing: dict[str, str] = {}
    found: list[Mapping[str, Any]] = []
    for name, answer in zip(layers, _ask(list(layers.values()), query, most), strict=True):
        if isinstance(answer, str):
            missing[name] = answer
        else:
            found += answer[:most]
    found.sort(key=lambda one: -float(one["relevance"]))
    kept: list[str] = []
    for number, one in enumerate(found[:most], 1):
        line = f"{number}. {one['content']} (source: {one['source']}, relevance {float(one['relevance']):.2f})"
        room -= count(line)
        if room < 0:
            break
        kept.append(line)
    return Recalled(tuple(kept), missing)


def _ask(layers: Sequence[MemoryLayer], query: str, most: int) -> Sequence[Records | str]:
    """What each layer answers, or why it does not.  Several are asked at the same time; one alone in this thread."""

    def ask(layer: MemoryLayer) -> Records | str:
        try:
            return layer.recall(query, most)
        except CANNOT as error:
            return str(error)

    if len(layers) < 2:
        return [ask(layer) for layer in layers]
    with ThreadPoolExecutor(len(layers), thread_name_prefix="memory") as pool:
        return list(pool.map(ask, layers))
