"""The life of a pull request between people and the agent, in whole runs: what people write into it stays, what they do
to it is understood, and what they say on it is heard after a restart too."""

import os
import signal

import pytest
from flow_home import Held, do, finish, git, until, write
from forge_home import OFTEN, TASK

PLAN = do("update_plan", items=[{"text": "Write a file", "status": "done"}])
KINDS = ["github", "gitlab"]


class Forge:
    """What people do to a home's pull request, on each forge."""

    def __init__(self, home):
        self.home = home
        self.is_github = home.source == "github"

    def number(self):
        """The pull request itself, as the host stores it."""
        if self.is_github:
            return [one for one in self.home.state.issues.values() if one["pull"]][-1]
        return list(self.home.place.project["merge_requests"].values())[-1]

    def say(self, body):
        pull = self.number()
        if self.is_github:
            self.home.state.comment(pull["number"], body, "alice")
        else:
            self.home.server.note(pull, "alice", body)

    def edit(self, title=None, add=""):
        """alice edits title and text."""
        pull, text = self.number(), "body" if self.is_github else "description"
        lock = self.home.server.state.lock if self.is_github else self.home.server.lock
        with lock:
            pull["title"] = title or pull["title"]
            pull[text] = f"Read this first.\n\n{pull[text]}\n\n{add}"

    def review(self):
        """alice asks for changes in a review."""
        if self.is_github:
            self.home.state.review(self.number()["number"], "@makimono say two.", "alice", "CHANGES_REQUESTED")
        else:
            self.home.server.note(self.number(), "alice", "@makimono say two.")


def end(home, daemon):
    daemon.terminate()
    daemon.wait(60)
    assert home.flow.worker(1) is None


@pytest.mark.parametrize("kind", KINDS)
def test_a_word_on_the_draft_is_heard_by_a_worker_that_was_started_again(homes, kind):
    held, heard = Held(do("read_file", path="README.md")), Held(finish("Write a", "There is an a."))
    home = homes(kind, {TASK: [write("a.txt"), PLAN, held, heard]})
    home.issue()
    daemon = home.flow.start("run", "--once")
    held.arrived()
    (pull,) = home.pulls()
    assert pull.draft
    os.kill(home.flow.worker(1), signal.SIGKILL)
    os.kill(daemon.pid, signal.SIGKILL)
    daemon.wait()
    Forge(home).say("Call it one, please.")
    held.go()
    home.flow.half_a_minute_later()
    daemon = home.flow.start("run", "--once")
    heard.arrived()
    assert "Call it one, please." in str(heard.requests[-1]["messages"])
    heard.go()
    assert daemon.wait(90) == 0


@pytest.mark.parametrize("kind", KINDS)
def test_a_draft_has_the_title_of_the_issue_and_no_closing_word_until_it_is_ready(homes, kind):
    held = Held(finish("Write a", "There is an a."))
    home = homes(kind, {TASK: [write("a.txt"), PLAN, held]})
    key = home.issue()
    process = home.flow.start("run", "--once")
    held.arrived()
    (draft,) = home.pulls()
    assert (draft.title, draft.draft) == (TASK, True)
    assert "Closes #" not in draft.body
    assert f"For #{key.task_id}" in draft.body
    held.go()
    process.wait(90)
    (pull,) = home.pulls()
    assert (pull.title, pull.draft) == ("Write a", False)
    assert f"Closes #{key.task_id}" in pull.body


