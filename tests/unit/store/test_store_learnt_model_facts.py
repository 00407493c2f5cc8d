"""What was learnt about models: kept, replaced, forgotten, passed over when it is old or broken."""

from datetime import UTC, datetime, timedelta

import pytest

from agent import clock
from agent.store.db import open_tasks
from agent.store.learnt_model_facts import LASTS, LearntModels


@pytest.fixture
def learnt(tmp_path):
    database = open_tasks(tmp_path)
    yield LearntModels(database)
    database.close()


def test_facts_are_kept_by_server_and_model_and_replaced(learnt):
    learnt.put("http://a", "m", {"dropped": ["stream_options"]})
    learnt.put("http://a", "n", {"alternate": True})
    learnt.put("http://a", "m", {"most_output": 4096})
    assert learnt.get("http://a", "m") == {"most_output": 4096}
    assert learnt.get("http://a", "n") == {"alternate": True}
    assert learnt.get("http://b", "m") == {}


def test_nothing_learnt_removes_the_row_and_everything_can_be_forgotten(learnt):
    learnt.put("http://a", "m", {"alternate": True})
    learnt.put("http://a", "m", {})
    assert learnt.get("http://a", "m") == {}
    learnt.put("http://a", "m", {"alternate": True})
    learnt.forget_all()
    assert learnt.get("http://a", "m") == {}


def test_old_facts_are_passed_over(learnt):
    with clock.use(clock.FakeClock()):
        learnt.put("http://a", "m", {"alternate": True})
        clock.sleep((LASTS - timedelta(hours=1)).total_seconds())
        assert learnt.get("http://a", "m") == {"alternate": True}
        clock.sleep(7200)
        assert learnt.get("http://a", "m") == {}


@pytest.mark.parametrize(("facts", "when"), [("{", None), ("[]", None), ('{"a": 1}', "yesterday"), ("null", None)])
def test_what_a_person_broke_is_passed_over(learnt, facts, when):
    stamp = when or datetime.now(UTC).isoformat()
    learnt.database.run("learnt_put", server="http://a", model="m", facts=facts, now=stamp)
    assert learnt.get("http://a", "m") == {}
