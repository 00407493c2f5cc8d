"""The ledger in any order of events: two hosts, a broker that loses and repeats, processes that die and come back.

A hypothesis state machine with a model of what each row must be, against SQLite and PostgreSQL.  Beside the model
stands what the holders themselves saw, so that a rule that is broken on both sides is found too: never two holders of a
task inside their leases, and no task ends twice.  Single calls rarely meet in the right order, therefore some rules are
several: a lease ends and the message comes again, a ghost finishes after the next one has claimed, both hosts take the
same message.
"""

import tempfile
from contextlib import nullcontext
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import pytest
import services
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from length import AT, LONG, either, tell

from agent import clock
from agent.context.task_row import TaskRow
from agent.errors import ClaimLost, Fenced, UsageError
from agent.taskqueue import LEDGERS, Ledger, row_holder
from agent.taskqueue.ledger import POISON
from agent.values import CLOSED_STATUSES, OPEN_STATUSES, Status, TaskKey

LEASE = 60
ELSEWHERE = "0123456789ab:/other/contexts"
WORDS = {"stop": Status.STOPPED, "pause": Status.PAUSED, "resume": Status.QUEUED}
HOSTS = st.integers(0, 1)
COMMENTS = st.sampled_from([None, "c1", "c2"])


@dataclass
class Holder:
    """One that claimed.  `holds` until it let go or was told that it holds no more; a ghost does not know it yet."""

    host: int
    attempt: int
    until: object
    alive: bool = True
    holds: bool = True


@dataclass
class Task:
    """What a row must be."""

    number: int
    status: Status = Status.QUEUED
    not_before: object = None
    published: object = None
    requested: str | None = None
    deaths: int = 0
    calls: int = 0
    calls_at_claim: int = 0
    obeyed: set = field(default_factory=set)
    holders: list = field(default_factory=list)
    ends: int = 0

    @property
    def attempt(self):
        return len(self.holders)

    def is_held_by(self, holder):
        return self.status is Status.RUNNING and holder.attempt == self.attempt

    def queue(self, not_before=None):
        self.status, self.published, self.not_before, self.requested = Status.QUEUED, None, not_before, None

    def let_go(self, not_before=None):
        """What was asked of the holder and not obeyed is done when it lets go."""
        asked = self.requested
        self.queue(not_before)
        if asked is not None:
            self.status = WORDS[asked]
        self.ends += self.status in CLOSED_STATUSES
        return self.status is Status.QUEUED


