"""One task from its claim to its row, in this process, with a scripted model."""

import subprocess

import pytest
from llm_servers import Script, call, says
from run_home import UUID

from agent import clock
from agent.context import TaskContextManager
from agent.errors import AccessRefused, ForgeError, RepositoryMissing
from agent.forge import TaskFactory
from agent.run.handler import FORGE_ATTEMPTS, TaskHandler
from agent.run.task_run import TaskRun
from agent.values import End, Status, TaskKey

FINISH = says("openai", "", [call("finish", {"title": "Done", "summary": "It is done."})])


@pytest.fixture
def work(place):
    """(place, handler, task) of issue 1 with a model that says `replies`."""
    made = []

    def start(*replies, repository=True, **more):
        script = Script(*(replies or (FINISH,)))
        made.append(script)
        here = place()
        config = here.folder / "config.yaml"
        config.write_text(config.read_text().replace("http://127.0.0.1:9", script.url))
        from agent.config import load
        from agent.run.wiring import Wiring

        here.settings = load(config, environ={})
        here.wiring = Wiring(here.settings, events=here.events)
        if repository:
            subprocess.run(["git", "init", "-q", "--bare", str(here.folder / "repo.git")], check=True)
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
    assert "repo.git" in said(here)
    assert "coding agent failed" in label(here)
    assert handler.failed


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
    row = here.ledger.get(UUID % 1)
    assert (row.status, row.llm_call_count) == (Status.COMPLETED, 2)
    assert said(here).count(":final -->") == said(here).count(":progress -->") == 1


def test_a_forge_that_stays_away_ends_the_task_after_a_number_of_attempts(work):
    here, _, task = work(WRITE, FINISH)
    (here.folder / "tracker" / "pulls").write_text("in the way")
    attempt = 1
    while attempt < FORGE_ATTEMPTS:
        here.ledger.release(UUID % 1, attempt)
        attempt = here.ledger.claim(UUID % 1, here.wiring.owner, 60).attempt
    with pytest.raises(ForgeError):
        TaskHandler(here.wiring, attempt=attempt).handle(task)
    assert here.ledger.get(UUID % 1).status is Status.FAILED
    assert "The task could not be done" in said(here)


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


def test_without_publishing_the_issue_is_left_as_it_was(work):
    here, handler, task = work(publishing=False)
    assert handler.handle(task).end is End.FINISHED
    assert said(here) == ""
    assert "coding agent processing" in label(here)


def test_the_cursor_of_comments_moves_only_after_the_loop_has_appended_them(place):
    """A process that dies in between hears a comment twice; an answer to a question is never lost."""
    here = place()
    here.issue(1)
    claim = here.claim(1)
    context = TaskContextManager(
        TaskKey(**here.key(1)), claim.uuid, here.settings, attempt=claim.attempt, database=here.wiring.db
    )
    run = TaskRun(here.wiring, context)
    here.comment(1, "The first one.", ident=7)
    here.comment(1, "Not the second.", ident=8)
    news = run.news()
    assert "The first one." in next(news)
    assert "Not the second." in next(news)
    assert context.column("comment_cursor") is None
    assert list(news) == []
    assert context.column("comment_cursor") is not None
    run.news_at = -run.forge.news_interval
    assert list(run.news()) == []
    context.close()
