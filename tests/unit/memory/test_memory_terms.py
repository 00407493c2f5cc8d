"""Terms of texts and queries."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.memory.terms import Terms


@pytest.fixture(scope="module")
def terms():
    made = Terms()
    yield made
    made.close()


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("getUserName", ["getusernam", "get", "user", "name"]),
        ("get_user_name", ["getusernam", "get", "user", "name"]),
        ("HTTPServer2 sha256", ["httpserver2", "http", "server2", "sha256"]),
        ("the tests were running", ["test", "run"]),
        ("Größe ÜBER Straße naïve", ["gross", "uber", "strass", "naiv"]),
        ("日本語", ["日", "本", "語", "日本", "本語"]),
        ("ﾃｽﾄ", ["テ", "ス", "ト", "テス", "スト"]),
        ("pytestを使う", ["pytest", "を", "使", "う", "を使", "使う"]),
        ("the of it", ["the", "of", "it"]),
        ("", []),
        ("__ -- ..", []),
    ],
)
def test_a_text_has_these_terms(terms, text, found):
    assert terms(text) == found


def test_a_query_has_pairs_only_and_each_term_once(terms):
    assert terms.of_query("日本語 日本語 tests test") == ["日本", "本語", "test"]
    assert terms.of_query("犬") == ["犬"]


@given(st.text(max_size=80))
def test_a_query_of_a_text_is_covered_by_the_text(text):
    made = Terms()
    indexed = made(text)
    assert set(made.of_query(text)) <= set(indexed) or not indexed
    assert all(term and " " not in term and '"' not in term for term in indexed)
    made.close()


def test_any_text_is_stored_and_found_by_itself(store):
    # The store writes U+FFFD for a character without a meaning (unassigned, private use), so a search has no term of it.
    @given(st.text(st.characters(exclude_categories=("Cs", "Cn", "Co")), min_size=1, max_size=60))
    def stored(text):
        event = store.create_event("a", "s", text)
        if Terms()(text):
            hits = store.search_events(text, "a", top_k=1000)
            assert event in [hit.event_id for hit in hits]

    from hypothesis import settings

    settings(max_examples=60, deadline=None)(stored)()
