"""Lets the daemon's main thread wait for a time, for a wake-up by another thread or a signal handler, or for a file
descriptor.

`threading.Event` cannot be used for this wait: a signal handler must not take a lock, and such an event does not report
the end of a worker or a notification of the database. `daemon.py` uses this class, which works on Linux only (eventfd).
"""

from __future__ import annotations

import os
import select
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


class Waker:
    """The wait of one thread; any number of threads and signal handlers may end it."""

    def __init__(self) -> None:
        self._descriptor = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    def wake(self) -> None:
        """End the present wait of the main thread; if it does not wait now, its next wait ends at once. A signal
        handler may call this method."""
        with suppress(BlockingIOError):
            os.eventfd_write(self._descriptor, 1)

    def wait(self, seconds: float, descriptors: Iterable[int] = ()) -> bool:
        """Wait for a call of `wake`, for a descriptor that becomes readable or is hung up, or for the time-out; returns
        False after the time-out."""
        poll = select.poll()
        for descriptor in (self._descriptor, *descriptors):
            poll.register(descriptor, select.POLLIN)
        happened = bool(poll.poll(max(0.0, seconds) * 1000))
        with suppress(BlockingIOError):
            os.eventfd_read(self._descriptor)
        return happened

    def close(self) -> None:
        """Close the file descriptor of the eventfd."""
        os.close(self._descriptor)
