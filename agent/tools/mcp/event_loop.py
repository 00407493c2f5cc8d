"""One thread with an asyncio event loop, with methods that code without asyncio can call.

The SDK for MCP is asynchronous, the rest of this program is not. All MCP sessions of a task live in one thread; the
worker waits for the result of a call with a time limit, and stops waiting when the task has to stop.
"""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import CancelledError, wait
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from agent import clock, deadline

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

T = TypeVar("T")
TICK = 0.1
"""Seconds between two checks whether the task has to stop."""
END_SECONDS = 10.0


class WaitStopped(Exception):
    """The error that a wait ended because the task has to stop."""


class EventLoop:
    """The thread with the event loop, which runs until `close`."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self._run, name="mcp", daemon=True)
        self.thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
        finally:
            with suppress(RuntimeError):
                self.loop.run_until_complete(self.loop.shutdown_asyncgens())
            self.loop.close()

    def start_task(self, coroutine: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Start an asyncio task in the event loop; returns the asyncio task."""

        async def start() -> asyncio.Task[Any]:
            return asyncio.ensure_future(coroutine)

        return asyncio.run_coroutine_threadsafe(start(), self.loop).result(END_SECONDS)

    def wait(self, coroutine: Coroutine[Any, Any, T], seconds: float, is_stopping: Callable[[], bool]) -> T:
        """Wait for the result of a coroutine that runs in the loop.

        Raises TimeoutError after `seconds`, WaitStopped when `is_stopping()` is True, and the errors of the coroutine;
        TimeoutError and WaitStopped cancel the coroutine.
        """
        future = asyncio.run_coroutine_threadsafe(coroutine, self.loop)
        until = clock.monotonic() + seconds
        with deadline.within("MCP server", seconds):
            while True:
                if wait([future], TICK).done:
                    try:
                        return future.result()
                    except CancelledError as error:
                        raise TimeoutError from error
                try:
                    deadline.check()
                    _check(until, is_stopping)
                except BaseException:
                    future.cancel()
                    raise

    def close(self) -> None:
        """Cancel all asyncio tasks, and end the thread."""
        if self.loop.is_closed():
            return

        async def cancel_all() -> None:
            others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
            for task in others:
                task.cancel()
            await asyncio.wait(others, timeout=END_SECONDS / 2) if others else None

        with suppress(TimeoutError, RuntimeError):
            asyncio.run_coroutine_threadsafe(cancel_all(), self.loop).result(END_SECONDS)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(END_SECONDS)


def _check(until: float, is_stopping: Callable[[], bool]) -> None:
    if is_stopping():
        raise WaitStopped
    if clock.monotonic() >= until:
        raise TimeoutError
