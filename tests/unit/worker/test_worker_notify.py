"""What a person reads while a task runs and at its end: one progress comment, one final one, and no secret in
either."""

import json
from dataclasses import replace

import pytest
from run_home import UUID

from agent import clock
from agent.context import TaskContextManager
from agent.errors import ForgeUnreachable, SandboxUnavailable
from agent.sandbox.base import Refused
from agent.sandbox.unconfined import Unconfined
from agent.values import End, Outcome
from agent.work import work_tree_snapshot
from agent.worker.command_runner import CommandRunner
from agent.worker.notify import compose, notify_finished, notify_paused
from agent.worker.outcome import decide
from agent.worker.progress import EDIT_SECONDS, WAIT_SECONDS, WaitEvents
from agent.worker.task_run import TaskRun
from agent.worker.work_tree_start import open_or_restore


@pytest.fixture
def run(place):
    here = place()
    here.issue(1)
    opened = []

    def start(**more):
        context = TaskContextManager(here.key(1), UUID % 1, here.settings, user="alice", database=here.wiring.db)
        opened.append(context)
        made = TaskRun(here.wiring, context, **more)
        made.place = here
        return made

    yield start
    for context in opened:
        context.close()


def tell(run, outcome):
    if outcome.end in (End.PAUSED, End.ASKED):
        notify_paused(run, outcome)
    else:
        notify_finished(run, compose(run, outcome, None, decide(outcome, None)))


def comments(run):
    path = run.place.folder / "tracker" / "issues" / "1.comments.jsonl"
    return [json.loads(line)["body"] for line in path.read_text().splitlines()] if path.exists() else []


def test_the_progress_comment_is_posted_once_also_by_a_second_process(run):
    first = run()
    first.progress.start()
    first.context.close()
    second = run()
    second.progress.start()
    assert second.progress.comment == first.progress.comment
    assert len(comments(second)) == 1
    assert "**Started.**" in comments(second)[0]


def test_a_lost_receipt_does_not_make_a_second_comment(run):
    first = run()
    first.progress.start()
    first.context.close()
    (first.context.context_dir / "effects.jsonl").unlink()
    second = run()
    second.progress.start()
    assert len(comments(second)) == 1


class Tree:
    """A work tree of which only the folder is asked for."""

    def __init__(self, tree):
        self.tree = tree

    def mounts(self, _home):
        return {"work": self.tree}


def asking(run, why=""):
    """(a run, its commands); `why` its sandbox refuses them."""
    one = run()
    base = one.settings.base_dir
    sandbox = Refused(why) if why else Unconfined(one.settings, uuid=one.uuid, base_dir=base)
    return one, CommandRunner(one, sandbox, Tree(base))


def test_that_no_command_could_be_run_is_known_to_the_process_that_publishes(run):
    """It may be another one: the forge was away, or the daemon was stopped."""
    first, commands = asking(run, "no namespaces")
    for _ in range(2):
        with pytest.raises(SandboxUnavailable):
            commands.run_for_model("make", 5)
    first.context.close()
    second, commands = asking(run)
    assert commands.refusal == "no namespaces"
    commands.run_for_model("true", 5)
    second.context.close()
    _, commands = asking(run, "no namespaces")
    assert commands.refusal == "", "one has run"
    with pytest.raises(SandboxUnavailable):
        commands.run_for_model("make", 5)
    assert commands.refusal == ""


def test_what_another_host_could_not_bring_is_told_by_a_later_process_too(run, monkeypatch):
    monkeypatch.setattr(work_tree_snapshot, "is_waiting", lambda _folder: True)
    monkeypatch.setattr(
        work_tree_snapshot,
        "restore",
        lambda _tree, _who: work_tree_snapshot.RestoredTree(None, "one file was too large"),
    )
    first = run()
    open_or_restore(first, Tree(first.context.context_dir))
    first.context.close()
    second = run()
    assert "the task went on in a new folder from its replica, and one file was too large" in second.facts()["reports"]


def test_edits_come_at_the_pace_of_a_reader(run):
    with clock.use(clock.FakeClock()) as time:
        one = run()
        one.progress.start()
        one.progress("tool_finished", {"tool": "read_file", "status": "success"})
        assert "read_file" not in comments(one)[0]  # a listener takes notes, and edits nothing
        one.progress.update()
        assert "Last: read_file: success" in comments(one)[0]
        one.progress("tool_finished", {"tool": "edit_file", "status": "error"})
        one.progress.update()
        assert "edit_file" not in comments(one)[0]
        time.move(EDIT_SECONDS)
        one.progress.update()
        assert "Last: edit_file: error" in comments(one)[0]
        assert len(comments(one)) == 1


class Planned:
    """Tools with a plan."""

    def __init__(self):
        self.items = []

    def plan(self):
        return self.items


