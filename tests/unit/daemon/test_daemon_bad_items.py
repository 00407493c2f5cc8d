"""A bad item is planted into every loop over items; the others of the loop are handled all the same."""

import json
from datetime import timedelta
from pathlib import Path

import pytest
from run_home import UUID

from agent import clock
from agent.commands.backup import backup
from agent.commands.cleanup import cleanup
from agent.daemon.finalize import move_leftovers, send_pending_notifications
from agent.daemon.reconcile import reconcile
from agent.daemon.supervisor import Supervisor
from agent.daemon.watchdog import Watchdog
from agent.intake.poller import Poller, fetch_and_enqueue_tasks
from agent.taskqueue import Ledger
from agent.values import Status
from agent.wiring.wiring import Wiring
from agent.worker import requeue

BAD = {"attempt": "many", "owner": b"\xff", "prompt_tokens": "few"}


def poll(place):
    return fetch_and_enqueue_tasks(place.settings, place.ledger, place.wiring.forges, place.events)


def break_row(here, number, column="attempt"):
    here.wiring.db.execute(f"UPDATE tasks SET {column} = :bad WHERE uuid = :uuid", bad=BAD[column], uuid=UUID % number)


# --- issues --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("title", "read"), [(r"fix \ud83d\ude00", "fix 😀"), (r"fix \ud83d", "fix �")])
def test_halves_of_a_sign_in_a_title_are_one_sign_or_none(place, title, read):
    here = place()
    here.issue(1, title=f'"{title}"')
    here.issue(2)
    assert len(poll(here)) == 2
    assert [row.title for row in here.ledger.list()][::-1] == [read, "An issue"]
    assert here.forge.read_issue(here.ledger.list()[-1].key).title == read


def test_an_issue_that_nobody_foresaw_is_said_once_and_again_when_it_changes(place, monkeypatch):
    here = place()
    here.issue(1).write_text("---\nno: front\n---\n")
    (here.folder / "tracker" / "issues" / "2.md").mkdir()
    here.issue(3)
    poller = Poller(here.settings, here.ledger, here.wiring.forges, here.events)
    assert len(poller.poll(everything=True)) == 1
    assert poller.poll(everything=True) == []
    assert len(here.named("issue_skipped")) == 2
    here.issue(1).write_text("---\ntitle: x\n---\n")
    poller.poll(everything=True)
    assert len(here.named("issue_skipped")) == 3


def test_a_task_that_cannot_be_put_lets_the_next_one_pass(place):
    here = place()
    here.issue(1)
    here.issue(2)
    here.row(1)
    break_row(here, 1)  # the row of the first issue's key cannot be read
    assert len(poll(here)) == 1
    (skipped,) = here.named("issue_skipped")
    assert "attempt" in skipped["why"]


class Broken:
    """A place whose adapter has a bug."""

    source, instance, pause = "broken", "here", 0.0

    def task_getter(self):
        raise TypeError("a typo")


def test_one_source_never_holds_the_others(place):
    here = place()
    here.issue(1)
    poller = Poller(here.settings, here.ledger, [Broken(), *here.wiring.forges], here.events)
    assert len(poller.poll(everything=True)) == 1
    assert not poller.places[0].interval.is_due()
    (failed,) = here.named("poll_failed")
    assert failed["source"] == "broken"
    assert "a typo" in failed["error"]


# --- comments ------------------------------------------------------------------------------------------------


def test_a_comment_that_says_yesterday_or_has_half_a_sign_is_read(place):
    here = place()
    here.issue(1)
    (uuid,) = poll(here)
    path = here.folder / "tracker" / "issues" / "1.comments.jsonl"
    lines = [
        '{"author": "a", "body": "one", "created_at": "yesterday"}',
        '{"author": "a", "body": "two \\ud83d"}',
        "[" * 5000,
        '{"author": "a", "body": "/stop", "created_at": "2099-01-01T00:00:00Z"}',
    ]
    path.write_text("\n".join(lines) + "\n")
    read = here.forge.read_issue(here.ledger.get(uuid).key)
    assert [one.body for one in read.comments] == ["one", "two �", "/stop"]
    assert len(read.problems) == 1
    poll(here)
    assert here.ledger.get(uuid).status is Status.STOPPED


# --- rows ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("column", BAD)
def test_a_row_that_cannot_be_read_is_left_out(place, column):
    here = place()
    for number in (1, 2):
        here.row(number)
    break_row(here, 1, column)
    assert [row.uuid for row in here.ledger.list()] == [UUID % 2]


