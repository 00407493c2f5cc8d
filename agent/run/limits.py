"""What a task may use: turns, tokens, money, wall time, room (`limits` in config.yaml).

Turns, tokens and money are absolute over the whole task, restarts included, because they come from the stores; wall
time counts from the moment this process took the task, so that waiting for a person is free.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from agent import clock
from agent.run import groups
from agent.values import End, Outcome

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent.config.sections import Limits


@dataclass(frozen=True, slots=True)
class Used:
    """What was used so far."""

    turns: int
    tokens: int
    cost: float


@dataclass
class TaskLimits:
    """Calling it returns the outcome when a limit is reached, naming the key, the limit and what was used."""

    limits: Limits
    used: Callable[[], Used]
    quota: Callable[[], Outcome | None] = lambda: None
    ran_over: Callable[[], bool] = lambda: False
    started: float = field(default_factory=clock.monotonic)

    def __call__(self) -> Outcome | None:
        """None while everything is within its limit."""
        used = self.used()
        for key, limit, value, unit in (
            ("turns", self.limits.turns, used.turns, "turns"),
            ("tokens", self.limits.tokens, used.tokens, "tokens"),
            ("cost", self.limits.cost, used.cost, "of money"),
        ):
            if limit is not None and value >= limit:
                return reached(key, limit, value, unit)
        return self.of_calls()

    def of_calls(self) -> Outcome | None:
        """The same for what tool calls use up: time, memory, room on the disk.  Looked at between two calls of an
        answer; the last turn that the others allow is carried out whole."""
        limit, wall = self.limits.wall_seconds, clock.monotonic() - self.started
        if limit is not None and wall >= limit:
            return reached("wall_seconds", limit, wall, "seconds")
        if self.limits.memory is not None and self.ran_over():  # the kernel ended a command, not this process
            return Outcome(End.LIMIT, code="memory", summary=groups.too_large(self.limits.memory))
        return self.quota()


def reached(key: str, limit: float, value: float, unit: str) -> Outcome:
    """The outcome of a task whose `limits.{key}` is used up."""
    return Outcome(
        End.LIMIT,
        code=f"limit_{key}",
        summary=f"`limits.{key}` is {limit:g}; {value:.6g} {unit} were used. "
        f"Raise it in config.yaml and start the task again to go on.",
    )