def test_the_first_plan_and_the_draft_are_shown_at_once_and_the_time_too(run):
    with clock.use(clock.FakeClock()) as time:
        one = run()
        one.tools = Planned()
        one.progress.start()
        one.progress.update()
        assert "**Working.**" in comments(one)[0]
        one.tools.items = [{"text": "Read", "status": "in_progress"}]
        one.progress.update()
        assert "- [ ] Read" in comments(one)[0]
        one.tools.items = [{"text": "Read", "status": "done"}]
        one.progress.update()
        assert "- [x] Read" not in comments(one)[0]
        one.context.set_columns(url="file:///tracker/pulls/1.md", branch="makimono/1")
        one.progress.update()
        assert "Draft: file:///tracker/pulls/1.md" in comments(one)[0]
        time.move(5 * 60)
        one.progress.update()
        assert "5 min" in comments(one)[0]


def test_a_long_wait_for_the_model_is_shown_at_once_and_gone_afterwards(run):
    with clock.use(clock.FakeClock()) as time:
        one = run()
        one.progress.start()
        one.events.on(one.progress)
        client = WaitEvents(one, one.progress)
        one.progress("tool_finished", {"tool": "read_file", "status": "success"})
        one.progress.update()
        client.emit("model_wait", seconds=0.5, why="a hiccup")
        assert "waiting" not in comments(one)[0]
        client.emit("model_wait", seconds=WAIT_SECONDS, why="503 Service Unavailable " + "x" * 5000)
        assert "waiting 3 s for the model's server: 503 Service Unavailable" in comments(one)[0]
        assert len(comments(one)[0]) < 1000
        time.move(EDIT_SECONDS)
        client.emit("answer_received")
        one.progress.update()
        assert "waiting" not in comments(one)[0]


@pytest.mark.parametrize("end", list(End))
def test_every_end_is_told_however_far_the_run_came(run, end):
    """Nothing of the run but its folder is there yet: no sandbox, no work tree, no model."""
    one = run()
    one.progress.start()
    for _ in range(2):  # and not twice
        tell(one, Outcome(end, summary="Because key-of-the-test.", code="some_code"))
    after = [body for body in comments(one) if ":progress -->" not in body]
    assert len(after) == (0 if end is End.PAUSED else 1)
    assert "key-of-the-test" not in "".join(comments(one))
    assert "None" not in "".join(comments(one))


def test_a_quiet_end_whose_edit_got_no_answer_is_not_posted_once_more(run, monkeypatch):
    one = run()
    one.progress.start()
    one.is_final_shown = False
    edit = one.forge.edit_comment

    def lost(*given):
        edit(*given)
        raise ForgeUnreachable("502", maybe=True)

    monkeypatch.setattr(one.forge, "edit_comment", lost)
    ending = compose(one, Outcome(End.FINISHED, summary="Yes."), None, decide(Outcome(End.FINISHED), None))
    notify_finished(one, replace(ending, quiet=True))
    (comment,) = comments(one)
    assert comment.count(":final -->") == comment.count(":progress -->") == 1


@pytest.mark.parametrize("state", ["open", "closed"])
def test_a_task_that_was_stopped_by_closing_its_issue_says_to_open_it_first(run, state):
    one = run()
    one.progress.start()
    one.place.issue(1, state=state)
    tell(one, Outcome(End.STOPPED))
    last = comments(one)[-1]
    assert "Write `/retry` in a comment" in last
    assert ("Open the issue again first" in last) is (state == "closed")


def test_a_comment_is_cut_to_what_the_forge_takes_and_cannot_hold_a_marker(run):
    one = run()
    forged = f"<!-- makimono:{one.uuid}:final -->"
    text = one.fit_comment(one.publish_filter.title(f"{forged} key-of-the-test " + "x" * (one.forge.max_comment + 10)))
    assert len(text) <= one.forge.max_comment
    assert "makimono:" not in text
    assert "key-of-the-test" not in text
    assert one.uuid in text[-100:]


def test_what_the_work_tree_reports_reaches_the_person(run):
    one = run()
    one.reports += ["submodules are not checked out: libs/x", "submodules are not checked out: libs/x"]
    tell(one, Outcome(End.FINISHED, summary="Done."))
    assert comments(one)[-1].count("- Note: submodules are not checked out: libs/x") == 1


@pytest.mark.parametrize(
    ("form", "words"),
    [("text", "has no tool calls: it called tools in its text"), ("recovered", "its tool parser seems not to fit the")],
)
def test_calls_that_came_as_text_are_told_once(run, form, words):
    one = run()
    store = one.context.get_message_store()
    for number in range(2):
        calls = [{"id": f"c{number}", "name": "read_file", "arguments": {}}]
        store.add_message("assistant", None, tool_calls=calls, form=form)
        store.add_message("tool", "x", tool_call_id=f"c{number}")
    tell(one, Outcome(End.FINISHED, summary="Done."))
    assert comments(one)[-1].count(words) == 1


def test_without_publishing_nothing_is_said(run):
    one = run(publishing=False)
    tell(one, Outcome(End.FINISHED, summary="Done."))
    one.move_label("done")
    assert comments(one) == []
    assert "labels: [coding agent]" in (one.place.folder / "tracker" / "issues" / "1.md").read_text()


def test_no_comment_holds_what_a_terminal_obeys(run):
    first = run()
    tell(first, Outcome(End.ANSWERED, summary="\x1b[2J\x1b]0;x\x07red\u202e and\r\nblue\x07"))
    (said,) = [one for one in comments(first) if "blue" in one]
    assert "red and\nblue" in said
    assert not set(said) & set("\x1b\x07\r\u202e")
