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

from typing import Protocol

from agent.errors import ContextError, MakimonoError
from agent.registry import Registry

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


class DoesNotFit(MakimonoError):
    """Even the least that must be sent is over the limit; nothing was sent.

    `what` is "system prompt" (code system_prompt_too_large) or "turn" (code turn_too_large); `tokens` and `limit` are
    tokens.
    """

    def __init__(self, what: str, tokens: int, limit: int) -> None:
        self.what = what
        self.tokens = tokens
        self.limit = limit
        self.code = "system_prompt_too_large" if what == "system prompt" else "turn_too_large"
        subject, advice = (
            (
                "The system prompt and the tools alone need",
                "Use a model with a larger window, raise its limit, or shorten assembler.system_prompt.",
            )
            if what == "system prompt"
            else (
                "The system prompt, the task and the newest turn together need",
                "Use a model with a larger window, raise its limit, or shorten the task.",
            )
        )
        super().__init__(
            f"{subject} {tokens:,} tokens; the model takes {limit:,} of input, so {tokens - limit:,} are too many. "
            f"Nothing was sent. {advice}"
        )


class CompactionStuck(MakimonoError):
    """Two compactions in a row freed less than a tenth: more of them would go on for ever."""

    code = "compaction_stuck"


class IllegalContext(ContextError, ValueError):
    """The view is no legal message list; it is not sent."""

    code = "illegal_context"
