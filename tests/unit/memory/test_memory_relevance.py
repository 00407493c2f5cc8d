"""Which records an issue leads to: short records against long queries."""

import pytest
from recall_cases import ENGINE, FORM, SHOP

from agent.memory import RetrievalConfig
from agent.memory.containment import COMMON_WORDS, PARTIAL, Containment
from agent.memory.terms import Terms

ACTOR = "local--repos--shop"
UNITTEST = "Use unittest, not pytest."


def fill(store, preferences, facts):
    """Store the records; returns id → name."""
    names = {}
    for strategy, texts in (("preferences", preferences), ("facts", facts)):
        for name, text in texts.items():
            made = store.create_memory_record(f"/{strategy}/{ACTOR}/", text, strategy=strategy, title="An issue")
            names[made.id] = name
    return names


@pytest.mark.parametrize(("cases", "least", "most"), [(SHOP, 0.75, 8), (ENGINE, 0.4, 4)], ids=["shop", "engine"])
def test_issues_lead_to_the_records_that_a_colleague_would_name_and_to_few_others(store, cases, least, most):
    preferences, facts, issues = cases
    names = fill(store, preferences, facts)
    wanted = found = wrong = 0
    for title, body, relevant in issues:
        hits = {names[hit.record.id] for hit in store.retrieve(f"{title}\n\n{body}", ACTOR)}
        wanted, found, wrong = wanted + len(relevant), found + len(hits & relevant), wrong + len(hits - relevant)
    assert found / wanted >= least
    assert wrong <= most


def test_a_preference_about_tests_is_found_for_an_issue_that_asks_for_a_test(store):
    fill(store, {"unittest": UNITTEST, "css": "CSS classes follow BEM."}, {})
    query = f"The parser fails on empty input\n\nPlease add a test.{FORM}"
    hits = store.retrieve(query, ACTOR)
    assert [hit.record.text for hit in hits] == [UNITTEST]
    assert 0.5 <= hits[0].score < 1


def share(text, query, counts=None, total=10):
    terms = Terms()
    found = Containment(query, terms, counts or {}, total, frozenset(terms(COMMON_WORDS)))(text)
    terms.close()
    return found


def test_a_record_that_the_query_contains_wholly_is_not_a_full_match_of_the_query():
    text = "The login session expires after thirty minutes."
    assert share(text, f"{text} And more.") == PARTIAL
    assert share(text, "Nothing of the kind.") == 0


def test_common_words_count_little_and_words_of_the_title_more():
    text = "Add a new file for each importer of the warehouse."
    assert share(text, "add a new file") < 0.4
    assert share(text, "Importer\n\nIt stops.") > share(text, "It stops.\n\nThe importer, that is.") > 0.2


def test_a_rare_word_tells_more_than_one_that_many_records_have():
    text = "The importer runs on the host batch."
    assert share(text, "The importer", {"import": 1}, 100) > share(text, "The importer", {"import": 90}, 100)


def test_a_word_of_two_is_no_match_and_a_long_record_is_measured_by_coverage_alone():
    assert share("Use tabs.", "the tabs of the browser") <= 0.5
    assert share(" ".join(f"w{number}x" for number in range(40)), "w1x w2x w3x w4x w5x") == 0


def test_the_beginning_or_end_of_a_long_word_counts_in_part():
    assert share(UNITTEST, "Add a test") > 0.5
    assert share("Use unitless numbers.", "add a test") < 0.2


def test_japanese_counts_words_and_not_the_grammar_between_them():
    text = "金額の計算には浮動小数点ではなくDecimalを使う。"
    assert share(text, "税込金額の計算で合計がずれる") > 0.4
    assert share(text, "ではなくにはを使う") < 0.3
    assert share("マイグレーションは戻せるように書く。", "アプリケーションが真っ白になる") < 0.2


def test_relevance_limits_mean_what_they_meant(store):
    fill(store, {"unittest": UNITTEST, "css": "CSS classes follow BEM."}, {})
    namespace = f"/preferences/{ACTOR}/"
    every = store.retrieve_memory_records("unittest and bem classes in css", namespace, relevance_score=0)
    assert len(every) == 2
    full = store.retrieve_memory_records("unittest pytest", namespace, relevance_score=1)
    assert [hit.record.text for hit in full] == [UNITTEST]
    assert store.retrieve_memory_records("the unittest of pytest and more words", namespace, relevance_score=1) == []
    config = {"/preferences/{actorId}/": RetrievalConfig(5, 0.0)}
    assert store.retrieve("zebra", ACTOR, retrieval_config=config) == []
