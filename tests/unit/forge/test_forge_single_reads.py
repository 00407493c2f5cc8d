"""Scopes in which a thread reads from a forge once."""

import threading

import pytest
from forges.forgejo_place import ForgejoPlace
from forges.github_place import GitHubPlace
from forges.gitlab_place import GitLabPlace

from agent.forge.base import ForgeReports
from agent.forge.etag_cache import HttpAnswer
from agent.forge.single_reads import SingleReads


def test_outside_a_scope_nothing_is_stored():
    reads = SingleReads()
    reads.put("GET", "/a", None, HttpAnswer(200, data=1))
    assert reads.find("GET", "/a", None) is None


def test_in_a_scope_a_read_has_its_earlier_answer_until_a_change_and_only_in_its_thread():
    reads, others = SingleReads(), []
    with reads.scope():
        reads.put("GET", "/a", {"page": 1}, HttpAnswer(200, data=1))
        reads.put("POST", "/b", None, HttpAnswer(201, data=2))
        with reads.scope():
            assert reads.find("GET", "/a", {"page": 1}) == HttpAnswer(200, data=1)
        assert reads.find("GET", "/a", {"page": 2}) is None
        assert reads.find("GET", "/b", None) is None
        thread = threading.Thread(target=lambda: others.append(reads.find("GET", "/a", {"page": 1})))
        thread.start()
        thread.join()
        assert reads.find("PATCH", "/c", None) is None
        assert reads.find("GET", "/a", {"page": 1}) is None
        reads.put("GET", "/a", {"page": 1}, HttpAnswer(200, data=3))
    assert others == [None]
    assert reads.find("GET", "/a", {"page": 1}) is None


def test_an_item_of_a_list_is_not_the_answer_to_a_read_of_its_own_address():
    reads = SingleReads()
    reads.put_item("/a", {"number": 1})
    assert reads.item("/a") is None
    with reads.scope():
        reads.put_item("/a", {"number": 1})
        assert reads.item("/a") == {"number": 1}
        assert reads.find("GET", "/a", None) is None
        reads.find("PATCH", "/a", None)
        assert reads.item("/a") is None


@pytest.mark.parametrize("kind", [GitHubPlace, GitLabPlace, ForgejoPlace])
def test_an_adapter_reads_an_issue_once_in_a_scope_and_sees_its_own_change(tmp_path, kind):
    place = kind(tmp_path)
    try:
        key = place.issue("A bug")
        place.forge.read_issue(key)
        with ForgeReports(place.forge).single_reads():
            place.forge.read_issue(key)
            before = len(place.server.journal)
            assert place.forge.read_issue(key).title == "A bug"
            assert len(place.server.journal) == before
            place.forge.move_label(key, "processing")
            assert "coding agent processing" in place.forge.read_issue(key).labels
        before = len(place.server.journal)
        place.forge.read_issue(key)
        assert len(place.server.journal) > before
    finally:
        place.close()
