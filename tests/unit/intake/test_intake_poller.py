"""From issues to rows: once, in the right order, and whatever single issues do."""

import pytest
from forges.github_place import GitHubPlace
from run_home import UUID
from watched_place import Watching

from agent import clock
from agent.daemon.finalize import close_from_outside
from agent.forge.local.forge import LocalForge
from agent.intake.enqueue import HELD, budget_spent
from agent.intake.poller import AT_ONCE, Poller, enqueue, fetch_and_enqueue_tasks
from agent.values import Status
from agent.wiring.wiring import Wiring


def poll(place):
    return fetch_and_enqueue_tasks(place.settings, place.ledger, place.wiring.forges, place.events)


def test_an_issue_becomes_one_row_and_the_label_moves(place):
    here = place()
    path = here.issue(1, title="Totals")
    (uuid,) = poll(here)
    row = here.ledger.get(uuid)
    assert (row.status, row.user, row.title, row.model) == (Status.QUEUED, "alice", "Totals", "m")
    assert "labels: [coding agent processing]" in path.read_text()
    assert poll(here) == []
    assert len(here.ledger.list()) == 1
    assert here.named("task_queued") == [{"uuid": uuid, "task": "local:local/default#1"}]


def test_the_same_number_in_two_trackers_is_two_tasks_and_each_is_told_in_its_own(place):
    here = place()
    here.issue(1, title="Of the first")
    (here.folder / "second" / "issues").mkdir(parents=True)
    local = here.settings.local.model_copy(update={"tracker": here.folder / "second"})
    other = Wiring(here.settings.model_copy(update={"local": local}), events=here.events)
    text = (here.folder / "tracker" / "issues" / "1.md").read_text()
    path = here.folder / "second" / "issues" / "1.md"
    path.write_text(text.replace("Of the first", "Of the second"))
    first, second = *poll(here), *fetch_and_enqueue_tasks(other.settings, other.ledger, other.forges, here.events)
    rows = {uuid: here.ledger.get(uuid) for uuid in (first, second)}
    assert [row.title for row in rows.values()] == ["Of the first", "Of the second"]
    assert rows[first].key != rows[second].key
    here.ledger.request(second, "stop")
    close_from_outside(other, here.ledger.get(second))
    assert "coding agent stopped" in path.read_text()
    assert "coding agent processing" in (here.folder / "tracker" / "issues" / "1.md").read_text()
    assert here.ledger.get(first).status is Status.QUEUED
    assert not (here.folder / "tracker" / "issues" / "1.comments.jsonl").exists()
    other.close()


def test_a_crash_between_row_and_label_is_mended_by_the_next_poll(place):
    here = place()
    path = here.issue(1)
    here.row(1)
    assert poll(here) == []
    assert "coding agent processing" in path.read_text()
    assert len(here.ledger.list()) == 1


def test_a_task_that_another_daemon_took_in_between_leaves_no_row(place):
    here = place()
    path = here.issue(1)
    (task,) = here.forge.task_getter().get_task_list()
    LocalForge(here.settings).mark_taken(task.get_task_key())  # a daemon with a ledger of its own was quicker
    assert enqueue(here.settings, here.ledger, task, here.events) is None
    assert here.ledger.list() == []
    assert here.named("task_queued") == []
    assert "labels: [coding agent processing]" in path.read_text()


def test_two_producers_of_one_ledger_lose_no_task_between_row_and_label(place):
    """One has put the row, the other polls before the label has moved: the first must not find it moved, and
    withdraw."""
    here = place()
    path = here.issue(1)
    first, second = (here.forge.task_getter().get_task_list()[0] for _ in range(2))
    move, between = first.prepare, []

    def slow():
        between.append(enqueue(here.settings, here.ledger, second, here.events))
        return move()

    first.prepare = slow
    uuid = enqueue(here.settings, here.ledger, first, here.events)
    assert between == [None]
    assert here.ledger.due(10) == [uuid]
    assert "labels: [coding agent processing]" in path.read_text()


