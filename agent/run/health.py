"""Whether the daemon of a base_dir is alive, and whether it starts tasks or why not.

The daemon writes `daemon-health.json` beside its lock when what it says changes, and touches it as its loop goes round.
Whoever asks (`health`, `GET /ready` and `/live`) looks at lock and file, so that a daemon that hangs cannot say that it
is well.  A place is named that keeps tasks from being started; one repository whose starts are held is not a reason,
since the others go on.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import orjson

from agent import clock, disk
from agent.errors import DiskError
from agent.run import holds
from agent.run.installed import lock_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from agent.config import Settings

BEAT_SECONDS = 5.0
SILENT_SECONDS = 60.0
"""How long the loop may not have gone round until the daemon counts as hung: a busy ledger is waited for half as
long."""


@dataclass(frozen=True, slots=True)
class Health:
    """`live`: a daemon is there and its loop goes round.  `ready`: it starts tasks as they come.  `why` says why
    not."""

    live: bool
    ready: bool
    why: tuple[str, ...] = ()


class Pulse:
    """The daemon's side.  What cannot be written stops nothing: then the file grows old."""

    def __init__(self, settings: Settings) -> None:
        self.path = path_of(settings)
        self.said: tuple[str, ...] | None = None
        self.beaten_at = -BEAT_SECONDS

    def beat(self, why: Sequence[str]) -> None:
        """Say that the loop goes round, and what keeps tasks from being started (nothing: "")."""
        now, words = clock.monotonic(), tuple(one for one in why if one)
        if words == self.said and now - self.beaten_at < BEAT_SECONDS:
            return
        self.beaten_at = now
        with suppress(DiskError, OSError):
            if words == self.said and self.path.exists():
                os.utime(self.path)  # needs no room on a disk that is full
                return
            facts = {"pid": os.getpid(), "at": clock.stamp(), "why": words}
            disk.write_file(self.path, orjson.dumps(facts), sync=False)
            self.said = words


def path_of(settings: Settings) -> Path:
    """Where the daemon of this host writes what it says."""
    lock = lock_of(settings)
    return lock.with_name(f"{lock.stem}-health.json")


def look(settings: Settings) -> Health:
    """The health of the daemon of this base_dir and host."""
    try:
        held = disk.is_locked(lock_of(settings))
    except OSError as error:
        return Health(False, False, (f"the daemon's lock cannot be looked at: {error}",))
    if not held:
        return Health(False, False, (f"no daemon works on {settings.base_dir}",))
    path = path_of(settings)
    try:
        facts = orjson.loads(path.read_bytes())
        why = [str(one) for one in facts["why"]]
        age = clock.now().timestamp() - path.stat().st_mtime
    except (OSError, orjson.JSONDecodeError, KeyError, TypeError) as error:
        return Health(
            False, False, (f"the daemon has not said yet that it is well, or {path} cannot be read: {error}",)
        )
    if age > SILENT_SECONDS:
        said = f"the daemon (process {facts.get('pid')}) has not gone round for {age:.0f} s, or cannot write {path}"
        return Health(False, False, (said,))
    why += [one.text for one in holds.read(settings.base_dir) if one.until and not one.is_of_one_repository]
    return Health(True, not why, tuple(dict.fromkeys(why)))
