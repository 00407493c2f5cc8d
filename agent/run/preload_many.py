"""The preload of a forkserver from which many workers come: `run/preload.py`, then rehearsals.

The first is a worker's whole life, from its fork to its end, in a process that is forked for it: what it ran is laid
together then, and nothing of it stays in the heap.  The second warms the copies.  It takes about two seconds more at
the start, and saves each worker about 3.5 MiB, so `run/supervisor.py` asks for it where many are allowed.  Imported by
name (`set_forkserver_preload`).
"""

from __future__ import annotations

import gc
import pickle
from typing import TYPE_CHECKING

import agent.run.preload  # noqa: F401
from agent.run import groups, worker
from agent.run.gather import Ran, gather, watched
from agent.run.rehearsal import rehearse

if TYPE_CHECKING:
    from agent.config import Settings

WARM = 9
"""Tasks; CPython adapts code to what it meets once it was called eight times."""

ran: Ran = set()


def forked(settings: Settings, uuid: str) -> int:
    """The exit code of a worker like those of the supervisor: its settings come pickled, it ends its process."""
    pickled = pickle.dumps(settings)
    code, found = watched(lambda: worker.main(pickle.loads(pickled), uuid))  # noqa: S301 - of the line above
    ran.update(found)
    groups.remove(settings.base_dir)
    return code


rehearse(forked)
gather(ran)
rehearse(tasks=WARM)
gc.collect()
gc.freeze()
