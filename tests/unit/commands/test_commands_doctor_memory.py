"""What `doctor` says of long-term memory where hosts share its log."""

from contextlib import closing

import pytest
import services
from run_home import Place
from shared_memory import host

from agent.commands.doctor_memory import findings
from agent.memory import MemoryStore


@pytest.fixture
def here(tmp_path):
    with services.schema(tmp_path) as address:
        made = Place(tmp_path, f"taskqueue: {{ledger: '{address}'}}\n")
        made.address = address
        yield made
        made.close()


def said(here):
    return [(state, text) for state, text, _ in findings(here.settings)]


def test_it_says_where_the_log_is_and_how_far_this_host_is_behind(here, tmp_path):
    state, text = said(here)[0]
    assert (state, "has not followed the log of postgresql://" in text) == ("ok", True)
    assert not (here.settings.base_dir / "memory.db").exists(), "it changes nothing"
    with closing(MemoryStore(here.settings.base_dir, here.settings.memory)) as alone:
        alone.create_event("o", "s", "before the ledger was shared")
    state, text = said(here)[0]
    assert (state, "has entries that the log of postgresql://" in text) == ("ok", True)
    with closing(host(here.settings.base_dir, here.address)) as own:
        own.follow()
    assert said(here)[0][1].endswith("has 1 entries; this host is 0 behind")
    with closing(host(tmp_path / "other", here.address)) as other:
        other.create_event("o", "s", "on another host")
    assert said(here)[0][1].endswith("has 2 entries; this host is 1 behind")


def test_a_server_that_is_away_is_a_warning_and_the_rest_is_still_said(here):
    with closing(host(here.settings.base_dir, here.address)) as own:
        own.create_event("o", "s", "one")
    queue = here.settings.taskqueue.model_copy(update={"ledger": here.address.replace(":5432", ":1")})
    here.settings = here.settings.model_copy(update={"taskqueue": queue})
    (state, text), (_, rest) = said(here)
    assert (state, "shared log of memory cannot be used" in text) == ("warn", True)
    assert "1 events" in rest
