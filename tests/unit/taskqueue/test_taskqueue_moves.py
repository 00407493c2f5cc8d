"""The table of moves, and who a holder is."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from agent import durable_files
from agent.errors import ConfigError, LedgerError
from agent.taskqueue import LEDGERS, Row, alive_by_lock, machine, owner, place, row_holder, transitions
from agent.values import CLOSED_STATUSES, OPEN_STATUSES, Status


def test_every_status_stands_in_the_table_and_closed_ones_lead_nowhere():
    assert set(transitions.TRANSITIONS) == set(Status)
    for status in CLOSED_STATUSES:
        assert transitions.TRANSITIONS[status] == frozenset()
        with pytest.raises(LedgerError, match="it is closed"):
            transitions.check("u", status, Status.QUEUED)
    assert all(Status.STOPPED in transitions.TRANSITIONS[status] for status in OPEN_STATUSES)


def test_only_a_queued_task_becomes_running():
    assert [was for was in Status if Status.RUNNING in transitions.TRANSITIONS[was]] == [Status.QUEUED]


def test_a_refusal_names_what_is_allowed():
    with pytest.raises(
        LedgerError, match="task u is paused and cannot become completed; from here it can become queued, stopped"
    ):
        transitions.check("u", Status.PAUSED, Status.COMPLETED)


@pytest.mark.parametrize("word", transitions.REQUESTS)
@pytest.mark.parametrize("status", OPEN_STATUSES)
@pytest.mark.parametrize("requested", [None, "stop", "pause"])
def test_every_word_leads_where_the_table_allows(word, status, requested):
    to, kept = transitions.apply_request(word, status, requested)
    assert to is status or to in transitions.TRANSITIONS[status]
    assert kept is None or status is Status.RUNNING


def test_an_owner_names_machine_base_dir_pid_and_start(tmp_path):
    odd = tmp_path / "with:colon"
    parts = owner(odd).rsplit(":", 2)
    assert parts[0] == place(odd) == f"{machine()}:{odd.resolve()}"
    assert parts[1] == str(os.getpid())
    ticks = Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19]
    assert parts[2] == ticks
    assert row_holder.place_of(owner(odd)) == place(odd)


def test_two_processes_are_the_same_machine_and_different_owners(tmp_path):
    script = "import sys; from pathlib import Path; from agent.taskqueue import owner; sys.stdout.write(owner(Path(sys.argv[1])))"
    other = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, check=True
    ).stdout
    assert row_holder.place_of(other) == place(tmp_path)
    assert other != owner(tmp_path)


def test_a_relative_and_an_absolute_base_dir_are_one_place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert place(Path("contexts")) == place(tmp_path / "contexts")


def row(uuid):
    return Row(uuid, "local", "local", "default", "issue", "1", Status.RUNNING, "2026-01-31T09:15:00.000000Z")


def test_a_folder_is_alive_while_its_lock_is_held_or_once_it_is_completed(tmp_path):
    is_alive = alive_by_lock(tmp_path)
    assert not is_alive(row("a"))
    folder = durable_files.make_dir(tmp_path / "running/a")
    held = durable_files.lock(folder / "lock")
    assert is_alive(row("a"))
    os.close(held)
    assert not is_alive(row("a"))
    (tmp_path / "completed/a").mkdir(parents=True)
    assert is_alive(row("a"))


def test_a_folder_whose_lock_cannot_be_looked_at_is_not_taken_for_dead(tmp_path):
    row = SimpleNamespace(uuid="u")
    (tmp_path / "running" / "u" / "lock").mkdir(parents=True)
    assert alive_by_lock(tmp_path)(row)


def test_a_row_of_a_newer_schema_is_read_and_nulls_are_defaults():
    record = {"uuid": "u", "task_source": "s", "owner": "o", "repo": "r", "task_type": "issue", "task_id": "1"}
    made = Row.from_record(record | {"status": "queued", "created_at": "t", "llm_call_count": None, "tomorrow": 1})
    assert made.llm_call_count == 0
    assert made.status is Status.QUEUED
    assert str(made.key) == "s:o/r#1"


def test_an_unknown_ledger_is_answered_with_the_known_ones():
    with pytest.raises(ConfigError, match="known are postgresql, sqlite"):
        LEDGERS.load("sqlight")
