"""A new store of a task is one line in `stores.STORES`: what becomes of any store becomes of it."""

from contextlib import suppress
from pathlib import Path
from typing import ClassVar

import orjson
import pytest

import agent
from agent import durable_files
from agent.commands import backup as backups
from agent.config import load
from agent.context import TaskContextManager, stores
from agent.context.base import Store
from agent.errors import ContextError, Fenced
from agent.store.remote_storage import RemoteFolder
from agent.store.replica import Writer, fetch, manifests, take_snapshot

KEY = {"task_source": "local", "instance": "t", "owner": "o", "repo": "r", "task_type": "issue", "task_id": "1"}
SECRET = "key-of-the-test-0123"
UUID = "11111111-2222-4333-8444-555555555555"


class ToyStore(Store):
    """Toys of a task."""

    NAME: ClassVar[str] = "toys.jsonl"

    def add(self, toy):
        """Record a toy; returns its number."""
        self.file.refresh()
        number = self.file.next_id()
        self.file.append({"seq": number, "toy": self.redact(toy)})
        return number


@pytest.fixture
def settings(tmp_path, monkeypatch):
    monkeypatch.setattr(stores, "STORES", (*stores.STORES, ToyStore))
    config = tmp_path / "config.yaml"
    config.write_text(f"llm: {{provider: openai, openai: {{model: m, context_length: 8192, api_key: {SECRET}}}}}\n")
    return load(config, environ={})


def opened(settings, **more):
    return TaskContextManager(KEY, UUID, settings, **more)


def toys(folder):
    return [orjson.loads(line)["toy"] for line in (folder / "toys.jsonl").read_bytes().splitlines()]


def test_it_is_opened_with_the_masker_of_the_others_and_found_by_its_class(settings):
    with opened(settings) as context:
        assert (context.context_dir / "toys.jsonl").read_bytes() == b""
        assert context.store(ToyStore).add(f"a ball of {SECRET}") == 1
        assert toys(context.context_dir) == ["a ball of ***"]
        assert context.store(ToyStore).redact is context.get_message_store().redact


def test_it_is_repaired_and_that_is_said(settings):
    with opened(settings) as context:
        context.store(ToyStore).add("ball")
        path = context.context_dir / "toys.jsonl"
    path.write_bytes(path.read_bytes() + b"no toy\n" + b'{"seq": 2, "toy"')
    with opened(settings) as context:
        assert [line for line in context.repairs if line.startswith("toys.jsonl: torn tail of 16 bytes")]
        assert context.store(ToyStore).add("kite") == 2
        assert path.with_name("toys.jsonl.torn").read_bytes() == b'{"seq": 2, "toy"\n'


def test_what_another_program_did_to_it_is_noticed(settings):
    heard = []
    with opened(settings) as context:
        context.noticed = heard.append
        context.store(ToyStore).add("ball")
        (context.context_dir / "toys.jsonl").unlink()
        context.store(ToyStore).add("kite")
        assert toys(context.context_dir) == ["ball", "kite"]
    assert [line for line in heard if line.startswith("toys.jsonl: removed by another program")]


def test_it_is_durable_with_the_turn_before_the_messages_that_may_name_it(settings, monkeypatch):
    synced = []
    real = durable_files.fsync

    def fsync(descriptor, path, **more):
        synced.append(path.name)
        real(descriptor, path, **more)

    with opened(settings) as context:
        monkeypatch.setattr(durable_files, "fsync", fsync)
        store = context.get_message_store()
        context.store(ToyStore).add("ball")
        store.add_message("user", "Do it.")
        store.sync()
        assert synced.index("toys.jsonl") < synced.index("messages.jsonl")
        synced.clear()
        store.sync()
        assert "toys.jsonl" not in synced


@pytest.mark.parametrize("end", ["complete", "close"])
def test_it_is_closed_and_takes_nothing_any_more(settings, end):
    context = opened(settings)
    store = context.store(ToyStore)
    store.add("ball")
    getattr(context, end)()
    with pytest.raises(ContextError, match=r"toys\.jsonl is closed"):
        store.add("kite")
    assert toys(context.context_dir) == ["ball"]


def test_it_goes_with_the_folder_at_the_end(settings):
    context = opened(settings)
    store = context.store(ToyStore)
    store.add("ball")
    context.complete()
    assert store.path == settings.base_dir / "completed" / UUID / "toys.jsonl"
    assert store.file.last() == {"seq": 1, "toy": "ball"}
    assert not (settings.base_dir / "running" / UUID).exists()


def test_an_attempt_that_is_fenced_off_closes_it_and_the_next_one_goes_on(settings):
    first = opened(settings)
    first.store(ToyStore).add("ball")
    first.database.execute("UPDATE tasks SET attempt = attempt + 1 WHERE uuid = :uuid", uuid=UUID)
    with pytest.raises(Fenced):
        first.heartbeat()
    first.close()
    with suppress(ContextError):
        first.store(ToyStore).add("of the one that is fenced off")
    with opened(settings) as second:
        assert second.store(ToyStore).add("kite") == 2
        assert toys(second.context_dir) == ["ball", "kite"]


def test_it_is_in_the_replica(settings, tmp_path):
    place = RemoteFolder(str(tmp_path / "replica"))
    with opened(settings) as context:
        context.store(ToyStore).add("ball")
        shot = take_snapshot(context.context_dir, stores.file_names(), {}, {"last_seq": 0})
        Writer(place, context.context_dir, UUID, 1, "aa").write(shot)
    manifest = next(manifests(place, UUID))
    (tmp_path / "fetched").mkdir()
    fetch(place, manifest, UUID, tmp_path / "fetched")
    assert toys(tmp_path / "fetched") == ["ball"]


def test_it_is_in_a_backup_which_copies_it_after_the_messages_that_may_name_it(settings, tmp_path):
    with opened(settings) as context:
        context.store(ToyStore).add("ball")
        backups.backup(settings, tmp_path / "copy")
    assert toys(tmp_path / "copy" / "running" / UUID) == ["ball"]
    order = backups._order(["toys.jsonl", "git", "messages.jsonl", "compactions.jsonl", "current.jsonl"], 0)
    assert order == ["compactions.jsonl", "messages.jsonl", "toys.jsonl", "current.jsonl", "git"]


def test_a_store_that_is_not_in_the_list_is_none(settings):
    class OtherStore(ToyStore):
        NAME: ClassVar[str] = "others.jsonl"

    with opened(settings) as context, pytest.raises(KeyError):
        context.store(OtherStore)


def test_each_store_has_a_file_of_its_own_and_messages_come_before_what_names_them():
    names = stores.file_names()
    assert len(set(names)) == len(names) == len(stores.STORES) + 1
    assert names[-2:] == ("messages.jsonl", "compactions.jsonl")
    documented = (Path(agent.__file__).parents[1] / "docs" / "files.md").read_text()
    assert [name for name in names if f"\n| `{name}` | " not in documented] == []