@pytest.mark.parametrize("kind", KINDS)
def test_a_draft_that_is_merged_while_the_task_runs_ends_nothing(homes, kind):
    held = Held(write("b.txt"))
    home = homes(kind, {TASK: [write("a.txt"), PLAN, held, finish("Write b", "A b too.")]}, config=OFTEN)
    key = home.issue()
    process = home.flow.start("run", "--once")
    held.arrived()
    home.merge(home.pulls()[0])
    held.go()
    process.wait(90)
    assert home.flow.row(1)["status"] == "completed"
    first, second = home.pulls()
    assert (first.state, second.state, second.draft) == ("merged", "open", False)
    assert home.show(f"{second.head}:b.txt") == "x\n"
    assert home.labels(key) == ["coding agent done"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_merge_that_closes_the_issue_is_no_order_to_a_task_that_goes_on(homes, kind):
    """The ready pull request of the first run is merged while the second one works.  The check lasts for some looks at
    the closed issue, while the second pull request is open."""
    config = f"{OFTEN}verify: {{command: 'test ! -e b.txt || sleep 3'}}\n"
    home = homes(kind, {TASK: [write("a.txt"), finish("Write a", "There is an a.")]}, config=config)
    key = home.issue()
    home.flow.once()
    held = Held(do("read_file", path="README.md"))
    home.flow.plays[TASK] = [held, write("b.txt"), do("read_file", path="a.txt"), finish("Write b", "A b too.")]
    home.place.comment(key, "@makimono and a b.")
    process = home.flow.start("run", "--once")
    held.arrived()
    home.merge(home.pulls()[0])
    assert home.place.forge.read_issue(key).state == "closed"
    until(lambda: sum("/issues/1" in str(one) for one in home.server.journal[-40:]) > 3, "a look at the issue")
    held.go()
    process.wait(90)
    assert home.flow.row(1)["status"] == "completed"
    first, second = home.pulls()
    assert (first.state, second.state) == ("merged", "open")
    assert home.show(f"{second.head}:b.txt") == "x\n"
    (_, final) = home.own(key, "final")
    assert "was merged while the task ran" in final


@pytest.mark.parametrize("kind", KINDS)
def test_what_people_write_into_a_pull_request_stays_and_summaries_add_up(homes, kind):
    home = homes(kind, {TASK: [write("a.txt"), finish("Write a", "There is an a now.")]})
    key = home.issue()
    home.flow.once()
    forge = Forge(home)
    forge.edit("My own title", "Ticket: ACME-7")
    forge.review()
    home.flow.plays[TASK] = [write("b.txt"), finish("Write b as well", "And a b.")]
    home.flow.once()
    (pull,) = home.pulls()
    assert (pull.title, pull.draft) == ("My own title", False)
    assert pull.body.startswith("Read this first.\n\n")
    assert pull.body.rstrip().endswith("Ticket: ACME-7")
    assert pull.body.index("There is an a now.") < pull.body.index("And a b.")
    assert pull.body.count(f"Closes #{key.task_id}") == 1
    assert pull.body.count("**Check**") == 1
    assert pull.reviewers == ("alice",)
    if kind == "gitlab":
        assert forge.number()["asked_for_review"] == ["alice"]
    home.place.comment(key, "@makimono and a c.")
    home.flow.plays[TASK] = [write("c.txt"), finish("Write c as well", "And a c.")]
    home.flow.once()
    (pull,) = home.pulls()
    places = [pull.body.index(words) for words in ("There is an a now.", "And a b.", "And a c.")]
    assert places == sorted(places)
    assert pull.body.count("There is an a now.") == 1


@pytest.mark.parametrize("kind", KINDS)
def test_a_ready_pull_request_is_a_draft_before_more_is_pushed_to_it(homes, kind):
    home = homes(kind, {TASK: [write("a.txt"), finish("Write a", "There is an a now.")]})
    key = home.issue()
    home.flow.once()
    (pull,) = home.pulls()
    before = git("rev-parse", pull.head, cwd=home.repo).strip()
    assert not pull.draft
    log = home.flow.folder / "pushes"
    hook = home.repo / "hooks" / "post-receive"
    hook.write_text(f"#!/bin/sh\ntouch {log}; while [ -e {log} ]; do sleep 0.05; done\n")
    hook.chmod(0o755)
    home.flow.plays[TASK] = [write("b.txt"), finish("Write b as well", "And a b.")]
    home.place.comment(key, "@makimono and a b.")
    process = home.flow.start("run", "--once")
    until(log.exists, "the push", process=process)
    assert git("rev-parse", pull.head, cwd=home.repo).strip() != before
    assert home.pulls()[0].draft
    hook.unlink()
    log.unlink()
    process.wait(90)
    assert not home.pulls()[0].draft


@pytest.mark.parametrize("kind", KINDS)
def test_a_summary_longer_than_the_host_takes_is_cut_and_the_rest_stays(homes, kind):
    words = "word " * (14_000 if kind == "github" else 210_000)
    home = homes(
        kind, {TASK: [write("a.txt"), finish("Write a", words)]}, config="verify: {command: 'test -e a.txt'}\n"
    )
    key = home.issue()
    home.flow.once()
    (pull,) = home.pulls()
    limit = 65_536 if kind == "github" else 1_000_000
    assert limit * 0.9 < len(pull.body) <= limit
    assert f"Closes #{key.task_id}" in pull.body
    assert "**Check** `test -e a.txt`: exit code 0." in pull.body
    (final,) = home.own(key, "final")
    assert limit * 0.9 < len(final) <= limit
    assert "Ready for review: http" in final
    assert "- Branch `makimono/" in final
    assert "\n… cut; the whole text is in the folder of task " in final


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("what", ["closed", "label"])
def test_whatever_ends_a_task_from_outside_is_named_with_the_person_and_the_place_of_the_work(homes, kind, what):
    held = Held(finish("Write a", "There is an a."))
    home = homes(kind, {TASK: [write("a.txt"), PLAN, write("b.txt"), held]}, config=OFTEN)
    key = home.issue()
    daemon = home.flow.start("run")
    held.arrived()
    if what == "closed":
        home.place.close_issue(key)
    else:
        home.relabel(key, remove=["coding agent processing"])
    until(lambda: home.flow.row(1).get("status") == "stopped", "the stop")
    until(lambda: home.own(key, "final"), "the last comment")
    (final,) = home.own(key, "final")
    done = {"closed": "alice closed the issue.", "label": "alice removed the label coding agent processing."}
    assert final.startswith(f"**Stopped, as asked.** {done[what]} What was done is kept: branch makimono/1-")
    (row,) = home.flow.rows().values()
    assert f"What was published until then: {row['url']}" in final
    assert ("Open the issue again first" in final) == (what == "closed")
    assert "Write `/retry` in a comment" in final
    held.go()
    if what == "closed":
        home.place.open_issue(key)
    home.flow.plays[TASK] = [do("read_file", path="a.txt"), finish("Write a and b", "Both.")]
    home.place.comment(key, "/retry")
    until(lambda: home.labels(key) == ["coding agent done"], "the work that goes on")
    (pull,) = home.pulls()
    assert (home.show(f"{pull.head}:a.txt"), home.show(f"{pull.head}:b.txt")) == ("x\n", "x\n")
    end(home, daemon)
