"""A backup is a state that a kill could have left, whatever happens while it is taken; and it can be restored."""

import json
import shutil
from contextlib import closing

import orjson
import pytest
import services
from deep_tree import make_deep
from pysqlite3 import dbapi2 as sqlite3
from run_home import UUID

from agent import filetree
from agent.commands import backup as backups
from agent.commands.backup import backup
from agent.config import load
from agent.context import TaskContextManager
from agent.store.db import Database
from agent.store.postgres import open_postgres
from agent.taskqueue import LEDGERS


@pytest.fixture
def here(place):
    return place()


def conversation(here):
    """A running task of a few messages, open."""
    here.row(1)
    context = TaskContextManager(here.key(1), UUID % 1, here.settings)
    store = context.get_message_store()
    store.add_message("system", "You are an agent.", kind="system")
    store.add_message("user", "Mend it.", kind="task")
    for number in range(8):
        store.add_message("user" if number % 2 else "assistant", f"message {number}")
    store.compact(strategy="summary", end_seq=4, summary="Long ago.")
    return context, store


def restored(here, target, uuid=UUID % 1):
    """base_dir as the backup has it; the task opened again."""
    here.close()
    shutil.rmtree(here.settings.base_dir)
    shutil.copytree(target, here.settings.base_dir, symlinks=True)
    return TaskContextManager(here.key(1), uuid, here.settings)


def view_of(context):
    return context.get_message_store().current_path.read_bytes()


@pytest.mark.parametrize("moment", range(5))
def test_a_compaction_in_the_midst_of_it_is_made_or_not_made(here, tmp_path, monkeypatch, moment):
    """It comes before the copy of the first, second, … file of the task's folder."""
    context, store = conversation(here)
    before = store.current_path.read_bytes()
    real, seen = backups._Copy.file, []

    def during(self, entry, folder, target):
        if target.name == context.context_dir.name and entry.depth == 0:
            if len(seen) == moment:
                (context.context_dir / "unsummarized.jsonl").write_bytes(b"{}\n")
                store.compact(strategy="summary", end_seq=6, summary="What was.", carried={"plan": "p"})
            seen.append(entry.name)
        real(self, entry, folder, target)

    monkeypatch.setattr(backups._Copy, "file", during)
    backup(here.settings, tmp_path / "kept")
    after = store.current_path.read_bytes()
    assert before != after
    context.close()
    assert len(seen) > moment, "the compaction was made while files were copied"
    with restored(here, tmp_path / "kept") as again:
        assert view_of(again) in (before, after)
        store = again.get_message_store()
        assert [record["seq"] for record in store.records()] == list(range(1, store.last_seq + 1))
        store.compact(strategy="summary", end_seq=6, summary="What was.", carried={"plan": "p"})
        assert view_of(again) == after, "it can be made, or made again"
        assert not (again.context_dir / "unsummarized.jsonl").exists()


def test_what_was_learnt_across_tasks_comes_along_while_it_is_written(here, tmp_path):
    with closing(Database(here.settings.base_dir / "memory.db")) as memory:
        memory.execute("CREATE TABLE facts (text TEXT)")
        memory.execute("INSERT INTO facts VALUES ('first')")
        with memory.transaction():
            memory.execute("INSERT INTO facts VALUES ('not yet')")
            made = backup(here.settings, tmp_path / "kept")
        memory.execute("INSERT INTO facts VALUES ('later')")
    kept = tmp_path / "kept" / "memory.db"
    assert kept.stat().st_mode & 0o777 == 0o600
    with closing(sqlite3.connect(kept)) as copy:
        assert copy.execute("SELECT text FROM facts").fetchall() == [("first",)]
        assert copy.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    assert made.size >= kept.stat().st_size


def test_the_rows_of_a_server_are_kept_as_lines_and_the_files_as_ever(here, tmp_path):
    """The server's own `pg_dump` restores them; the lines tell what there was, also to another ledger."""
    with services.schema(tmp_path) as address:
        config = here.folder / "config.yaml"
        config.write_text(f"{config.read_text()}taskqueue: {{ledger: '{address}'}}\n")
        settings = load(config, environ={})
        with closing(LEDGERS.load("postgresql")(settings.base_dir, address)) as ledger:
            uuids = {ledger.enqueue(here.key(number), uuid=UUID % number, title=f"Issue {number}") for number in (1, 2)}
            key = {**here.key(1)}
        with closing(open_postgres(address)) as database:
            context = TaskContextManager(key, UUID % 1, settings, database=database)
            context.get_message_store().add_message("system", "You are an agent.")
            context.close()
        made = backup(settings, tmp_path / "kept")
        assert (made.rows, made.running) == ("tasks.jsonl", 1)
        rows = [orjson.loads(line) for line in (tmp_path / "kept" / "tasks.jsonl").read_bytes().splitlines()]
        assert {row["uuid"] for row in rows} == uuids
        assert {row["title"] for row in rows} == {"Issue 1", "Issue 2"}
        assert json.loads((tmp_path / "kept" / "backup.json").read_text())["rows"] == "tasks.jsonl"
        assert not (tmp_path / "kept" / "tasks.db").exists(), "an older one of SQLite would be no truth"
        assert (tmp_path / "kept" / "running" / (UUID % 1) / "messages.jsonl").exists()


def test_a_deep_tree_odd_files_and_locks_of_the_repository_come_along(here, tmp_path):
    """What a command left stops no backup, and a file of the repository whose name ends in `.lock` is no lock."""
    context, _ = conversation(here)
    work, git = context.context_dir / "workspace", context.context_dir / "git"
    for folder in (work, git):
        folder.mkdir()
    make_deep(work)
    (work / "Cargo.lock").write_text("the repository's")
    (git / "index.lock").write_text("git's")
    (work / "way").symlink_to("/etc")
    (here.settings.base_dir / "completed" / (UUID % 2)).mkdir(parents=True)
    made = backup(here.settings, tmp_path / "kept")
    context.close()
    kept = tmp_path / "kept" / "running" / (UUID % 1)
    assert (made.missed, made.completed, made.running) == ((), 1, 1)
    *_, use = filetree.measuring(kept / "workspace")
    assert use.size >= 5000
    assert (kept / "workspace" / "Cargo.lock").read_text() == "the repository's"
    assert (kept / "workspace" / "way").is_symlink()
    assert not (kept / "git" / "index.lock").exists()
    assert not (kept / "lock").exists()
    filetree.remove(tmp_path / "kept")
    filetree.remove(work)
