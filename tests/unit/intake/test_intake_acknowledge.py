"""👀: the look that sees a request shows that at once, at the request, and goes on when the host refuses it."""

from types import SimpleNamespace

import pytest
from forges.github_place import GitHubPlace
from forges.gitlab_place import GitLabPlace
from watched_place import Watching

from agent import clock
from agent.worker.inbox import CommentInbox


def reactions(watching):
    return watching.place.server.asked("POST", r"reactions|award_emoji")


def test_a_label_a_mention_and_an_order_are_acknowledged_by_the_look_that_sees_them(watching):
    here = watching.place
    key, ended, waiting = here.issue(), here.issue(labels=()), here.issue(labels=())
    watching.ended(ended)
    row = watching.begun(waiting)
    here.put_labels(waiting, "coding agent processing")
    at = {}
    real = watching.ledger.offer
    watching.ledger.offer = lambda uuid: (at.setdefault(uuid, len(reactions(watching))), real(uuid))[1]
    watching.time.move(5)
    mention, order = here.comment(ended, "@makimono once more"), here.comment(waiting, "/pause")
    watching.poll()
    assert [here.seen(key), here.seen(ended, mention), here.seen(waiting, order)] == [["eyes"]] * 3
    assert len(at) == 2
    assert 0 not in at.values(), "before the claim, which takes more than a second"
    assert watching.ledger.get(row).status == "paused"
    for _ in range(3):
        watching.time.move(60)
        watching.poll()
    assert len(reactions(watching)) == 3, "once for each"
    assert here.seen(ended) == here.seen(waiting) == []


def test_the_requests_of_one_look_are_acknowledged_before_the_first_of_them_is_claimed(watching):
    here = watching.place
    keys = [here.issue() for _ in range(4)]
    stranger = here.issue(labels=(), author="alice")
    at = []
    for name in ("post_comment", "acknowledge"):
        real = getattr(here.forge, name)
        setattr(here.forge, name, lambda key, *more, name=name, real=real: (at.append(name), real(key, *more))[1])
    began = clock.monotonic()
    assert len(watching.poll()) == len(keys)
    assert at == ["acknowledge"] * len(keys) + ["post_comment"] * len(keys)
    assert clock.monotonic() - began >= len(keys), "each claim waits for the other daemons"
    assert [here.seen(key) for key in (*keys, stranger)] == [["eyes"]] * len(keys) + [[]]


@pytest.mark.parametrize("kind", [GitHubPlace, GitLabPlace])
def test_mentions_are_acknowledged_within_two_seconds_of_the_look_beside_labels_that_are_claimed(tmp_path, place, kind):
    """Six mentions on ended tasks and four labelled issues; the last reaction came after 18 s, since each claim waits
    for other daemons and the comments on an issue were read when the claims before it were done."""
    with clock.use(clock.FakeClock(clock.now())):
        watching = Watching(kind(tmp_path), place())
        here, shown = watching.place, []
        ended = [here.issue(labels=()) for _ in range(6)]
        for key in ended:
            watching.ended(key)
        watching.poll()
        clock.sleep(60)
        labelled = [here.issue() for _ in range(4)]
        said = {key: here.comment(key, "@makimono once more") for key in ended}
        real = here.forge.acknowledge
        here.forge.acknowledge = lambda *given: (real(*given), shown.append(clock.monotonic()))
        began = clock.monotonic()
        assert len(watching.poll()) == 10
        assert [here.seen(key) for key in labelled] + [here.seen(*one) for one in said.items()] == [["eyes"]] * 10
        assert len(shown) == 10
        assert max(shown) - began < 2
        assert clock.monotonic() - began >= 10, "the claims come after them"
        watching.ledger.close()
        here.close()


def test_what_a_limit_holds_back_is_acknowledged_at_most_once(tmp_path, place):
    with clock.use(clock.FakeClock(clock.now())):
        watching = Watching(GitHubPlace(tmp_path), place("limits: {runs: 1}\n"))
        first, second = watching.place.issue(), watching.place.issue()
        for _ in range(3):
            watching.poll()
        assert len(watching.place.seen(first)) == 1
        assert watching.place.labels(second) == ["coding agent"]
        assert len(reactions(watching)) <= 2, "not at each poll"
        watching.ledger.close()
        watching.place.forge.close()
        watching.place.close()


def test_an_answer_is_acknowledged(watching):
    key = watching.place.issue(labels=())
    uuid = watching.begun(key)
    watching.ledger.db.execute(f"UPDATE tasks SET status = 'paused', outcome = 'asked' WHERE uuid = '{uuid}'")
    watching.place.put_labels(key, "coding agent paused")
    watching.poll()
    watching.time.move(5)
    answer = watching.place.comment(key, "To cents.")
    watching.poll()
    assert watching.place.seen(key, answer) == ["eyes"]


def test_a_refused_reaction_stops_nothing_and_is_reported_once(watching):
    pattern = r"reactions|award_emoji"
    watching.place.server.fault("POST", pattern, status=403, times=-1, body='{"message": "Resource not accessible"}')
    for _ in range(3):
        watching.place.issue()
    assert len(watching.poll()) == 3
    (told,) = watching.home.named("effect_failed")
    assert told["effect"] == "reaction"
    assert len(reactions(watching)) == 3


def test_a_comment_for_a_running_task_is_acknowledged_and_an_edit_is_not(watching):
    here = watching.place
    key = here.issue()
    uuid = watching.ledger.claim(watching.ledger.enqueue(key, title="It"), "me", 60).uuid
    said = []
    task = SimpleNamespace(show_seen=said.append, pull_urls=tuple)
    inbox = CommentInbox(here.forge, key, uuid, watching.ledger, task, watching.home.events, often=0.0)
    inbox.start(here.forge.read_issue(key).cursor)
    number = here.comment(key, "To cents, please.")
    inbox.poll()
    watching.time.move(5)
    here.edit_comment(key, number, "To cents.")
    inbox.poll()
    assert [(one.id, one.is_edit) for one in said] == [(number, False), (number, True)]
    for comment in said:
        watching.poller.places[0].comment_poller.seen.show(key, comment)
    assert len(reactions(watching)) == 1
