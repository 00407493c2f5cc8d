"""Start workers, at most `scheduling.max_workers` at once, and put the tasks of dead ones back.

The ledger is the only truth: what runs is what the rows say and what holds a lock, so workers of a daemon that was
killed count too.  Workers come from a forkserver with everything common preloaded; `step` is called a few times a
second by `run/daemon.py` and never waits.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from agent import clock, proc, process_tree
from agent.errors import DiskError, LedgerError
from agent.observe.events import Events
from agent.run import groups, later, worker
from agent.run.blame import Blame, memory_kills
from agent.run.closing import move_leftovers
from agent.run.ground import Ground
from agent.run.holds import Holds
from agent.run.home import Home
from agent.run.installed import RESTART, Installed
from agent.run.reconcile import reconcile, settle_ended
from agent.run.restore import restore
from agent.run.room import Room
from agent.run.showing import announce
from agent.run.watch import Watch
from agent.run.watchdog import Watchdog, close_too_large, end_worker
from agent.store.jsonl import last_record
from agent.taskqueue import AtOnce, alive_by_lock
from agent.taskqueue.identity import living_holder
from agent.values import End, Outcome, Status

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from multiprocessing.context import ForkServerProcess

    from agent.run.courier import Courier
    from agent.run.kept_thread import KeptThread
    from agent.run.wiring import Wiring
    from agent.taskqueue import Row

SWEEP_SECONDS = 5.0
IDLE_SWEEP_SECONDS = 15.0
QUEUE_SECONDS = 1.0
"""How often the queue is looked at where the ledger tells nothing."""
WORK_SECONDS = 0.5
"""How often workers are looked at: what they log is read on, and their leases are."""
REFUSED_SECONDS = 300.0
LEFT_SECONDS = 300.0
"""How often a task is looked at that is left to another host."""
RESERVED_SECONDS = 60.0
"""For how long no other host starts a task that a worker was started for here, which has not claimed it yet."""
ROUNDS = 3
"""How often one look reserves more, in place of what must wait."""
HELD_SECONDS = 5.0
"""How often a task is looked at whose start is held (`holds.py`)."""
FREE_KILLS = 3
"""Workers of one task that may be killed in a row before they got anywhere until the next one waits."""
MANY = 16
"""Workers from which on a longer start of the forkserver pays (`run/preload_many.py`)."""


@dataclass
class Child:
    """One worker of this daemon.  `heard` turns true when it has reported: that the row is its own (`claimed`), else
    why it is not."""

    process: ForkServerProcess
    report: Connection
    claimed: bool = False
    heard: bool = False
    why: str = ""
    kills: int | None = field(default_factory=memory_kills)


class Supervisor:
    """Workers of one base_dir.  `heard` announces what they log (`watch.py`); `courier` brings what a broker says
    (`courier.py`); without `starts` nothing is started (the role of a producer)."""

    def __init__(
        self,
        wiring: Wiring,
        heard: Events | None = None,
        *,
        courier: Courier | None = None,
        starts: bool = True,
        ground: Ground | None = None,
    ) -> None:
        self.wiring = wiring
        self.ground = ground or Ground(wiring)
        self.courier = courier
        self.starts = starts
        self.threads: list[KeptThread] = [] if courier is None else [courier.thread]
        self.settings = wiring.settings
        self.ledger = wiring.ledger
        self.owner = wiring.owner
        self.events = wiring.events
        self.alive_by_lock = alive_by_lock(self.settings.base_dir)
        self.watch = Watch(self.settings.base_dir, heard or Events())
        self.blame = Blame()
        self.watchdog = Watchdog(wiring, self.blame.hung)
        self.room = Room(wiring)
        self.holds = Holds(self.settings, self.ledger, self.events)
        self.home = Home(self.settings)
        self.installed = Installed()
        self.owed: dict[str, int] = {}  # uuid → pid of a worker that could not give its row back itself
        self.children: dict[str, Child] = {}
        self.exit_codes: dict[str, int] = {}
        self.killed: dict[str, int] = {}  # uuid → workers killed in a row before they got anywhere
        self.refusals: dict[str, tuple[int, float]] = {}  # uuid → (workers that ended without a claim, not before)
        self.messages: dict[str, str] = {}  # uuid of a worker → uuid in the broker's message that let it start
        provider = self.settings.provider()
        self.server = f"{provider.name} {provider.base_url or ''}".strip()
        self.tells = False  # whether the ledger tells of changes just now
        self.ended = False  # whether a worker has ended since the queue was looked at
        self.queue_at = 0.0
        self.draining = False
        self.swept_at = -SWEEP_SECONDS
        self.context = multiprocessing.get_context("forkserver")
        postgres = self.settings.taskqueue.ledger.startswith("postgresql:")
        self.context.set_forkserver_preload(
            [
                *(["psycopg", "agent.store.postgres"] if postgres else []),
                "agent.run.preload_many" if self.settings.scheduling.max_workers >= MANY else "agent.run.preload",
            ]
        )

    def step(self, *, woken: bool = True) -> None:
        """Reap what ended, put dead tasks back, start what is due and fits.  `woken`: something may have changed; else
        the queue is looked at when it is time (`queue_seconds`)."""
        self.watch.look(self.children)
        for thread in self.threads:
            thread.look()
        self.reap()
        if self.watchdog.look():
            self.sweep()
        now = clock.monotonic()
        swept = now - self.swept_at >= self.sweep_seconds()
        if swept:
            self.swept_at = now
            process_tree.reap_orphans()
            self.sweep()
            self.holds.look()
        if not self.draining:
            self.room.look()
            if woken or swept or self.ended or now >= self.queue_at:
                self.ended = False
                self.queue_at = now + self.queue_seconds()
                self.start_due(swept=swept)

    def sweep_seconds(self) -> float:
        """How often to look for what was left: rarely where nothing runs and the ledger tells of what comes."""
        return SWEEP_SECONDS if self.children or not self.tells else IDLE_SWEEP_SECONDS

    def queue_seconds(self) -> float:
        """How often to look at the queue by itself."""
        return self.sweep_seconds() if self.tells else QUEUE_SECONDS

    def seconds(self) -> float:
        """How long the next step may wait, unless something happens."""
        now = clock.monotonic()
        wait = min(self.swept_at + self.sweep_seconds(), self.queue_at) - now
        return max(0.0, min(wait, WORK_SECONDS) if self.children else wait)

    def descriptors(self) -> list[int]:
        """What can be read when a worker reports or ends."""
        children = list(self.children.values())
        return [
            *(one.process.sentinel for one in children),
            *(one.report.fileno() for one in children if not one.heard),
        ]

    def hindrances(self) -> list[str]:
        """Why no task is started here, as far as this process knows; [] when they are."""
        told = "the daemon was told to stop" if self.draining else ""
        return [one for one in (told, self.ground.why, self.room.why, self.installed.changed) if one]

    def busy(self) -> bool:
        """Whether a worker of this daemon is alive."""
        return bool(self.children)

    def reap(self) -> None:
        """Collect reports and ended workers."""
        items = self.wiring.items("reap")
        for uuid, child in list(self.children.items()):
            with items.one(uuid):
                self._reap(uuid, child)
        items.end()

    def _reap(self, uuid: str, child: Child) -> None:
        """Take the report of one worker, and what its end means."""
        if not child.heard and child.report.poll():
            child.heard = True
            with suppress(EOFError):
                child.why = str(child.report.recv())
            child.claimed = child.why == worker.CLAIMED
            self.settle(uuid)
            if child.claimed:
                self.events.emit("task_claimed", uuid=uuid, pid=child.process.pid)
        if child.process.exitcode is None:
            return
        child.process.join()
        child.report.close()
        self.watch.end(uuid)
        self.settle(uuid)
        del self.children[uuid]
        self.exit_codes[uuid] = child.process.exitcode
        self.blame.note(uuid, child.process.pid, child.process.exitcode, child.kills)
        self.ended = True
        if not child.claimed:
            self.unclaimed(uuid, child.process.exitcode, child.why)
        if child.process.exitcode == DiskError.exit_code and child.claimed and child.process.pid is not None:
            self.give_back(uuid, child.process.pid, why="it could not write its row")
        if child.process.exitcode < 0:
            if child.claimed:
                self.close_if_too_large(uuid, child.process.pid)
                groups.end_tree(self.settings.base_dir, uuid)
            self.wait_after(uuid, child)
            if child.claimed or not self.draining:  # else it had not begun when the drain came
                self.events.emit("worker_died", uuid=uuid, signal=-child.process.exitcode)
            self.sweep()
        if child.claimed:
            self.holds.note(uuid)
        groups.remove(self.settings.base_dir, uuid)
        child.process.close()

    def wait_after(self, uuid: str, child: Child) -> None:
        """A worker that is killed again and again, for which its task is not to blame, is started later each time."""
        row = self.ledger.get(uuid)
        if not child.claimed or row is None or row.llm_call_count + row.tool_call_count > row.progress_at_claim:
            self.killed.pop(uuid, None)
            return
        self.killed[uuid] = self.killed.get(uuid, 0) + 1
        if self.killed[uuid] > FREE_KILLS:
            self.refuse(uuid)

    def unclaimed(self, uuid: str, code: int, why: str) -> None:
        """A worker ended before it owned its task.  Where that still waits, the next one would end alike: it waits
        longer each time, and people are told why.  Whoever was quicker, or a drain, leaves nothing to be said."""
        row = self.ledger.get(uuid)
        waits = (
            row is not None and row.status is Status.QUEUED and (row.not_before or "") <= clock.stamp(self.ledger.now())
        )
        if code == 0 and not waits:
            return
        self.exit_codes[uuid] = code or worker.EXIT_WAITS
        seconds = self.refuse(uuid)
        self.is_outdated()
        if code > 0:
            self.holds.note_unclaimed(uuid)
        if code >= 0 and not self.draining:
            why = why or "it said nothing; the log of the daemon may have more"
            self.events.emit("worker_unclaimed", uuid=uuid, exit_code=code, why=why, seconds=seconds)

    def close_if_too_large(self, uuid: str, pid: int | None) -> None:
        """A worker that the kernel killed because the task's memory was used up has not died for no reason."""
        row, limit = self.ledger.get(uuid), self.settings.limits.memory
        if row is None or limit is None or (row.status, row.process_id) != (Status.RUNNING, pid):
            return
        if groups.ran_over(self.settings.base_dir, uuid, row.attempt):
            most = self.watchdog.most
            self.events.emit("task_too_large", uuid=uuid, pid=pid, bytes=most, limit=most)
            close_too_large(self.wiring, row, limit)

    def sweep(self) -> None:
        """Rows that run without a living holder go back to the queue, after what they left running is ended."""
        items = self.wiring.items("give_back")
        for uuid, pid in list(self.owed.items()):
            with items.one(uuid):
                self.give_back(uuid, pid, why="it could not write its row")
        items.end()
        if self.ground.look():
            reconcile(self.wiring)
            self.ground.lost.set()
        elif not self.ledger.list(limit=1) and restore(self.wiring):
            self.ground.lost.set()
        self.ledger.after_the_clock()
        settled: list[Row] = []
        settle_ended(self.wiring)
        alone = self.settings.taskqueue.ledger == "sqlite"  # one kernel opens it, and so sees every lock
        found = self.ledger.requeue_dead(
            self.is_alive,
            on_settled=settled.append,
            everywhere=alone,
            tool_calls=self.tool_calls,
            publish=self.publish,
            blamed=self.blame.may_be_the_task,
        )
        for uuid in found:
            self.events.emit("task_requeued", uuid=uuid, why="its worker died")
        for row in settled:
            if row.status is Status.FAILED:
                self.events.emit("task_ended", uuid=row.uuid, status="failed", end="failed", code=row.error_code)
            else:
                announce(self.events, row.uuid, row.status, row.attempt, "its worker died")
        move_leftovers(self.wiring)
        groups.remove(self.settings.base_dir)

    def is_alive(self, row: Row) -> bool:
        """A row of this base_dir lives while somebody holds its lock; ends the tree of a dead one."""
        child = self.children.get(row.uuid)
        if child is not None and child.process.exitcode is None:
            return True
        if self.alive_by_lock(row):
            return True
        pid = living_holder(row.lease_owner)
        if pid is not None and proc.has_title(pid, f"makimono: {row.uuid}"):
            proc.kill_group(pid)  # somebody took its folder away from under it
            proc.wait_gone(pid)
        groups.end_tree(self.settings.base_dir, row.uuid)
        return False

    def publish(self, row: Row, code: str, message: str) -> bool:
        """Let what a task had done whose workers die be published by one more of them; whether there is anything."""
        return later.leave_to_publish(self.wiring, row, Outcome(End.FAILED, message, code=code))

    def tool_calls(self, row: Row) -> int:
        """Tool calls in the files of a row of this base_dir: a process that dies in a long turn has got somewhere
        although its row does not say so."""
        newest = None
        with suppress(OSError):  # what cannot be read shows no progress
            newest = last_record(self.settings.base_dir / "running" / row.uuid / "tools.jsonl")
        return int(newest["seq"]) if newest else 0

    def start_due(self, *, swept: bool = False) -> None:
        """Start what is next in the ledger, while there is room.  With a broker: as much as that says, and after a
        sweep (`swept`) whatever waits; a message may be lost, or stand for a task that could not start then."""
        if not self.starts:
            return
        room = 0 if self.room.why or self.ground.why else max(0, self.settings.scheduling.max_workers - self.running())
        connected = self.courier is not None and self.courier.connected and not swept
        if room > 0:
            room -= len(self.start_next(room, later.MARK if connected else None))
        if self.courier is not None and connected:
            self.start_arrived(self.courier, room)

    def start_arrived(self, courier: Courier, room: int) -> None:
        """Start as many tasks as the broker has brought messages.  Which ones says the ledger: in the broker those of
        one person may stand before all others.  A message too many is let go."""
        arrived = courier.take(room)
        started = self.start_next(len(arrived)) if arrived else []
        self.messages.update(zip(started, arrived, strict=False))
        for uuid in arrived[len(started) :]:
            courier.settle(uuid)
        if room - len(started) > courier.room:
            courier.stir()
        courier.room = room - len(started)

    def start_next(self, room: int, outcome: str | None = None) -> list[str]:
        """Start at most `room` of the tasks that are next (with this outcome); their uuids.  One that must wait is
        passed over, and left to other hosts."""
        items = self.wiring.items("start")
        started: list[str] = []
        for _ in range(0 if self.holds.is_shut() else ROUNDS):
            taken = self.take(room - len(started), outcome)
            if taken and self.is_outdated():  # not asked before: it looks at each file of the program
                for uuid in taken:
                    self.ledger.give_up(uuid, self.owner)
                break
            for uuid in taken:
                well = False
                with items.one(uuid):
                    if self.leave(uuid):
                        self.ledger.give_up(uuid, self.owner)
                    else:
                        self.start(uuid)
                        started.append(uuid)
                    well = True
                if not well:
                    self.refuse(uuid)  # or it would stand at the head of the queue for ever
            if len(started) >= room or not taken:
                break
        items.end()
        return started

    def take(self, count: int, outcome: str | None = None) -> list[str]:
        """Reserve what is next, less what has a worker here or waits for its next try."""
        limits = self.settings.limits.at_once
        return self.ledger.take(
            count,
            self.owner,
            seconds=RESERVED_SECONDS,
            server=self.server,
            at_once=AtOnce(limits.repository, limits.person, limits.server),
            without=sorted(self.hindered() | set(self.children)),
            outcome=outcome,
        )

    def is_outdated(self) -> bool:
        """Whether the code was replaced under this daemon, so that a worker would not fit to it; said once."""
        before = self.installed.changed
        if (why := self.installed.look()) and not before:
            self.events.emit("code_changed", why=why, todo=RESTART)
        return bool(why)

    def leave(self, uuid: str) -> bool:
        """Whether the task is left to the host on which its work lies, or must wait since others like it failed; it is
        looked at again in a while."""
        row = self.ledger.get(uuid)
        if row is None:
            return False
        replica = self.settings.context_storage.replica is not None  # what waits to be published lies there too
        if not replica and later.lies_elsewhere(self.settings.base_dir, row, self.ledger.now()):
            seconds = LEFT_SECONDS
        else:
            seconds = min(HELD_SECONDS, self.home.wait(row))
        if seconds and uuid not in self.refusals:
            self.events.emit("task_left", uuid=uuid, host=row.hostname)
        if not seconds and self.holds.holds(row):
            seconds = HELD_SECONDS
        if seconds:
            self.refusals[uuid] = (0, clock.monotonic() + seconds)
        return bool(seconds)

    def refuse(self, uuid: str) -> float:
        """Let a task wait whose worker could not even claim it, longer each time; for how many seconds."""
        count = self.refusals.get(uuid, (0, 0.0))[0] + 1
        seconds = min(REFUSED_SECONDS, 2.0**count)
        self.refusals[uuid] = (count, clock.monotonic() + seconds)
        self.settle(uuid)
        with suppress(LedgerError, DiskError):  # else it is free again when its time is over
            self.ledger.give_up(uuid, self.owner)
        return seconds

    def settle(self, uuid: str) -> None:
        """The broker's message about the task, if there was one, has done its work."""
        if self.courier is not None:
            self.courier.settle(self.messages.pop(uuid, uuid))

    def startable(self, outcome: str | None = None) -> list[str]:
        """Queued tasks that are due (with this outcome), less those that have a worker and those that wait for their
        next try here: they are another host's for now, or their workers could not even claim them, and then
        wait longer each time (their folder cannot be written, say)."""
        hindered = self.hindered()
        limit = self.settings.scheduling.max_workers + len(self.children) + len(hindered)
        busy = hindered | set(self.children)
        return [uuid for uuid in self.ledger.due(limit, outcome=outcome) if uuid not in busy]

    def hindered(self) -> set[str]:
        """Tasks that wait for their next try: left to another host, or their workers could not even claim them."""
        now = clock.monotonic()
        return {uuid for uuid, (_, until) in self.refusals.items() if now < until}

    def running(self) -> int:
        """Workers of this base_dir: rows that run, and children that have not claimed yet."""
        rows = {row.uuid for row in self.ledger.running_here() if self.ledger.is_mine(row, self.owner)}
        return len(rows | set(self.children))

    def start(self, uuid: str) -> None:
        """Fork one worker."""
        self.watch.begin(uuid)
        receive, send = self.context.Pipe(duplex=False)
        process = self.context.Process(target=worker.main, args=(self.settings, uuid, send), daemon=False)
        try:
            process.start()
        except (OSError, EOFError) as error:  # somebody killed the forkserver; the next start makes another one
            receive.close()
            self.exit_codes[uuid] = worker.EXIT_WAITS
            self.refuse(uuid)
            self.holds.note_unclaimed(uuid)
            self.events.emit("worker_died", uuid=uuid, signal=0, error=str(error))
            return
        finally:
            send.close()
        self.children[uuid] = Child(process, receive)

    def worst_exit(self) -> int:
        """0 when every task of this daemon went well, 1 when one failed, 3 when all failures were the surroundings'."""
        codes = {code for code in self.exit_codes.values() if code not in (0, worker.EXIT_DRAINED)}
        return 0 if not codes else 3 if codes == {3} else 1

    def drain(self) -> None:
        """Start nothing more; tell every worker to end at its next turn and give its row back."""
        self.draining = True
        self.fetch_nothing()
        self.signal(signal.SIGTERM)

    def kill(self) -> None:
        """End every worker and its tree now, and give their rows back: somebody wants it, so that it is no death."""
        self.draining = True
        self.fetch_nothing()
        for uuid, child in self.children.items():
            if child.process.pid is not None:
                end_worker(self.settings.base_dir, uuid, child.process.pid)
                self.give_back(uuid, child.process.pid, why="its worker was ended")

    def give_back(self, uuid: str, pid: int, why: str) -> None:
        """Put the row of a worker that did not die by itself back in the queue; tried again by each sweep while it
        cannot be written."""
        self.owed[uuid] = pid
        with suppress(LedgerError, DiskError):
            row = self.ledger.get(uuid)
            if row is not None and row.status is Status.RUNNING and row.process_id == pid:
                announce(self.events, uuid, self.ledger.release(uuid, row.attempt), row.attempt, why)
            del self.owed[uuid]

    def fetch_nothing(self) -> None:
        """Leave what waits in the broker to others."""
        if self.courier is not None:
            self.courier.room = 0

    def signal(self, number: signal.Signals) -> None:
        """Signal every living child."""
        for child in self.children.values():
            if child.process.exitcode is None and child.process.pid is not None:
                proc.kill_group(child.process.pid, number)
                with suppress(ProcessLookupError):  # one that was forked just now leads no group yet
                    os.kill(child.process.pid, number)
