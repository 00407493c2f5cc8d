"""The requests, tokens, compactions and cost of a task so far, as one value; the stores compute it, the row and the
limits use it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Self

import orjson

from agent import durable_files
from agent.values import Usage

if TYPE_CHECKING:
    from pathlib import Path

    from agent.config.llm_section import Price

INHERITED = "inherited.json"
"""A file in the folder of a task that began with a copy of another task's conversation: the totals of the copied
part."""


def cost_of(usage: Usage, price: Price | None) -> float:
    """The cost of the tokens in `usage`, 0.0 where no price is configured."""
    return price.cost(usage) if price is not None else 0.0


@dataclass(frozen=True, slots=True)
class Totals:
    """The requests to models, tokens, compactions, tool calls and cost (money) of a task so far.

    Tokens are those that servers reported, or estimates where a server reported none; `prompt` includes `cached`.

    `llm_calls` is the number of all requests that were sent, for any purpose and with any result; `turns` the number of
    answers in the conversation; `estimated` the number of tokens that no server reported; `compactions` the number of
    compactions of any kind. `tool_calls` is set only by `TaskContextManager.totals`.
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
        """The total of prompt tokens and completion tokens."""
        return self.prompt + self.completion

    @property
    def usage(self) -> Usage:
        """The tokens as a value of the class Usage."""
        return Usage(self.prompt, self.completion, self.cached)

    def plus(self, other: Totals) -> Totals:
        """The sum of these totals and `other`."""
        return Totals(*(getattr(self, one.name) + getattr(other, one.name) for one in fields(self)))

    def exceeding(self, other: Totals) -> Totals:
        """The part of these totals that exceeds the totals `other`, field by field and never below 0.

        A difference of costs of at most a millionth counts as 0, since sums are rounded.
        """
        more = self.difference(other)
        parts = {one.name: max(0, getattr(more, one.name)) for one in fields(more)}
        return Totals(**parts | {"cost": more.cost if more.cost > 1e-6 else 0.0})

    def difference(self, other: Totals) -> Totals:
        """These totals minus the totals `other`, field by field; a field may become negative."""
        return Totals(*(getattr(self, one.name) - getattr(other, one.name) for one in fields(self)))

    def write_inherited(self, folder: Path) -> None:
        """Record these totals in a folder as the part that was copied from another task.  Raises DiskError."""
        durable_files.write_file(folder / INHERITED, orjson.dumps(asdict(self), option=orjson.OPT_APPEND_NEWLINE))

    @classmethod
    def inherited(cls, folder: Path) -> Self:
        """The totals in a folder that were copied from another task; zeros for a task that did not begin with a copied
        conversation."""
        try:
            return cls(**orjson.loads((folder / INHERITED).read_bytes()))
        except FileNotFoundError:
            return cls(0, 0, 0, 0, 0)
