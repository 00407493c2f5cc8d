"""Ends that nobody told when they came: told later, once, and to the right place."""

import json

import pytest
from run_home import UUID

from agent import clock, durable_files, prompts
from agent.context import TaskContextManager
from agent.daemon.finalize import SOONEST, close_from_outside, move_leftovers, send_pending_notifications
from agent.forge.markers import marker, with_markers
from agent.issue.status import AGAIN
from agent.prompts.loader import TemplateLoader
from agent.values import End, Outcome, Status
from agent.wiring.folders import make_folder
from agent.worker.final_state import FinalState


@pytest.fixture
def here(place):
    made = place()
    made.issue(1, label="coding agent processing")
    with clock.use(clock.FakeClock()) as made.time:
        yield made


def label(here, number=1):
    text = (here.folder / "tracker" / "issues" / f"{number}.md").read_text()
    return text.split("labels: [")[1].split("]")[0]


def said(here, number=1):
    path = here.folder / "tracker" / "issues" / f"{number}.comments.jsonl"
    return [json.loads(line)["body"] for line in path.read_text().splitlines()] if path.exists() else []


def failed(here, message="The disk burnt."):
    claim = here.claim(1)
    here.ledger.finish(claim.uuid, claim.attempt, "failed", error_message=message, error_code="burnt")
    return claim.uuid


def test_an_end_that_nobody_could_tell_is_told_once_with_comment_progress_and_label(here):
    uuid = failed(here, "The disk burnt, key-of-the-test.")
    here.forge.post_comment(here.ledger.get(uuid).key, with_markers("**Working.**", marker(uuid, "progress")))
    assert send_pending_notifications(here.wiring) == [uuid]
    assert send_pending_notifications(here.wiring) == []
    progress, final = said(here)
    assert progress.startswith("**Failed.**")
    assert "(`burnt`)" in final or "burnt" in final
    assert "The disk burnt" in final
    assert "key-of-the-test" not in final
    assert label(here) == "coding agent failed"


def words_of(here, text):
    (here.folder / "texts" / "final.md.j2").write_text(f"{text} {{{{ outcome.code | code }}}}\n")


def test_the_end_of_a_task_that_had_begun_is_told_with_the_templates_that_it_began_with(place):
    made = place("prompts: {folder: texts}\n")
    (made.folder / "texts").mkdir(mode=0o755)
    for number in (1, 2):
        made.issue(number, label="coding agent processing")
    loader = TemplateLoader(made.settings)
    words_of(made, "The first words.")
    claims = {number: made.claim(number) for number in (1, 2)}
    folder = make_folder(made.settings, claims[1].uuid)
    loader.of_task(folder)
    (folder / "messages.jsonl").write_text("{}\n")
    words_of(made, "Other words.")
    with prompts.using(loader.refresh(force=True)):
        for claim in claims.values():
            made.ledger.finish(claim.uuid, claim.attempt, "failed", error_message="It burnt.", error_code="burnt")
        assert len(send_pending_notifications(made.wiring)) == 2
    assert said(made, 1)[-1].startswith("The first words. `burnt`")
    assert said(made, 2)[-1].startswith("Other words. `burnt`")


def test_a_forge_that_is_away_is_asked_again_ever_more_rarely_until_it_answers(here):
    uuid = failed(here)
    tracker = here.folder / "tracker"
    tracker.rename(here.folder / "away")
    assert send_pending_notifications(here.wiring) == []
    assert len(here.named("effect_failed")) == 1
    assert send_pending_notifications(here.wiring) == []  # not due
    here.time.move(SOONEST)
    assert send_pending_notifications(here.wiring) == []
    here.time.move(10 * SOONEST)
    assert send_pending_notifications(here.wiring) == []
    assert len(here.named("effect_failed")) == 3
    (here.folder / "away").rename(tracker)
    here.time.move(2 * SOONEST)
    assert send_pending_notifications(here.wiring) == []  # asked half as often as the task is old
    here.time.move(20 * SOONEST)
    assert send_pending_notifications(here.wiring) == [uuid]
    assert label(here) == "coding agent failed"
    assert len(said(here)) == 1


def test_a_teller_that_died_after_its_comment_leaves_no_second_one(here):
    uuid = failed(here)
    here.forge.post_comment(here.ledger.get(uuid).key, with_markers("The end.", marker(uuid, "final")))
    assert send_pending_notifications(here.wiring) == [uuid]
    assert len(said(here)) == 1
    assert label(here) == "coding agent failed"


