"""One task from its claim to its row, in this process, with a scripted model."""

import dataclasses
import errno
import json
import math
import shutil
import subprocess
from datetime import timedelta
from types import SimpleNamespace

import pytest
from first_commit import bare
from llm_servers import Script, call, says
from run_home import UUID

from agent import clock
from agent.context import TaskContextManager
from agent.daemon.finalize import move_leftovers, send_pending_notifications
from agent.errors import (
    AccessRefused,
    DiskError,
    ForgeError,
    ForgeUnreachable,
    ModelUnreachable,
    RateLimited,
    RepositoryMissing,
)
from agent.forge import TaskFactory
from agent.llm import make_client
from agent.observe import log
from agent.taskqueue import Claim
from agent.values import End, Status, TaskKey
from agent.window import make_window
from agent.worker import control, requeue
from agent.worker.attempt import give_up_claim
from agent.worker.conversation import Conversation
from agent.worker.error_disposition import ATTEMPTS
from agent.worker.handler import TaskHandler
from agent.worker.issue_pictures import IssuePictures
from agent.worker.later_recall import LaterRecall
from agent.worker.requeue import try_now
from agent.worker.task_run import TaskRun
from agent.worker.unpublished_work import lies_elsewhere

FINISH = says("openai", "", [call("finish", {"title": "Done", "summary": "It is done."})])


@pytest.fixture
def work(place):
    """(place, handler, task) of issue 1 with a model that says `replies`."""
    made = []

    def start(*replies, repository=True, **more):
        script = Script(*(replies or (FINISH,)))
        made.append(script)
        here = place()
        here.script = script
        config = here.folder / "config.yaml"
        config.write_text(config.read_text().replace("http://127.0.0.1:9", script.url))
        from agent.config import load
        from agent.wiring.wiring import Wiring

        here.settings = load(config, environ={})
        here.wiring = Wiring(here.settings, events=here.events)
        if repository:
            bare(here.folder / "repo.git")
        here.issue(1, label="coding agent processing")
        claim = here.claim(1)
        task = TaskFactory.from_dict({**here.key(1), "uuid": claim.uuid, "user": "alice"}, here.wiring.forges)
        return here, TaskHandler(here.wiring, attempt=claim.attempt, **more), task

    yield start
    for script in made:
        script.close()


def said(here):
    path = here.folder / "tracker" / "issues" / "1.comments.jsonl"
    return path.read_text() if path.exists() else ""


def label(here):
    return (here.folder / "tracker" / "issues" / "1.md").read_text()


def is_done_and_told_once(here, requests=2):
    row = here.ledger.get(UUID % 1)
    assert (row.status, row.llm_call_count, row.turns) == (Status.COMPLETED, requests, 2)
    assert said(here).count(":final -->") == said(here).count(":progress -->") == 1


def test_a_task_that_is_done_is_closed_everywhere(work):
    here, handler, task = work()
    assert handler.handle(task).end is End.FINISHED
    row = here.ledger.get(UUID % 1)
    assert (row.status, row.outcome) == (Status.COMPLETED, "finished")
    assert (here.settings.base_dir / "completed" / row.uuid / "messages.jsonl").exists()
    assert not (here.settings.base_dir / "running" / row.uuid).exists()
    assert "coding agent done" in label(here)
    assert not handler.failed
    (started,) = here.named("task_started")
    assert (started["uuid"], started["resumed"]) == (row.uuid, False)
    (ended,) = here.named("task_ended")
    assert (ended["status"], ended["end"]) == ("completed", "finished")


def test_an_error_before_the_work_tree_is_told_and_raised_again(work):
    here, handler, task = work(repository=False)
    with pytest.raises(RepositoryMissing):
        handler.handle(task)
    row = here.ledger.get(UUID % 1)
    assert (row.status, row.error_code) == (Status.FAILED, "repository_missing")
    assert "there is no git repository at" in said(here)
    assert "coding agent failed" in label(here)
    assert handler.failed


