"""What people say to tasks that no worker holds: answered once, politely, whatever single issues do."""

from datetime import timedelta
from pathlib import Path

import pytest
from run_home import UUID

from agent import clock
from agent.commands.cleanup import cleanup
from agent.context.outside_effects import EffectStore
from agent.errors import ForgeUnreachable
from agent.forge.markers import marker, with_markers
from agent.intake.comment_poller import PAUSED_SECONDS, CommentPoller
from agent.intake.enqueue import Intake, enqueue_task
from agent.intake.interval import SLOWER, PollingInterval
from agent.intake.poller import Poller
from agent.issue.closed_by_merge import MERGED
from agent.taskqueue import LEDGERS
from agent.values import Status

ROOT = Path(__file__).resolve().parents[3]


def test_many_closed_tasks_cost_one_list_a_look_and_not_one_request_each(watching):
    for _ in range(30):
        watching.ended(watching.place.issue(labels=()))
    for _ in range(3):
        watching.time.move(60)
        watching.poll()
    before = watching.asked()
    watching.time.move(60)
    watching.poll()
    lists = {"github": 3, "gitlab": 6, "forgejo": 3}[watching.place.forge.source]
    assert watching.asked() - before == lists


def test_an_idle_hour_asks_as_often_as_doctor_says(watching):
    """A settled place, one hour of a clock that is moved: the requests at the server are the printed figure."""
    watching.ended(watching.place.issue(labels=()))
    poller, time = watching.poller, watching.time
    interval = poller.places[0].interval.longest
    assert interval == 300
    while poller.places[0].interval.interval < interval:
        time.move(poller.seconds_to_next_poll())
        poller.poll()
    for _ in range(8):  # what is learnt of the project falls into step
        time.move(poller.seconds_to_next_poll())
        poller.poll()
    before, left = watching.asked(), getattr(watching.place.server, "remaining", None)
    end = time.monotonic() + 3600
    while time.monotonic() + poller.seconds_to_next_poll() <= end:
        time.move(poller.seconds_to_next_poll())
        if hasattr(watching.place.server, "reset"):
            watching.place.server.reset = None
        poller.poll()
    asked = watching.asked() - before
    source = watching.place.forge.source
    assert asked == watching.place.forge.per_hour(interval) == {"github": 42, "gitlab": 78, "forgejo": 42}[source]
    assert watching.place.forge.idle(interval).startswith(f"{asked} requests per idle hour")
    said = {
        "github": (f"costs {asked} requests an hour on GitHub", f"**an idle project** - *requests*: {asked} an hour"),
        "gitlab": (f"and {asked} on GitLab", f"**one idle project**: {asked} an hour"),
        "forgejo": (f"{asked} requests an hour on GitHub", f"**an idle project**: {asked} an hour"),
    }[source]
    for page, words in zip(
        ("README.md", f"docs/{'forgejo' if source == 'forgejo' else 'forges'}.md"), said, strict=True
    ):
        assert words in " ".join((ROOT / page).read_text("utf-8").split()), page
    assert getattr(watching.place.server, "remaining", None) == left  # GitHub counts no 304
    assert watching.home.named("poll_failed") == []


def test_two_daemons_that_share_a_ledger_start_one_task_for_a_comment(watching):
    key = watching.place.issue(labels=())
    first = watching.ended(key)
    other = Poller(watching.home.settings, watching.ledger, [watching.place.again()], watching.home.events)
    watching.time.move(5)
    comment = watching.place.comment(key, "@makimono once more")
    started = watching.poll() + other.poll(everything=True) + watching.poll()
    assert len(started) == 1
    row = watching.ledger.get(started[0])
    assert (row.parent_uuid, row.started_by, row.user) == (first, comment, "alice")
    assert watching.place.labels(key) == ["coding agent processing"]
    claim = watching.ledger.claim(row.uuid, "me", 60)
    watching.ledger.finish(claim.uuid, claim.attempt, "failed")
    watching.place.put_labels(key, "coding agent failed")
    watching.time.move(60)
    late = CommentPoller(watching.home.settings, watching.ledger, watching.place.again(), watching.home.events)
    started = []
    late.read()
    late.handle(started)
    assert started == watching.poll() == []