def test_a_producer_that_died_before_the_label_is_stood_in_for_when_its_hold_is_over(place):
    with clock.use(clock.FakeClock()) as time:
        here = place()
        path = here.issue(1)
        (task,) = here.forge.task_getter().get_task_list()
        held = here.ledger.enqueue(task.get_task_key(), not_before=clock.now() + HELD)
        assert poll(here) == []
        assert "labels: [coding agent]" in path.read_text(), "its producer may be about to move it"
        time.move(HELD.total_seconds())
        assert poll(here) == []
        assert "labels: [coding agent processing]" in path.read_text()
        assert here.ledger.due(10) == [held]
        assert not here.ledger.withdraw(held), "a late first one takes nothing back"


def test_a_row_can_be_claimed_as_soon_as_the_label_has_moved(place):
    here = place()
    here.issue(1)
    (uuid,) = poll(here)
    assert here.ledger.get(uuid).not_before is None
    assert here.ledger.due(10) == [uuid]


def test_one_broken_issue_is_named_and_the_others_go_on(place):
    here = place()
    here.issue(1).write_text("---\nno: front\n---\n")
    here.issue(2)
    assert len(poll(here)) == 1
    (skipped,) = here.named("issue_skipped")
    assert "1.md" in skipped["why"]
    assert here.named("poll_finished")[0]["found"] == 1


def test_a_tracker_that_cannot_be_read_is_an_event(place):
    here = place()
    here.forge.files.root.rename(here.folder / "elsewhere")
    assert poll(here) == []
    assert str(here.folder / "tracker") in here.named("poll_failed")[0]["error"]


@pytest.mark.parametrize(
    ("extra", "spend", "limit"),
    [
        ("limits: {runs: 2}\n", 0.0, "limits.runs"),
        ("limits: {repository_cost: 1}\n", 0.6, "limits.repository_cost"),
        ("limits: {runs: 3, repository_cost: 2}\n", 0.6, None),
        ("", 100.0, None),
    ],
)
def test_a_daily_limit_holds_the_issue_back_and_its_label_stays(place, extra, spend, limit):
    here = place(extra)
    for number in (1, 2):
        claim = here.claim(number)
        here.wiring.db.run("task_beat", **counters(claim.uuid, spend))
        here.ledger.finish(claim.uuid, claim.attempt, "completed")
    path = here.issue(3)
    assert budget_spent(here.settings, here.ledger, "local", "default", here.forge.instance) == limit
    new = poll(here)
    assert len(new) == (0 if limit else 1)
    assert ("coding agent processing" in path.read_text()) == (limit is None)
    assert [fields["limit"] for fields in here.named("budget_spent")] == ([limit] if limit else [])


def counters(uuid, cost):
    names = ("last_seq", "llm_call_count", "tool_call_count", "compression_count", "total_tokens")
    names += ("prompt_tokens", "completion_tokens", "cached_tokens")
    from agent import clock

    return dict.fromkeys(names, 1) | {
        "uuid": uuid,
        "attempt": 1,
        "cost": cost,
        "now": clock.stamp(),
        "lease_until": clock.stamp(),
    }


# --- paused tasks -----------------------------------------------------------------------------------------------


def paused(here, number, reason="asked", label="coding agent paused"):
    here.issue(number, label=label)
    claim = here.claim(number)
    here.wiring.db.run("ledger_pause", outcome=reason, uuid=claim.uuid, was="running", attempt=claim.attempt)
    return claim.uuid


def test_a_question_waits_until_a_person_answers(place):
    here = place()
    uuid = paused(here, 1)
    poll(here)
    assert here.ledger.get(uuid).status is Status.PAUSED
    here.comment(1, "my own words", author="makimono")
    poll(here)
    assert here.ledger.get(uuid).status is Status.PAUSED
    here.comment(1, "Blue.", ident=101)
    poll(here)
    assert here.ledger.get(uuid).status is Status.QUEUED
    assert here.named("task_resumed") == [{"uuid": uuid}]


