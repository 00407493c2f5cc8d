"""What the model has cost so far, as one value; the stores make it, the row and the limits read it."""

from __future__ import annotations

from dataclasses import dataclass

from agent.values import Usage


@dataclass(frozen=True, slots=True)
class Totals:
    """What the model has cost so far: the providers' own numbers, summed, in tokens (`prompt` includes `cached`).

    `llm_calls` is how often it was asked, `compactions` how often the view was cut or masked.  `tool_calls` and `cost`
    are known to `TaskContextManager.totals` only.
    """

    llm_calls: int
    prompt: int
    completion: int
    cached: int
    compactions: int
    tool_calls: int = 0
    cost: float = 0.0

    @property
    def tokens(self) -> int:
        """Prompt and completion."""
        return self.prompt + self.completion

    @property
    def usage(self) -> Usage:
        """The same as a Usage."""
        return Usage(self.prompt, self.completion, self.cached)