def test_two_daemons_with_ledgers_of_their_own_do_not_both_go_on(watching, tmp_path):
    key = watching.place.issue(labels=("coding agent done",))
    elsewhere = LEDGERS.load("sqlite")(tmp_path / "elsewhere", "")
    settings, events, more = watching.home.settings, watching.home.events, {"user": "alice", "title": "It"}
    one = enqueue_task(Intake(settings, watching.ledger, watching.place.forge, events), key, started_by="7", **more)
    two = enqueue_task(Intake(settings, elsewhere, watching.place.again(), events), key, started_by="7", **more)
    assert one[0] is not None
    assert two == (None, "taken")
    assert elsewhere.list() == []
    elsewhere.close()


def test_a_mention_after_cleanup_goes_on_from_the_task(watching):
    key = watching.place.issue(labels=())
    ended = watching.ended(key)
    watching.time.move(40 * 86400)
    cleanup(watching.home.settings, watching.ledger)
    watching.poll()
    watching.place.comment(key, "@makimono once more")
    (uuid,) = watching.poll()
    assert watching.ledger.get(uuid).parent_uuid == ended


def test_a_task_that_another_process_has_done_meanwhile_keeps_its_comment(watching):
    key = watching.place.issue()
    intake = Intake(watching.home.settings, watching.ledger, watching.place.forge, watching.home.events)

    def take():  # this process was frozen; a worker of another one has done the task
        watching.ledger.offer(UUID % 1)
        claim = watching.ledger.claim(UUID % 1, "another", 60)
        watching.ledger.finish(UUID % 1, claim.attempt, "completed")
        return False

    enqueue_task(intake, key, user="alice", title="It", take=take, uuid=UUID % 1)
    assert watching.progress(key)
    assert watching.ledger.get(UUID % 1).status is Status.COMPLETED


def test_a_crash_between_the_row_and_the_label_starts_nothing_twice(watching):
    key = watching.place.issue(labels=())
    first = watching.ended(key)
    comment = watching.place.comment(key, "@makimono once more")
    watching.ledger.enqueue(key, parent_uuid=first, started_by=comment)  # and here it died
    assert watching.poll() == []
    assert len(watching.ledger.list()) == 2
    assert watching.place.forge.labels.is_left_behind(watching.place.labels(key), by_comment=True)


def test_a_closed_issue_is_not_gone_on_with_and_that_is_reported(watching):
    key = watching.place.issue(labels=())
    watching.ended(key)
    watching.place.comment(key, "@makimono once more")
    watching.place.close_issue(key)
    watching.place.comment(key, "/retry")
    for _ in range(3):
        watching.time.move(60)
        assert watching.poll() == []
        watching.place.comment(key, "Hm.")
    assert len(watching.ledger.list()) == 1
    assert "closed" in watching.home.named("issue_skipped")[0]["why"]
    assert watching.place.labels(key) == ["coding agent done"]
    (answer,) = watching.own(key)
    assert answer.startswith("The mention started nothing: this issue is closed. Open it again")
    watching.place.open_issue(key)
    watching.time.move(60)
    assert len(watching.poll()) == 1
    assert len(watching.own(key)) == 1


@pytest.mark.parametrize("order", ["stop", "pause", "resume"])
def test_an_order_to_a_task_that_has_ended_is_answered_once_if_it_was_not_obeyed(watching, order):
    key = watching.place.issue(labels=())
    watching.place.comment(key, f"/{order}")  # before the task
    watching.time.move(5)
    uuid = watching.ended(key)
    obeyed = watching.place.comment(key, "/stop")
    watching.ledger.mark_answered(uuid, obeyed)  # as a worker does that obeys
    watching.poll()
    assert watching.own(key) == []
    watching.time.move(5)
    watching.place.comment(key, f"/{order}")
    for _ in range(3):
        watching.time.move(60)
        assert watching.poll() == []
        watching.place.comment(key, "Hm.")
    (answer,) = watching.own(key)
    assert answer.startswith(f"`/{order}` changed nothing: the task has ended (completed). Write `/retry`")