def test_the_log_says_with_which_error_a_task_failed(work, tmp_path):
    here, handler, task = work(repository=False)
    log.setup(tmp_path / "said.log", stderr=False)
    try:
        with pytest.raises(RepositoryMissing):
            handler.handle(task)
    finally:
        log.close()
    lines = [json.loads(line) for line in (tmp_path / "said.log").read_text().splitlines()]
    (failed,) = [line for line in lines if line["event"] == "task_failed"]
    assert failed["code"] == "repository_missing"
    assert failed["error"] == here.ledger.get(UUID % 1).error_message


def fault():
    return {}["state"]


def translated():
    """As an adapter does with what it takes for an odd answer."""
    try:
        fault()
    except KeyError as error:
        raise ForgeUnreachable("the forge answered oddly") from error


def refused():
    raise PermissionError(errno.EPERM, "Operation not permitted")


@pytest.mark.parametrize(("raised", "trace"), [(translated, "in fault"), (refused, "in refused")])
def test_a_task_that_an_unforeseen_error_puts_back_leaves_its_traceback_in_the_log(
    work, tmp_path, monkeypatch, raised, trace
):
    here, handler, task = work()
    monkeypatch.setattr("agent.worker.handler.prepare", lambda _run: raised())
    log.setup(tmp_path / "said.log", stderr=False)
    try:
        with pytest.raises((ForgeUnreachable, PermissionError)):
            handler.handle(task)
    finally:
        log.close()
    assert here.ledger.get(UUID % 1).status is Status.QUEUED
    lines = [json.loads(line) for line in (tmp_path / "said.log").read_text().splitlines()]
    (line,) = [line for line in lines if line["event"] == "task_put_back"]
    assert trace in line["exception"]


def test_a_forge_that_is_away_leaves_no_traceback(work, tmp_path, monkeypatch):
    here, handler, task = work()

    def away(_run):
        raise ForgeUnreachable("the forge does not answer")

    monkeypatch.setattr("agent.worker.handler.prepare", away)
    log.setup(tmp_path / "said.log", stderr=False)
    try:
        with pytest.raises(ForgeUnreachable):
            handler.handle(task)
    finally:
        log.close()
    assert here.ledger.get(UUID % 1).status is Status.QUEUED
    assert "task_put_back" not in (tmp_path / "said.log").read_text()


WRITE = says("openai", "", [call("write_file", {"path": "a.txt", "content": "a"})])


def test_a_forge_that_is_away_at_the_end_costs_nothing_but_time(work):
    here, handler, task = work(WRITE, FINISH)
    pulls = here.folder / "tracker" / "pulls"
    pulls.write_text("in the way")  # no pull request can be looked up or opened
    with pytest.raises(ForgeError):
        handler.handle(task)
    row = here.ledger.get(UUID % 1)
    assert row.status is Status.QUEUED
    assert clock.parse(row.not_before) > clock.now()
    assert not handler.failed
    assert "The task could not be done" not in said(here)

    pulls.unlink()
    with clock.use(clock.FakeClock(clock.parse(row.not_before))):
        claim = here.ledger.claim(UUID % 1, here.wiring.owner, 60)
    assert TaskHandler(here.wiring, attempt=claim.attempt).handle(task).end is End.FINISHED
    is_done_and_told_once(here)


