"""Whether the program's files are still those that the daemon has loaded.

A worker unpickles settings that the daemon has pickled, and imports modules that the daemon has not.  After an upgrade
under a running daemon the two do not fit together, and every worker would die before it has claimed its task.  So the
daemon compares before it starts one, says once that it must be restarted, and starts nothing more.  It writes a digest
of its code beside its lock, by which `tasks` and `doctor` see the same from outside.
"""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import orjson

from agent import __version__, clock, disk
from agent.taskqueue.identity import hostname

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agent.config import Settings

TOP = Path(__file__).resolve().parents[1]
SUFFIXES = (".py", ".sql", ".j2", ".md")
SECONDS = 1.0
RESTART = "restart the daemon; queued tasks wait for it and lose no attempt"


class Installed:
    """The files of the package at `top`, as they were when this object was made."""

    def __init__(self, top: Path = TOP) -> None:
        self.top = top
        self.stats = _stats(top)
        self.code = digest(top)
        self.changed = ""
        self.looked_at = clock.monotonic()

    def look(self) -> str:
        """What has changed, in words, "" for nothing; a file that was written again as it was is no change."""
        now = clock.monotonic()
        if self.changed or now - self.looked_at < SECONDS:
            return self.changed
        self.looked_at = now
        if (stats := _stats(self.top)) == self.stats:
            return ""
        if digest(self.top) == self.code:
            self.stats = stats
            return ""
        names = sorted(name for name in stats.keys() | self.stats.keys() if stats.get(name) != self.stats.get(name))
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        self.changed = f"{', '.join(names[:3])}{more} in {self.top} are not what this process has loaded"
        return self.changed


def digest(top: Path = TOP) -> str:
    """One value for the content of all files of the package."""
    made = hashlib.blake2b(digest_size=16)
    for name, path in _files(top):
        with suppress(OSError):  # removed just now
            made.update(f"{name}\0".encode())
            made.update(path.read_bytes())
    return made.hexdigest()


def lock_of(settings: Settings) -> Path:
    """The lock of the one daemon of a base_dir; of one for each host where a shared ledger lets hosts share it."""
    name = "daemon.lock" if settings.taskqueue.ledger == "sqlite" else f"daemon-{hostname()}.lock"
    return settings.base_dir / name


def record(settings: Settings, code: str) -> None:
    """Write beside the daemon's lock what it has loaded.  DiskError."""
    facts = {"pid": os.getpid(), "version": __version__, "code": code, "started_at": clock.stamp()}
    disk.write_file(lock_of(settings).with_suffix(".json"), orjson.dumps(facts), sync=False)


def outdated(settings: Settings, top: Path = TOP) -> str:
    """Why the daemon that works here must be restarted, "" when none does, or when it runs what is installed."""
    lock = lock_of(settings)
    try:
        if not disk.is_locked(lock):
            return ""
        facts = orjson.loads(lock.with_suffix(".json").read_bytes())
        pid, code = int(facts["pid"]), str(facts["code"])
    except (OSError, orjson.JSONDecodeError, KeyError, TypeError, ValueError):
        return ""
    if code == digest(top):
        return ""
    return f"the daemon (process {pid}) runs other code than what is installed in {top}, and starts nothing: {RESTART}"


def _stats(top: Path) -> dict[str, tuple[int, int, int]]:
    found = {}
    for name, path in _files(top):
        with suppress(OSError):
            status = path.stat()
            found[name] = (status.st_ino, status.st_size, status.st_mtime_ns)
    return found


def _files(top: Path) -> Iterator[tuple[str, Path]]:
    for folder, folders, names in os.walk(top):  # ours
        folders[:] = sorted(name for name in folders if name != "__pycache__")
        for name in sorted(names):
            if name.endswith(SUFFIXES):
                path = Path(folder, name)
                yield str(path.relative_to(top)), path
