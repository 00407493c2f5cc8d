"""Enforces the limits of a task: turns, tokens, money, wall time, memory, disk space (`limits` in config.yaml).

Turns, tokens and money are counted for the whole task, including its earlier processes, because the numbers come from
the task's files. Wall time is counted for each process, from the moment at which the model begins to work; neither the
preparation nor the time that a task waits for a person is counted. The clock for the wall time stops while finished
work is checked and published, so that a slow forge does not end a task with finished work, and costs the model no time
if the work is sent back to it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from agent import clock
from agent.values import End, Outcome
from agent.worker import process_groups

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent.config.sections import Limits
    from agent.context.cost_totals import Totals


WALL = "wall_seconds"


@dataclass
class TaskLimits:
    """A call returns an outcome if the task has reached a limit, else None; the outcome's text names the key, the limit
    and the usage."""

    limits: Limits
    used: Callable[[], Totals]
    quota: Callable[[], Outcome | None] = lambda: None
    ran_over: Callable[[], bool] = lambda: False
    currency: str = "of money"
    started: float = field(default_factory=clock.monotonic)
    stopped: float | None = None

    def restart_clock(self) -> None:
        """Start counting the wall time from zero."""
        self.started, self.stopped = clock.monotonic(), None

    def stop_clock(self) -> None:
        """Stop counting the wall time until `start_clock` is called."""
        if self.stopped is None:
            self.stopped = clock.monotonic()

    def start_clock(self) -> None:
        """Continue counting the wall time after `stop_clock`."""
        if self.stopped is not None:
            self.started += clock.monotonic() - self.stopped
            self.stopped = None

    def __call__(self) -> Outcome | None:
        """The outcome for the first limit that the task has reached; None if it has reached none."""
        used = self.used()
        if (over := limit_outcome_of("turns", self.limits.turns, used.turns, "turns")) is not None:
            return over
        return self.check_requests()

    def check_requests(self) -> Outcome | None:
        """The outcome for the first limit that the task has reached, except for the limit of turns, since requests
        outside of the conversation are no turns."""
        used = self.used()
        for key, limit, value, unit in (
            ("tokens", self.limits.tokens, used.tokens, "tokens"),
            ("cost", self.limits.cost, used.cost, self.currency),
        ):
            if (over := limit_outcome_of(key, limit, value, unit)) is not None:
                return over
        return self.check_calls()

    def check_calls(self) -> Outcome | None:
        """The outcome for the first reached limit of a resource that tool calls use: time, memory, disk space. The loop
        checks time, memory and disk space between two tool calls of an answer. Turns, tokens and money are not checked
        between tool calls: the last turn within those limits is executed completely."""
        if (over := self.check_time()) is not None:
            return over
        if self.limits.memory is not None and self.ran_over():  # the kernel has killed a command, not this process
            return Outcome(End.LIMIT, code="memory", summary=process_groups.too_large(self.limits.memory))
        return self.quota()

    def check_time(self) -> Outcome | None:
        """The outcome if the task's wall time is used up, which may happen during a single call or a slow answer; else
        None."""
        now = clock.monotonic() if self.stopped is None else self.stopped
        limit, wall = self.limits.wall_seconds, now - self.started
        return limit_outcome(WALL, limit, wall, "seconds") if limit is not None and wall >= limit else None


def limit_outcome_of(key: str, limit: float | None, value: float, unit: str) -> Outcome | None:
    """The outcome if `value` has reached the limit; None if it has not, or if there is no limit."""
    return limit_outcome(key, limit, value, unit) if limit is not None and value >= limit else None


def limit_outcome(key: str, limit: float, value: float, unit: str) -> Outcome:
    """The outcome for a task that has used up `limits.{key}`."""
    return Outcome(
        End.LIMIT,
        code=f"limit_{key}",
        summary=f"`limits.{key}` is {limit:g}; {value:.6g} {unit} were used. "
        f"Raise it in config.yaml and start the task again to go on.",
    )