def test_what_only_waits_to_be_published_is_tried_for_days_and_then_given_up_with_the_place_of_the_commits(work):
    here, _, task = work(WRITE, FINISH)
    (here.folder / "tracker" / "pulls").write_text("in the way")
    with clock.use(clock.FakeClock(clock.now())) as time:
        tries, attempt = 0, 1
        while here.ledger.get(UUID % 1).status is not Status.FAILED:
            with pytest.raises(ForgeError):
                TaskHandler(here.wiring, attempt=attempt).handle(task)
            tries += 1
            row = here.ledger.get(UUID % 1)
            if row.status is Status.QUEUED:
                assert (row.outcome, row.error_code) == ("publishing", "forge")
                assert "pulls" in row.error_message
                assert "waits to be published" in said(here)
                assert clock.parse(row.not_before) > clock.now()
                time.move(20 * 3600)
                attempt = here.ledger.claim(UUID % 1, here.wiring.owner, 60).attempt
    assert tries == 5  # the fifth is the first after 72 hours
    assert row.llm_call_count == 2
    assert "The task could not be done" in said(here)
    assert f"completed/{row.uuid}/git" in row.error_message
    branch = f"makimono/1-{row.uuid[:8]}"
    git = ["git", f"--git-dir={here.settings.base_dir}/completed/{row.uuid}/git", "show", f"{branch}:a.txt"]
    assert subprocess.run(git, check=True, capture_output=True).stdout == b"a"
    assert [one["code"] for one in here.named("task_ended")] == ["forge"]


def test_a_task_that_is_stopped_while_it_waits_to_be_published_publishes_nothing(work):
    here, handler, task = work(WRITE, FINISH)
    (here.folder / "tracker" / "pulls").write_text("in the way")
    with pytest.raises(ForgeError):
        handler.handle(task)
    here.ledger.offer(UUID % 1)
    attempt = here.ledger.claim(UUID % 1, here.wiring.owner, 60).attempt
    here.ledger.request(UUID % 1, "stop")
    assert TaskHandler(here.wiring, attempt=attempt).handle(task).end is End.STOPPED
    assert here.ledger.get(UUID % 1).status is Status.STOPPED


def test_a_daemon_that_starts_lets_what_waits_to_be_published_try_at_once(work):
    here, handler, task = work(WRITE, FINISH)
    (here.folder / "tracker" / "pulls").write_text("in the way")
    with pytest.raises(ForgeError):
        handler.handle(task)
    here.issue(2)
    other = here.ledger.enqueue(here.key(2), not_before=clock.now() + timedelta(hours=1))
    requeue.try_now(here.ledger)
    assert here.ledger.due(9) == [UUID % 1]
    assert here.ledger.get(other).not_before is not None


def test_a_progress_comment_that_a_person_deleted_does_not_fail_the_task(work):
    place = {}

    def deleted(_):
        (place["here"].folder / "tracker" / "issues" / "1.comments.jsonl").write_text("")
        return FINISH

    here, handler, task = work(deleted)
    place["here"] = here
    assert handler.handle(task).end is End.FINISHED
    assert here.ledger.get(UUID % 1).status is Status.COMPLETED
    assert said(here).count(":final -->") == 1


def test_an_error_of_the_model_is_told_and_raised_again(work):
    from llm_servers import Reply

    here, handler, task = work(Reply({"error": {"message": "Incorrect API key"}}, 401))
    with pytest.raises(AccessRefused):
        handler.handle(task)
    assert here.ledger.get(UUID % 1).error_code == "access_refused"
    assert "api_key" in said(here)


def test_a_model_that_is_away_for_longer_costs_nothing_but_time(work):
    from llm_servers import Reply

    here, handler, task = work(WRITE, Reply(b"", 502))
    with clock.use(clock.FakeClock(clock.now())) as time:
        with pytest.raises(ModelUnreachable):
            handler.handle(task)
        row = here.ledger.get(UUID % 1)
        assert (row.status, row.error_code, row.llm_call_count) == (Status.QUEUED, "model_unreachable", 7)
        assert (row.turns, row.total_tokens) == (1, 120), "what was refused is a request, and costs nothing"
        assert clock.parse(row.not_before) > clock.now()
        assert not handler.failed
        assert "Waiting to go on." in said(here)
        assert "502" in said(here)
        assert "It is tried again after" in said(here)
        assert ":final -->" not in said(here)
        assert "coding agent processing" in label(here)

        requeue.try_now(here.ledger)  # as a daemon that starts does
        assert here.ledger.get(UUID % 1).not_before is None
        here.script.replies = [FINISH]
        time.move(1)
        claim = here.ledger.claim(UUID % 1, here.wiring.owner, 60)
        assert TaskHandler(here.wiring, attempt=claim.attempt).handle(task).end is End.FINISHED
    is_done_and_told_once(here, requests=8)