def test_what_a_daily_limit_holds_back_is_said_once_and_starts_on_the_next_day(watching):
    key = watching.place.issue(labels=())
    watching.ended(key)
    watching.home.settings = watching.home.settings.model_copy(
        update={"limits": watching.home.settings.limits.model_copy(update={"runs": 1})}
    )
    poller = Poller(watching.home.settings, watching.ledger, [watching.place.forge], watching.home.events)
    watching.time.move(5)
    watching.place.comment(key, "/retry")
    for _ in range(3):
        assert poller.poll(everything=True) == []
        watching.time.move(60)
    (answer,) = watching.own(key)
    assert answer.startswith("`/retry` has started nothing yet: a daily limit of this repository is used up.")
    watching.time.move(86400)
    assert len(poller.poll(everything=True)) == 1


def test_what_was_said_before_a_task_that_was_never_begun_starts_nothing_after_its_end(watching):
    key = watching.place.issue(labels=("coding agent processing",))
    watching.place.comment(key, "@makimono can do this")
    watching.time.move(5)
    uuid = watching.ledger.enqueue(key)
    watching.time.move(5)
    watching.place.comment(key, "/stop")
    watching.poll()
    assert watching.ledger.get(uuid).status is Status.STOPPED
    for _ in range(2):
        watching.time.move(60)
        watching.place.comment(key, "Thank you.")
        assert watching.poll() == []
    assert len(watching.ledger.list()) == 1


def test_orders_behind_the_comment_that_starts_a_task_are_said_to_it(watching):
    key = watching.place.issue(labels=())
    watching.ended(key)
    watching.time.move(5)
    watching.place.comment(key, "/retry")
    watching.time.move(5)
    watching.place.comment(key, "/stop")
    watching.time.move(5)
    (uuid,) = watching.poll()
    watching.time.move(5)
    watching.poll()
    assert watching.ledger.get(uuid).status is Status.STOPPED
    assert len(watching.ledger.list()) == 2


def test_words_of_strangers_machines_and_our_own_start_nothing(watching):
    key = watching.place.issue(labels=())
    watching.ended(key)
    watching.place.forge.post_comment(key, "/retry")
    if watching.place.forge.source == "github":
        watching.place.repo.comment(int(key.task_id), "/retry", "stranger")
        watching.place.repo.comment(int(key.task_id), "/retry", "dependabot[bot]")
    elif watching.place.forge.source == "forgejo":
        watching.place.server.state.user_id("stranger")
        watching.place.repo.comment(key.task_id, "/retry", "stranger")
        watching.place.comment(key, "/retry", author="forgejo-actions")
    else:
        watching.place.server.note(watching.place.item(key), "stranger", "/retry")
        watching.place.server.user("project_1_bot", bot=True)
        watching.place.comment(key, "/retry", author="project_1_bot")
    assert watching.poll() == []
    assert len(watching.ledger.list()) == 1


def test_after_the_expiry_a_comment_starts_nothing_and_is_not_even_read(watching):
    key = watching.place.issue(labels=())
    watching.ended(key)
    watching.time.move(86400 * (watching.home.settings.context_inheritance.expiry_days + 1))
    watching.place.comment(key, "/retry")
    before = watching.asked()
    assert watching.poll() == []
    assert watching.asked() - before <= 8
    assert not any("comments" in str(one) or "notes" in str(one) for one in watching.place.server.journal[before:])


@pytest.mark.parametrize("order", ["stop", "pause"])
def test_an_order_to_a_task_that_waits_for_a_worker(watching, order):
    key = watching.place.issue(labels=("coding agent processing",))
    watching.place.comment(key, "/stop")  # before the task: not said to it
    watching.time.move(5)
    uuid = watching.ledger.enqueue(key)
    assert watching.poll() == []
    assert watching.ledger.get(uuid).status is Status.QUEUED
    watching.time.move(5)
    watching.place.comment(key, f"/{order}")
    watching.poll()
    assert watching.ledger.get(uuid).status is {"stop": Status.STOPPED, "pause": Status.PAUSED}[order]
    assert [one["order"] for one in watching.home.named("order_obeyed")] == [order]
    if order == "pause":
        assert watching.place.labels(key) == ["coding agent paused"]
        watching.time.move(5)
        watching.place.comment(key, "/resume")
        watching.poll()
        assert watching.ledger.get(uuid).status is Status.QUEUED
        assert watching.place.labels(key) == ["coding agent processing"]
        watching.poll()
        assert watching.ledger.get(uuid).status is Status.QUEUED  # /pause is not obeyed again


