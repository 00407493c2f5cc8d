"""Orders at awkward moments, on each forge: while publishing is put off, in a long command, beside a queued task."""

from __future__ import annotations

import pytest
from flow_home import Held, do, finish, git, until, write
from forge_home import HOMES, OFTEN, TASK
from length import either
from test_flow_publish_later import Renewable, published, waits, work_until_it_waits

KINDS = either(["gitlab"], ["github", "gitlab", "forgejo"])
"""What is decided here knows no forge; the long form asks both (`MAKIMONO_LONG=1`)."""


@pytest.fixture(params=KINDS)
def put_off(request, tmp_path):
    made = Renewable(request.param, tmp_path, config=OFTEN)
    yield made
    made.home.close()


@pytest.fixture(params=KINDS)
def make(request, tmp_path):
    made = []

    def build(plays, **more):
        made.append(HOMES[request.param](tmp_path, plays, config=OFTEN, **more))
        return made[-1]

    yield build
    for home in made:
        home.close()


def is_over(one, asked, said="alice wrote /stop."):
    home = one.home
    until(lambda: home.flow.row(1).get("status") == "stopped", "the stop")
    until(lambda: home.labels(one.key) == ["coding agent stopped"], "the label")
    until(lambda: len(home.own(one.key, "final")) == 1, "the last word")
    (final,) = home.own(one.key, "final")
    assert said in final
    assert said in home.own(one.key, "progress")[0]
    assert f"What was done is kept: branch makimono/1-{home.flow.row(1)['uuid'][:8]} in " in final
    assert home.pulls() == []
    assert home.flow.branches(home.project) == ["main"]
    assert len(home.flow.server.journal) == asked, "the model is not asked again"


def test_a_stop_while_git_is_refused_ends_the_task_and_nothing_is_published_later(put_off):
    work_until_it_waits(put_off, lambda: put_off.git_takes(put_off.new))
    home = put_off.home
    asked = len(home.flow.server.journal)
    daemon = home.flow.start("run")
    until(lambda: (waits(put_off) or {"attempt": 0})["attempt"] >= 2, "another try")
    home.place.comment(put_off.key, "/stop")
    is_over(put_off, asked)
    put_off.git_takes(home.token)
    daemon.terminate()
    daemon.wait(60)
    home.flow.once()
    is_over(put_off, asked)


def test_a_pause_while_publishing_is_put_off_holds_it_until_the_resume(put_off):
    home = put_off.home
    work_until_it_waits(put_off, lambda: put_off.git_takes(put_off.new))
    asked = len(home.flow.server.journal)
    home.place.comment(put_off.key, "/pause")
    home.flow.once()
    assert home.flow.row(1)["status"] == "paused"
    assert home.labels(put_off.key) == ["coding agent paused"]
    put_off.git_takes(home.token)
    home.flow.once()
    assert home.pulls() == []
    home.place.comment(put_off.key, "/resume")
    home.flow.once()
    published(put_off, asked)


def test_a_stop_that_nobody_could_read_is_obeyed_before_anything_is_published(put_off):
    home = put_off.home

    def end():
        put_off.git_takes(put_off.new)
        put_off.api_takes(put_off.new)

    work_until_it_waits(put_off, end)
    asked = len(home.flow.server.journal)
    home.place.comment(put_off.key, "/stop")
    put_off.renew()
    daemon = home.flow.start("run")
    is_over(put_off, asked)
    daemon.terminate()
    daemon.wait(60)


def test_the_command_stop_while_publishing_is_put_off(put_off):
    home = put_off.home
    work_until_it_waits(put_off, lambda: put_off.git_takes(put_off.new))
    asked = len(home.flow.server.journal)
    home.flow.run("stop", home.flow.row(1)["uuid"][:8], code=0)
    home.flow.once()
    is_over(put_off, asked, "")