def test_an_end_that_the_process_put_in_words_is_told_in_these_words(here):
    claim = here.claim(1)
    context = TaskContextManager(here.key(1), UUID % 1, here.settings, attempt=claim.attempt, database=here.wiring.db)
    outcome = Outcome(End.FAILED, code="limit_cost", summary="Too dear.")
    kept = FinalState(Status.FAILED, "limit_cost", "Too dear.", outcome, "**Failed.**", "Too dear, after 7 turns.")
    kept.save(context)
    assert FinalState.load(context.context_dir) == kept
    context.fail(kept.message, kept.code, unnotified=True)
    assert send_pending_notifications(here.wiring) == [claim.uuid]
    assert [body.partition("\n")[0] for body in said(here)] == ["Too dear, after 7 turns."]


@pytest.mark.parametrize("code", ["", "denied", "conditional", "failed_safe"])
def test_of_completed_work_only_what_the_reviewers_did_not_refuse_is_made_ready(here, code):
    claim = here.claim(1)
    context = TaskContextManager(here.key(1), UUID % 1, here.settings, attempt=claim.attempt, database=here.wiring.db)
    context.set_columns(branch="makimono/1-work")
    key = here.ledger.get(claim.uuid).key
    here.forge.open_pull(key, title="Work", body="It.", head="makimono/1-work", base="main", draft=True)
    context.complete(Outcome(End.FINISHED, code=code), unnotified=True)
    assert send_pending_notifications(here.wiring) == [claim.uuid]
    assert here.forge.find_pull(key, "makimono/1-work").draft is bool(code)


def test_the_label_of_a_later_task_is_left_alone(here):
    uuid = failed(here)
    here.time.move(5)
    here.ledger.enqueue(here.key(1))
    assert send_pending_notifications(here.wiring) == [uuid]
    assert label(here) == "coding agent processing"
    assert len(said(here)) == 1


def test_an_issue_that_was_deleted_is_not_asked_for_again(here):
    failed(here)
    (here.folder / "tracker" / "issues" / "1.md").unlink()
    send_pending_notifications(here.wiring)
    here.time.move(1e6)
    send_pending_notifications(here.wiring)
    assert len(here.named("effect_failed")) == 1


def progress(here, uuid):
    return here.forge.post_comment(here.ledger.get(uuid).key, with_markers("**Working.**", marker(uuid, "progress")))


def test_an_order_whose_hearer_died_before_the_label_moved_is_shown_all_the_same(here):
    """The comment counts as obeyed from the row on: nobody reads it again, and nothing else would move the label."""
    uuid = here.row(1)
    progress(here, uuid)
    here.ledger.request(uuid, "pause", comment="7")  # and here it died
    assert send_pending_notifications(here.wiring) == [uuid]
    assert send_pending_notifications(here.wiring) == []
    assert label(here) == "coding agent paused"
    assert said(here)[0].startswith("**Paused.**")
    here.ledger.request(uuid, "resume", comment="8")
    assert send_pending_notifications(here.wiring) == [uuid]
    assert label(here) == "coding agent processing"
    assert said(here)[0].startswith("**Waiting to go on.**")
    assert len(said(here)) == 1


def test_what_waits_is_shown_when_the_forge_is_back(here):
    uuid = here.row(1)
    progress(here, uuid)
    here.ledger.request(uuid, "pause")
    tracker = here.folder / "tracker"
    tracker.rename(here.folder / "away")
    assert send_pending_notifications(here.wiring) == []
    assert len(here.named("effect_failed")) == 1
    (here.folder / "away").rename(tracker)
    assert send_pending_notifications(here.wiring) == []  # not due
    here.time.move(AGAIN.total_seconds())
    assert send_pending_notifications(here.wiring) == [uuid]
    assert label(here) == "coding agent paused"


def test_a_task_that_waits_for_room_is_shown_with_the_reason(here):
    claim = here.claim(1)
    progress(here, claim.uuid)
    context = TaskContextManager(here.key(1), UUID % 1, here.settings, attempt=claim.attempt, database=here.wiring.db)
    context.paused("disk", "No space left, key-of-the-test", notify_at=clock.now())
    context.close()
    assert send_pending_notifications(here.wiring) == [claim.uuid]
    assert label(here) == "coding agent paused"
    assert "No space left" in said(here)[0]
    assert "goes on by itself" in said(here)[0]
    assert "key-of-the-test" not in said(here)[0]