@pytest.mark.parametrize("order", ["resume", "retry"])
def test_a_task_that_was_put_off_goes_on_at_once_when_a_person_says_so(watching, order):
    key = watching.place.issue(labels=("coding agent processing",))
    uuid = watching.begun(key, put_off=timedelta(hours=1), outcome="publishing")
    watching.place.forge.post_comment(key, with_markers("**Waiting.**", marker(uuid, "progress")))
    watching.poll()
    assert watching.ledger.due(9) == []
    watching.time.move(5)
    watching.place.comment(key, f"/{order}")
    watching.poll()
    assert watching.ledger.due(9) == [uuid]
    assert f"alice wrote /{order}." in watching.progress(key)
    assert watching.own(key) == []


@pytest.mark.parametrize(
    ("label", "status"), [("done", Status.COMPLETED), ("failed", Status.FAILED), ("stopped", Status.STOPPED)]
)
def test_an_end_that_the_forge_shows_is_newer_than_an_open_row_of_an_old_backup(watching, label, status):
    key = watching.place.issue(labels=(f"coding agent {label}",))
    uuid = watching.begun(key, put_off=timedelta(hours=1))
    watching.place.forge.post_comment(key, with_markers("The end.", marker(uuid, "final")))
    before = watching.place.comments(key)
    watching.poller.poll(everything=True)
    row = watching.ledger.get(uuid)
    assert (row.status, row.tell_at, row.error_message) == (status, None, None)
    assert watching.place.labels(key) == [f"coding agent {label}"]
    assert watching.place.comments(key) == before, "nobody is told a second time"


def test_a_label_that_was_taken_away_while_a_worker_had_the_task_stops_it_when_it_waits(watching):
    """Nothing stirs any more: the removal was told while somebody else was listening."""
    key = watching.place.issue(labels=("coding agent processing",))
    claim = watching.ledger.claim(watching.ledger.enqueue(key), "me", 60)
    watching.poll()
    watching.time.move(5)
    watching.place.put_labels(key)
    watching.poll()
    watching.time.move(3600)
    watching.poll()
    watching.ledger.db.execute("UPDATE tasks SET last_seq = 2")
    watching.ledger.release(claim.uuid, claim.attempt, clock.now() + timedelta(hours=1))
    watching.poll()
    row = watching.ledger.get(claim.uuid)
    assert (row.status, row.tell_at is not None) == (Status.STOPPED, True)


@pytest.mark.parametrize("merged", [True, False])
def test_an_issue_that_a_merge_has_closed_stops_no_waiting_task_with_a_newer_pull_request(watching, merged):
    """The branch shows the open pull request that came after the merge; the receipt of the merge is in the folder."""
    key = watching.place.issue(labels=("coding agent processing",))
    uuid = watching.begun(key, put_off=timedelta(hours=1), branch="makimono/1-0badcafe")
    folder = watching.home.settings.base_dir / "running" / uuid
    folder.mkdir(parents=True)
    if merged:
        store = EffectStore(folder)
        store.done(MERGED, {"url": "https://forge.example/pulls/2"})
        store.close()
    watching.place.close_issue(key)
    watching.time.move(60)
    watching.poll()
    assert (watching.ledger.get(uuid).status is Status.STOPPED) is not merged


def test_a_comment_in_the_last_moments_of_a_run_is_read_when_the_run_has_ended(watching):
    """The worker reads no more comments, the row is still running, and the poller passes the change."""
    key = watching.place.issue(labels=("coding agent processing",))
    watching.ended(watching.place.issue(labels=()))  # one to watch, else nothing is listed
    claim = watching.ledger.claim(watching.ledger.enqueue(key, title="It"), "me", 60)
    watching.time.move(5)
    watching.place.comment(key, "@makimono Something else, perhaps.")
    for _ in range(3):
        watching.time.move(60)
        assert watching.poll() == []
    watching.place.put_labels(key, "coding agent done")
    watching.poll()
    watching.poll()
    watching.ledger.finish(claim.uuid, claim.attempt, "completed")
    (started,) = watching.poll()
    assert watching.ledger.get(started).parent_uuid == claim.uuid


