"""A thread of the daemon that must not end while the daemon lives, such as the thread of a source's poller or of the
broker client.

The functions that a restarting thread runs handle the errors that they expect. An unexpected error (a fault of a client
library, or of this program) ends the thread, and its traceback goes to the log; the loop of the supervisor then starts
another thread after a while.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from agent import clock

if TYPE_CHECKING:
    from collections.abc import Callable

AGAIN_SECONDS = 30.0


class RestartingThread:
    """Runs the function `work` in a thread, until the function returns by itself. When `restart_if_due` finds that an
    error has ended the thread, it calls `died` with the number of seconds until the next start."""

    def __init__(self, name: str, work: Callable[[], None], died: Callable[[float], None]) -> None:
        self._name = name
        self._work = work
        self._died = died
        self._thread: threading.Thread | None = None
        self._returned = False
        self._again_at: float | None = None

    def start(self) -> None:
        """Start the thread that runs `work`."""
        self._again_at = None
        self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
        self._thread.start()

    def restart_if_due(self) -> None:
        """Start another thread AGAIN_SECONDS after a call has found that an error ended the last one; the daemon calls
        `restart_if_due` regularly."""
        if self._thread is None or self._thread.is_alive() or self._returned:
            return
        now = clock.monotonic()
        if self._again_at is None:
            self._again_at = now + AGAIN_SECONDS
            self._died(AGAIN_SECONDS)
        elif now >= self._again_at:
            self.start()

    def join(self, seconds: float) -> None:
        """Wait for the end of the thread, at most for `seconds` seconds."""
        if self._thread is not None and self._thread.is_alive():
            self._thread.join(seconds)

    def _run(self) -> None:
        self._work()
        self._returned = True
