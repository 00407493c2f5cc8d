"""Trying again: how often is in the error (`faults.py`), how long is here, and waiting can be ended from outside.

Around one POST of one request.json; it never changes the request.  Each wait is announced as `model_wait`.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import TYPE_CHECKING, TypeVar

from tenacity import RetryCallState, Retrying, retry_if_exception_type

from agent import clock
from agent.errors import ModelError, RateLimited
from agent.llm.base import Interrupted

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent.llm.base import Announce
    from agent.values import Control

T = TypeVar("T")

LONGEST_BACKOFF = 30.0
SLICE = 1.0  # seconds between two looks at the control while waiting


def insist(
    send: Callable[[], T],
    *,
    provider: str,
    model: str,
    control: Control | None = None,
    events: Announce | None = None,
) -> T:
    """`send()` until it returns, or until one kind of error has had its `tries`.  Raises that error, or Interrupted."""
    try:
        return send()
    except ModelError as error:
        first = [error]  # what `tenacity` gets to see as its first try: it is not asked where nothing fails
    failed: Counter[type[ModelError]] = Counter()

    def again() -> T:
        if first:
            raise first.pop()
        return send()

    def enough(state: RetryCallState) -> bool:
        error = _error(state)
        failed[type(error)] += 1
        return failed[type(error)] >= error.tries

    def announce(state: RetryCallState) -> None:
        error = _error(state)
        if events is not None:
            events.emit(
                "model_wait",
                provider=provider,
                model=model,
                retry=state.attempt_number,
                seconds=round(state.upcoming_sleep, 3),
                code=error.code,
                why=str(error),
            )

    retrying = Retrying(
        retry=retry_if_exception_type(ModelError),
        stop=enough,
        wait=lambda state: pause(_error(state), state.attempt_number),
        sleep=lambda seconds: nap(seconds, control),
        before_sleep=announce,
        reraise=True,
    )
    return retrying(again)


def pause(error: ModelError, attempt: int) -> float:
    """Seconds before the next try: what the server asked for and a little more, else 1, 2, 4 … 30 with jitter."""
    asked = error.retry_after if isinstance(error, RateLimited) else None
    backoff = min(LONGEST_BACKOFF, 2.0 ** (attempt - 1)) * random.uniform(0.75, 1.0)  # noqa: S311 - jitter
    if asked is None:
        return backoff
    return asked + min(asked * 0.05, 2.0) * random.random() + (backoff if asked == 0 else 0.0)  # noqa: S311


def nap(seconds: float, control: Control | None) -> None:
    """Wait; with a control, look at it each second.  Raises Interrupted."""
    left = seconds
    while left > 0:
        if control is not None and (outcome := control.poll()) is not None:
            raise Interrupted(outcome)
        step = left if control is None else min(SLICE, left)
        clock.sleep(step)
        left -= step


def _error(state: RetryCallState) -> ModelError:
    """The error of the try that just failed (only ModelError gets here)."""
    error = state.outcome.exception() if state.outcome is not None else None
    assert isinstance(error, ModelError)
    return error