def test_a_rate_limit_of_some_minutes_is_sat_out_in_the_queue(work):
    from llm_servers import Reply

    slow = Reply(
        {"error": {"message": "Rate limit reached", "code": "rate_limit_exceeded"}}, 429, {"Retry-After": "600"}
    )
    here, handler, task = work(WRITE, slow)
    with clock.use(clock.FakeClock(clock.now())) as time:
        with pytest.raises(RateLimited):
            handler.handle(task)
        row = here.ledger.get(UUID % 1)
        assert (row.status, row.error_code) == (Status.QUEUED, "rate_limited")
        assert clock.parse(row.not_before) - clock.now() >= timedelta(seconds=600)
        assert "It is tried again after" in said(here)
        assert ":final -->" not in said(here)
        requeue.try_now(here.ledger)  # a daemon that starts does not know better than the server
        assert here.ledger.due(9) == []
        here.script.replies = [FINISH]
        time.move(601)
        claim = here.ledger.claim(UUID % 1, here.wiring.owner, 60)
        assert TaskHandler(here.wiring, attempt=claim.attempt).handle(task).end is End.FINISHED
    is_done_and_told_once(here, requests=3)


@pytest.mark.parametrize("words", ["Rate limit reached for requests per day", "Rate limit reached"])
def test_a_limit_per_day_or_of_hours_ends_the_task_and_is_told(work, words):
    from llm_servers import Reply

    hours = {} if "day" in words else {"Retry-After": "7200"}
    here, handler, task = work(Reply({"error": {"message": words, "code": "rate_limit_exceeded"}}, 429, hours))
    with clock.use(clock.FakeClock(clock.now())), pytest.raises(RateLimited):
        handler.handle(task)
    assert (here.ledger.get(UUID % 1).status, handler.failed) == (Status.FAILED, True)
    assert said(here).count(":final -->") == 1


def test_a_model_that_stays_away_fails_the_task_at_last_and_the_person_is_told(work):
    from llm_servers import Reply

    here, _, task = work(Reply(b"", 502))
    with clock.use(clock.FakeClock(clock.now())) as time:
        attempt = 1
        while here.ledger.get(UUID % 1).status is not Status.FAILED:
            with pytest.raises(ModelUnreachable):
                TaskHandler(here.wiring, attempt=attempt).handle(task)
            time.move(3600)
            if here.ledger.get(UUID % 1).status is Status.QUEUED:
                attempt = here.ledger.claim(UUID % 1, here.wiring.owner, 60).attempt
    assert attempt == ATTEMPTS
    assert here.ledger.get(UUID % 1).error_code == "model_unreachable"
    assert said(here).count(":final -->") == 1


def test_a_drain_before_the_first_turn_gives_the_row_back(work):
    here, handler, task = work()
    handler.drain()
    assert handler.handle(task).end is End.DRAINED
    row = here.ledger.get(UUID % 1)
    assert (row.status, row.lease_owner) == (Status.QUEUED, None)
    assert (here.settings.base_dir / "running" / row.uuid).exists()
    assert "coding agent processing" in label(here)


def test_a_stop_that_came_before_the_start_ends_it_without_a_turn(work):
    here, handler, task = work()
    here.ledger.request(UUID % 1, "stop")
    assert handler.handle(task).end is End.STOPPED
    row = here.ledger.get(UUID % 1)
    assert (row.status, row.llm_call_count) == (Status.STOPPED, 0)
    assert "coding agent stopped" in label(here)
    assert not handler.failed


def test_a_pause_keeps_the_folder_and_a_second_handler_goes_on(work):
    here, handler, task = work()
    here.ledger.request(UUID % 1, "pause")
    assert handler.handle(task).end is End.PAUSED
    assert here.ledger.get(UUID % 1).status is Status.PAUSED
    assert "coding agent paused" in label(here)
    here.ledger.request(UUID % 1, "resume")
    claim = here.ledger.claim(UUID % 1, here.wiring.owner, 60)
    assert TaskHandler(here.wiring, attempt=claim.attempt).handle(task).end is End.FINISHED
    assert here.ledger.get(UUID % 1).status is Status.COMPLETED
    assert "coding agent done" in label(here)
    assert here.named("task_started")[1]["resumed"]


