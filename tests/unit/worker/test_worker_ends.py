"""An end by an error delivers what was done: a draft with the reason, and a retry goes on from it."""

import re
import shlex
import subprocess

import pytest
from llm_servers import Reply, call, says
from run_home import UUID

from agent import clock, durable_files
from agent.config import load
from agent.daemon.finalize import close_from_outside
from agent.daemon.supervisor import Supervisor
from agent.errors import (
    AccessRefused,
    AnswerUnreadable,
    ContextOverflow,
    ForgeError,
    ModelNotFound,
    ModelStalled,
    QuotaExhausted,
    RequestRefused,
    SetupFailed,
)
from agent.forge import TaskFactory
from agent.loop import Loop
from agent.values import End, Status
from agent.wiring.wiring import Wiring
from agent.worker.handler import TaskHandler

WRITE = says("openai", "", [call("write_file", {"path": "a.txt", "content": "a\n"}, "call_1")])
OTHER = says("openai", "", [call("write_file", {"path": "b.txt", "content": "b\n"}, "call_2")])
FINISH = says("openai", "", [call("finish", {"title": "Done", "summary": "It is done."}, "call_3")])


def refusal(status, message, **more):
    return Reply({"error": {"message": message, **more}}, status)


QUOTA = refusal(429, "You exceeded your current quota", code="insufficient_quota", type="insufficient_quota")
TOO_LONG = refusal(
    400,
    "This model's maximum context length is 9 tokens, however you requested 99 tokens",
    code="context_length_exceeded",
)
REFUSALS = [
    (QUOTA, QuotaExhausted),
    (refusal(401, "Incorrect API key"), AccessRefused),
    (refusal(404, "The model `m` does not exist", code="model_not_found"), ModelNotFound),
    (refusal(400, "Unsupported parameter"), RequestRefused),
    (Reply(b"<html>hello</html>", 200, {"Content-Type": "text/html"}), AnswerUnreadable),
]


def tracker(here, name):
    return (here.folder / "tracker" / name).read_text()


def pulls(here):
    return [one.read_text() for one in sorted((here.folder / "tracker").glob("pulls/*.md"))]


def said(here):
    return tracker(here, "issues/1.comments.jsonl")


def git(here, *args):
    return subprocess.check_output(["git", "-C", here.folder / "repo.git", *args], text=True)


def is_a_draft_with_the_reason(here, code, words):
    row = here.ledger.get(UUID % 1)
    assert (row.status, row.error_code) == (Status.FAILED, code)
    (pull,) = pulls(here)
    assert "draft: true" in pull
    assert f"**Not finished** ({code})" in pull
    assert words in pull
    assert git(here, "show", f"{row.branch}:a.txt") == "a\n"
    assert row.url
    assert f"The task could not be done ({code})" in said(here)
    assert "Draft: " in said(here)
    assert "it goes on from this branch" in said(here)
    assert said(here).count(":final -->") == 1
    assert "coding agent failed" in tracker(here, "issues/1.md")


@pytest.mark.parametrize(("reply", "error"), REFUSALS, ids=[error.code for _, error in REFUSALS])
def test_what_was_done_before_the_model_refused_is_shown_as_a_draft(work, reply, error):
    here, handler, task = work(WRITE, reply)
    with pytest.raises(error) as raised:
        handler.handle(task)
    assert handler.failed
    is_a_draft_with_the_reason(here, error.code, str(raised.value)[:40])


def test_so_it_is_before_a_prompt_that_does_not_fit(work):
    here, handler, task = work(WRITE, TOO_LONG)
    with pytest.raises(ContextOverflow):
        handler.handle(task)
    is_a_draft_with_the_reason(here, here.ledger.get(UUID % 1).error_code, "")


def test_so_it_is_before_a_bug_of_ours(work, monkeypatch):
    here, handler, task = work(WRITE, FINISH)
    turns = iter(range(9))
    turn = Loop.run_turn

    def breaks(loop):
        return turn(loop) if next(turns) == 0 else 1 // 0

    monkeypatch.setattr(Loop, "run_turn", breaks)
    with pytest.raises(ZeroDivisionError):
        handler.handle(task)
    is_a_draft_with_the_reason(here, "bug", "division")


def test_a_retry_goes_on_from_the_branch(work):
    here, handler, task = work(WRITE, QUOTA)
    with pytest.raises(QuotaExhausted):
        handler.handle(task)
    first = here.ledger.get(UUID % 1)
    uuid = here.ledger.enqueue(here.key(1), uuid=UUID % 2, user="alice", parent_uuid=first.uuid)
    claim = here.ledger.claim(uuid, here.wiring.owner, 60)
    here.script.replies = [OTHER, FINISH]
    here.forge.move_label(task.get_task_key(), "processing")
    task = TaskFactory.from_dict({**here.key(1), "uuid": uuid, "user": "alice"}, here.wiring.forges)
    assert TaskHandler(here.wiring, attempt=claim.attempt).handle(task).end is End.FINISHED
    assert here.ledger.get(uuid).branch == first.branch
    assert git(here, "ls-tree", "--name-only", first.branch).split() == ["a.txt", "b.txt"]
    (pull,) = pulls(here)
    assert "draft: false" in pull
    assert "Not finished" not in pull


