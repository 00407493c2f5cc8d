"""Namespaces, actors and templates."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.errors import UsageError
from agent.memory.namespaces import (
    actor_in,
    actor_name,
    actor_of,
    check_name,
    check_namespace,
    expand,
    of_actor,
    of_session,
    scope,
    session_of,
    span,
)

part = st.text("ab2-_.0/"[:7], min_size=1, max_size=3).filter(lambda text: text not in (".", ".."))
namespaces = st.lists(part, max_size=3).map(lambda parts: f"/{''.join(f'{one}/' for one in parts)}")


@given(namespaces, namespaces)
def test_a_range_holds_just_what_begins_with_the_prefix(prefix, namespace):
    first, end = span(prefix)
    assert (first <= namespace < end) == namespace.startswith(prefix)


def test_a_never_meets_a2(store):
    first, end = span("/actors/a/")
    assert not first <= "/actors/a2/" < end
    assert not first <= "/actors/a2/s/" < end
    assert first <= "/actors/a/s/" < end


def test_the_default_actor_is_host_owner_and_repository():
    template = "{instance}/{owner}/{repo}"
    assert actor_of(template, instance="github.com", owner="me", repo="a.b") == "github.com--me--a.b"
    assert actor_of("tonari-owner", instance="github.com", owner="me", repo="x") == "tonari-owner"
    assert check_name(actor_of(template, instance="", owner="", repo=""), "actor")


def test_two_repositories_never_have_one_actor():
    template = "{instance}/{owner}/{repo}"
    named = [
        ("gitlab.com", "acme/web", "x"),
        ("gitlab.com", "acme-web", "x"),
        ("gitlab.com", "acme--web", "x"),
        ("gitlab.com", "acme", "web--x"),
        ("gitlab.com", "-acme-web", "x"),
        ("gitlab.com:8443", "acme-web", "x"),
        ("gitlab.com-8443", "acme-web", "x"),
        ("gitlab.com", "仕事", "x"),
        ("gitlab.com", "個人", "x"),
        ("gitlab.com", "e\u0301", "x"),
        ("gitlab.com", "\u00e9", "x"),
        ("gitlab.com", "..", "x"),
        ("gitlab.com", ".", "x"),
        ("gitlab.com", "acme-web", "x--confidential"),
        ("gitlab.com", "a" * 300, "x"),
        ("gitlab.com", "a" * 300, "y"),
    ]
    actors = [actor_of(template, instance=i, owner=o, repo=r) for i, o, r in named]
    actors += [actor_name(one, "confidential") for one in actors]
    assert len(set(actors)) == len(actors)
    assert [one for one in actors if len(one) > 255 or not check_name(one, "actor")] == []
    assert actors[1] == "gitlab.com--acme-web--x"


@pytest.mark.parametrize("bad", ["/actors/../a/", "/./", "/../", "/a/./b/"])
def test_a_part_of_dots_alone_is_no_namespace(bad):
    with pytest.raises(UsageError):
        check_namespace(bad)
    with pytest.raises(UsageError):
        check_name(bad.strip("/").split("/")[-1].replace("a", "..").replace("b", "."), "actor")


def test_a_template_without_a_session_is_its_part_above():
    assert expand("/episodes/{actorId}/{sessionId}/", "a") == "/episodes/a/"
    assert expand("/episodes/{actorId}/{sessionId}/", "a", "s") == "/episodes/a/s/"
    with pytest.raises(UsageError):
        expand("/episodes/{actorId}/", "a/../b")


def test_the_session_and_the_scope_of_a_namespace():
    assert (session_of("/episodes/a/s/"), session_of("/facts/a/")) == ("s", "")
    assert (scope("/episodes/a/s/"), scope("/facts/a/"), scope("/x/"), scope("/")) == (
        "/episodes/a/",
        "/facts/a/",
        "/x/",
        "/",
    )


def test_the_namespaces_of_actors_and_sessions_say_both_again_and_are_those_of_the_templates():
    own, below = of_actor("facts", "a-1"), of_session("episodes", "a-1", "s.2")
    assert (own, below) == ("/facts/a-1/", "/episodes/a-1/s.2/")
    assert (actor_in(own), session_of(own)) == ("a-1", "")
    assert (actor_in(below), session_of(below)) == ("a-1", "s.2")
    assert below == expand("/episodes/{actorId}/{sessionId}/", "a-1", "s.2")
    assert actor_in("/") == actor_in("/facts/") == ""
    for bad in (lambda: of_actor("facts", "a/b"), lambda: of_session("facts", "a", ""), lambda: of_actor("", "a")):
        with pytest.raises(UsageError):
            bad()