@pytest.mark.parametrize("files", ["there", "on another host"])
def test_a_task_keeps_its_branch_when_branches_are_named_otherwise_meanwhile(work, monkeypatch, files):
    write = says("openai", "", [call("write_file", {"path": "a.txt", "content": "x\n"})])
    step = says("openai", "", [call("update_plan", {"items": [{"text": "Write it", "status": "done"}]})])
    pause = says("openai", "", [call("ask_user", {"question": "Which one?"})])
    here, handler, task = work(write, step, pause, write, FINISH)
    monkeypatch.setattr("agent.wiring.private_tracker.branch_name", lambda *_: "as-it-was")
    assert handler.handle(task).end is End.ASKED
    branch = f"makimono/as-it-was-{UUID[:8]}"
    assert here.ledger.get(UUID % 1).branch == branch
    if files == "on another host":
        shutil.rmtree(here.settings.base_dir / "running" / (UUID % 1))
    monkeypatch.setattr("agent.wiring.private_tracker.branch_name", lambda *_: "as-it-is")
    here.comment(1, "The first one.")
    here.ledger.request(UUID % 1, "resume")
    claim = here.ledger.claim(UUID % 1, here.wiring.owner, 60)
    assert TaskHandler(here.wiring, attempt=claim.attempt).handle(task).end is End.FINISHED
    assert here.ledger.get(UUID % 1).branch == branch
    names = subprocess.check_output(["git", "-C", here.folder / "repo.git", "branch", "--format=%(refname:short)"])
    assert sorted(names.decode().split()) == ["main", branch]
    assert len(list((here.folder / "tracker" / "pulls").glob("*.md"))) == 1


def test_without_publishing_the_issue_is_left_as_it_was(work):
    here, handler, task = work(publishing=False)
    assert handler.handle(task).end is End.FINISHED
    assert said(here) == ""
    assert "coding agent processing" in label(here)


def listening(here):
    """The conversation of issue 1, which hears what people write from now on."""
    claim = here.claim(1)
    key = TaskKey(**here.key(1))
    context = TaskContextManager(key, claim.uuid, here.settings, attempt=claim.attempt, database=here.wiring.db)
    run = TaskRun(here.wiring, context)
    folder, store = context.context_dir, context.get_message_store()
    workspace = SimpleNamespace(tree=folder, why_left_out=lambda _path: "")
    commands = SimpleNamespace(run_for_model=None, sandbox=SimpleNamespace(uid=None))
    made = Conversation(
        run,
        SimpleNamespace(
            tree=SimpleNamespace(workspace=workspace),
            commands=commands,
            claimed=SimpleNamespace(parent=None, issue=SimpleNamespace(confidential=False)),
        ),
        None,
    )
    run.inbox.start(None)
    made.pictures = IssuePictures(run.forge, key, folder, 32_000, takes_any=False)
    made.window = make_window(here.settings, context, make_client(here.settings, store, folder), made.tools)
    made.later = LaterRecall(run, made.window, made.tools)
    return made


def test_the_cursor_of_comments_moves_only_after_the_loop_has_appended_them(place):
    """A process that dies in between hears a comment twice; an answer to a question is never lost."""
    here = place()
    here.issue(1)
    conversation = listening(here)
    run = conversation.run
    here.comment(1, "The first one.", ident=7)
    here.comment(1, "Not the second.", ident=8)
    news = conversation.new_comments()
    assert "The first one." in next(news).text
    assert "Not the second." in next(news).text
    assert run.context.column("comment_cursor") is None
    assert list(news) == []
    assert run.context.column("comment_cursor") is not None
    assert list(conversation.new_comments(last=True)) == []
    run.context.close()