@pytest.mark.parametrize("then", ["a worker takes it", "a person resumes it", "a person stops it"])
def test_what_becomes_of_a_task_while_it_is_shown_as_paused_has_the_last_word(here, then):
    uuid = here.row(1)
    progress(here, uuid)
    here.ledger.request(uuid, "pause")
    edit = here.forge.edit_comment

    def meanwhile(*values):
        here.forge.edit_comment = edit
        here.time.move(1)
        here.ledger.request(uuid, "stop" if "stops" in then else "resume")
        if "worker" in then:
            here.ledger.claim(uuid, "me", 60)
        edit(*values)

    here.forge.edit_comment = meanwhile
    send_pending_notifications(here.wiring)
    send_pending_notifications(here.wiring)
    assert label(here) == ("coding agent stopped" if "stops" in then else "coding agent processing")


def test_a_task_that_is_stopped_while_it_waits_is_told_by_whoever_stops_it(here):
    uuid = here.row(1)
    here.ledger.request(uuid, "stop")
    assert close_from_outside(here.wiring, here.ledger.get(uuid))
    assert send_pending_notifications(here.wiring) == []
    assert label(here) == "coding agent stopped"
    assert len(said(here)) == 1


@pytest.mark.parametrize("state", ["open", "closed"])
def test_whoever_may_not_retry_a_closed_issue_is_told_to_open_it_first(here, state):
    here.issue(1, label="coding agent processing", state=state)
    uuid = here.row(1)
    here.ledger.request(uuid, "stop")
    send_pending_notifications(here.wiring)
    assert "Write `/retry` in a comment" in said(here)[0]
    assert ("Open the issue again first" in said(here)[0]) is (state == "closed")


def test_a_closed_folder_is_moved_when_nobody_holds_it(here):
    claim = here.claim(1)
    context = TaskContextManager(here.key(1), UUID % 1, here.settings, attempt=claim.attempt, database=here.wiring.db)
    context.close()
    here.ledger.finish(claim.uuid, claim.attempt, Status.FAILED)
    running, completed = (here.settings.base_dir / name / claim.uuid for name in ("running", "completed"))
    lock = durable_files.lock(running / "lock")
    assert move_leftovers(here.wiring) == []
    assert running.is_dir()
    durable_files.unlock(lock)
    assert move_leftovers(here.wiring) == [claim.uuid]
    assert (completed / "metadata.json").exists()
    assert not running.exists()
    assert said(here) == []  # moving asks no forge


def closed(here):
    """A task that has ended, with its folder in `completed/`."""
    claim = here.claim(1)
    context = TaskContextManager(here.key(1), UUID % 1, here.settings, attempt=claim.attempt, database=here.wiring.db)
    context.complete()
    return (
        claim.uuid,
        here.settings.base_dir / "running" / claim.uuid,
        here.settings.base_dir / "completed" / claim.uuid,
    )


def test_a_lock_of_somebody_who_came_too_late_is_removed(here):
    uuid, late, kept = closed(here)
    late.mkdir()
    durable_files.unlock(durable_files.lock(late / "lock"))
    before = sorted(path.name for path in kept.iterdir())
    assert move_leftovers(here.wiring) == [uuid]
    assert not late.exists()
    assert sorted(path.name for path in kept.iterdir()) == before


def test_of_two_folders_of_one_task_none_is_lost(here):
    uuid, late, kept = closed(here)
    late.mkdir()
    (late / "messages.jsonl").write_text("{}\n")
    before = (kept / "end.json").read_bytes()
    assert move_leftovers(here.wiring) == [uuid]
    assert not late.exists()
    assert (kept / "end.json").read_bytes() == before
    assert (here.settings.base_dir / "quarantine" / uuid / "messages.jsonl").read_text() == "{}\n"
    (told,) = here.named("folder_quarantined")
    assert "completed" in told["why"]


def test_what_a_killed_worker_was_writing_is_swept_before_its_folder_is_put_away(place):
    here = place()
    claim = here.claim(1)
    folder = make_folder(here.settings, claim.uuid)
    for name in ("request.json", "request-summary.json", ".messages.jsonl.17.tmp", "messages.jsonl"):
        (folder / name).write_text("{}\n")
    for name in (".git.tmp", ".check.tmp"):
        (folder / name / "deep").mkdir(parents=True)
    here.ledger.finish(claim.uuid, claim.attempt, "failed", error_code="poison")
    move_leftovers(here.wiring)
    there = here.settings.base_dir / "completed" / claim.uuid
    assert sorted(path.name for path in there.iterdir()) == ["end.json", "lock", "messages.jsonl"]
