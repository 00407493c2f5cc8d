"""Who asks for little does not wait for who asks for much: from the poll to the start."""

import pytest

from agent import clock
from agent.daemon.supervisor import Supervisor
from agent.forge import Task
from agent.intake.backlog import Backlog
from agent.intake.poller import AT_ONCE, Poller


@pytest.fixture
def time():
    with clock.use(clock.FakeClock()) as fake:
        yield fake


def by(here, number, author):
    path = here.issue(number)
    path.write_text(path.read_text().replace("author: alice", f"author: {author}"))


def test_behind_a_thousand_issues_of_one_person_another_ones_starts_as_the_next_or_the_one_after(place, time):
    here = place("scheduling: {interval: 60, max_workers: 1}\n")
    for number in range(1, 1001):
        here.issue(number)
    poller = Poller(here.settings, here.ledger, here.wiring.forges, here.events)
    first = poller.poll()
    assert len(first) == AT_ONCE
    supervisor = Supervisor(here.wiring)
    started = []
    supervisor.start = started.append
    supervisor.start_due()
    assert started[0] in first
    by(here, 2000, "bob")
    time.move(60)
    second = poller.poll()  # the rest of the thousand waits still, and the tracker is listed again
    people = [here.ledger.get(uuid).user for uuid in second]
    assert "bob" in people[:2], "he is queued as the next one or the one after"
    supervisor.ledger.claim(started[0], here.wiring.owner, 60)
    supervisor.ledger.finish(started[0], 1, "failed")
    supervisor.start_due()
    assert here.ledger.get(started[1]).user == "bob"


def test_an_issue_whose_label_is_urgent_is_queued_and_started_before_all_that_came_earlier(place, time):
    labels = "{'Priority: High': 10, urgent: 50, later: -5}"
    here = place(f"scheduling: {{interval: 60, max_workers: 1, priorities: {labels}}}\n")
    for number in range(1, 2 * AT_ONCE - 2):
        here.issue(number)
    here.issue(100, label="coding agent, later")
    here.issue(101, label="coding agent, 'priority: high'")
    here.issue(102, label="coding agent, 'priority: high', urgent, later")
    poller = Poller(here.settings, here.ledger, here.wiring.forges, here.events)
    first = [here.ledger.get(uuid) for uuid in poller.poll()]
    assert [(row.task_id, row.priority) for row in first[:3]] == [("102", 50), ("101", 10), ("1", 0)]
    supervisor = Supervisor(here.wiring)
    started = []
    supervisor.start = started.append
    supervisor.start_due()
    assert [here.ledger.get(uuid).task_id for uuid in started] == ["102"]
    time.move(60)
    last = here.ledger.get(poller.poll()[-1])
    assert (last.task_id, last.priority) == ("100", -5), "behind all that have no label"


def task(number, user, repo="r"):
    key = {"task_source": "local", "owner": "o", "repo": repo, "task_type": "issue", "task_id": str(number)}
    return Task(key, user=user)


def test_what_was_found_is_taken_round_robin():
    backlog = Backlog(lambda _: 0)
    backlog.replace([task(1, "a"), task(2, "a"), task(3, "a"), task(4, "b"), task(5, "a", "s"), task(6, None)])
    assert len(backlog) == 6
    assert [backlog.pop().key.task_id for _ in range(6)] == ["1", "4", "5", "6", "2", "3"]
    assert len(backlog) == 0
    with pytest.raises(ValueError, match="empty"):
        backlog.pop()


def test_who_was_served_is_known_after_the_next_listing_too():
    backlog = Backlog(lambda _: 0)
    backlog.replace([task(1, "a"), task(2, "a"), task(4, "b")])
    assert backlog.pop().key.task_id == "1"
    backlog.replace([task(2, "a"), task(3, "c"), task(4, "b")])
    assert [backlog.pop().key.task_id for _ in range(3)] == ["3", "4", "2"]