def test_a_failure_that_cannot_be_told_is_left_to_the_daemon(work):
    from llm_servers import Reply

    tracker = {}

    def away(_):
        tracker["here"].rename(tracker["away"])
        return Reply({"error": {"message": "Incorrect API key"}}, 401)

    here, handler, task = work(away)
    tracker |= {"here": here.folder / "tracker", "away": here.folder / "away"}
    with pytest.raises(AccessRefused):
        handler.handle(task)
    row = here.ledger.get(UUID % 1)
    assert (row.status, row.error_code) == (Status.FAILED, "access_refused")
    tracker["away"].rename(tracker["here"])
    assert "coding agent processing" in label(here)
    assert send_pending_notifications(here.wiring) == [row.uuid]
    assert "coding agent failed" in label(here)
    assert "api_key" in said(here)
    assert said(here).count(":final -->") == 1


class KilledError(BaseException):
    """Nothing of a process that dies here catches it."""


def dies(*_, **__):
    raise KilledError


@pytest.mark.parametrize("died", ["before it is told", "before the label", "before the row"])
@pytest.mark.parametrize("model", [FINISH, says("openai", "", [call("no_such_tool", {})])])
def test_an_end_that_another_host_had_begun_to_tell_is_the_end(work, monkeypatch, died, model):
    """Its folder lies there: by the moved label the task must not be taken for stopped, nor the model be asked
    again."""
    here, handler, task = work(model)
    where = {
        "before it is told": ("agent.worker.end_of_attempt.notify_finished", dies),
        "before the label": ("agent.worker.task_run.TaskRun.move_label", dies),
        "before the row": ("agent.worker.end_of_attempt.close_row", dies),
    }
    with monkeypatch.context() as patch:
        patch.setattr(*where[died])
        with pytest.raises(KilledError):
            handler.handle(task)
    ended = {"finished": (Status.COMPLETED, None), "repeating": (Status.FAILED, "repeating")}
    kept = here.ledger.get(UUID % 1).outcome.split(" ")[-1]
    asked = here.ledger.get(UUID % 1).llm_call_count
    (here.settings.base_dir / "running" / (UUID % 1)).rename(here.folder / "on another host")
    here.ledger.release(UUID % 1, 1)
    attempt = here.ledger.claim(UUID % 1, here.wiring.owner, 60).attempt
    handler = TaskHandler(here.wiring, attempt=attempt)
    assert str(handler.handle(task).end) == kept
    send_pending_notifications(here.wiring)
    row = here.ledger.get(UUID % 1)
    assert (row.status, row.error_code) == ended[kept]
    assert row.llm_call_count == asked
    assert said(here).count(":final -->") == 1
    assert {Status.COMPLETED: "coding agent done", Status.FAILED: "coding agent failed"}[row.status] in label(here)


@pytest.mark.parametrize("error", [ForgeUnreachable("no answer"), DiskError("no space left")], ids=["forge", "disk"])
@pytest.mark.parametrize(
    "where", ["agent.worker.end_of_attempt.notify_finished", "agent.worker.task_run.TaskRun.move_label"]
)
def test_an_end_that_is_decided_outlasts_what_its_telling_waits_for(work, monkeypatch, where, error):
    """And so another host, which has not the folder, does not begin anew."""
    here, handler, task = work(says("openai", "", [call("no_such_tool", {})]))

    def fails(*_, **__):
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(where, fails)
        with pytest.raises(type(error)) as raised:
            handler.handle(task)
        give_up_claim(here.wiring, Claim(UUID % 1, 1, task.key), raised.value)
    row = here.ledger.get(UUID % 1)
    assert (row.status, row.outcome, row.error_code) == (Status.QUEUED, "ending failed repeating", "repeating")
    (here.settings.base_dir / "running" / (UUID % 1)).rename(here.folder / "on another host")
    assert not lies_elsewhere(here.settings, dataclasses.replace(row, hostname="another"), here.ledger.now())
    try_now(here.ledger)
    attempt = here.ledger.claim(UUID % 1, here.wiring.owner, 60).attempt
    assert TaskHandler(here.wiring, attempt=attempt).handle(task).end is End.REPEATING
    send_pending_notifications(here.wiring)
    after = here.ledger.get(UUID % 1)
    assert (after.status, after.error_code, after.llm_call_count) == (Status.FAILED, "repeating", row.llm_call_count)
    assert said(here).count(":final -->") == 1
    assert "coding agent failed" in label(here)


