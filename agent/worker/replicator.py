"""Updates the replica of a running task, in a thread of its own (`context_storage.replica`).

The task's process calls `snapshot` at the end of each turn. `snapshot` records the state of the task's files and saves
the work tree; the thread then copies that state to the replica. The next turn waits for the thread, but for at most
WAIT_SECONDS, and not at all while the storage of the replica cannot be reached; so the replica is at most one turn
behind while its storage is fast enough. A task continues if the storage of its replica cannot be reached. An outage of
the replica's storage is reported once (`replica_away`), and the write is tried again; when a write succeeds, everything
that the replica lacks is copied. `store/replica.py` defines the format of a replica.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from agent import clock
from agent.context.stores import file_names
from agent.errors import MakimonoError
from agent.observe import log
from agent.store.remote_storage import RemoteFolder, error_words
from agent.store.replica import ReplicaSnapshot, Writer, take_snapshot, write_state
from agent.taskqueue.row_holder import hostname
from agent.work import work_tree_snapshot

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agent.config import Settings
    from agent.context import TaskContextManager
    from agent.observe.events import Events
    from agent.work.workspace import Workspace

WAIT_SECONDS, END_SECONDS = 10.0, 20.0
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0


class Replicator:
    """Copies the state of one task to its replica while this process works on the task.  `workspace` must be open."""

    def __init__(self, address: str, context: TaskContextManager, workspace: Workspace, events: Events) -> None:
        self.address = address
        self.context = context
        self.workspace = workspace
        self.events = events
        self.away = False
        self._saved: work_tree_snapshot.SavedTree | None = None
        self._next: ReplicaSnapshot | None = None
        self._busy = False
        self._ended = False
        self._changed = threading.Condition()
        self._folder = context.context_dir
        self._generation = write_state(self._folder, context.attempt)
        self._thread = threading.Thread(target=self._run, name="replica", daemon=True)
        self._thread.start()

    def snapshot(self) -> None:
        """Record the present state of the task, and let the thread copy the state to the replica. First waits at most
        WAIT_SECONDS until the previous state is copied. Raises DiskError."""
        if self._ended:
            return
        self.wait(WAIT_SECONDS)
        made = self._save_tree()
        store = self.context.get_message_store()
        facts = {"host": hostname(), "last_seq": store.last_seq, "turns": store.totals().turns}
        shot = take_snapshot(self._folder, file_names(), made, facts)
        with self._changed:
            self._next = shot
            self._changed.notify_all()

    def wait(self, seconds: float) -> bool:
        """Wait until the replica is up to date; returns False if `seconds` have passed or the storage cannot be
        reached."""
        until = clock.monotonic() + seconds
        with self._changed:
            while self._next is not None or self._busy:
                left = until - clock.monotonic()
                if self.away or left <= 0:
                    return False
                self._changed.wait(left)
        return True

    def close(self) -> None:
        """End the thread that copies; a state that is not copied yet is dropped."""
        with self._changed:
            self._ended = True
            self._next = None
            self._changed.notify_all()
        self._thread.join(1.0)

    def _save_tree(self) -> Mapping[str, bytes]:
        """Save the work tree; returns the files of the saved state: name → content.

        Work that cannot be saved (because it is too large, or git fails) is left out of the replica, and reported
        once."""
        before = self._saved
        self._saved = saved = work_tree_snapshot.save(self.workspace, before)
        if saved.lacks and saved.lacks != (before.lacks if before is not None else ""):
            self.events.emit("replica_lacks", uuid=self.context.uuid, why=saved.lacks)
        return saved.files

    # --- the thread ----------------------------------------------------------------------------------------------

    def _run(self) -> None:
        writer: Writer | None = None
        pause = FIRST_PAUSE
        while (shot := self._taken()) is not None:
            try:
                if writer is None:
                    place = RemoteFolder(self.address)
                    writer = Writer(place, self._folder, self.context.uuid, self.context.attempt, self._generation)
                writer.write(shot)
            except Exception as error:  # noqa: BLE001 - no error of the storage's driver ends the task; the write is tried again
                if self._ended:
                    return
                why = str(error) if isinstance(error, MakimonoError) else error_words(error)
                self._finish_upload(shot, failed=True)
                if pause == FIRST_PAUSE:
                    self.events.emit("replica_away", uuid=self.context.uuid, error=why, seconds=pause)
                    log.mistake("replica", self.context.uuid, error)
                with self._changed:
                    self._changed.wait_for(lambda: self._ended, pause)
                pause = min(LONGEST_PAUSE, 2 * pause)
            else:
                if self.away:
                    self.events.emit("replica_caught_up", uuid=self.context.uuid, last_seq=shot.facts["last_seq"])
                pause = FIRST_PAUSE
                self._finish_upload(shot, failed=False)

    def _taken(self) -> ReplicaSnapshot | None:
        with self._changed:
            self._changed.wait_for(lambda: self._next is not None or self._ended)
            shot, self._next = self._next, None
            self._busy = shot is not None
            return None if self._ended else shot

    def _finish_upload(self, shot: ReplicaSnapshot, *, failed: bool) -> None:
        with self._changed:
            self._busy, self.away = False, failed
            if failed and self._next is None and not self._ended:
                self._next = shot  # if a newer state waits, that state is copied instead of this one
            self._changed.notify_all()


class TaskReplica:
    """The replica of one run; if no replica is configured, the methods do nothing.

    The replica is updated even after the model has finished: a task that is requeued still records the reason in its
    files."""

    def __init__(self, settings: Settings, context: TaskContextManager, events: Events, *, publishing: bool) -> None:
        self.context = context
        self.events = events
        wanted = settings.context_storage.enabled and publishing
        self.address = settings.context_storage.replica if wanted else None
        self._replicator: Replicator | None = None

    def start(self, workspace: Workspace) -> None:
        """Begin to replicate with the present state of the task; `workspace` must be open. Raises DiskError."""
        if self.address is not None and self._replicator is None:
            self._replicator = Replicator(self.address, self.context, workspace, self.events)
            self._replicator.snapshot()

    def save(self, seconds: float = 0.0) -> None:
        """Update the replica to the present state of the files; wait at most `seconds` for that.  Raises DiskError."""
        if self._replicator is not None:
            self._replicator.snapshot()
            self._replicator.wait(seconds)

    def close(self) -> None:
        """Stop the updates of the replica, because the task's files will be removed or another process may work on
        them."""
        if self._replicator is not None:
            self._replicator.close()