@pytest.mark.parametrize(
    ("label", "columns"),
    [
        ("coding agent done", {"last_seq": 0, "started_by": "4711"}),  # its worker died before it moved the label
        ("coding agent done", {"outcome": "ending completed finished"}),  # its end is told already
        ("coding agent processing", {}),
    ],
)
def test_a_label_that_is_no_persons_word_stops_nothing(watching, label, columns):
    key = watching.place.issue(labels=(label,))
    uuid = watching.begun(key, put_off=timedelta(hours=1), **columns)
    for _ in range(2):
        watching.time.move(60)
        watching.place.comment(key, "Hm.")
        watching.poll()
        assert watching.ledger.get(uuid).status is Status.QUEUED


def test_an_answer_does_not_wake_what_a_person_paused_while_it_waited_for_it(watching):
    key = watching.place.issue(labels=("coding agent paused",))
    claim = watching.ledger.claim(watching.ledger.enqueue(key), "me", 60)
    watching.ledger.db.run("ledger_pause", outcome="asked", uuid=claim.uuid, was="running", attempt=claim.attempt)
    watching.time.move(5)
    watching.place.comment(key, "/pause")
    watching.poll()
    watching.time.move(5)
    watching.place.comment(key, "Blue.")
    watching.poll()
    assert watching.ledger.get(claim.uuid).status is Status.PAUSED
    watching.time.move(5)
    watching.place.comment(key, "/resume")
    watching.poll()
    assert watching.ledger.get(claim.uuid).status is Status.QUEUED


def test_a_forge_that_fails_in_between_is_asked_again_for_what_is_not_answered(watching):
    key = watching.place.issue(labels=())
    watching.ended(key)
    watching.poll()
    watching.time.move(60)
    watching.place.comment(key, "/retry")
    source = watching.place.forge.source
    what = {"github": r"/issues/\d+/comments$", "gitlab": r"/issues/\d+/notes$", "forgejo": "timeline$"}[source]
    watching.place.server.fault("GET", what, status=502, times=3)
    assert watching.poll() == []
    assert len(watching.home.named("poll_failed")) == 1
    assert len(watching.poll()) == 1


def test_an_error_of_a_poll_that_broke_off_is_not_of_the_next_poll(watching, monkeypatch):
    key = watching.place.issue(labels=())
    watching.ended(key)
    watching.poll()
    watching.time.move(60)
    watching.place.comment(key, "/retry")
    comments = watching.poller.places[0].comment_poller

    def cut(*_):
        raise ForgeUnreachable("cut")

    with monkeypatch.context() as away:
        away.setattr(watching.place.forge, "comments_since", cut)
        comments.read()  # and then an error ends the poll before `handle`
    assert len(watching.poll()) == 1
    assert watching.home.named("poll_failed") == []


# --- the pace ---------------------------------------------------------------------------------------------------


def test_an_idle_place_is_asked_ever_more_rarely_and_at_once_more_often_when_something_happens(time):
    pace = PollingInterval(60, 300)
    assert pace.is_due()
    seen = []
    for _ in range(6):
        pace.polled(happened=False)
        seen.append(pace.interval)
    assert seen == [60 * SLOWER, 60 * SLOWER**2, 60 * SLOWER**3, 300, 300, 300]
    pace.polled(happened=True)
    assert pace.interval == 60
    time.move(59)
    assert not pace.is_due()
    time.move(1)
    assert pace.is_due()


def test_each_poll_without_news_makes_the_interval_half_as_long_again(watching):
    (place,) = watching.poller.places
    for expected in (90, 135, 202.5, 300):
        assert place.interval.is_due()
        watching.poller.poll()
        assert place.interval.interval == expected
        watching.time.move(expected)


def test_a_place_that_wants_to_be_left_alone_is(time):
    pace = PollingInterval(60, 300)
    pace.polled(happened=True, pause=500)
    time.move(499)
    assert not pace.is_due()
    time.move(1)
    assert pace.is_due()
    assert PollingInterval(600, 300).longest == 600


def test_polls_that_an_error_ends_become_rarer_too():
    pace = PollingInterval(60, 300)
    seen = []
    for _ in range(6):
        pace.begun()
        seen.append(pace.interval)
    assert seen == [60, 60 * SLOWER, 60 * SLOWER**2, 60 * SLOWER**3, 300, 300]
    pace.polled(happened=True)
    pace.begun()
    assert pace.interval == 60


