"""Which waiting rows are left to the host that has their conversation, and for how long."""

from types import SimpleNamespace

import pytest

from agent import clock
from agent.daemon.host_affinity import HostAffinity
from agent.plugin_guard import PluginGuard
from agent.taskqueue.row_holder import hostname


def row(**more):
    return SimpleNamespace(
        **{"uuid": "u", "attempt": 1, "llm_call_count": 3, "is_decided": False, "hostname": "elsewhere", **more}
    )


@pytest.fixture
def home(tmp_path):
    queue = SimpleNamespace(home_seconds=120, ledger="postgresql://db.example/makimono")
    return HostAffinity(SimpleNamespace(taskqueue=queue, base_dir=tmp_path, plugin_guard=PluginGuard(tmp_path)))


def test_a_row_of_another_host_is_left_for_a_while_from_its_first_look(home):
    with clock.use(clock.FakeClock()) as fake:
        assert home.seconds_to_wait(row()) == 120
        fake.move(100)
        assert home.seconds_to_wait(row()) == 20
        fake.move(30)
        assert home.seconds_to_wait(row()) == 0
        assert home.seconds_to_wait(row(attempt=2)) == 120, "it went back, and was given back again"


def test_what_is_not_left(home, tmp_path):
    assert home.seconds_to_wait(row(hostname=hostname())) == 0
    assert home.seconds_to_wait(row(hostname=None)) == 0
    assert home.seconds_to_wait(row(llm_call_count=0)) == 0, "nothing was done there"
    assert home.seconds_to_wait(row(is_decided=True)) == 0
    folder = tmp_path / "running" / "u"
    folder.mkdir(parents=True)
    (folder / "messages.jsonl").write_bytes(b"")
    assert home.seconds_to_wait(row()) > 0, "an empty file is no conversation"
    (folder / "messages.jsonl").write_bytes(b"{}\n")
    assert home.seconds_to_wait(row()) == 0, "hosts share the folder"
    (folder / "messages.jsonl").unlink()
    assert home.seconds_to_wait(row()) > 0
    home.settings.taskqueue.ledger = "sqlite"
    assert home.seconds_to_wait(row()) == 0, "this host was called otherwise then"
    home.settings.taskqueue.ledger = "postgresql://db.example/makimono"
    home.settings.taskqueue.home_seconds = 0
    assert home.seconds_to_wait(row()) == 0