def test_when_it_cannot_be_published_the_first_error_stays_and_the_work_waits(work):
    here, handler, task = work(WRITE, QUOTA)
    (here.folder / "tracker" / "pulls").write_text("in the way")  # no pull request can be looked up or opened
    with pytest.raises(QuotaExhausted):
        handler.handle(task)
    row = here.ledger.get(UUID % 1)
    assert (row.status, row.outcome, row.error_code) == (Status.QUEUED, "publishing", ForgeError.code)
    assert not handler.failed
    (here.folder / "tracker" / "pulls").unlink()
    asked = len(here.script.asked)
    with clock.use(clock.FakeClock(clock.parse(row.not_before))):
        claim = here.ledger.claim(UUID % 1, here.wiring.owner, 60)
    handler = TaskHandler(here.wiring, attempt=claim.attempt)
    assert handler.handle(task).end is End.FAILED
    assert handler.failed
    assert len(here.script.asked) == asked
    is_a_draft_with_the_reason(here, "quota_exhausted", "You exceeded your current quota")


def test_what_may_not_go_out_is_held_back_at_such_an_end_too(work):
    leak = says("openai", "", [call("write_file", {"path": "a.txt", "content": "key-of-the-test\n"}, "call_1")])
    here, handler, task = work(leak, QUOTA)
    with pytest.raises(QuotaExhausted):
        handler.handle(task)
    row = here.ledger.get(UUID % 1)
    assert (row.status, row.error_code, row.url) == (Status.FAILED, "quota_exhausted", None)
    assert pulls(here) == []
    assert git(here, "for-each-ref", "--format=%(refname:short)").split() == ["main"]
    assert "**Not published:** what changed was held back." in said(here)
    assert "key-of-the-test" not in said(here)


def test_nothing_is_delivered_where_nothing_was_done(work):
    here, handler, task = work(QUOTA)
    with pytest.raises(QuotaExhausted):
        handler.handle(task)
    assert pulls(here) == []
    assert here.ledger.get(UUID % 1).branch is None
    assert "The task could not be done (quota_exhausted)" in said(here)


def test_a_task_that_a_person_stops_says_where_its_work_is(work):
    place = {}

    def stops(_):
        place["here"].ledger.request(UUID % 1, "stop")
        place["handler"].run.control.read_at_once()
        return OTHER

    here, handler, task = work(WRITE, stops)
    place |= {"here": here, "handler": handler}
    assert handler.handle(task).end is End.STOPPED
    row = here.ledger.get(UUID % 1)
    folder = here.settings.base_dir / "completed" / row.uuid / "git"
    words = said(here)
    assert f"What was done is kept: branch makimono/1-{row.uuid[:8]} in completed/{row.uuid}/git, and" in words
    [command] = re.findall(r"call `(git [^`]*)` in the folder that context_storage\.base_dir names", words)
    patch = subprocess.check_output(shlex.split(command), text=True, cwd=here.settings.base_dir)
    assert "b/a.txt" in patch
    assert "b/b.txt" in patch
    branch = f"makimono/1-{row.uuid[:8]}"
    shown = subprocess.check_output(["git", f"--git-dir={folder}", "ls-tree", "--name-only", branch], text=True)
    assert shown.split() == ["a.txt", "b.txt"]
    assert pulls(here) == []


def test_a_task_that_is_stopped_before_it_did_anything_has_nothing_to_say_of_it(work):
    here, handler, task = work(FINISH)
    here.ledger.request(UUID % 1, "stop")
    assert handler.handle(task).end is End.STOPPED
    assert "is kept" not in said(here)


class KilledError(BaseException):
    """Nothing of a process that dies here catches it."""


@pytest.mark.parametrize("how", ["poison", "memory"])
def test_a_task_whose_workers_are_gone_is_published_by_one_more_that_asks_no_model(work, monkeypatch, how):
    here, handler, task = work(WRITE, FINISH)
    supervisor = Supervisor(here.wiring)
    turn = Loop.run_turn

    def dies(loop):
        if loop.context.get_tool_store().count_tool_calls():
            raise KilledError
        return turn(loop)

    with monkeypatch.context() as patch:
        patch.setattr(Loop, "run_turn", dies)
        with pytest.raises(KilledError):
            handler.handle(task)
        if how == "memory":
            supervisor.watchdog.limit = supervisor.watchdog.limit or 100 << 20
            supervisor.watchdog.note_too_large(UUID % 1, here.ledger.get(UUID % 1).process_id)
        else:
            for _ in range(3):  # the first death came after an answer
                supervisor.dead_rows.requeue()
                attempt = here.ledger.claim(UUID % 1, here.wiring.owner, 60).attempt
                with pytest.raises(KilledError):
                    TaskHandler(here.wiring, attempt=attempt).handle(task)
            supervisor.dead_rows.requeue()
    row = here.ledger.get(UUID % 1)
    assert (row.status, row.outcome, row.error_code) == (Status.QUEUED, "publishing", how)
    asked = len(here.script.asked)
    attempt = here.ledger.claim(UUID % 1, here.wiring.owner, 60).attempt
    assert TaskHandler(here.wiring, attempt=attempt).handle(task).end is End.FAILED
    assert len(here.script.asked) == asked == 1
    is_a_draft_with_the_reason(here, how, {"poison": "died 3 times", "memory": "limits.memory"}[how])


