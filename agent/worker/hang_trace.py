"""Makes a worker that hangs write a trace: on SIGUSR1 the process writes a stack trace of each of its threads."""

from __future__ import annotations

import faulthandler
import os
import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextmanager
def trace_on_signal(log: Path) -> Iterator[None]:
    """Inside the block, SIGUSR1 makes this process write the stack of each thread to `log`, even while it hangs in C
    code; to stderr if that file cannot be opened."""
    try:
        descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError:
        descriptor = os.dup(2)
    faulthandler.register(signal.SIGUSR1, file=descriptor, all_threads=True)
    try:
        yield
    finally:
        faulthandler.unregister(signal.SIGUSR1)
        os.close(descriptor)