def test_what_the_host_says_about_polling_is_honoured(watching):
    poller = watching.poller
    path = r"/issues/search$" if watching.place.forge.source == "forgejo" else r"/issues$"
    watching.place.server.fault("GET", path, status=200, body="[]" if is_github(watching) else b"[]", headers=POLL)
    poller.poll()
    assert watching.place.forge.poll_pause == 700
    assert poller.seconds_to_next_poll() == pytest.approx(700, abs=1)


POLL = {"X-Poll-Interval": "700", "Content-Type": "application/json"}


def is_github(watching):
    return watching.place.forge.source == "github"


def test_a_pause_that_the_host_asks_for_moves_the_next_look(watching):
    status = 403 if is_github(watching) else 429
    path = {"github": "/user$", "gitlab": "/projects", "forgejo": "/repos/"}[watching.place.forge.source]
    watching.place.server.fault("GET", path, status=status, headers={"Retry-After": "900"})
    watching.poll()
    (failed,) = watching.home.named("poll_failed")
    assert str(status) in failed["error"]
    assert watching.poller.seconds_to_next_poll() == pytest.approx(900, abs=2)


def test_a_task_that_waits_is_looked_at_now_and_then_although_nothing_stirs(place, time):
    here = place()
    here.issue(1, label="coding agent paused")
    claim = here.claim(1)
    here.wiring.db.run("ledger_pause", outcome="asked", uuid=claim.uuid, was="running", attempt=claim.attempt)
    attention = CommentPoller(here.settings, here.ledger, here.forge, here.events)
    attention.read()
    attention.handle([])
    assert here.ledger.get(UUID % 1).status is Status.PAUSED
    (here.folder / "tracker" / "issues" / "1.md").unlink()
    time.move(PAUSED_SECONDS)
    attention.read()
    attention.handle([])
    assert here.ledger.get(UUID % 1).status is Status.STOPPED


def with_pull(watching):
    """An ended task with an open pull request: (uuid, pull request)."""
    key = watching.place.issue(labels=())
    watching.place.branch("makimono/1-x")
    words = {"title": "It", "body": "Done."}
    pull = watching.place.forge.open_pull(key, **words, head="makimono/1-x", base="main", draft=False)
    uuid = watching.ended(key)
    told = {"branch": pull.head, "url": pull.url}
    for name, value in told.items():
        watching.ledger.db.execute(f"UPDATE tasks SET {name} = '{value}' WHERE uuid = '{uuid}'")
    for _ in range(2):
        watching.time.move(60)
        watching.poll()
    return uuid, pull


def test_what_becomes_of_a_pull_request_is_noted_for_memory_once(watching):
    uuid, pull = with_pull(watching)
    assert watching.ledger.get(uuid).pull_state is None
    watching.time.move(60)
    watching.place.close_pull(pull)
    watching.poll()
    row = watching.ledger.get(uuid)
    assert (row.pull_state, row.remember_at is not None) == ("closed", True)
    for _ in range(3):
        watching.time.move(60)
        watching.poll()
    (said,) = watching.home.named("pull_ended")
    assert (said["uuid"], said["state"]) == (uuid, "closed")


def test_without_memory_nothing_is_noted(watching):
    uuid, pull = with_pull(watching)
    memory = watching.home.settings.memory.model_copy(update={"enabled": False})
    poller = watching.poller.places[0].comment_poller
    poller.settings = watching.home.settings.model_copy(update={"memory": memory})
    watching.time.move(60)
    watching.place.close_pull(pull)
    watching.poll()
    assert watching.ledger.get(uuid).pull_state is None


def test_memory_costs_no_request(watching):
    """The same look at a pull request that was closed, with and without it."""
    counts = []
    for enabled in (True, False):
        _, pull = with_pull(watching)
        memory = watching.home.settings.memory.model_copy(update={"enabled": enabled})
        poller = watching.poller.places[0].comment_poller
        poller.settings = watching.home.settings.model_copy(update={"memory": memory})
        watching.time.move(60)
        watching.place.close_pull(pull)
        before = watching.asked()
        watching.poll()
        counts.append(watching.asked() - before)
    assert counts[0] == counts[1] > 0
