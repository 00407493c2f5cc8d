"""What the daemon's main thread waits for: a time, a wake from another thread or a signal, or a descriptor.

`threading.Event` would not do: a signal's handler must not take a lock, and an event knows nothing of a worker's end
or of a notice of the database.  Used by `daemon.py`; Linux only (eventfd).
"""

from __future__ import annotations

import os
import select
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


class Waker:
    """One waiter; any number of threads and signal handlers that wake it."""

    def __init__(self) -> None:
        self._descriptor = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    def wake(self) -> None:
        """End the wait, or the next one.  May be called by a signal's handler."""
        with suppress(BlockingIOError):
            os.eventfd_write(self._descriptor, 1)

    def wait(self, seconds: float, descriptors: Iterable[int] = ()) -> bool:
        """Until `wake`, until one of the descriptors can be read or is hung up, or so long; whether it was one of the
        first two kinds."""
        poll = select.poll()
        for descriptor in (self._descriptor, *descriptors):
            poll.register(descriptor, select.POLLIN)
        happened = bool(poll.poll(max(0.0, seconds) * 1000))
        with suppress(BlockingIOError):
            os.eventfd_read(self._descriptor)
        return happened

    def close(self) -> None:
        """Give the descriptor back."""
        os.close(self._descriptor)
