"""What the model has cost so far, as one value; the stores make it, the row and the limits read it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Self

import orjson

from agent import disk
from agent.values import Usage

if TYPE_CHECKING:
    from pathlib import Path

    from agent.config.models import Price

INHERITED = "inherited.json"
"""In the folder of a task whose conversation begins with a copy of another one's: what that part had cost the other."""


def cost_of(usage: Usage, price: Price | None) -> float:
    """What the tokens cost, 0.0 where no price is configured."""
    return price.cost(usage) if price is not None else 0.0


@dataclass(frozen=True, slots=True)
class Totals:
    """What the model has cost so far, in tokens: what servers reported, else estimates (`prompt` includes `cached`).

    `llm_calls` is how many requests were sent, whatever they were for and whatever became of them; `turns` how many
    answers the conversation has; `estimated` how many of the tokens no server has reported; `compactions` how often the
    view was cut or masked.  `tool_calls` is known to `TaskContextManager.totals` only.
    """

    llm_calls: int
    prompt: int
    completion: int
    cached: int
    compactions: int
    tool_calls: int = 0
    cost: float = 0.0
    turns: int = field(default=0, compare=False)
    estimated: int = field(default=0, compare=False)

    @property
    def tokens(self) -> int:
        """Prompt and completion."""
        return self.prompt + self.completion

    @property
    def usage(self) -> Usage:
        """The same as a Usage."""
        return Usage(self.prompt, self.completion, self.cached)

    def plus(self, other: Totals) -> Totals:
        """Both together."""
        return Totals(*(getattr(self, one.name) + getattr(other, one.name) for one in fields(self)))

    def beyond(self, other: Totals) -> Totals:
        """What is more than `other`, part by part and never less than nothing.  Of money less than a millionth is none:
        sums are rounded."""
        more = self.without(other)
        parts = {one.name: max(0, getattr(more, one.name)) for one in fields(more)}
        return Totals(**parts | {"cost": more.cost if more.cost > 1e-6 else 0.0})

    def without(self, other: Totals) -> Totals:
        """What is more than `other`."""
        return Totals(*(getattr(self, one.name) - getattr(other, one.name) for one in fields(self)))

    def write_inherited(self, folder: Path) -> None:
        """Say that these are of another task.  DiskError."""
        disk.write_file(folder / INHERITED, orjson.dumps(asdict(self), option=orjson.OPT_APPEND_NEWLINE))

    @classmethod
    def inherited(cls, folder: Path) -> Self:
        """What the stores of a folder count and its task has not had; nothing, for nearly every task."""
        try:
            return cls(**orjson.loads((folder / INHERITED).read_bytes()))
        except FileNotFoundError:
            return cls(0, 0, 0, 0, 0)
