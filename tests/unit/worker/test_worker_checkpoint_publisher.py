"""A checkpoint publishes as a step of the loop, and nothing at all once another attempt owns the task."""

import json
import threading
import time
from dataclasses import replace
from itertools import pairwise

import pytest
from llm_servers import call, says
from run_home import UUID

from agent.errors import Fenced, ForgeRefused
from agent.forge.local.forge import LocalForge
from agent.values import End, Status
from agent.wiring.wiring import Wiring
from agent.work.remote import Remote
from agent.worker.task_run import TaskRun

PLAN = {"items": [{"text": "Write a", "status": "done"}, {"text": "Write b", "status": "pending"}]}
LATER = says("openai", "", [call("write_file", {"path": "late.txt", "content": "late\n"}, "call_9")])
FINISH = says("openai", "", [call("finish", {"title": "Done", "summary": "It is done."}, "call_10")])


def step(*more):
    """An answer that writes a file and says that a step of the plan is done."""
    calls = [call("write_file", {"path": "a.txt", "content": "a\n"}, "call_1"), call("update_plan", PLAN, "call_2")]
    return says("openai", "", [*calls, *more])


def outside(here):
    """Everything that people can see."""
    tracker = here.folder / "tracker"
    files = {str(one.relative_to(tracker)): one.read_text() for one in sorted(tracker.rglob("*")) if one.is_file()}
    refs = sorted(str(one.name) for one in (here.folder / "repo.git" / "refs" / "heads").rglob("*") if one.is_file())
    return files, refs


def take_over(here):
    """What another host does with a lease that is over."""
    assert here.ledger.requeue_dead(lambda _row: False) == [UUID % 1]
    here.ledger.claim(UUID % 1, "another-host:1:1:0:/elsewhere", 60)


def tools_of(here):
    path = here.settings.base_dir / "running" / (UUID % 1) / "tools.jsonl"
    return [json.loads(line)["tool"] for line in path.read_text().splitlines()]


def test_a_step_of_the_plan_is_a_draft_before_the_next_answer(work):
    place = {}

    def later(_):
        place["seen"] = outside(place["here"])
        return FINISH

    here, handler, task = work(step(), later)
    place["here"] = here
    assert handler.handle(task).end is End.FINISHED
    files, refs = place["seen"]
    (pull,) = [text for name, text in files.items() if name.startswith("pulls/") and name.endswith(".md")]
    assert "draft: true" in pull
    assert len(refs) == 2
    assert here.ledger.get(UUID % 1).branch in {f"makimono/{name}" for name in refs}


def test_an_attempt_that_lost_its_row_before_the_checkpoint_does_nothing_more_outside(work):
    place = {}

    def lost(_):
        take_over(place["here"])
        place["seen"] = outside(place["here"])
        return step()

    here, handler, task = work(lost, LATER, FINISH)
    place["here"] = here
    with pytest.raises(Fenced):
        handler.handle(task)
    assert outside(here) == place["seen"]
    assert len(here.script.asked) == 1
    assert tools_of(here) == ["write_file", "update_plan"]
    assert here.ledger.get(UUID % 1).status is Status.RUNNING
    assert here.named("listener_failed") == here.named("task_ended") == here.named("effect_failed") == []


def test_an_attempt_that_loses_its_row_while_it_pushes_opens_no_pull_request(work):
    here, handler, task = work(step(), LATER, FINISH)
    pushed, go = here.folder / "pushed", here.folder / "go"
    hook = here.folder / "repo.git" / "hooks" / "post-receive"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\ntouch {pushed}\nwhile [ ! -e {go} ]; do sleep 0.02; done\n")
    hook.chmod(0o755)
    seen = []

    def elsewhere():
        until = time.monotonic() + 60
        while not pushed.exists() and time.monotonic() < until:
            time.sleep(0.02)
        other = Wiring(here.settings, events=here.events)
        try:
            assert other.ledger.requeue_dead(lambda _row: False) == [UUID % 1]
            other.ledger.claim(UUID % 1, "another-host:1:1:0:/elsewhere", 60)
        finally:
            other.close()
        seen.append(outside(here))
        go.touch()

    thread = threading.Thread(target=elsewhere)
    thread.start()
    with pytest.raises(Fenced):
        handler.handle(task)
    thread.join()
    assert outside(here) == seen[0]
    assert len(here.script.asked) == 1
    assert tools_of(here) == ["write_file", "update_plan"]
    assert "pulls" not in {name.split("/")[0] for name in seen[0][0]}
    assert here.named("task_ended") == here.named("effect_failed") == []