def test_a_dead_worker_is_found_beside_a_row_whose_files_are_odd(place):
    here = place()
    for number in (1, 2):
        claim = here.claim(number)
        (here.settings.base_dir / "running" / claim.uuid).mkdir(parents=True)
    here.wiring.db.execute("UPDATE tasks SET lease_owner = lease_owner || '1'")
    (here.settings.base_dir / "running" / (UUID % 1) / "tools.jsonl").write_text('{"seq": "x"}\n')
    supervisor = Supervisor(here.wiring)
    supervisor.dead_rows.requeue()
    assert here.ledger.get(UUID % 2).status is Status.QUEUED
    assert Watchdog(here.wiring).check() is False


def test_a_bad_row_at_the_head_of_the_queue_lets_the_others_start(place, monkeypatch):
    here = place("scheduling: {max_workers: 1}\n")
    for number in (1, 2):
        here.row(number)
    here.wiring.db.execute("UPDATE tasks SET priority = 9 WHERE uuid = :uuid", uuid=UUID % 1)
    break_row(here, 1, "prompt_tokens")
    supervisor, started = Supervisor(here.wiring), []
    monkeypatch.setattr(supervisor, "start", started.append)
    supervisor.start_due()
    supervisor.start_due()
    assert started == [UUID % 2]


def test_one_end_that_cannot_be_told_lets_the_others_be_told(place):
    here = place()
    for number in (1, 2):
        here.issue(number)
        here.row(number)
        here.ledger.request(UUID % number, "stop")
    (here.folder / "tracker" / "issues" / "1.md").write_bytes(b"\xff\xfe")
    assert UUID % 2 in send_pending_notifications(here.wiring)
    assert "coding agent stopped" in (here.folder / "tracker" / "issues" / "2.md").read_text()
    requeue.try_now(here.ledger)


def test_a_row_with_a_time_that_is_none_is_not_watched_and_the_others_are(place):
    here = place()
    for number in (1, 2):
        here.issue(number, label="coding agent done")
        claim = here.claim(number)
        here.ledger.finish(claim.uuid, claim.attempt, "completed")
    here.wiring.db.execute("UPDATE tasks SET completed_at = 'yesterday' || completed_at WHERE uuid = :u", u=UUID % 1)
    here.comment(2, "@makimono more please", ident=7)
    path = here.folder / "tracker" / "issues" / "2.comments.jsonl"
    path.write_text(path.read_text().replace("2026-01-31", "2099-01-31"))
    assert len(poll(here)) == 1
    assert "yesterday" in here.named("issue_skipped")[0]["why"]


# --- folders -------------------------------------------------------------------------------------------------


def old(here, *numbers):
    """Closed tasks that ended long ago, with a folder each."""
    with clock.use(clock.FakeClock(clock.now() - timedelta(days=200))):
        for number in numbers:
            claim = here.claim(number)
            here.ledger.finish(claim.uuid, claim.attempt, "completed")
    for number in numbers:
        folder = here.settings.base_dir / "completed" / (UUID % number)
        folder.mkdir(parents=True)
        (folder / "messages.jsonl").write_text("x")


def test_cleanup_and_backup_pass_a_folder_that_they_cannot_handle(place, monkeypatch):
    """Whatever the code trips over in it, not only what the file system says."""
    here = place()
    old(here, 1, 2)
    broken = str(here.settings.base_dir / "completed" / (UUID % 1))
    listed = Path.iterdir

    def iterdir(path):
        if str(path) == broken:
            raise ValueError("odd")
        return listed(path)

    monkeypatch.setattr(Path, "iterdir", iterdir)
    made = backup(here.settings, here.folder / "copy")
    assert (here.folder / "copy" / "completed" / (UUID % 2) / "messages.jsonl").exists()
    left = {}
    removed = cleanup(here.settings, here.ledger, failed=left.__setitem__)
    assert UUID % 2 in [one.uuid for one in removed]
    assert "odd" in left[UUID % 1]
    assert made.missed == ()


def test_a_start_mends_what_it_can_beside_what_it_cannot(place, monkeypatch):
    here = place()
    for number in (1, 2):
        claim = here.claim(number)
        folder = here.settings.base_dir / "completed" / claim.uuid
        folder.mkdir(parents=True)
        (folder / "end.json").write_text(json.dumps({"status": "completed"}) if number == 2 else '{"status": 5}')
    (here.settings.base_dir / "running").mkdir(exist_ok=True)
    reconcile(here.wiring)
    assert here.ledger.get(UUID % 2).status is Status.COMPLETED
    assert move_leftovers(here.wiring) == []
    assert [fields["item"] for fields in here.named("item_skipped")] in ([], [UUID % 1])


def test_a_second_look_says_nothing_again(place):
    here = place()
    here.row(1)
    here.ledger.request(UUID % 1, "stop")
    wiring = Wiring(here.settings, events=here.events)
    for _ in range(2):
        with wiring.items("tell").handling("x"):
            raise ValueError
    assert len(here.named("item_skipped")) == 1
    assert isinstance(wiring.ledger, Ledger)
    wiring.close()
