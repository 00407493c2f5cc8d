"""Counts the attempts of a task that ended after the claim but before the task was opened.

An attempt that ended before the task was opened has written nothing into the conversation and the effects, so
`requeue.py` cannot count it. The number of attempts is in a small file in the task's folder, so each host counts its
own attempts; the file is removed when the task is opened.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from agent import durable_files
from agent.errors import DiskError, HostError, LedgerError
from agent.worker.error_disposition import ATTEMPTS, FIRST_SECONDS, LONGEST_SECONDS

if TYPE_CHECKING:
    from pathlib import Path

NAME = "unopened"
OF_HOST = (DiskError, HostError, LedgerError)
"""Errors of this host or of a shared store: a task does not fail because of them, however long they last."""


def add_attempt(folder: Path) -> int:
    """Record one more attempt that ended before the task was opened; returns the number of such attempts. If the file
    with the number cannot be written, it keeps the old number.
    """
    tries = count_attempts(folder) + 1
    with suppress(DiskError, OSError):
        durable_files.write_file(folder / NAME, f"{tries}\n".encode())
    return tries


def count_attempts(folder: Path) -> int:
    """The number of attempts of the task that ended before the task was opened; 0 if no number can be read."""
    try:
        return max(0, int((folder / NAME).read_text("ascii")))
    except (OSError, ValueError):
        return 0


def forget(folder: Path) -> None:
    """Remove the file with the number of attempts, because the task was opened or has ended."""
    with suppress(OSError):
        (folder / NAME).unlink()  # ours


def seconds(tries: int) -> float:
    """Seconds until the next attempt after `tries` attempts."""
    return float(min(LONGEST_SECONDS, FIRST_SECONDS * 2.0 ** (min(tries, ATTEMPTS) - 1)))


def is_enough(tries: int, error: BaseException) -> bool:
    """Whether the task ends as failed after `tries` attempts, the last of which ended with `error`."""
    return tries >= ATTEMPTS and not isinstance(error, OF_HOST)