def test_a_task_that_a_person_paused_does_not_wake_from_a_comment(place):
    here = place()
    uuid = paused(here, 1, reason="paused")
    here.comment(1, "Hm.")
    poll(here)
    assert here.ledger.get(uuid).status is Status.PAUSED


def test_the_bot_label_on_a_paused_task_means_go_on(place):
    here = place()
    uuid = paused(here, 1, reason="paused", label="coding agent")
    assert poll(here) == []
    assert here.ledger.get(uuid).status is Status.QUEUED
    assert len(here.ledger.list()) == 1


@pytest.mark.parametrize("how", ["closed", "unlabelled", "removed"])
def test_a_paused_task_whose_issue_is_closed_is_stopped_and_the_next_one_wakes(place, how):
    here = place()
    first, second = paused(here, 1), paused(here, 2)
    if how == "removed":
        (here.folder / "tracker" / "issues" / "1.md").unlink()
    else:
        here.issue(
            1, label="" if how == "unlabelled" else "coding agent paused", state="closed" if how == "closed" else "open"
        )
    here.comment(2, "Go on.")
    poll(here)
    assert here.ledger.get(first).status is Status.STOPPED
    assert here.ledger.get(second).status is Status.QUEUED


def test_a_paused_task_whose_issue_is_broken_does_not_keep_the_others_asleep(place):
    here = place()
    first, second = paused(here, 1), paused(here, 2)
    (here.folder / "tracker" / "issues" / "1.md").write_text("broken")
    here.comment(2, "Go on.")
    poll(here)
    assert here.ledger.get(first).status is Status.PAUSED
    assert here.ledger.get(second).status is Status.QUEUED
    assert first == UUID % 1


def test_where_many_wait_they_are_taken_in_order_and_people_are_heard_in_between(place):
    here = place()
    for number in range(1, AT_ONCE * 2 + 2):
        here.issue(number)
    poller = Poller(here.settings, here.ledger, here.wiring.forges, here.events)
    (one,) = poller.places
    listed, looked = [], []
    getter, look = one.forge.task_getter, one.comment_poller.handle
    one.forge.task_getter = lambda: listed.append(1) or getter()
    one.comment_poller.handle = lambda started: looked.append(1) or look(started)
    taken = [poller.poll() for _ in range(3)]
    assert [len(uuids) for uuids in taken] == [AT_ONCE, AT_ONCE, 1]
    assert (len(listed), len(looked)) == (1, 3)
    rows = [here.ledger.get(uuid) for uuids in taken for uuid in uuids]
    assert [int(row.task_id) for row in rows] == list(range(1, AT_ONCE * 2 + 2))
    assert here.ledger.due(3) == [row.uuid for row in rows[:3]], "the oldest first"
    assert poller.poll() == [], "it is not due before its interval now"
    assert len(listed) == 1


def test_what_did_not_wait_any_more_when_its_turn_came_is_left_alone(place):
    here = place()
    paths = [here.issue(number) for number in range(1, AT_ONCE + 2)]
    poller = Poller(here.settings, here.ledger, here.wiring.forges, here.events)
    assert len(poller.poll()) == AT_ONCE
    paths[-1].write_text(paths[-1].read_text().replace("labels: [coding agent]", "labels: []"))
    assert poller.poll() == []
    assert len(here.ledger.list()) == AT_ONCE


def test_a_label_of_which_the_host_does_not_show_the_event_yet_is_taken_later_without_a_report(place, tmp_path):
    with clock.use(clock.FakeClock()) as time:
        hub = GitHubPlace(tmp_path / "forge")
        watching = Watching(hub, place())
        item = hub.repo.issues[int(hub.issue().task_id)]
        shown, item["events"] = item["events"], []
        assert watching.poll() == []
        item["events"] = shown
        time.move(5)
        assert len(watching.poll()) == 1
        assert watching.home.named("issue_skipped") == []
        watching.ledger.close()
        hub.forge.close()
        hub.close()