def test_work_that_waits_to_be_published_still_does_when_the_disk_was_full_meanwhile(work, monkeypatch):
    here, handler, task = work(WRITE, FINISH)
    pulls = here.folder / "tracker" / "pulls"
    pulls.write_text("in the way")
    with pytest.raises(ForgeError):
        handler.handle(task)
    try_now(here.ledger)
    claim = here.ledger.claim(UUID % 1, here.wiring.owner, 60)

    def full(*_, **__):
        raise DiskError("no space left")

    with monkeypatch.context() as patch:
        patch.setattr("agent.worker.handler.prepare", full)
        with pytest.raises(DiskError) as raised:
            TaskHandler(here.wiring, attempt=claim.attempt).handle(task)
        give_up_claim(here.wiring, claim, raised.value)
    row = here.ledger.get(UUID % 1)
    assert (row.status, row.outcome) == (Status.QUEUED, "publishing")


# --- what a person asks at the last moment ----------------------------------------------------------------------


@pytest.fixture
def unread(monkeypatch):
    """No look at the row's word is due while the task works: on a busy machine one may come before the end."""
    monkeypatch.setattr(control, "ROW_SECONDS", math.inf)


def asks(here_of, word, reply):
    """The model's last answer, during which a person asks for something that no turn reads any more."""

    def answer(_):
        here_of["here"].ledger.request(UUID % 1, word)
        return reply

    return answer


ASK = says("openai", "", [call("ask_user", {"question": "Red or blue?"})])


def waiting_after(word, work):
    """(place, row) of a task that waits for an answer, and was requested to stop or pause meanwhile."""
    place = {}
    here, handler, task = work(asks(place, word, ASK))
    place["here"] = here
    assert handler.handle(task).end is End.ASKED
    assert "Red or blue?" in said(here)
    return here, here.ledger.get(UUID % 1)


@pytest.mark.usefixtures("unread")
def test_a_task_that_waits_for_an_answer_is_paused_when_that_was_asked_meanwhile(work):
    here, row = waiting_after("pause", work)
    assert (row.status, row.outcome) == (Status.PAUSED, "paused")
    assert "coding agent paused" in label(here)
    assert here.ledger.request(UUID % 1, "resume", waiting="asked") is Status.PAUSED


@pytest.mark.usefixtures("unread")
def test_a_task_that_waits_for_an_answer_is_stopped_when_that_was_asked_meanwhile(work):
    here, row = waiting_after("stop", work)
    assert (row.status, row.outcome) == (Status.STOPPED, "stopped")
    assert [one["status"] for one in here.named("task_ended")] == ["stopped"]
    assert send_pending_notifications(here.wiring) == [row.uuid]
    assert "coding agent stopped" in label(here)
    assert "**Stopped, as asked.**" in said(here)
    assert move_leftovers(here.wiring) == [row.uuid]
    assert json.loads((here.settings.base_dir / "completed" / row.uuid / "end.json").read_text())["status"] == "stopped"


def test_a_task_whose_folder_was_lost_while_it_waited_for_an_answer_asks_what_it_wants_to_know_then(work):
    here, handler, task = work(ASK)
    assert handler.handle(task).end is End.ASKED
    shutil.rmtree(here.settings.base_dir / "running" / (UUID % 1))
    here.ledger.request(UUID % 1, "resume")
    claim = here.ledger.claim(UUID % 1, here.wiring.owner, 60)
    here.script.replies = [says("openai", "", [call("ask_user", {"question": "Which currency?"})])]
    assert TaskHandler(here.wiring, attempt=claim.attempt).handle(task).end is End.ASKED
    assert "Red or blue?" in said(here)
    assert "Which currency?" in said(here)


