"""What `first_byte` hands to a worker, in a module of its own: a worker runs no main module and finds nothing there."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from multiprocessing.connection import Connection


class Stamped:
    """A worker's report that says when each word was said."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    def send(self, word: str) -> None:
        self.connection.send((word, time.monotonic()))

    def close(self) -> None:
        self.connection.close()
