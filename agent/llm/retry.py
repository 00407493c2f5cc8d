"""Repeats failed requests to a model server: the error of a request contains the maximum number of attempts
(`error_mapping.py`), `retry.py` determines the delays between them; `control` can end a wait.

A retry sends the file that contains the request again, unchanged. Each wait before a retry emits the event
`model_wait`.
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

    from agent.observe.events import EventSink
    from agent.values import Control

T = TypeVar("T")

LONGEST_BACKOFF = 30.0
SLICE = 1.0  # seconds between two checks of `control` while the client waits for a retry


def call_with_retries(
    send: Callable[[], T],
    *,
    provider: str,
    model: str,
    control: Control | None = None,
    events: EventSink | None = None,
) -> T:
    """Call `send()` until it returns without an error, or until it has raised one class of error as often as the
    error's attribute `tries` allows.

    Raises the last error of the request, or Interrupted; an error that is not a ModelError is raised without a retry.
    """
    try:
        return send()
    except ModelError as error:
        # `tenacity` is used only after a failed attempt; its first call of `again` raises the error of that attempt.
        first = [error]
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
        wait=lambda state: delay(_error(state), state.attempt_number),
        sleep=lambda seconds: interruptible_sleep(seconds, control),
        before_sleep=announce,
        reraise=True,
    )
    return retrying(again)


def delay(error: ModelError, attempt: int) -> float:
    """Seconds before the next attempt to send a request: the time that the server demanded (RateLimited), plus at most
    5 %; if the server demanded none or 0 seconds, about 1, 2, 4 … 30 seconds with jitter."""
    asked = error.retry_after if isinstance(error, RateLimited) else None
    backoff = min(LONGEST_BACKOFF, 2.0 ** (attempt - 1)) * random.uniform(0.75, 1.0)  # noqa: S311 - jitter
    if asked is None:
        return backoff
    return asked + min(asked * 0.05, 2.0) * random.random() + (backoff if asked == 0 else 0.0)  # noqa: S311


def interruptible_sleep(seconds: float, control: Control | None) -> None:
    """Wait `seconds`; meanwhile poll `control` each second unless it is None.  Raises Interrupted when `control`
    returns an outcome."""
    left = seconds
    while left > 0:
        if control is not None and (outcome := control.poll()) is not None:
            raise Interrupted(outcome)
        step = left if control is None else min(SLICE, left)
        clock.sleep(step)
        left -= step


def _error(state: RetryCallState) -> ModelError:
    """The error of the last attempt to send the request: a ModelError, since an attempt that ends with another error is
    not repeated."""
    error = state.outcome.exception() if state.outcome is not None else None
    assert isinstance(error, ModelError)
    return error
