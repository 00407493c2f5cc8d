"""Detects whether the files of the program differ from those that the daemon has loaded.

A worker unpickles settings that the daemon has pickled, and imports modules that the daemon has not imported. After an
upgrade under a running daemon, the program's files and the loaded code may not fit together, and a worker could die
before it has claimed its task. The daemon therefore compares the program's files before it starts a worker; after a
change it reports once that it must be restarted, and starts no more workers. The daemon also writes a digest of its
code beside its lock, from which `tasks` and `doctor` detect that it must be restarted.
"""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from typing import TYPE_CHECKING

import orjson

from agent import __version__, clock, durable_files
from agent.installed_files import TOP, files, stats
from agent.taskqueue.row_holder import hostname, is_alone

if TYPE_CHECKING:
    from pathlib import Path

    from agent.config import Settings

SUFFIXES = (".py", ".sql", ".j2", ".md")
SECONDS = 1.0
RESTART = "restart the daemon; queued tasks wait for it and lose no attempt"


class InstalledProgram:
    """The state of the files of the package at `top` at the time when this object was made."""

    def __init__(self, top: Path = TOP) -> None:
        self.top = top
        self.stats = stats(top, SUFFIXES)
        self.code = digest(top)
        self.changed = ""
        self.looked_at = clock.monotonic()

    def describe_change(self) -> str:
        """A sentence that names at most three of the files that changed since this object was made, "" if no change is
        known. The files are compared at most once in SECONDS; in between the result stays the same. After a change was
        found, the result stays the same, even if the files are restored."""
        now = clock.monotonic()
        if self.changed or now - self.looked_at < SECONDS:
            return self.changed
        self.looked_at = now
        if (now_there := stats(self.top, SUFFIXES)) == self.stats:
            return ""
        if digest(self.top) == self.code:
            self.stats = now_there
            return ""
        both = now_there.keys() | self.stats.keys()
        names = sorted(name for name in both if now_there.get(name) != self.stats.get(name))
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        self.changed = f"{', '.join(names[:3])}{more} in {self.top} are not what this process has loaded"
        return self.changed


def digest(top: Path = TOP) -> str:
    """One hash for the names and the content of all files of the package that have one of SUFFIXES."""
    made = hashlib.blake2b(digest_size=16)
    for name, path in files(top, SUFFIXES):
        with suppress(OSError):  # of a file that cannot be read, since it was just removed, the name alone counts
            made.update(f"{name}\0".encode())
            made.update(path.read_bytes())
    return made.hexdigest()


def lock_of(settings: Settings) -> Path:
    """The path of the daemon's lock in base_dir. If hosts may share the ledger, each host has a lock of its own, since
    the hosts may share the base_dir too."""
    name = "daemon.lock" if is_alone(settings) else f"daemon-{hostname()}.lock"
    return settings.base_dir / name


def record(settings: Settings, code: str) -> None:
    """Write the pid, version, digest of the code, and start of the daemon to the JSON file beside its lock. Raises
    DiskError."""
    facts = {"pid": os.getpid(), "version": __version__, "code": code, "started_at": clock.stamp()}
    durable_files.write_file(lock_of(settings).with_suffix(".json"), orjson.dumps(facts), sync=False)


def restart_reason(settings: Settings, top: Path = TOP) -> str:
    """The reason why the daemon of this base_dir must be restarted; "" when no daemon runs, when it runs the installed
    code, or when its record beside the lock cannot be read."""
    lock = lock_of(settings)
    try:
        if not durable_files.is_locked(lock):
            return ""
        facts = orjson.loads(lock.with_suffix(".json").read_bytes())
        pid, code = int(facts["pid"]), str(facts["code"])
    except (OSError, orjson.JSONDecodeError, KeyError, TypeError, ValueError):
        return ""
    if code == digest(top):
        return ""
    return f"the daemon (process {pid}) runs other code than what is installed in {top}, and starts nothing: {RESTART}"