def test_a_task_that_is_stopped_while_it_waits_says_where_its_work_is(work):
    place = {}

    def pauses(_):
        place["here"].ledger.request(UUID % 1, "pause")
        place["handler"].run.control.read_at_once()
        return WRITE

    here, handler, task = work(pauses)
    place |= {"here": here, "handler": handler}
    assert handler.handle(task).end is End.PAUSED
    here.ledger.request(UUID % 1, "stop")
    assert close_from_outside(here.wiring, here.ledger.get(UUID % 1))
    assert f"What was done is kept: branch makimono/1-{UUID[:8]} in" in said(here)
    assert (here.settings.base_dir / "completed" / (UUID % 1) / "workspace" / "a.txt").read_text() == "a\n"


def test_a_server_that_takes_the_connection_and_says_nothing_is_waited_for(work):
    here, _, task = work(WRITE, Reply(before=30.0))
    config = here.folder / "config.yaml"
    config.write_text(config.read_text().replace("context_length: 32000", "context_length: 32000, idle_timeout: 0.5"))
    wiring = Wiring(load(config, environ={}), events=here.events)
    with clock.use(clock.FakeClock(clock.now())) as time:
        with pytest.raises(ModelStalled):
            TaskHandler(wiring, attempt=1).handle(task)
        row = here.ledger.get(UUID % 1)
        assert (row.status, row.error_code, row.deaths) == (Status.QUEUED, "model_stalled", 0)
        assert "It is tried again after" in said(here)
        here.script.replies = [FINISH]
        time.move(61)
        claim = wiring.ledger.claim(UUID % 1, wiring.owner, 60)
        assert TaskHandler(wiring, attempt=claim.attempt).handle(task).end is End.FINISHED
    wiring.close()
    assert (row := here.ledger.get(UUID % 1)).llm_call_count - row.other_call_count == 2, "the answers"


def test_a_set_up_that_fails_after_a_resume_delivers_what_an_earlier_attempt_did(work):
    place = {}

    def drains(_):
        place["handler"].drain()
        return WRITE

    here, handler, task = work(drains, extra="sandbox: {kind: bubblewrap}\n")
    place["handler"] = handler
    assert handler.handle(task).end is End.DRAINED
    config = here.folder / "config.yaml"
    config.write_text(config.read_text() + "workspace: {setup: {command: 'echo no such package; exit 3'}}\n")
    wiring = Wiring(load(config, environ={}), events=here.events)
    claim = wiring.ledger.claim(UUID % 1, wiring.owner, 60)
    with pytest.raises(SetupFailed):
        TaskHandler(wiring, attempt=claim.attempt).handle(task)
    wiring.close()
    is_a_draft_with_the_reason(here, "setup_failed", "no such package")


@pytest.mark.parametrize("answer", [says("openai", "I think."), WRITE], ids=["nothing was done", "something was done"])
@pytest.mark.parametrize("end", [End.LIMIT, End.STOPPED])
def test_an_end_in_a_wait_before_the_work_tree_is_open_is_that_end_and_says_where_the_work_is(work, answer, end):
    """Another process holds the mirror of the repository, and the time is over, or a person stops the task."""
    place = {}

    def drains(_):
        place["handler"].drain()
        return answer

    here, handler, task = work(drains)
    place["handler"] = handler
    assert handler.handle(task).end is End.DRAINED
    config = here.folder / "config.yaml"
    if end is End.LIMIT:
        config.write_text(config.read_text() + "limits: {wall_seconds: 0.2}\n")
    wiring = Wiring(load(config, environ={}), events=here.events)
    claim = wiring.ledger.claim(UUID % 1, wiring.owner, 60)
    if end is End.STOPPED:
        here.ledger.request(UUID % 1, "stop")
    (mirror,) = here.settings.base_dir.glob("repos/**/*.git")
    handler = TaskHandler(wiring, attempt=claim.attempt)
    with durable_files.locked(mirror.with_name(f".{mirror.name}.lock")):
        assert handler.handle(task).end is end
    wiring.close()
    row = here.ledger.get(UUID % 1)
    known = {End.LIMIT: (Status.FAILED, "limit_wall_seconds"), End.STOPPED: (Status.STOPPED, None)}
    assert (row.status, row.error_code) == known[end]
    assert said(here).count(":final -->") == 1
    where = f"What was done is kept: branch makimono/1-{row.uuid[:8]} in completed/{row.uuid}/git"
    assert (where in said(here)) is (answer is WRITE)
