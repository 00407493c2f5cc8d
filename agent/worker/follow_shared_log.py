"""Before the briefing of a task is written, applies to memory.db the new entries of the memory log that several hosts
share."""

from __future__ import annotations

import threading
from contextlib import closing
from typing import TYPE_CHECKING

from agent.errors import MakimonoError

if TYPE_CHECKING:
    from agent.worker.task_run import TaskRun

LAYER = "shared log of memory"
PATIENCE = 1.0
"""Maximum seconds that a task waits for the new entries of the shared log.  After PATIENCE seconds the task continues
without the new entries of the shared log, while a thread goes on to apply them.
"""


def follow_shared_log(run: TaskRun) -> None:
    """Apply the new entries of the shared log to memory.db, if several hosts share a log. If the entries of the shared
    log cannot be applied, an event is emitted, and the task continues."""
    from agent.wiring.memory import open_memory, shared_place  # `wiring.memory` is not imported while memory is off

    if shared_place(run.settings) is None:
        return
    failed: list[str] = []

    def follow() -> None:
        try:
            with closing(open_memory(run.settings, f"task {run.uuid}")) as store:
                store.follow(purges=False)
        except MakimonoError as error:
            failed.append(str(error))

    thread = threading.Thread(target=follow, name="memory follow", daemon=True)
    thread.start()
    thread.join(PATIENCE)
    why = f"memory.db did not follow within {PATIENCE:g} s" if thread.is_alive() else "".join(failed)
    if why:
        run.events.emit("layer_failed", layer=LAYER, error=why)
