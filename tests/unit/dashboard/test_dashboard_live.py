"""The live part: events after changes, one watcher for all pages, and answers while the ledger or a disk hangs."""

import http.client
import subprocess
import sys
import threading
import time
from contextlib import closing, contextmanager

import pytest
from cli_home import DONE, OPEN, Home
from page_home import served

from agent.dashboard import app, rendering, watcher
from agent.store.configured_ledger import LedgerKind


@pytest.fixture
def home(tmp_path):
    return Home(tmp_path / "h").both()


@contextmanager
def listening(page, path="/events"):
    """A stream of events, to be read line by line."""
    with closing(http.client.HTTPConnection("127.0.0.1", page.port, timeout=30)) as connection:
        connection.request("GET", path, headers={"Host": page.name})
        answer = connection.getresponse()
        assert answer.getheader("content-type").startswith("text/event-stream")
        yield answer


def until(answer, text):
    """Read lines of a stream until one has `text`."""
    while True:
        line = answer.readline()
        assert line, "the stream ended"
        assert line != b": quiet\n", "nothing came for EVENT_SECONDS"
        if text in line:
            return line


def test_a_change_of_a_row_reaches_every_open_page(home, monkeypatch):
    monkeypatch.setattr(watcher, "SECONDS", 0.05)
    monkeypatch.setattr(app, "LEAST_PAUSE", 0.05)
    with served(home.settings) as page, listening(page) as one, listening(page) as two:
        until(one, b": open"), until(two, b": open")
        with closing(LedgerKind.from_settings(home.settings).open()) as ledger:
            ledger.request(OPEN, "pause")
        assert until(one, b"event") == until(two, b"event") == b"event: changed\n"


def test_a_change_of_the_files_of_a_task_reaches_a_page_that_was_opened_between_two_looks(home, monkeypatch):
    monkeypatch.setattr(watcher, "SECONDS", 0.5)
    with served(home.settings) as page, listening(page) as other, listening(page, f"/events?task={DONE}") as one:
        until(other, b": open"), until(one, b": open")
        with (home.settings.base_dir / "completed" / DONE / "messages.jsonl").open("a") as out:
            out.write('{"seq": 6, "role": "user", "content": "more"}\n')
        until(one, b"event: changed")


def test_the_end_of_the_server_ends_the_streams_at_once(home):
    with served(home.settings) as page:
        with listening(page) as one:
            until(one, b": open")
            page.server.stop()
            rest = one.read()
        assert b"event" not in rest


def test_more_open_pages_than_are_served_are_told_to_come_later(home, monkeypatch):
    monkeypatch.setattr(watcher, "MOST_PAGES", 1)
    with served(home.settings) as page, listening(page) as one:
        until(one, b": open")
        with listening(page) as two:
            assert two.read() == b"retry: 60000\n\n"


HOLD = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("PRAGMA locking_mode = EXCLUSIVE")
connection.execute("BEGIN EXCLUSIVE")
connection.execute("UPDATE tasks SET title = title")
print("held", flush=True)
sys.stdin.read()
"""


def test_a_locked_ledger_gives_a_page_with_the_reason_within_seconds(home):
    """A process of its own holds the lock, since SQLite's locks belong to a process."""
    path = home.settings.base_dir / "tasks.db"
    with closing(LedgerKind.from_settings(home.settings).open()) as ledger:
        ledger.db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    holder = subprocess.Popen([sys.executable, "-c", HOLD, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert holder.stdout.readline() == b"held\n"
        with served(home.settings) as page:
            started = time.monotonic()
            shown = [page.json("/tasks") for _ in range(20)][-1]  # only the first one waits
            task = page.json(f"/tasks/{DONE}")
            assert time.monotonic() - started < 15
            assert "busy" in shown["problems"][0] or "locked" in shown["problems"][0]
            assert task["shown"]["entries"], "the files of the task are shown without the ledger"
    finally:
        holder.communicate(timeout=30)


def test_a_page_never_holds_a_lock_that_a_writer_waits_for(home):
    path = home.settings.base_dir / "tasks.db"
    with served(home.settings) as page, listening(page) as one:
        until(one, b": open")
        for _ in range(5):
            page.get("/tasks")
        script = (
            f"import sqlite3; c = sqlite3.connect({str(path)!r}, timeout=0); c.execute('BEGIN IMMEDIATE'); c.commit()"
        )
        for _ in range(3):
            subprocess.run([sys.executable, "-c", script], check=True, timeout=60)


def test_a_part_that_hangs_is_answered_with_the_reason(home, monkeypatch):
    hangs, render = threading.Event(), rendering.render

    def slow(name, *args, **more):
        return render(name, *args, **more) if name == "problem" else hangs.wait(30)

    monkeypatch.setattr(app, "PAGE_SECONDS", 0.3)
    monkeypatch.setattr("agent.dashboard.pages.conversation.part", lambda *_args, **_more: hangs.wait(30))
    monkeypatch.setattr(rendering, "render", slow)
    with served(home.settings) as page:
        answers = [page.get(path) for path in (f"/tasks/{DONE}", "/tasks")]
        hangs.set()
    assert [one.status for one in answers] == [503, 503]
    assert all("took longer than" in one.text for one in answers)


def test_a_part_that_hangs_while_the_server_ends_is_answered_and_is_no_error_of_the_program(home, monkeypatch, caplog):
    hangs, began, answers = threading.Event(), threading.Event(), []

    def hang(*_args, **_more):
        began.set()
        return hangs.wait(30)

    monkeypatch.setattr("agent.dashboard.pages.conversation.part", hang)
    with served(home.settings) as page:
        asking = threading.Thread(target=lambda: answers.append(page.get(f"/tasks/{DONE}")))
        asking.start()
        assert began.wait(30)
        page.server.stop()
        asking.join(30)
    hangs.set()
    assert [(one.status, "the server of this page ends" in one.text) for one in answers] == [(503, True)]
    assert [one.getMessage() for one in caplog.records if one.exc_info or one.levelname == "ERROR"] == []


def test_threads_that_all_hang_do_not_hold_the_end_of_the_server(home, monkeypatch):
    hangs = threading.Event()
    for name in ("THREADS", "PAGE_SECONDS", "CLOSE_SECONDS"):
        monkeypatch.setattr(app, name, 1 if name == "THREADS" else 0.1)
    monkeypatch.setattr("agent.dashboard.pages.conversation.part", lambda *_args, **_more: hangs.wait(30))
    with served(home.settings) as page, listening(page) as events:
        until(events, b": open")
        assert page.get(f"/tasks/{DONE}").status == 503
        page.server.stop()
        stopped = time.monotonic()
        events.read()
    assert time.monotonic() - stopped < 5
    hangs.set()
