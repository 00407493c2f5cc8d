"""What a person reads while a task runs and at its end: one progress comment, one final one, and no secret in either."""

import json

import pytest
from run_home import UUID

from agent import clock
from agent.context import TaskContextManager
from agent.run.gate import decide
from agent.run.progress import EDIT_SECONDS, WAIT_SECONDS, Waiting
from agent.run.task_run import TaskRun
from agent.run.telling import put_in_words, tell_end, tell_pause
from agent.values import End, Outcome


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
        tell_pause(run, outcome)
    else:
        tell_end(run, put_in_words(run, outcome, None, decide(outcome, None)))


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


def test_edits_come_at_the_pace_of_a_reader(run):
    with clock.use(clock.FakeClock()) as time:
        one = run()
        one.progress.start()
        one.progress("tool_finished", {"tool": "read_file", "status": "success"})
        assert "read_file" not in comments(one)[0]  # a listener takes notes, and edits nothing
        one.progress.show()
        assert "Last: read_file: success" in comments(one)[0]
        one.progress("tool_finished", {"tool": "edit_file", "status": "error"})
        one.progress.show()
        assert "edit_file" not in comments(one)[0]
        time.move(EDIT_SECONDS)
        one.progress.show()
        assert "Last: edit_file: error" in comments(one)[0]
        assert len(comments(one)) == 1


def test_a_long_wait_for_the_model_is_shown_at_once_and_gone_afterwards(run):
    with clock.use(clock.FakeClock()) as time:
        one = run()
        one.progress.start()
        one.events.on(one.progress)
        client = Waiting(one, one.progress)
        one.progress("tool_finished", {"tool": "read_file", "status": "success"})
        one.progress.show()
        client.emit("model_wait", seconds=0.5, why="a hiccup")
        assert "waiting" not in comments(one)[0]
        client.emit("model_wait", seconds=WAIT_SECONDS, why="503 Service Unavailable " + "x" * 5000)
        assert "waiting 3 s for the model's server: 503 Service Unavailable" in comments(one)[0]
        assert len(comments(one)[0]) < 1000
        time.move(EDIT_SECONDS)
        client.emit("answer_received")
        one.progress.show()
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


def test_a_comment_is_cut_to_what_the_forge_takes_and_cannot_hold_a_marker(run):
    one = run()
    forged = f"<!-- makimono:{one.uuid}:final -->"
    text = one.say(one.door.title(f"{forged} key-of-the-test " + "x" * (one.forge.max_comment + 10)))
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
    one.label("done")
    assert comments(one) == []
    assert "labels: [coding agent]" in (one.place.folder / "tracker" / "issues" / "1.md").read_text()


def test_no_comment_holds_what_a_terminal_obeys(run):
    first = run()
    tell(first, Outcome(End.ANSWERED, summary="\x1b[2J\x1b]0;x\x07red\u202e and\r\nblue\x07"))
    (said,) = [one for one in comments(first) if "blue" in one]
    assert "red and\nblue" in said
    assert not set(said) & set("\x1b\x07\r\u202e")