@pytest.mark.parametrize(("look_up", "number"), [("find_pull", 1), ("final", 1)])
def test_an_attempt_that_loses_its_row_while_it_looks_something_up_changes_nothing_more(
    work, monkeypatch, look_up, number
):
    """A host that is frozen in a request, until another one has done the rest, posted the final comment twice."""
    here, handler, task = work(step(), FINISH)
    forge, seen, left = here.wiring.forge_of(task.get_task_key()), [], [number]
    name = "find_comment" if look_up == "final" else look_up
    search = getattr(forge, name)

    def frozen(key, what):
        found = search(key, what)
        if name == "find_pull" or what.endswith(":final"):
            left[0] -= 1
            if left[0] == 0:
                take_over(here)
                seen.append(outside(here))
        return found

    monkeypatch.setattr(forge, name, frozen)
    with pytest.raises(Fenced):
        handler.handle(task)
    assert outside(here) == seen[0]


CHANGES = {"acknowledge", "ask_again", "edit_comment", "move_label", "open_pull", "post_comment", "push", "reply"}
CHANGES |= {"settle_thread", "update_pull"}
"""What a run changes outside: methods of an adapter, and the push."""


class Observed(LocalForge):
    """A tracker with every optional method of an adapter that changes something; `steps` are the names of the calls.
    Nobody has a thread any more whose name is `gone`."""

    def __init__(self, settings):
        super().__init__(settings)
        self.steps = []

    def __getattribute__(self, name):
        found = super().__getattribute__(name)
        if name in CHANGES | {"read_issue", "comments_since", "find_comment", "find_pull", "find_reply", "requested"}:
            self.steps.append(name)
        return found

    def comments_since(self, key, cursor):
        found, following = super().comments_since(key, cursor)
        return tuple(replace(one, place="On a.txt:1") for one in found), following

    def acknowledge(self, key, comment):
        """The reaction."""

    def ask_again(self, key, pull, login):
        """The request for a review."""

    def find_reply(self, key, comment, mark):
        return None

    def reply(self, key, comment, body):
        if comment.author == "gone":
            raise ForgeRefused("the thread is gone", status=404)
        return "900"

    def settle_thread(self, key, comment):
        """The resolved thread."""


def test_each_change_outside_follows_a_look_at_the_row(work, monkeypatch):
    """A request may take minutes, in which another host takes the task over: between the look and the change nothing
    is asked of the forge or the remote."""
    answers = [{"comment": number, "text": "Yes.", "settled": True} for number in ("100", "101")]
    told = {"title": "Done", "summary": "It is done.", "answers": answers}
    finish = says("openai", "", [call("finish", told, "call_10")])
    place = {}

    def during(_):
        place["here"].comment(1, "Please write b too.", author="bob", ident=500)
        return step()

    here, handler, task = work(during, FINISH, finish)
    place["here"] = here
    here.comment(1, "And b?", author="bob", ident=100)
    here.comment(1, "And c?", author="gone", ident=101)
    forge = Observed(here.settings)
    check, push, listed = TaskRun.check_held, Remote.push, Remote._listed
    noted = forge.steps.append
    monkeypatch.setattr(here.wiring, "forge_of", lambda key: forge)
    monkeypatch.setattr(TaskRun, "check_held", lambda run: (check(run), noted("look"))[0])
    monkeypatch.setattr(Remote, "push", lambda *found: (noted("push"), push(*found))[1])
    monkeypatch.setattr(Remote, "_listed", lambda *found: (noted("list"), listed(*found))[1])
    assert handler.handle(task).end is End.FINISHED
    unseen = [one for before, one in pairwise(forge.steps) if one in CHANGES and before != "look"]
    assert unseen == []
    assert CHANGES - set(forge.steps) == set()


def test_a_task_that_is_resumed_while_its_pause_is_shown_does_not_get_the_label_of_the_pause(work, monkeypatch):
    """The host that paused it was suspended in the edit of the comment; another one works on the task by then."""
    place = {}

    def paused(_):
        place["here"].ledger.request(UUID % 1, "pause", comment="100", who="alice")
        handler.run.control.read_at_once()
        return step()

    here, handler, task = work(paused, FINISH)
    place["here"] = here
    forge, seen = here.wiring.forge_of(task.get_task_key()), []
    edit = forge.edit_comment

    def suspended(key, comment, body):
        edit(key, comment, body)
        if here.ledger.get(UUID % 1).status is Status.PAUSED:
            here.ledger.request(UUID % 1, "resume")
            here.ledger.claim(UUID % 1, "another-host:1:1:0:/elsewhere", 60)
            seen.append(outside(here))

    monkeypatch.setattr(forge, "edit_comment", suspended)
    assert handler.handle(task).end is End.PAUSED
    assert len(seen) == 1
    assert outside(here) == seen[0]
    assert "coding agent processing" in seen[0][0]["issues/1.md"]
    assert here.named("effect_failed") == []
