"""Who builds what, and what it says when it cannot."""

import pytest

from agent import durable_files
from agent.daemon.daemon import Daemon
from agent.errors import ConfigError
from agent.values import TaskKey
from agent.wiring.wiring import Wiring


def test_the_forge_of_a_key_is_the_one_of_its_instance(place):
    here = place()
    assert here.wiring.forge_of(TaskKey.from_mapping(here.key(1))) is here.forge


def test_an_instance_that_is_not_configured_is_named_with_those_that_are(place):
    here = place()
    key = TaskKey.from_mapping(here.key(1) | {"instance": "/elsewhere"})
    with pytest.raises(ConfigError, match="/elsewhere") as error:
        here.wiring.forge_of(key)
    assert here.forge.instance in str(error.value)


def test_a_daemon_whose_configuration_is_wrong_has_neither_started_nor_stopped(place):
    here = place("task_sources: [local, github]\n")
    with pytest.raises(ConfigError, match=r"github\.token is not set"):
        Daemon(here.settings, here.events).run(once=True)
    assert here.said == []


def test_connections_are_opened_when_they_are_needed_and_closed_once(place):
    here = place()
    other = Wiring(here.settings, events=here.events)
    other.close()
    assert not (here.settings.base_dir / "tasks.db").exists()
    other.ledger.list()
    other.close()


def test_slow_writes_are_announced_after_a_thread_has_closed_its_own_wiring(place, tmp_path, monkeypatch):
    """Each thread that polls opens and closes a `Wiring`; the daemon's own has to report slow writes afterwards too."""
    here = place()
    monkeypatch.setattr(durable_files, "SLOW", 0.0)
    Wiring(here.settings, events=here.events).close()
    durable_files.write_file(tmp_path / "a", b"x")
    assert here.named("disk_slow")
