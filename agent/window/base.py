"""Defines the errors of `agent/window/`, and the interfaces and tables of compaction strategies and memory layers.

    MakimonoError
    ├── DoesNotFit           even the smallest request is over the limit (docs/design/compression.md, FR-4, FR-5)
    ├── CompactionStuck      two compactions in a row freed too little
    ├── BadSummary           an answer is not used as a summary; never leaves this room (`summary_check.py`)
    │   ├── TooLong          it is over its budget
    │   └── NotAsked         it was not requested, since it would not be used
    ├── MemoryUnreadable     a layer's answer is no list of memories; never leaves this room (`recall_layers.py`)
    └── ContextError
        └── IllegalContext   the view is not a legal message list (docs/design/assembler.md, 3.5; also a ValueError)

A compaction strategy is a class with one method,

    steps() -> tuple[str, ...] the means of compaction to try, in this order, of "mask", "summary", "window", "reset"

A compaction strategy has one line in STRATEGIES, or the setting `strategy` has its dotted path. A strategy only names
the means of compaction, which `compressor.py` applies. "reset" is appended if the strategy does not name it: it needs
no model, and lets a task continue if all other means have failed.

A layer of long-term memory is a class that is constructed with the validated settings, has the one method of
`values.MemoryLayer`, and has a line in MEMORIES (or is a dotted path in `assembler.memory`).  A layer is queried for
the briefing of a task, in a thread of its own, and not again later in the task.
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
    """The interface of a compaction strategy, which the docstring of this module describes."""

    def steps(self) -> tuple[str, ...]:
        """The names of the means of compaction to try, in this order."""
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
        "Use a model with a larger window, raise its limit, or shorten the issue.",
    ),
    "window": (
        "window_too_small",
        "The tools, the system prompt and the shortest task and conversation need",
        "Use a model with a larger window, or raise its limit.",
    ),
}
"""Part of a request that does not fit → (code, subject of the message, advice)."""


class DoesNotFit(MakimonoError):
    """The error that even the smallest request of a conversation is over the limit; no request was sent.

    `what` is "system prompt" (code system_prompt_too_large), "turn" (code turn_too_large), or "window" (code
    window_too_small: no task fits into it). `tokens` and `limit` count the input, without the answer. `parts` has the
    tokens of each part of the request by its name, `window` is the window in use, `needed` the smallest sufficient one.
    `exact`: the tokens were counted with the model's own vocabulary; if not, the message calls them an estimate.
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
        exact: bool = True,
    ) -> None:
        self.what = what
        self.tokens = tokens
        self.limit = limit
        self.needed = needed
        self.parts, self.window, self.exact = dict(parts or {}), window, exact
        self.code, subject, self.advice = _NOT_FITTING[what]
        super().__init__(
            f"{subject} {tokens:,} tokens; the model takes {limit:,} of input, so {tokens - limit:,} are too many. "
            f"{self.details()}Nothing was sent. {self.advice}"
        )

    def details(self, at_most: int = 0) -> str:
        """A text with the tokens of each part of the request; the text also names the smallest sufficient window if
        that window is larger than `at_most` tokens."""
        each = "; ".join(f"{name} {size:,}" for name, size in self.parts.items())
        known = "They are" if self.exact else "They are, by an estimate"
        enough = f"A window of {self.needed:,} tokens would do; the one in force has {self.window:,}. "
        return f"{f'{known}: {each}. ' if each else ''}{enough if self.needed > at_most else ''}"


class CompactionStuck(MakimonoError):
    """The error that two compactions in a row freed less than a tenth of the view each; without it, compactions might
    follow each other without end."""

    code = "compaction_stuck"


class IllegalContext(ContextError, ValueError):
    """The error that the view is not a legal message list; it is not sent."""

    code = "illegal_context"
