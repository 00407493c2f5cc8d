"""What the parts of the window share: its errors, and the contracts and tables of compaction strategies and memories.

    MakimonoError
    ├── DoesNotFit           even the least that must be sent is over the limit (seed 001, FR-4 and FR-5)
    ├── CompactionStuck      two compactions in a row freed too little
    └── ContextError
        └── IllegalContext   the view is no legal message list (seed 000, 3.5; also a ValueError)

A strategy is a class with one method,

    means() -> tuple[str, ...]      the means to try, first one first, of "mask", "summary", "window", "reset"

and one line in STRATEGIES; it says which means are wanted, `compressor.py` does them.  "reset" is appended where a
strategy leaves it out: it needs no model, and is what keeps a task alive when everything else has failed.

A layer of long-term memory is a class that is built with the validated settings, with the one method of
`values.MemoryLayer`, and one line in MEMORIES (or a dotted path in `assembler.memory`).  It is asked once, when a task
begins, in a thread of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from agent.errors import ContextError, MakimonoError
from agent.registry import Registry

if TYPE_CHECKING:
    from collections.abc import Mapping

MEANS = ("mask", "summary", "window", "reset")

STRATEGIES = Registry(
    "compaction strategy",
    {
        "hybrid": "agent.window.strategies:Hybrid",
        "summary": "agent.window.strategies:Summary",
        "sliding_window": "agent.window.strategies:SlidingWindow",
        "mask": "agent.window.strategies:Mask",
    },
)


MEMORIES = Registry("layer of long-term memory", {})


class Strategy(Protocol):
    """The contract above."""

    def means(self) -> tuple[str, ...]:
        """The means to try, first one first."""
        ...


_NOT_FITTING = {
    "system prompt": (
        "system_prompt_too_large",
        "The system prompt and the tools alone need",
        "Use a model with a larger window, raise its limit, or shorten assembler.system_prompt.",
    ),
    "turn": (
        "turn_too_large",
        "The system prompt, the task and the newest turn together need",
        "Use a model with a larger window, raise its limit, or shorten the task.",
    ),
    "window": (
        "window_too_small",
        "The tools, the system prompt and the shortest task and conversation need",
        "Use a model with a larger window, or raise its limit.",
    ),
}
"""What does not fit → code, what needs the tokens, what to do."""


class DoesNotFit(MakimonoError):
    """Even the least that must be sent is over the limit; nothing was sent.

    `what` is "system prompt" (code system_prompt_too_large), "turn" (code turn_too_large), or "window" (code
    window_too_small: it takes no task at all); `tokens` and `limit` are tokens of input.  `parts` are the tokens of
    each part by its name, `window` the window in force, `needed` the least one that would do.
    """

    def __init__(
        self,
        what: str,
        tokens: int,
        limit: int,
        *,
        parts: Mapping[str, int] | None = None,
        window: int = 0,
        needed: int = 0,
    ) -> None:
        self.what = what
        self.tokens = tokens
        self.limit = limit
        self.needed = needed
        self.code, subject, advice = _NOT_FITTING[what]
        each = "; ".join(f"{name} {size:,}" for name, size in (parts or {}).items())
        enough = f"A window of {needed:,} tokens would do; the one in force has {window:,}. " if needed else ""
        super().__init__(
            f"{subject} {tokens:,} tokens; the model takes {limit:,} of input, so {tokens - limit:,} are too many. "
            f"{f'They are: {each}. ' if each else ''}{enough}Nothing was sent. {advice}"
        )


class CompactionStuck(MakimonoError):
    """Two compactions in a row freed less than a tenth: more of them would go on for ever."""

    code = "compaction_stuck"


class IllegalContext(ContextError, ValueError):
    """The view is no legal message list; it is not sent."""

    code = "illegal_context"