def unpublished_after(word, status, work):
    """(place, task) of a task that waits to be published, and was requested to stop or pause meanwhile."""
    place = {}
    here, handler, task = work(WRITE, asks(place, word, FINISH))
    place["here"] = here
    (here.folder / "tracker" / "pulls").write_text("in the way")
    with pytest.raises(ForgeError):
        handler.handle(task)
    row = here.ledger.get(UUID % 1)
    assert (row.status, here.named("task_requeued")) == (status, [])
    assert "It is tried again" not in said(here)
    assert send_pending_notifications(here.wiring) == [row.uuid]
    assert f"coding agent {status}" in label(here)
    return here, task


@pytest.mark.usefixtures("unread")
def test_a_task_that_waits_to_be_published_is_stopped_when_that_was_asked_meanwhile(work):
    here, _ = unpublished_after("stop", Status.STOPPED, work)
    assert "**Stopped, as asked.**" in said(here)
    assert "pulls" not in said(here).split("**Stopped, as asked.**")[1]


@pytest.mark.usefixtures("unread")
def test_a_task_that_waits_to_be_published_is_paused_when_that_was_asked_meanwhile(work):
    here, task = unpublished_after("pause", Status.PAUSED, work)
    (here.folder / "tracker" / "pulls").unlink()
    here.ledger.request(UUID % 1, "resume")
    attempt = here.ledger.claim(UUID % 1, here.wiring.owner, 60).attempt
    assert TaskHandler(here.wiring, attempt=attempt).handle(task).end is End.FINISHED
    assert here.ledger.get(UUID % 1).llm_call_count == 2  # what had waited is published, and no model asked


@pytest.mark.parametrize("word", ["stop", "pause"])
def test_what_was_asked_is_done_although_the_forge_is_away_and_shown_when_it_is_back(work, word, monkeypatch):
    here, handler, task = work()
    here.ledger.request(UUID % 1, word)

    def away(*_, **__):
        raise ForgeError("the forge is away")

    with monkeypatch.context() as patch:
        patch.setattr("agent.worker.task_run.TaskRun.move_label", away)
        assert str(handler.handle(task).end) == {"stop": "stopped", "pause": "paused"}[word]
    row = here.ledger.get(UUID % 1)
    assert str(row.status) == {"stop": "stopped", "pause": "paused"}[word]
    assert row.tell_at is not None
    assert "coding agent processing" in label(here)
    with clock.use(clock.FakeClock(clock.now() + timedelta(minutes=2))):
        assert send_pending_notifications(here.wiring) == [row.uuid]
    assert f"coding agent {row.status}" in label(here)


def test_an_order_that_says_nothing_to_a_running_task_is_answered_once(place):
    here = place()
    here.issue(1, label="coding agent processing")
    run = listening(here).run
    here.comment(1, "/retry", ident=7)
    here.comment(1, "/resume", ident=8)
    post, run.forge.post_comment = run.forge.post_comment, dies_as(ForgeError("away"))
    assert run.inbox.poll(now=True) is False
    assert [one["effect"] for one in here.named("effect_failed")] == ["retry", "resume"]
    run.forge.post_comment = post
    for _ in range(2):
        assert run.inbox.poll(now=True) is False  # what could not be answered is answered now, and once
    assert said(here).count("`/retry` changed nothing: the task is being worked on.") == 1
    assert said(here).count("`/resume` changed nothing") == 1
    here.comment(1, "/pause", ident=29)
    assert run.inbox.poll(now=True) is True
    here.comment(1, "/retry", ident=30)
    assert run.inbox.poll(now=True) is True  # it takes the pause back
    assert here.ledger.requested(run.uuid) is None
    assert here.ledger.get(run.uuid).handled_comments == {"7", "8", "29", "30"}
    run.context.close()


def dies_as(error):
    def call(*_, **__):
        raise error

    return call
