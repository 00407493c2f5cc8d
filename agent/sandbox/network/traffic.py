"""Counts the attempts of a command to connect, and their bytes, by host and port, for the log and for the model."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from agent.values import Contact

if TYPE_CHECKING:
    from collections.abc import Iterator

MOST = 200
"""There is one counter for each host, port and reason for a refusal, until there are MOST counters. After that,
connections that would need a new counter are counted as the host OTHERS, since a command may try any number of
names."""

OTHERS = "(others)"


class Traffic:
    """The connection counters of one command, which many threads update."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, int, str], list[int]] = {}
        self._lock = threading.Condition()
        self._connected = 0

    def count(
        self, host: str, port: int, *, sent: int = 0, received: int = 0, refused: str = "", new: bool = True
    ) -> None:
        """Count one attempt to connect, or with `new` False further bytes of a connection that is counted already;
        `refused` is the reason for which the proxy refused it, "" if the proxy did not."""
        key = (host, port, refused)
        with self._lock:
            if key not in self._found and len(self._found) >= MOST:
                key = (OTHERS, 0, "too many hosts" if refused else "")
            row = self._found.setdefault(key, [0, 0, 0])
            row[0] += new
            row[1] += sent
            row[2] += received

    @contextmanager
    def connected(self) -> Iterator[None]:
        """A context manager around the code that counts the bytes of one connection to a server; the method `wait`
        waits until all such contexts have ended."""
        with self._lock:
            self._connected += 1
        try:
            yield
        finally:
            with self._lock:
                self._connected -= 1
                self._lock.notify_all()

    def wait(self, seconds: float) -> bool:
        """Wait until no context of `connected` is open, so that all bytes are counted; returns False if that takes
        longer than `seconds`."""
        with self._lock:
            return self._lock.wait_for(lambda: not self._connected, seconds)

    def contacts(self) -> tuple[Contact, ...]:
        """One record for each counter, which is one for each host (or OTHERS), port and reason for a refusal, in the
        order of the first attempts to connect."""
        with self._lock:
            return tuple(
                Contact(host, port, tries, sent, received, why)
                for (host, port, why), (tries, sent, received) in self._found.items()
            )
