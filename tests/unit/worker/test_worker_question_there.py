"""A task that was asked for on the pull request asks, and ends, where it was asked for."""

import pytest
from forges.forgejo_place import ForgejoPlace
from forges.forgejo_server import TOKEN as FORGEJO_TOKEN
from forges.github_place import TOKEN as GITHUB_TOKEN
from forges.github_place import GitHubPlace
from forges.gitlab_place import PROJECT, GitLabPlace
from forges.gitlab_place import TOKEN as GITLAB_TOKEN
from run_home import UUID, Place

from agent import clock
from agent.context import TaskContextManager
from agent.daemon.finalize import notify_closed
from agent.forge.base import Comment, ForgeReports
from agent.issue.answers import Reply
from agent.values import End, Outcome, Public, Status
from agent.worker.notify import notify_paused
from agent.worker.task_run import TaskRun

PLACES = {
    "github": (GitHubPlace, GITHUB_TOKEN, "acme/web"),
    "gitlab": (GitLabPlace, GITLAB_TOKEN, PROJECT),
    "forgejo": (ForgejoPlace, FORGEJO_TOKEN, "acme/web"),
}


@pytest.fixture(params=PLACES)
def here(request, tmp_path):
    """A home and a place with an ended task, its open pull request, and a task that a comment there has started."""
    kind, token, project = PLACES[request.param]
    with clock.use(clock.FakeClock(clock.now())):
        place = kind(tmp_path / "place")
        section = f"{{base_url: '{place.address}', token: {token}, projects: ['{project}']}}"
        home = Place(tmp_path / "home", f"task_sources: [{request.param}]\n{request.param}: {section}\n")
        home.place = place
        home.key_there = place.issue(labels=("coding agent processing",))
        place.branch("makimono/1-x")
        home.pull = place.forge.open_pull(
            home.key_there, title=Public("It"), body=Public("b"), head="makimono/1-x", base="main", draft=False
        )
        first = home.ledger.claim(home.ledger.enqueue(home.key_there, uuid=UUID % 1, user="alice"), "me", 60)
        home.ledger.db.execute(f"UPDATE tasks SET url = '{home.pull.url}' WHERE uuid = '{first.uuid}'")
        home.ledger.finish(first.uuid, first.attempt, "completed")
        yield home
        home.close()
        place.forge.close()
        place.close()


def started(home, number):
    """The uuid of a task that the comment `number` has started."""
    clock.sleep(5)
    made = home.ledger.enqueue(home.key_there, uuid=UUID % 2, user="alice", parent_uuid=UUID % 1, started_by=number)
    assert made is not None
    return made


def ours(pairs):
    return [body for author, body in pairs if author == "makimono"]


@pytest.mark.parametrize("where", ["conversation", "line", "issue"])
def test_a_question_stands_where_the_task_was_asked_for(here, where):
    place, key, pull = here.place, here.key_there, here.pull
    say = {
        "conversation": place.said_on,
        "line": place.line_comment,
        "issue": lambda _pull, text: place.comment(key, text),
    }
    number = say[where](pull, "@makimono make it blue")
    uuid = started(here, number)
    here.ledger.claim(uuid, here.wiring.owner, 60)
    for _ in range(2):  # a second process finds the first one's question
        context = TaskContextManager(key, uuid, here.settings, user="alice", database=here.wiring.db)
        run = TaskRun(here.wiring, context)
        notify_paused(run, Outcome(End.ASKED, summary="Light or dark blue, @all?"))
        context.close()
    there = ours(place.said_at(pull, number)) if where != "issue" else []
    on_issue = [body for body in ours(place.comments(key)) if "I need an answer" in body]
    (question,) = there if where != "issue" else on_issue
    assert "Light or dark blue" in question
    assert "@all" not in question
    assert bool(on_issue) is (where == "issue")
    assert place.labels(key) == ["coding agent paused"]
    # the answer that stands beside the question is read
    place.said_on(pull, "Dark blue.")
    reports = ForgeReports(place.forge)
    said = place.forge.comments_since(key, reports.with_pull(None, pull.url))[0]
    assert "Dark blue." in [one.body for one in said]
    assert question not in [one.body for one in said]


def test_a_stored_answer_keeps_the_name_of_its_effect():
    comment = Comment("7", "alice", "", "2026-01-01T00:00:00.000Z", "2026-01-01T00:00:00.000Z")
    reply = Reply(comment, Public("Blue."), settled=True, effect="question-1-2")
    assert Reply.from_dict(reply.to_dict()) == reply


def test_the_end_of_a_waiting_task_that_was_stopped_stands_where_the_task_was_asked_for(here):
    place, key, pull = here.place, here.key_there, here.pull
    number = place.said_on(pull, "@makimono make it blue")
    uuid = started(here, number)
    here.ledger.request(uuid, "stop", why="alice wrote /stop.")
    row = here.ledger.get(uuid)
    assert row.status is Status.STOPPED
    assert notify_closed(here.wiring, row, None)
    (last,) = ours(place.said_at(pull, number))
    assert "Stopped, as asked" in last
    assert "alice wrote /stop." in last
    assert not [body for body in ours(place.comments(key)) if "I need" in body]
    assert place.labels(key) == ["coding agent stopped"]
