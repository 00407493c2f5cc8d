"""A thread of the daemon that must not end while the daemon lives: the poller, the courier.

They hear the errors that they know.  What nobody foresaw (a fault of a client library, or of this program) ends the
thread, with its trace in the log; the supervisor's loop sees that here and starts another one after a while.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from agent import clock

if TYPE_CHECKING:
    from collections.abc import Callable

AGAIN_SECONDS = 30.0


class KeptThread:
    """Runs `work` in a thread, until it returns by itself.  `died` is told when it was ended by an error."""

    def __init__(self, name: str, work: Callable[[], None], died: Callable[[float], None]) -> None:
        self._name = name
        self._work = work
        self._died = died
        self._thread: threading.Thread | None = None
        self._returned = False
        self._again_at: float | None = None

    def start(self) -> None:
        """Begin."""
        self._again_at = None
        self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
        self._thread.start()

    def look(self) -> None:
        """Called again and again by the daemon: start another one, AGAIN_SECONDS after the last one died."""
        if self._thread is None or self._thread.is_alive() or self._returned:
            return
        now = clock.monotonic()
        if self._again_at is None:
            self._again_at = now + AGAIN_SECONDS
            self._died(AGAIN_SECONDS)
        elif now >= self._again_at:
            self.start()

    def join(self, seconds: float) -> None:
        """Wait for its end, so long at most."""
        if self._thread is not None and self._thread.is_alive():
            self._thread.join(seconds)

    def _run(self) -> None:
        self._work()
        self._returned = True
