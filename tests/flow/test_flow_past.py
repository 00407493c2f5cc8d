"""`solve --from UUID --at SEQ`: a new task that begins in the middle of another one."""

import json

import pytest
from flow_home import do, finish, write


def plan(state):
    return do("update_plan", items=[{"text": "The first half", "status": state}, {"text": "Rest", "status": "pending"}])


SECOND = 3
"""Answers that the second task keeps of the first."""


def play(steps, other):
    """The same conversation for both tasks up to the answer where the second one begins; then each its own."""

    def last(request):
        told = any("goes on in a new work tree" in str(one["content"]) for one in request.json["messages"])
        return other if told else steps[-1]

    return [*steps[:SECOND], last, finish("Other end", "It ended in another way.")]


def solved(here):
    """A home with one ended task: a published first half, then a change that is only in the end."""
    here.issue(1, "Half")
    here.once(code=0)
    assert here.row(1)["status"] == "completed"
    return here.row(1)["uuid"]


def rows(here):
    """Every row, by uuid; two of one issue too."""
    listed = json.loads(here.run("tasks", "--json", code=0)[1])
    return {one["uuid"]: one for one in listed}


def row(here, uuid):
    return rows(here)[uuid]


def of(here, uuid, name):
    path = here.contexts / "completed" / uuid / name
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_new_task_begins_after_the_message_with_the_tree_that_was_published_by_then(home):
    steps = [write("first.txt", "1\n"), plan("done"), write("second.txt", "2\n"), finish("First end", "It ended.")]
    here = home({"Half": play(steps, write("third.txt", "3\n"))})
    uuid = solved(here)
    before = of(here, uuid, "messages.jsonl")
    at = next(one["seq"] for one in before if one.get("tool_name") == "write_file" and one["seq"] > 5)
    said = json.loads(here.run("solve", "--from", uuid, "--at", str(at), "--json", code=0)[1])
    new = said["uuid"]
    assert new != uuid
    assert said["branch"] not in (None, row(here, uuid)["branch"])
    after = of(here, new, "messages.jsonl")
    assert after[:at] == before[:at], "the same conversation up to and including it"
    assert after[at]["kind"] == "nudge"
    assert "goes on in a new work tree" in after[at]["content"]
    assert row(here, new)["parent_uuid"] == uuid
    names = here.show(f"{said['branch']}:").split()
    assert {"first.txt", "third.txt"} <= set(names)
    commit = json.loads((here.contexts / "completed" / new / "from.json").read_text())["commit"]
    assert commit in after[at]["content"]
    assert of(here, uuid, "messages.jsonl") == before, "the first task stays as it was"


def test_the_turns_and_the_money_of_the_other_task_are_not_those_of_the_new_one(home):
    steps = [write("first.txt", "1\n"), plan("done"), write("second.txt", "2\n"), finish("First end", "It ended.")]
    here = home({"Half": play(steps, write("third.txt", "3\n"))})
    uuid = solved(here)
    at = of(here, uuid, "messages.jsonl")[-1]["seq"] - 2  # before the answer that ended it
    here.config.write_text(f"{here.config.read_text()}limits: {{turns: 3}}\n")
    new = json.loads(here.run("solve", "--from", uuid, "--at", str(at), "--json", code=0)[1])["uuid"]
    first, second = row(here, uuid), row(here, new)
    assert (second["status"], second["outcome"]) == ("completed", "finished"), "and not for want of turns"
    assert first["llm_call_count"] == 4
    assert second["llm_call_count"] == 2
    own = [one["usage"] for one in of(here, new, "messages.jsonl") if one["seq"] > at and one.get("usage")]
    assert len(own) == 2
    assert second["prompt_tokens"] == sum(one["prompt_tokens"] for one in own) > 0
    assert second["tool_call_count"] == 2


def test_a_message_within_a_group_is_refused_and_the_nearest_ends_are_named(home):
    here = home({"Half": [write("a.txt"), write("b.txt"), finish()]})
    uuid = solved(here)
    records = of(here, uuid, "messages.jsonl")
    within = next(one["seq"] for one in records if one.get("tool_calls"))
    code, text = here.run("solve", "--from", uuid, "--at", str(within))
    assert code == 2, text
    assert f"the nearest are {within - 1} or {within + 1}" in text
    assert len(rows(here)) == 1
    shown = here.run("show", uuid, "--full", code=0)[1]
    assert all(f"message {end} " in shown for end in (within - 1, within + 1)), shown
    code, text = here.run("solve", "--from", uuid, "--at", "999")
    assert code == 2, text
    assert f"the nearest is {records[-1]['seq']};" in text


@pytest.mark.parametrize("args", [("--from", "x"), ("--at", "3"), ("issue.md", "--from", "x", "--at", "3"), ()])
def test_half_a_wish_is_refused(home, args):
    here = home({})
    code, text = here.run("solve", *args)
    assert code == 2
    assert "--from UUID with --at SEQ" in text
