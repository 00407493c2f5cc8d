"""Keeps the replica of a running task up to date, in a thread of its own (`context_storage.replica`).

At the end of each turn the task's process says `turn`: what the files hold then is noted, the work tree is saved, and
the thread brings the replica there.  It is at most one turn behind: the next turn waits for it, for WAIT_SECONDS at
most, and not at all while the place is away.  A place that is away stops nothing: it is said once (`replica_away`),
tried again, and one write brings everything that is missing.  Built by `run/task_run.py`; what lies there is
`store/replica.py`'s.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from agent import clock
from agent.errors import MakimonoError
from agent.store.place import Place, said
from agent.store.replica import Shot, Writer, take_shot, write_state
from agent.taskqueue.identity import hostname
from agent.work import revived

if TYPE_CHECKING:
    from agent.context import TaskContextManager
    from agent.observe.events import Events
    from agent.work.workspace import Workspace

WAIT_SECONDS, END_SECONDS = 10.0, 20.0
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0


class Replicator:
    """The replica of one task while this process works on it.  `workspace` is open."""

    def __init__(self, address: str, context: TaskContextManager, workspace: Workspace, events: Events) -> None:
        self.address = address
        self.context = context
        self.workspace = workspace
        self.events = events
        self.away = False
        self._word = ""
        self._made: dict[str, bytes] = {}
        self._lacks = ""
        self._next: Shot | None = None
        self._busy = False
        self._ended = False
        self._changed = threading.Condition()
        self._folder = context.context_dir
        self._generation = write_state(self._folder, context.attempt)
        self._thread = threading.Thread(target=self._run, name="replica", daemon=True)
        self._thread.start()

    def turn(self) -> None:
        """The task is as it is to be found again.  DiskError."""
        if self._ended:
            return
        self.wait(WAIT_SECONDS)
        self._save_tree()
        store = self.context.get_message_store()
        facts = {"host": hostname(), "last_seq": store.last_seq, "turns": store.totals().turns}
        shot = take_shot(self._folder, self._made, facts)
        with self._changed:
            self._next = shot
            self._changed.notify_all()

    def wait(self, seconds: float) -> bool:
        """Until the replica is up to date; False when it is not after so long, or its place is away."""
        until = clock.monotonic() + seconds
        with self._changed:
            while self._next is not None or self._busy:
                left = until - clock.monotonic()
                if self.away or left <= 0:
                    return False
                self._changed.wait(left)
        return True

    def close(self) -> None:
        """End the thread; what is not written by now is not."""
        with self._changed:
            self._ended = True
            self._next = None
            self._changed.notify_all()
        self._thread.join(1.0)

    def _save_tree(self) -> None:
        """Work that cannot be saved (too much, or git cannot) is left out of the replica, and that is said once."""
        saved = revived.save(self.workspace, self._word)
        self._word, self._made = saved.word, saved.files or self._made
        if saved.lacks and saved.lacks != self._lacks:
            self.events.emit("replica_lacks", uuid=self.context.uuid, why=saved.lacks)
        self._lacks = saved.lacks

    # --- the thread ----------------------------------------------------------------------------------------------

    def _run(self) -> None:
        writer: Writer | None = None
        pause = FIRST_PAUSE
        while (shot := self._taken()) is not None:
            try:
                if writer is None:
                    place = Place(self.address)
                    writer = Writer(place, self._folder, self.context.uuid, self.context.attempt, self._generation)
                writer.write(shot)
            except Exception as error:  # noqa: BLE001 - a driver is foreign code, and never ends a task
                if self._ended:
                    return
                why = str(error) if isinstance(error, MakimonoError) else said(error)
                self._over(shot, failed=True)
                if pause == FIRST_PAUSE:
                    self.events.emit("replica_away", uuid=self.context.uuid, error=why, seconds=pause)
                with self._changed:
                    self._changed.wait_for(lambda: self._ended, pause)
                pause = min(LONGEST_PAUSE, 2 * pause)
            else:
                if self.away:
                    self.events.emit("replica_caught_up", uuid=self.context.uuid, last_seq=shot.facts["last_seq"])
                pause = FIRST_PAUSE
                self._over(shot, failed=False)

    def _taken(self) -> Shot | None:
        with self._changed:
            self._changed.wait_for(lambda: self._next is not None or self._ended)
            shot, self._next = self._next, None
            self._busy = shot is not None
            return None if self._ended else shot

    def _over(self, shot: Shot, *, failed: bool) -> None:
        with self._changed:
            self._busy, self.away = False, failed
            if failed and self._next is None and not self._ended:
                self._next = shot  # unless there is a newer one
            self._changed.notify_all()
