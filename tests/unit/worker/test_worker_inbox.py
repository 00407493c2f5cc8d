"""Comments reach a running task, whatever the thread that reads them waits for meanwhile."""

import fcntl
import os
import threading

import pytest

from agent import clock, deadline, durable_files
from agent.errors import ForgeRefused, ForgeUnreachable, IssueUnreadable, LedgerError
from agent.forge.base import Comment
from agent.observe.events import Events
from agent.taskqueue.sqlite import SqliteLedger
from agent.values import TaskKey
from agent.worker.control import TaskControl
from agent.worker.inbox import CommentInbox

KEY = TaskKey("github", "github.com", "acme", "web", "issue", "1")
SAID = Comment("7", "alice", "To cents, please.", "2026-01-01T00:00:00Z", "2026-01-01T00:00:00Z")


class Quiet:
    """A task without a pull request, of which nothing is written."""

    def save_comment_cursor(self, cursor):
        pass

    def show_seen(self, comment):
        pass

    def pull_urls(self):
        return ()


class Locking:
    """A forge whose requests wait for the lock of the host's limits, as those of the real adapters do."""

    source, instance, news_interval = "github", "github.com", 0.0

    def __init__(self, path):
        self.path = path

    def own_names(self):
        return ("makimono",)

    def comments_since(self, key, cursor):
        with durable_files.locked(self.path):
            return (SAID,), "next"


def test_a_wait_for_the_lock_of_a_host_does_not_wait_for_itself(tmp_path):
    """The wait asks whether the task shall stop; the control then polls the same inbox in the same thread."""
    path = tmp_path / "limits.lock"
    inbox = CommentInbox(Locking(path), KEY, "1", None, Quiet(), Events(), often=0.0)
    inbox.start(None)
    asked = threading.Event()

    def wanted():
        asked.set()
        inbox.poll()

    control = TaskControl(lambda: None, wanted, often=0.0)
    other = os.open(path, os.O_RDWR | os.O_CREAT)
    fcntl.flock(other, fcntl.LOCK_EX)

    def work():
        with deadline.listening(control.has_request):
            inbox.poll(now=True)

    worker = threading.Thread(target=work, daemon=True)
    worker.start()
    assert asked.wait(30)
    os.close(other)
    worker.join(30)
    assert not worker.is_alive(), "it waits for itself"
    assert inbox.talk == [SAID]


class Away:
    """A forge that does not answer while `away`."""

    source, instance, news_interval = "github", "github.com", 0.0
    away = False

    def own_names(self):
        return ("makimono",)

    def comments_since(self, key, cursor):
        if self.away:
            raise ForgeUnreachable("github.com: GET /: no route to host")
        return (), cursor


def test_an_outage_is_told_when_it_begins_then_less_often_and_when_it_is_over():
    """A line every 15 seconds for each running task filled the log."""
    forge, events, seen = Away(), Events(), []
    events.on(lambda name, fields: seen.append((name, fields.get("seconds"))))
    with clock.use(clock.FakeClock()) as time:
        inbox = CommentInbox(forge, KEY, "1", None, Quiet(), events)
        inbox.start(None)
        inbox.poll(now=True)
        for _ in range(2):
            forge.away = True
            for _ in range(4 * 60):  # an hour
                inbox.poll(now=True)
                time.move(15)
            forge.away = False
            inbox.poll(now=True)
            inbox.poll(now=True)
    expected = [*[("poll_failed", None)] * 6, ("poll_recovered", 3600.0)] * 2
    assert seen == expected, "after 0, 1, 3, 7, 15 and 31 minutes"


class Gone(Locking):
    """A forge that refuses the comments of an issue with `error`, and the issue too."""

    def __init__(self, error):
        self.error = error

    def comments_since(self, key, cursor):
        raise self.error

    def read_issue(self, key):
        raise IssueUnreadable("issues are switched off", code="issues_off")


def test_a_forge_that_does_not_answer_before_the_end_of_the_run_says_nothing_about_the_issue():
    inbox = CommentInbox(Gone(ForgeUnreachable("away")), KEY, "1", None, Quiet(), Events(), often=0.0)
    inbox.start(None)
    assert not inbox.poll()
    assert not inbox.poll(now=True)


@pytest.mark.parametrize("error", [ForgeRefused("410", status=410), IssueUnreadable("gone", code="issues_off")])
def test_an_issue_that_is_gone_is_found_before_the_end_of_the_run(error):
    """At other times the request of a person or the next read decides."""
    inbox = CommentInbox(Gone(error), KEY, "1", None, Quiet(), Events(), often=0.0)
    inbox.start(None)
    assert not inbox.poll()
    with pytest.raises(IssueUnreadable) as caught:
        inbox.poll(now=True)
    assert caught.value.code == "issues_off"


class Spoken:
    """A forge with comments after a cursor, which is the number of comments that were read."""

    source, instance, news_interval = "github", "github.com", 0.0

    def __init__(self, *said):
        self.said = said

    def own_names(self):
        return ("makimono",)

    def comments_since(self, key, cursor):
        return self.said[int(cursor or 0) :], str(len(self.said))


class RowAway(Quiet):
    """A task whose row cannot be read while `away`."""

    away = True

    def __init__(self):
        self.cursors = []

    def save_comment_cursor(self, cursor):
        self.cursors.append(cursor)

    def show_seen(self, comment):
        if self.away:
            raise LedgerError("the database is away")


def test_an_outage_of_the_ledger_after_comments_were_read_loses_none(tmp_path):
    """The cursor passed comments of which neither the text nor the command had been recorded."""
    ledger = SqliteLedger(tmp_path)
    uuid = ledger.enqueue(KEY)
    ledger.claim(uuid, "me", 60)
    order = Comment("8", "alice", "@makimono /pause", SAID.created_at, SAID.updated_at)
    task = RowAway()
    inbox = CommentInbox(Spoken(SAID, order), KEY, uuid, ledger, task, Events(), often=0.0)
    inbox.start(None)
    with pytest.raises(LedgerError):
        inbox.poll()
    assert ledger.get(uuid).requested == "pause"
    task.away = False
    inbox.poll()
    texts = list(inbox.take_comments(lambda talk: [one.body for one in talk], lambda: None))
    assert texts == [SAID.body]
    assert task.cursors == ["2"]
