"""Facts about accounts that the daemon and its workers share."""

import os

import pytest
from forges.forgejo_place import ForgejoPlace
from forges.github_place import GitHubPlace
from forges.gitlab_place import GitLabPlace

from agent import clock
from agent.forge.host_facts_cache import MOST, HostFactsCache
from agent.forge.rate_limiter import RateLimiter, known_limits
from agent.forge.refused_changes import RefusedChanges


@pytest.fixture
def facts(tmp_path):
    return lambda account="token": HostFactsCache(tmp_path / "limits", "api.example.org:8080", lambda: account)


def test_a_fact_of_one_process_is_known_to_another_for_ten_minutes(facts):
    with clock.use(clock.FakeClock()) as time:
        facts().put("a may write", value=False)
        time.move(599)
        other = facts()
        assert other.find("a may write") is False
        other.put("b may write", value=True)
        time.move(2)
        assert other.find("a may write") is None, "a fact does not become younger by being read"
        assert facts().find("b may write") is True


def test_another_account_has_facts_of_its_own_and_no_token_is_written(facts):
    facts("token-one").put("/user", {"login": "makimono"})
    assert facts("token-two").find("/user") is None
    assert facts("token-one").find("/user") == {"login": "makimono"}
    assert "token-one" not in facts().path.read_text()


@pytest.mark.parametrize("content", ["", "{", "[]", '{"a": 1}', '{"a": [1]}', '{"a": ["x", 1]}', '{"a": [1e12, null]}'])
def test_a_file_that_cannot_be_read_counts_as_empty(facts, content):
    here = facts()
    here.folder.mkdir()
    here.path.write_text(content)
    assert here.find("a") is None
    here.put("a", value=1)
    assert facts().find("a") == 1


def test_an_unchanged_file_is_parsed_once_and_a_changed_one_again(facts):
    facts().put("a", value=1)
    here = facts()
    assert here.find("a") == 1
    state, text = here.path.stat(), here.path.read_text()
    here.path.write_text(text.replace(",1]", ",2]"))
    os.utime(here.path, ns=(state.st_atime_ns, state.st_mtime_ns))
    assert here.find("a") == 1
    os.utime(here.path, ns=(state.st_atime_ns, state.st_mtime_ns + 1))
    assert here.find("a") == 2


def test_a_fact_that_is_dropped_is_asked_for_again_by_all(facts):
    here = facts()
    here.put("a", value=1)
    here.put("b", value=2)
    other = facts()
    other.drop("a")
    assert (other.find("a"), facts().find("a"), facts().find("b")) == (None, None, 2)
    other.drop("a")


def test_what_cannot_be_written_is_remembered_by_its_process(facts):
    here = facts()
    here.folder.write_text("a file in the place of the folder")
    here.put("a", value=1)
    assert here.find("a") == 1
    assert facts().find("a") is None


def test_the_oldest_facts_leave_the_file_first(facts):
    with clock.use(clock.FakeClock()) as time:
        here = facts()
        here.put("first", value=1)
        time.move(1)
        here.path.write_text(
            here.path.read_text()[:-1]
            + "".join(f',"{here._key(str(number))}":[{clock.now().timestamp()},1]' for number in range(MOST - 1))
            + "}"
        )
        here.put("last", value=1)
        assert facts().find("first") is None
        assert facts().find("0") == facts().find("last") == 1


@pytest.mark.parametrize("kind", [GitHubPlace, GitLabPlace, ForgejoPlace])
def test_a_worker_does_not_ask_again_who_it_is_and_who_may_ask(tmp_path, kind):
    place = kind(tmp_path)
    try:
        key = place.issue("A bug")
        (task,) = place.forge.task_getter().get_task_list()
        task.confirm()
        place.forge.own_names()
        before = len(place.server.journal)
        worker = place.again()
        assert worker.own_names()
        worker.author_may_ask(key)
        asked = [
            " ".join(map(str, one.values() if isinstance(one, dict) else one)) for one in place.server.journal[before:]
        ]
        assert len(asked) == 1, asked  # the issue
    finally:
        place.close()


def test_a_host_is_shown_once_whatever_else_is_stored_of_it(facts):
    here = facts()
    here.put("a", value=1)
    RefusedChanges(here.folder, "api.example.org:8080").note("acme/web", "acme/web#1", "403")
    RateLimiter(here.folder, "api.example.org:8080").note_budget("core", remaining=1, limit=2, reset_in=60)
    assert {path.name for path in here.folder.glob("*.json")} == {
        f"api.example.org_8080{end}.json" for end in ("", ".facts", ".refused")
    }
    assert list(known_limits(here.folder)) == ["api.example.org_8080"]
