"""A host vanishes in the middle of a task, another one goes on: real daemons with host names of their own, one ledger.

On a shared base_dir the task goes on at the turn where it was; with a base_dir of its own the other host begins from
the issue, and finds the branch, the pull request and the comments that are there.
"""

import os
import signal
from contextlib import closing

import psycopg
import pytest
import quick_start
import s3_server
import services
from flow_home import IDENTITY, FlowHome, Held, do, finish, until, write
from forge_home import HOMES, TASK
from hosts import named, started
from length import either
from psycopg.rows import dict_row

from agent.store.remote_storage import RemoteFolder
from agent.store.replica import manifests

pytestmark = pytest.mark.skipif(not named("x"), reason="host names of their own need root")
PLAN = [{"text": "Write it", "status": "done"}, {"text": "Look at it", "status": "pending"}]


class Hosts:
    """`first` and `second`, with one tracker and one ledger; `shared` says whether they have one base_dir."""

    def __init__(self, folder, ledger, plays, *, shared, home_seconds=0, config="", replica=None):
        self.home = FlowHome(folder, plays)
        self.ledger = ledger
        text = self.home.config.read_text()
        text = text.replace("tracker: tracker", f"tracker: {folder}/tracker")
        text = text.replace("repos/default.git", f"{folder}/repos/default.git")
        text += f"taskqueue: {{ledger: '{ledger}', home_seconds: {home_seconds}}}\nscheduling: {{interval: 1, drain_seconds: 1}}\n{config}"
        if replica is not None:
            text = text.replace("durability: none", f"durability: none, replica: '{replica}'")
        self.places = {"first": folder, "second": folder if shared else folder / "second"}
        self.places["second"].mkdir(exist_ok=True)
        for place in self.places.values():
            (place / "config.yaml").write_text(text)
        self.daemons = {}

    def start(self, name):
        place = self.places[name]
        self.daemons[name] = started(f"{name}-host", place, place / f"{name}.log")

    def row(self):
        with psycopg.connect(self.ledger, row_factory=dict_row) as connection:
            try:
                return connection.execute("SELECT * FROM tasks").fetchone()
            except psycopg.errors.UndefinedTable:
                return None

    def vanish(self, name):
        """Its power goes: the daemon and the worker at once; then three minutes pass."""
        row = self.row()
        os.kill(self.daemons[name].pid, signal.SIGKILL)
        self.daemons[name].wait()
        os.kill(row["process_id"], signal.SIGKILL)
        with psycopg.connect(self.ledger) as connection:
            connection.execute("UPDATE tasks SET lease_until = '2026-01-01T00:00:00.000000Z'")

    def ends(self, name):
        """Where the task ended, after its end; the daemon is drained."""
        until(lambda: self.row()["status"] == "completed", "the end on the other host")
        self.daemons[name].send_signal(signal.SIGTERM)
        assert self.daemons[name].wait(60) == 0
        return self.places[name] / "contexts" / "completed" / self.row()["uuid"]

    def close(self):
        for daemon in self.daemons.values():
            if daemon.poll() is None:
                daemon.kill()
                daemon.wait()
        row = self.row()
        if row is not None and row["status"] == "running":
            try:
                os.kill(row["process_id"], signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.home.close()


@pytest.fixture
def hosts(tmp_path):
    with services.schema(tmp_path) as ledger:
        made = []

        def make(plays, **more):
            made.append(Hosts(tmp_path, ledger, plays, **more))
            return made[0]

        yield make
        made[0].close()


def part(held):
    return [
        write("done.txt"),
        do("update_plan", items=PLAN),
        held,
        do("run_command", command="echo run >> ran"),
        finish(),
    ]


def nothing_is_doubled(here):
    home = here.home
    assert len(home.pulls()) == 1
    assert len([name for name in home.branches() if name.startswith("makimono/")]) == 1
    assert len(home.progress(1)) == 1
    assert len(home.said(1)) == 1
    assert home.label(1) == "coding agent done"


def test_on_a_shared_base_dir_the_task_goes_on_at_its_turn_on_another_host(hosts):
    held = Held(do("read_file", path="done.txt"))
    here = hosts({"Moves": part(held)}, shared=True)
    here.home.issue(1, "Moves")
    here.start("first")
    held.arrived()
    before = here.row()
    assert before["hostname"] == "first-host"
    here.vanish("first")
    held.go()
    here.start("second")
    until(lambda: here.row()["attempt"] == 2, "the second attempt")
    folder = here.ends("second")
    after = here.row()
    assert after["uuid"] == before["uuid"]
    assert after["hostname"] == "second-host"
    assert after["process_id"] != before["process_id"]
    assert after["started_at"] == before["started_at"]
    here.home.row = lambda number: after
    tools = [one["tool"] for one in here.home.lines(1, "tools.jsonl")]
    assert tools == ["write_file", "update_plan", "read_file", "run_command", "finish"], "no step was done again"
    assert folder.is_dir()
    nothing_is_doubled(here)


def test_with_a_base_dir_of_its_own_another_host_begins_from_the_issue_and_doubles_nothing(hosts):
    held = Held(do("read_file", path="done.txt"))
    here = hosts({"Moves": part(held)}, shared=False)
    here.home.issue(1, "Moves")
    here.start("first")
    held.arrived()
    before = here.row()
    until(here.home.pulls, "the draft of the first host")
    assert len(here.home.progress(1)) == 1
    here.vanish("first")
    held.go()
    here.start("second")
    folder = here.ends("second")
    after = here.row()
    assert (after["uuid"], after["attempt"]) == (before["uuid"], 2)
    assert after["hostname"] == "second-host"
    assert after["branch"] == f"makimono/1-{after['uuid'][:8]}"
    assert folder.is_dir()
    nothing_is_doubled(here)
    # The first one comes back: it puts its folder away and says nothing a second time.
    here.start("first")
    until((here.places["first"] / "contexts" / "completed" / after["uuid"]).is_dir, "the folder put away")
    nothing_is_doubled(here)
    assert here.row()["attempt"] == 2


def test_a_task_that_was_drained_is_left_to_its_host_which_goes_on_at_its_turn(hosts):
    held = Held(do("read_file", path="done.txt"))
    here = hosts({"Moves": part(held)}, shared=False, home_seconds=600)
    here.home.issue(1, "Moves")
    here.start("first")
    held.arrived()
    here.daemons["first"].send_signal(signal.SIGTERM)
    assert here.daemons["first"].wait(60) == 0
    held.go()
    before = here.row()
    assert (before["status"], before["hostname"]) == ("queued", "first-host")
    here.start("second")
    until(lambda: "task_left" in (here.places["second"] / "second.log").read_text(), "the word of the second host")
    here.start("first")
    here.ends("first")
    after = here.row()
    assert (after["hostname"], after["attempt"]) == ("first-host", 2)
    assert after["llm_call_count"] - after["other_call_count"] == 5, "no turn was taken twice"
    nothing_is_doubled(here)


def test_limits_and_counters_go_on_where_a_task_begins_anew_on_another_host(hosts):
    held = Held(do("read_file", path="done.txt"))
    here = hosts({"Moves": part(held)}, shared=False, config="limits: {turns: 6}\n")
    here.home.issue(1, "Moves")
    here.start("first")
    held.arrived()
    until(lambda: here.row()["llm_call_count"] == 2, "the second turn in the row")
    here.vanish("first")
    held.go()
    here.start("second")
    until(lambda: here.row()["completed_at"], "the end on the other host")
    after = here.row()
    assert after["llm_call_count"] - after["other_call_count"] == 6, "two there, and four here"
    assert after["error_code"] == "limit_turns"
    assert "2 turns were made on another host" in here.home.said(1)[0]


def unpublished(here):
    """The first host has done the work and cannot publish it; its daemon is gone.  Returns the row."""
    held = Held(finish("Written", "It is written."))
    here.home.plays["Moves"] = [write("done.txt"), held]
    here.home.issue(1, "Moves")
    here.start("first")
    held.arrived()
    repository = here.home.repos["default"]
    repository.rename(repository.with_name("away"))
    held.go()
    until(lambda: (here.row()["status"], here.row()["outcome"]) == ("queued", "publishing"), "the wait")
    here.daemons["first"].send_signal(signal.SIGTERM)
    assert here.daemons["first"].wait(60) == 0
    return here.row()


def mend(here):
    repository = here.home.repos["default"]
    repository.with_name("away").rename(repository)


def test_what_only_waits_to_be_published_is_left_to_the_host_that_has_it(hosts):
    here = hosts({}, shared=False)
    before = unpublished(here)
    asked = len(here.home.server.journal)
    mend(here)
    here.start("second")
    log = here.places["second"] / "second.log"
    until(lambda: "task_left" in log.read_text(), "the word of the second host")
    assert "host=first-host" in log.read_text() or '"host":"first-host"' in log.read_text().replace(" ", "")
    assert here.row()["attempt"] == before["attempt"]
    here.start("first")
    folder = here.ends("first")
    after = here.row()
    assert (after["hostname"], after["outcome"]) == ("first-host", "finished")
    assert folder.is_dir()
    assert len(here.home.server.journal) == asked, "the model did its part once"
    nothing_is_doubled(here)


def test_a_host_that_never_comes_back_leaves_the_work_to_be_done_anew_and_that_is_said(hosts):
    here = hosts({}, shared=False)
    before = unpublished(here)
    asked = len(here.home.server.journal)
    mend(here)
    with psycopg.connect(here.ledger) as connection:
        connection.execute("UPDATE tasks SET heartbeat_at = '2026-01-01T00:00:00.000000Z'")
    here.start("second")
    here.ends("second")
    after = here.row()
    assert (after["uuid"], after["hostname"]) == (before["uuid"], "second-host")
    assert len(here.home.server.journal) > asked
    assert "so it was done anew" in here.home.said(1)[0]
    nothing_is_doubled(here)


def test_an_end_that_was_told_but_for_its_label_is_finished_by_another_host_without_the_folder(tmp_path):
    with (
        services.schema(tmp_path) as ledger,
        closing(
            HOMES["github"](
                tmp_path, {TASK: [write("a.txt"), finish("A")]}, config=f"taskqueue: {{ledger: '{ledger}'}}\n"
            )
        ) as home,
    ):
        elsewhere = tmp_path / "second" / "config.yaml"
        elsewhere.parent.mkdir()
        elsewhere.write_text(home.flow.config.read_text())
        key = home.issue("bug")
        home.server.fault("POST", "/issues/1/labels$", status=502, skip=1, times=3)  # the first is that of the start
        home.flow.once(code=3)
        asked = len(home.flow.server.journal)
        with psycopg.connect(ledger, row_factory=dict_row) as connection:
            row = connection.execute("SELECT * FROM tasks").fetchone()
            assert (row["status"], row["outcome"]) == ("queued", "ending completed finished")
            connection.execute("UPDATE tasks SET not_before = NULL")
        assert home.labels(key) == ["bug", "coding agent processing"]
        env = {"PATH": os.environ["PATH"], "HOME": str(elsewhere.parent), **IDENTITY}
        argv = ["run", "--once", "--config", elsewhere]
        done = quick_start.run(argv, cwd=elsewhere.parent, env=env, timeout=120, host="second-host")
        assert done.returncode == 0, done.stderr
        with psycopg.connect(ledger, row_factory=dict_row) as connection:
            after = connection.execute("SELECT * FROM tasks").fetchone()
        assert (after["status"], after["hostname"], after["attempt"]) == ("completed", "second-host", 2)
        assert home.labels(key) == ["bug", "coding agent done"]
        assert (len(home.own(key, "progress")), len(home.own(key, "final")), len(home.pulls())) == (1, 1, 1)
        assert len(home.flow.server.journal) == asked, "the model is not asked again"


# --- with a replica ----------------------------------------------------------------------------------------------


@pytest.fixture(params=either(["s3"], ["folder", "s3"]))
def replica(request, tmp_path):
    with s3_server.place(request.param, tmp_path) as address:
        yield address


def test_with_a_replica_another_host_goes_on_at_the_turn_and_with_the_files_of_the_lost_one(hosts, replica):
    held = Held(write("more.txt", "more\n"))
    steps = [write("done.txt"), do("update_plan", items=PLAN), write("calc.py", "changed\n"), held, finish()]
    here = hosts({"Moves": steps}, shared=False, replica=replica)
    here.home.issue(1, "Moves")
    here.start("first")
    held.arrived()
    uuid = here.row()["uuid"]
    until(lambda: turns_in(replica, uuid) == 3, "three turns in the replica")
    here.vanish("first")
    held.go()
    here.start("second")
    folder = here.ends("second")
    after = here.row()
    assert (after["uuid"], after["hostname"], after["attempt"]) == (uuid, "second-host", 2)
    assert after["llm_call_count"] - after["other_call_count"] == 5, "no turn was taken twice"
    here.home.row = lambda number: after
    here.home.kept = lambda number: folder
    tools = [one["tool"] for one in here.home.lines(1, "tools.jsonl")]
    assert tools == ["write_file", "update_plan", "write_file", "write_file", "finish"]
    (branch,) = [name for name in here.home.branches() if name.startswith("makimono/")]
    assert here.home.show(f"{branch}:calc.py") == "changed\n", "what was not committed came by the patch"
    assert here.home.show(f"{branch}:more.txt") == "more\n"
    assert here.home.show(f"{branch}:done.txt") == "x\n"
    said = [one["content"] for one in here.home.lines(1, "messages.jsonl") if one.get("kind") == "nudge"]
    assert len(said) == 1
    assert "goes on in a new folder" in said[0]
    assert not (folder / "tree.json").exists()
    nothing_is_doubled(here)
    # The first one comes back: it puts its folder away and says nothing a second time.
    here.start("first")
    until((here.places["first"] / "contexts" / "completed" / uuid).is_dir, "the folder put away")
    nothing_is_doubled(here)
    assert here.row()["attempt"] == 2


def turns_in(address, uuid):
    newest = next(manifests(RemoteFolder(address), uuid), None)
    return newest.facts["turns"] if newest else 0
