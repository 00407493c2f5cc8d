"""Reports whether the daemon of a base_dir is alive, and whether it starts tasks, or why not.

The daemon writes the health file (`daemon-health.json`, or `daemon-HOST-health.json` if hosts may share the ledger)
beside its lock when the content changes, and while the daemon's loop runs it updates the time of the file every
BEAT_SECONDS. The file also has the tasks that the daemon delays by itself (`start_delays.py`), so that the commands and
the page can say why such a task waits. `main.py health`, `GET /ready` and `GET /live` check the daemon's lock and the
health file, so that a daemon that hangs cannot report itself as healthy. A start hold on a model server or on a forge
(`start_holds.py`) also counts as a reason why the daemon starts no tasks. With start holds on single repositories only,
the daemon counts as ready, because the tasks of other repositories start.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import orjson

from agent import clock, durable_files
from agent.daemon import start_holds
from agent.daemon.program_version import lock_of
from agent.daemon.start_delays import StartDelay
from agent.errors import DiskError
from agent.store.storable_text import dumps

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from agent.config import Settings

BEAT_SECONDS = 5.0
SILENT_SECONDS = 60.0
"""Seconds without a round of the daemon's loop after which the daemon counts as hung; waiting for a busy ledger takes
at most half of that time."""
MOST_DELAYS = 200
"""Maximum number of delayed tasks that the health file names."""


@dataclass(frozen=True, slots=True)
class Health:
    """`live` is True if a daemon exists and its loop runs.

    `ready` is True if the daemon starts tasks as they come.  `why`: the reasons why the daemon starts no tasks.
    `delays`: the tasks, by uuid, for which the daemon starts no worker yet.
    """

    live: bool
    ready: bool
    why: tuple[str, ...] = ()
    delays: Mapping[str, StartDelay] = field(default_factory=dict[str, StartDelay], hash=False)


class HealthFile:
    """Writes the health file of the daemon. If the health file cannot be written, the daemon continues, and the file
    becomes outdated."""

    def __init__(self, settings: Settings) -> None:
        self.path = path_of(settings)
        self.said: tuple[tuple[str, ...], dict[str, tuple[str, str]]] | None = None
        self.beaten_at = -BEAT_SECONDS

    def write(self, why: Sequence[str], delays: Mapping[str, StartDelay] | None = None) -> None:
        """Record that the loop runs, the reasons `why` no tasks are started (a reason "" is left out), and the delayed
        tasks."""
        named = list((delays or {}).items())[:MOST_DELAYS]
        now = clock.monotonic()
        words = (tuple(one for one in why if one), {uuid: (delay.until, delay.why) for uuid, delay in named})
        if words == self.said and now - self.beaten_at < BEAT_SECONDS:
            return
        self.beaten_at = now
        with suppress(DiskError, OSError):
            if words == self.said and self.path.exists():
                os.utime(self.path)  # a change of the file's times works even on a full disk
                return
            facts = {"pid": os.getpid(), "at": clock.stamp(), "why": words[0], "delays": words[1]}
            durable_files.write_file(self.path, dumps(facts), sync=False)
            self.said = words


def path_of(settings: Settings) -> Path:
    """The health file of the daemon of this host."""
    lock = lock_of(settings)
    return lock.with_name(f"{lock.stem}-health.json")


def read_health(settings: Settings) -> Health:
    """The health of the daemon of this base_dir and host."""
    try:
        held = durable_files.is_locked(lock_of(settings))
    except OSError as error:
        return Health(False, False, (f"the daemon's lock cannot be looked at: {error}",))
    if not held:
        return Health(False, False, (f"no daemon works on {settings.base_dir}; `main.py run` starts one",))
    path = path_of(settings)
    try:
        facts = orjson.loads(path.read_bytes())
        why = [str(one) for one in facts["why"]]
        delays = {uuid: StartDelay(str(until), str(text)) for uuid, (until, text) in facts.get("delays", {}).items()}
        age = clock.now().timestamp() - path.stat().st_mtime
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        return Health(
            False, False, (f"the daemon has not said yet that it is well, or {path} cannot be read: {error}",)
        )
    if age > SILENT_SECONDS:
        said = f"the daemon (process {facts.get('pid')}) has not gone round for {age:.0f} s, or cannot write {path}"
        return Health(False, False, (said,))
    why += [one.text for one in start_holds.read(settings.base_dir) if one.until and not one.is_of_one_repository]
    return Health(True, not why, tuple(dict.fromkeys(why)), delays)
