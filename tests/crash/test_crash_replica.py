"""Hosts are lost for good at random, with all that is on them: each task goes on elsewhere from its replica.

Real daemons with host names and folders of their own, one PostgreSQL ledger, one replica (a folder, or S3 on loopback).
A host that is killed never comes back; its folder is gone too.  Held: no task is lost, none is done twice, nothing is
said twice, and after each loss at most one turn that had ended is done again.
"""

import os
import random
import shutil
import threading
import time
from itertools import pairwise

import psycopg
import pytest
import s3_server
import services
from flow_home import FlowHome, do, finish, until, write
from hosts import end_all, named, started
from length import LONG, TOLD, either
from psycopg.rows import dict_row

pytestmark = pytest.mark.skipif(not named("x"), reason="host names of their own need root")
TURNS = 6
TASKS, KILLS = (8, 12) if LONG else (2, 2)
WORDS = ("Alpha", "Beta", "Gamma", "Delta", "Epsilon", "Zeta", "Eta", "Theta")


class Asked:
    """What the model was asked, in order: of each task how many answers the conversation had."""

    def __init__(self):
        self.lock = threading.Lock()
        self.of = {}

    def step(self, word, number, step):
        def answer(_request):
            with self.lock:
                self.of.setdefault(word, []).append(number)
            time.sleep(0.2)
            return step

        return answer


class Fleet:
    """Hosts h1, h2, …, one at a time started anew for each that is lost."""

    def __init__(self, folder, ledger, replica, plays):
        self.home = FlowHome(folder, plays)
        self.ledger, self.folder = ledger, folder
        text = self.home.config.read_text()
        text = text.replace("tracker: tracker", f"tracker: {folder}/tracker")
        text = text.replace("repos/default.git", f"{folder}/repos/default.git")
        text = text.replace("durability: none", f"durability: none, replica: '{replica}'")
        text += (
            f"taskqueue: {{ledger: '{ledger}', home_seconds: 1}}\nscheduling: {{interval: 1, max_workers: {TASKS}}}\n"
        )
        self.config = text
        self.hosts = {}
        self.count = 0

    def add(self):
        self.count += 1
        name = f"h{self.count}"
        place = self.folder / name
        place.mkdir()
        (place / "config.yaml").write_text(self.config)
        self.hosts[name] = started(name, place, self.folder / f"{name}.log")
        return name

    def rows(self):
        with psycopg.connect(self.ledger, row_factory=dict_row) as connection:
            try:
                return connection.execute("SELECT * FROM tasks").fetchall()
            except psycopg.errors.UndefinedTable:
                return []

    def lose(self, name):
        """Everything of the host at once; then its lease is over."""
        daemon = self.hosts.pop(name)
        end_all(daemon, self.folder / name)
        shutil.rmtree(self.folder / name)
        with psycopg.connect(self.ledger) as connection:
            past = "2026-01-01T00:00:00.000000Z"
            held = "UPDATE tasks SET lease_until = %s WHERE hostname = %s AND lease_owner IS NOT NULL"
            connection.execute(held, (past, name))
            connection.execute("UPDATE tasks SET reserved_until = NULL WHERE status = 'queued'")

    def close(self):
        for name in list(self.hosts):
            self.lose(name)
        self.home.close()


@pytest.fixture(params=either(["s3"], ["folder", "s3"]))
def replica(request, tmp_path):
    with s3_server.place(request.param, tmp_path) as address:
        yield address


@pytest.fixture
def fleet(tmp_path, replica):
    asked = Asked()
    plays = {}
    for word in WORDS[:TASKS]:
        steps = [write(f"{word}-{number}.txt", f"{number}\n") for number in range(TURNS)]
        steps[2] = do("run_command", command=f"echo ran >> {word}-2.txt")
        steps.append(finish(f"{word} is done"))
        plays[word] = [asked.step(word, number, step) for number, step in enumerate(steps)]
    with services.schema(tmp_path) as ledger:
        made = Fleet(tmp_path, ledger, replica, plays)
        try:
            yield made, asked
        finally:
            made.close()


def test_hosts_are_lost_for_good_and_no_task_is(fleet):
    here, asked = fleet
    seed = int(os.environ.get("MAKIMONO_TEST_SEED", "0")) or random.randrange(10**6)
    chance = random.Random(seed)
    for number, word in enumerate(WORDS[:TASKS], 1):
        here.home.issue(number, word)
    for _ in range(2):
        here.add()
    lost = 0
    while lost < KILLS and not all(row["completed_at"] for row in here.rows() or [{"completed_at": None}]):
        before = sum(map(len, asked.of.values()))
        more = chance.randrange(1, 2 * TASKS + 1)
        until(lambda before=before, more=more: sum(map(len, asked.of.values())) >= before + more or done(here), "turns")
        time.sleep(chance.random() * 0.4)
        holders = sorted({row["hostname"] for row in here.rows() if row["status"] == "running"} & set(here.hosts))
        here.add()
        here.lose(chance.choice(holders or sorted(here.hosts)))
        lost += 1
    until(lambda: done(here), f"the end of all tasks (seed {seed})", 180)
    rows = {int(row["task_id"]): row for row in here.rows()}
    bad = [
        (row["status"], row["error_code"], row["error_message"])
        for row in rows.values()
        if row["status"] != "completed"
    ]
    assert bad == [], f"seed {seed}"
    repeated = 0
    for number, word in enumerate(WORDS[:TASKS], 1):
        turns = asked.of[word]
        back = [was - now + 1 for was, now in pairwise(turns) if now <= was]
        assert all(one <= 2 for one in back), f"{word}: {turns} (seed {seed}): the turn under way, and one before it"
        repeated += len(back)
        assert sorted(set(turns)) == list(range(TURNS + 1)), f"{word}: {turns} (seed {seed})"
        branch = f"makimono/{number}-{rows[number]['uuid'][:8]}"
        for index in range(TURNS):
            kept = here.home.show(f"{branch}:{word}-{index}.txt")
            assert kept == ("ran\n" if index == 2 else f"{index}\n"), (
                f"seed {seed}: a turn that is done again finds the files before it"
            )
        assert len(here.home.progress(number)) == 1
        assert len(here.home.said(number)) == 1
        assert here.home.label(number) == "coding agent done"
        assert rows[number]["llm_call_count"] >= TURNS + 1
    assert len(here.home.pulls()) == TASKS
    own = [f"makimono/{number}-{row['uuid'][:8]}" for number, row in rows.items()]
    assert sorted(here.home.branches()) == sorted(["main", *own])
    TOLD.append(f"replica: {TASKS} tasks, {lost} hosts lost for good, {repeated} times a turn was asked for again")


def done(here):
    rows = here.rows()
    return len(rows) == TASKS and all(row["completed_at"] for row in rows)
