"""Sends SIGUSR1 to the daemon of a base_dir, which then polls all its sources (`main.py poke`).

The process id of the daemon comes from the file beside the daemon's lock (`program_version.record`). A daemon that was
killed leaves the file with its process id behind, and this process id may belong to another process by now. SIGUSR1 is
sent only to a process that has the lock open and that handles SIGUSR1, since the signal would end any other process.
"""

from __future__ import annotations

import os
import signal
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import orjson

from agent import durable_files
from agent.daemon.program_version import RESTART, lock_of
from agent.errors import HostError

if TYPE_CHECKING:
    from agent.config import Settings


class _Descriptor:
    """A pidfd: a file descriptor of one process; a signal to it never reaches a later process with the same number."""

    def __init__(self, pid: int) -> None:
        self.number = os.pidfd_open(pid)

    def close(self) -> None:
        os.close(self.number)


def poke_daemon(settings: Settings) -> int:
    """Make the daemon of this base_dir and host poll at once; returns the daemon's process id.

    Raises HostError when no daemon runs, when the running daemon is still starting or is older than this command, or
    when the signal cannot be sent.
    """
    lock = lock_of(settings)
    try:
        if not durable_files.is_locked(lock):
            raise HostError(f"no daemon works on {settings.base_dir}; `main.py run` starts one")
        pid = int(orjson.loads(lock.with_suffix(".json").read_bytes())["pid"])
        with closing(_Descriptor(pid)) as process:
            if not _has_open(pid, lock):
                raise HostError(f"the daemon of {settings.base_dir} is still starting; try again in a moment")
            if not _handles(pid, signal.SIGUSR1):
                raise HostError(f"the daemon (process {pid}) is older than this command: {RESTART}")
            signal.pidfd_send_signal(process.number, signal.SIGUSR1)
    except (OSError, orjson.JSONDecodeError, KeyError, TypeError, ValueError) as error:
        raise HostError(f"the daemon of {settings.base_dir} cannot be asked to poll: {error}") from error
    return pid


def _has_open(pid: int, path: Path) -> bool:
    """Whether the process `pid` has the file at `path` open."""
    wanted = path.stat()
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(OSError):
            found = link.stat()
            if (found.st_dev, found.st_ino) == (wanted.st_dev, wanted.st_ino):
                return True
    return False


def _handles(pid: int, number: signal.Signals) -> bool:
    """Whether a process has a handler for the signal `number`, by the mask SigCgt in the process's status."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    mask = next((int(line.split()[1], 16) for line in lines if line.startswith("SigCgt:")), 0)
    return bool(mask >> (number - 1) & 1)