def test_a_pause_during_a_long_command_ends_the_command_and_after_the_resume_the_work_goes_on(make):
    asked = []

    def after(request):
        asked.append(request.json["messages"])
        return write("b.txt", "two\n")

    long = do("run_command", command="echo begun > begun.txt; echo said; sleep 300; echo over > over.txt", timeout=400)
    home = make({TASK: [write("a.txt", "one\n"), long, after, finish("Both", "Done.")]})
    key = home.issue("bug")
    daemon = home.flow.start("run")
    until(lambda: next(home.flow.contexts.glob("running/*/workspace/begun.txt"), None), "the command")
    home.place.comment(key, "/pause")
    until(lambda: home.flow.row(1)["status"] == "paused", "the pause")
    until(lambda: home.labels(key) == ["bug", "coding agent paused"], "the label")
    until(lambda: home.flow.worker(1) is None, "the end of the worker")
    assert "alice wrote /pause." in home.own(key, "progress")[0]
    home.place.comment(key, "/resume")
    until(lambda: home.labels(key) == ["bug", "coding agent done"], "the end")
    daemon.terminate()
    daemon.wait(60)
    (interrupted,) = [one["content"] for one in asked[0] if one["role"] == "tool"][1:]
    assert "interrupted from outside" in interrupted
    assert "said" in interrupted
    assert "400 s" not in interrupted
    assert len([one for one in home.flow.server.journal if one.method == "POST"]) == 4
    (pull,) = home.pulls()
    assert home.show(f"{pull.head}:a.txt") == "one\n"
    assert home.show(f"{pull.head}:b.txt") == "two\n"
    assert len(home.own(key, "progress")) == len(home.own(key, "final")) == 1


def after_one_run(make):
    """(home, key, briefings, second): a.txt is done and told; `second` plays the next task's first turn, and notes what
    the model was told."""
    asked = []

    def second(request):
        asked.append(request.json["messages"][1]["content"])
        return write("b.txt", "two\n")

    home = make({TASK: [write("a.txt", "one\n"), finish("Write a", "There is an a now.")]})
    key = home.issue("bug")
    home.flow.once()
    return home, key, asked, second


def test_a_retry_after_the_branch_was_removed_at_the_forge_begins_anew_and_says_so(make):
    home, key, asked, second = after_one_run(make)
    (pull,) = home.pulls()
    git("branch", "-D", pull.head, cwd=home.repo)
    if home.source == "github":  # what the host does then
        (number,) = [number for number, one in home.state.issues.items() if one["pull"]]
        home.state.issues[number].update(state="closed")
    else:
        (merge,) = home.place.project["merge_requests"].values()
        home.server.state(merge, "closed")
    home.flow.plays[TASK] = [second, finish("Write b", "There is a b.")]
    home.place.comment(key, "/retry")
    home.flow.once()
    assert "There is an a now." in asked[0]
    assert "is in the work tree only as far as it has come onto `main`" in asked[0]
    assert home.labels(key) == ["bug", "coding agent done"]
    first, last = home.pulls()
    assert (first.state, last.state, last.draft) == ("closed", "open", False)
    assert last.head != first.head
    assert home.commits(last.head) == ["Write b"]


def test_a_branch_that_was_removed_while_the_task_runs_is_pushed_again(make):
    held = Held(finish("Both", "Done."))
    done = do("update_plan", items=[{"text": "Write a", "status": "done"}])
    home = make({TASK: [write("a.txt", "one\n"), done, held]})
    key = home.issue("bug")
    daemon = home.flow.start("run")
    held.arrived()
    (pull,) = home.pulls()
    assert pull.draft
    git("branch", "-D", pull.head, cwd=home.repo)
    held.go()
    until(lambda: home.flow.row(1)["status"] in ("completed", "failed"), "the end")
    daemon.terminate()
    daemon.wait(60)
    assert home.labels(key) == ["bug", "coding agent done"]
    assert home.show(f"{pull.head}:a.txt") == "one\n"


def test_a_mention_beside_a_follow_up_that_is_queued_is_read_by_it_and_starts_no_other(make):
    held = Held(finish("Other", "Done."))
    home, key, asked, second = after_one_run(make)
    home.flow.plays["Something else"] = [held]
    text = home.flow.config.read_text()
    home.flow.config.write_text(text.replace("scheduling: {", "scheduling: {max_workers: 1, "))
    home.place.issue("Something else", "Please.\n", ("coding agent",), "alice")
    daemon = home.flow.start("run")
    held.arrived()
    home.flow.plays[TASK] = [second, finish("Write b and c", "There is a b.")]
    home.place.comment(key, "@makimono please add a b.")
    until(lambda: home.flow.row(1)["status"] == "queued", "the follow-up")
    uuid = home.flow.row(1)["uuid"]
    home.place.comment(key, "@makimono and a c.")
    looked_since = len(home.server.journal)
    until(lambda: len(home.server.journal) > looked_since + 12, "some looks")
    held.go()
    until(lambda: len(home.own(key, "final")) == 2, "the end of the follow-up")
    until(lambda: home.flow.row(1)["status"] == "completed", "its row")
    daemon.terminate()
    daemon.wait(60)
    home.flow.once()
    assert home.flow.row(1)["uuid"] == uuid
    assert "please add a b." in asked[0]
    assert "and a c." in asked[0]
    assert len(home.own(key, "progress")) == len(home.own(key, "final")) == 2