class LedgerMachine(RuleBasedStateMachine):
    """Time is the fake clock's, the database's too."""

    uuids = Bundle("uuids")
    ledger_name = "sqlite"
    rules_run = 0

    @initialize()
    def begin(self):
        self.folder = tempfile.TemporaryDirectory()
        base_dir = Path(self.folder.name)
        self.schema = services.schema(base_dir) if self.ledger_name == "postgresql" else nullcontext()
        address = self.schema.__enter__() or ""
        self.clock = clock.FakeClock()
        self.switch = clock.use(self.clock)
        self.switch.__enter__()
        first, second = (LEDGERS.load(self.ledger_name)(base_dir, address) for _ in range(2))
        self.ledgers = [first, Ledger(second.db, place=ELSEWHERE)]
        self.owners = [row_holder.owner(base_dir), f"{ELSEWHERE}:7:99"]
        self.tasks, self.broker, self.started = {}, [], set()

    @property
    def now(self):
        return self.clock.time

    # --- rows come and are offered -----------------------------------------------------------------------------

    @rule(target=uuids, number=st.integers(1, 2), delay=st.sampled_from([0, 0, 30]), comment=COMMENTS)
    def put(self, number, delay, comment):
        there = [uuid for uuid, task in self.tasks.items() if task.number == number and task.status in OPEN_STATUSES]
        not_before = self.now + timedelta(seconds=delay) if delay else None
        uuid = self.ledgers[0].enqueue(key(number), not_before=not_before, started_by=comment)
        assert len(there) <= 1, "one open row per key"
        assert (uuid is None) == bool(there or (number, comment) in self.started)
        if uuid is None:
            return there[0] if there else next(uuid for uuid, one in self.tasks.items() if one.number == number)
        if comment is not None:
            self.started.add((number, comment))
        self.tasks[uuid] = Task(number, not_before=not_before)
        return uuid

    @rule(uuid=uuids)
    def offer(self, uuid):
        task = self.tasks[uuid]
        assert self.ledgers[0].offer(uuid) == (task.status is Status.QUEUED)
        if task.status is Status.QUEUED:
            task.not_before = None

    @rule(host=HOSTS, again=st.sampled_from([None, 0, 30]))
    def publish(self, host, again):
        """Pointers to what is due go to the broker, each once, and again when they stay."""
        wanted = {uuid for uuid, task in self.tasks.items() if self.is_due(task) and self.is_unpublished(task, again)}
        rows = self.ledgers[host].publish(10, again)
        assert {row.uuid for row in rows} == wanted
        for row in rows:
            self.tasks[row.uuid].published = self.now
            self.broker.append(row.uuid)

    def is_due(self, task):
        return task.status is Status.QUEUED and (task.not_before is None or task.not_before <= self.now)

    def is_unpublished(self, task, again):
        return task.published is None or (again is not None and task.published < self.now - timedelta(seconds=again))

    # --- the broker --------------------------------------------------------------------------------------------

    @rule()
    def lose_the_broker(self):
        self.broker.clear()

    @precondition(lambda self: self.broker)
    @rule(host=HOSTS, which=st.integers(0, 9), twice=st.booleans())
    def deliver(self, host, which, twice):
        """Any message, in any order; one whose acknowledgement was lost comes again."""
        uuid = self.broker[which % len(self.broker)]
        if not twice:
            self.broker.remove(uuid)
        self.claim(uuid, host)

    # --- holders -----------------------------------------------------------------------------------------------

    @rule(uuid=uuids, host=HOSTS)
    def claim(self, uuid, host):
        task = self.tasks[uuid]
        due = self.is_due(task)
        try:
            claim = self.ledgers[host].claim(uuid, self.owners[host], LEASE)
        except ClaimLost:
            assert not due
            return
        task.holders.append(Holder(host, claim.attempt, self.now + timedelta(seconds=LEASE)))
        assert due, "what is not due cannot be claimed"
        assert claim.attempt == task.attempt
        task.status, task.calls_at_claim = Status.RUNNING, task.calls

    def holder(self, uuid, back):
        """The newest, or the one before it; None when there is none that can act."""
        holders = self.tasks[uuid].holders
        return holders[-1 - back] if len(holders) > back and holders[-1 - back].alive else None

    @rule(uuid=uuids, back=st.integers(0, 1), worker=st.booleans(), calls=st.integers(0, 1))
    def beat(self, uuid, back, worker, calls):
        """By the ledger alone, or with counters, as the loop does it."""
        task, holder = self.tasks[uuid], self.holder(uuid, back)
        if holder is None:
            return
        calls = calls if worker else 0
        if self.fenced(task, holder, lambda: self.beaten(uuid, holder, worker, task.calls + calls) == task.requested):
            return
        holder.until = self.now + timedelta(seconds=LEASE)
        task.calls += calls

    def beaten(self, uuid, holder, worker, calls):
        if not worker:
            return self.ledgers[holder.host].heartbeat(uuid, holder.attempt, LEASE)
        return self.row(uuid, holder).heartbeat(counters(calls), LEASE)

    def row(self, uuid, holder):
        """The row as its worker has it."""
        row = TaskRow(self.ledgers[holder.host].db, uuid)
        row.attempt = holder.attempt
        return row

    def fenced(self, task, holder, act):
        """Do it; whether it was refused, which must be so for everybody but the one who holds the row."""
        try:
            told = act()
        except Fenced:
            holder.holds = False
            assert not task.is_held_by(holder)
            return True
        assert told is None or told, "what was asked comes with the beat"
        if not task.is_held_by(holder):
            holder.until = self.now + timedelta(seconds=LEASE)
            holder.holds = True
            self.no_two_holders()
        assert task.is_held_by(holder), "an old attempt is fenced"
        return False

    @rule(uuid=uuids, back=st.integers(0, 1), delay=st.sampled_from([0, 30]))
    def release(self, uuid, back, delay):
        task, holder = self.tasks[uuid], self.holder(uuid, back)
        if holder is None:
            return
        later = self.now + timedelta(seconds=delay) if delay else None
        if not self.fenced(task, holder, lambda: self.ledgers[holder.host].release(uuid, holder.attempt, later)):
            holder.holds = False
            task.let_go(later)

    @rule(uuid=uuids, back=st.integers(0, 1), to=st.sampled_from(sorted(CLOSED_STATUSES)))
    def finish(self, uuid, back, to):
        task, holder = self.tasks[uuid], self.holder(uuid, back)
        if holder is None:
            return
        fields = counters(task.calls)
        if not self.closed(task, holder, lambda: self.row(uuid, holder).close(Status(to), fields)):
            return
        task.ends += 1
        holder.holds = False
        assert task.status in OPEN_STATUSES
        task.status, task.requested = Status(to), None
        assert task.ends == 1, "a task ends once"

    def closed(self, task, holder, act):
        """Whether the newest attempt closed an open row; the folder's end stands also when the row was given back."""
        allowed = task.status in OPEN_STATUSES and holder.attempt == task.attempt
        try:
            act()
        except Fenced:
            holder.holds = False
            assert not allowed
            return False
        assert allowed, "an old attempt is fenced, and a closed row stays as it is"
        return True

    @rule(uuid=uuids, back=st.integers(0, 1))
    def wait_for_a_person(self, uuid, back):
        task, holder = self.tasks[uuid], self.holder(uuid, back)
        if holder is None:
            return
        fields = counters(task.calls)
        if not self.fenced(task, holder, lambda: self.row(uuid, holder).pause("asked", fields)):
            holder.holds = False
            stopped = task.requested == "stop"
            task.status, task.requested = Status.STOPPED if stopped else Status.PAUSED, None
            task.ends += stopped

    @rule(uuid=uuids)
    def die(self, uuid):
        if (holder := self.holder(uuid, 0)) is not None:
            holder.alive = holder.holds = False

    # --- time, people, sweeps ----------------------------------------------------------------------------------

    @rule(seconds=st.sampled_from([1, LEASE - 1, LEASE + 1]))
    def wait(self, seconds):
        self.clock.move(seconds)

    @rule(uuid=uuids, word=st.sampled_from(sorted(WORDS)), comment=COMMENTS)
    def ask(self, uuid, word, comment):
        task = self.tasks[uuid]
        try:
            now = self.ledgers[0].request(uuid, word, comment=comment)
        except UsageError:
            assert task.status in CLOSED_STATUSES
            return
        if comment in task.obeyed:
            assert now is task.status, "a comment counts once"
            return
        assert task.status in OPEN_STATUSES
        if comment is not None:
            task.obeyed.add(comment)
        if task.status is Status.RUNNING:
            task.requested = "stop" if "stop" in (task.requested, word) else {"resume": None}.get(word, word)
        elif word == "resume" and task.status is Status.PAUSED:
            task.queue()
            task.deaths = 0
        elif word == "resume" and task.holders:
            task.not_before = None  # begun, and put off
        elif WORDS[word] is not task.status:
            task.status, task.requested = WORDS[word], None
        else:
            task.requested = None
        assert now is task.status

    @rule(host=HOSTS)
    def sweep(self, host):
        """Own rows by who lives, others by their leases."""
        dead = {}
        for uuid, task in self.tasks.items():
            if task.status is Status.RUNNING:
                holder = task.holders[-1]
                if not (holder.alive if holder.host == host else holder.until >= self.now):
                    dead[uuid] = 0 if task.calls > task.calls_at_claim else task.deaths + 1
        settled, queued = [], []
        requeued = self.ledgers[host].requeue_dead(self.lives, on_settled=settled.append)
        for uuid, deaths in dead.items():
            task = self.tasks[uuid]
            task.deaths = deaths
            if deaths < POISON or task.requested is not None:
                queued += [uuid] if task.let_go(task.not_before) else []
            else:
                task.status, task.requested, task.ends = Status.FAILED, None, task.ends + 1
        assert sorted(requeued) == sorted(queued)
        assert {row.uuid for row in settled} == dead.keys() - set(queued)

    def lives(self, row):
        return self.tasks[row.uuid].holders[-1].alive

    # --- several at once ---------------------------------------------------------------------------------------

    @rule(uuid=uuids, host=HOSTS)
    def a_lease_ends_and_the_message_comes_again(self, uuid, host):
        self.publish(host, None)
        while self.broker:
            self.deliver(host, 0, False)
        self.wait(LEASE + 1)
        self.sweep(1 - host)
        self.publish(host, None)
        while self.broker:
            self.deliver(1 - host, 0, False)
        for worker in (False, True):
            self.beat(uuid, 1, worker, 1)

    @rule(uuid=uuids, to=st.sampled_from(sorted(CLOSED_STATUSES)))
    def a_ghost_finishes_after_the_next_has_claimed(self, uuid, to):
        holder = self.holder(uuid, 0)
        self.wait(LEASE + 1)
        self.sweep(1 - holder.host if holder else 0)
        self.claim(uuid, 0)
        self.finish(uuid, 1, to)
        self.beat(uuid, 0, False, 0)

    @rule(uuid=uuids)
    def both_hosts_take_the_same_message(self, uuid):
        for host in (0, 1):
            self.claim(uuid, host)

    # --- what always holds -------------------------------------------------------------------------------------

    @invariant()
    def no_two_holders(self):
        for uuid, task in self.tasks.items():
            inside = [one for one in task.holders if one.alive and one.holds and self.now < one.until]
            assert len(inside) <= 1, f"{uuid} has {len(inside)} holders inside their leases"

    @invariant()
    def rows_are_what_the_model_says(self):
        type(self).rules_run += 1
        rows = {row.uuid: row for row in self.ledgers[0].list()}
        assert rows.keys() == self.tasks.keys(), "no row is lost"
        for uuid, row in rows.items():
            task = self.tasks[uuid]
            found = (row.status, row.attempt, row.deaths, row.requested, row.llm_call_count)
            assert found == (task.status, task.attempt, task.deaths, task.requested, task.calls)
            assert (row.lease_owner is None) == (row.status is not Status.RUNNING)
            assert (row.completed_at is None) == (row.status in OPEN_STATUSES)
        assert sorted(self.ledgers[1].due(100)) == sorted(
            uuid for uuid, task in self.tasks.items() if self.is_due(task)
        )

    def teardown(self):
        if hasattr(self, "ledgers"):
            for ledger in self.ledgers:
                ledger.close()
            self.schema.__exit__(None, None, None)
            self.switch.__exit__(None, None, None)
            self.folder.cleanup()


def key(number):
    return TaskKey("local", "local", "default", "issue", str(number), "/t")


def counters(calls):
    """As the stores count them."""
    names = ("last_seq", "tool_call_count", "compression_count", "total_tokens", "prompt_tokens")
    return dict.fromkeys((*names, "completion_tokens", "cached_tokens"), 0) | {"llm_call_count": calls, "cost": 0.0}


@pytest.mark.parametrize("name", LEDGERS.names())
def test_any_order_of_events_keeps_the_rules(name):
    if name == "postgresql":
        services.need_postgres()
    machine = type("Machine", (LedgerMachine,), {"ledger_name": name})
    examples = either(20 if name == "sqlite" else 8, 500)
    how = settings(
        max_examples=examples,
        stateful_step_count=either(30, 60),
        deadline=None,
        derandomize=not LONG,
        database=None,
        phases=[Phase.generate] if AT else tuple(Phase),  # a mutant need not be shrunk
    )
    run_state_machine_as_test(machine, settings=how)
    tell(f"ledger {name}: {examples} examples, {machine.rules_run} states")
