"""Embeddings by a plug-in: the vectors of this file are counts of hashed n-grams of letters."""

import sys
import zlib
from importlib import import_module

import pytest

from agent.config import settings_of
from agent.config.plug_ins import plug_ins_of
from agent.errors import ConfigError, MemoryUnavailable
from agent.memory import MemoryStore, Selector

ACTOR = "local--repos--shop"
SIZE = 256
NS = f"/facts/{ACTOR}/"


class Imports:
    """Imports any plug-in, as `plugin_guard` does one that is pinned."""

    def load(self, kind, target):
        module, _, name = target.partition(":")
        try:
            return getattr(import_module(module), name)
        except ImportError as error:
            raise ConfigError(f"{kind}: {target} cannot be loaded: {error}") from error


class Ngrams:
    """Words with a common beginning or spelling are near each other."""

    name = "ngrams-3"
    asked: list[list[str]] = []  # noqa: RUF012 - the test looks at the calls of every instance

    def __call__(self, texts):
        self.asked.append(list(texts))
        return [self.vector(text.lower()) for text in texts]

    def vector(self, text):
        found = [0.0] * SIZE
        for word in text.split():
            for at in range(len(word)):
                found[zlib.crc32(f" {word} "[at : at + 3].encode()) % SIZE] += 1
        return found


class Other(Ngrams):
    name = "ngrams-4"


class Broken:
    name = "broken"

    def __call__(self, texts):
        raise ZeroDivisionError("no model")


class Few(Ngrams):
    name = "few"

    def __call__(self, texts):
        return super().__call__(texts)[1:]


@pytest.fixture(autouse=True)
def nothing_asked():
    Ngrams.asked.clear()


@pytest.fixture
def open_with(store):
    made = []

    def make(plugin):
        config = store.config.model_copy(update={"embeddings": plugin})
        made.append(MemoryStore(store.base_dir, config, guard=Imports()))
        return made[-1]

    yield make
    for one in made:
        one.close()


def add(store, *texts):
    return [store.create_memory_record(NS, text, strategy="facts") for text in texts]


def found(store, query, **more):
    return [hit.record.text for hit in store.retrieve_memory_records(query, NS, **more)]


TEXTS = ("Colourful receipts need toner.", "The menu is in French.", "Guests pay at the table.")


def test_a_record_without_a_common_word_is_found_by_its_vector(store, open_with):
    add(store, *TEXTS)
    assert found(store, "tonerless", relevance_score=0.0) == []
    memory = open_with(f"{__name__}:Ngrams")
    assert found(memory, "tonerless", relevance_score=0.0) == [], "it has no vectors yet"
    assert memory.fill_vectors() == 3
    assert memory.fill_vectors() == 0
    assert found(memory, "tonerless", relevance_score=0.2)[0] == TEXTS[0]
    [hit, *_] = memory.retrieve_memory_records("tonerless", NS, relevance_score=0.0)
    assert 0.2 < hit.score < 1
    assert found(store, "tonerless", relevance_score=0.0) == []


def test_the_words_still_count_and_a_full_match_is_the_best(store, open_with):
    add(store, *TEXTS)
    memory = open_with(f"{__name__}:Ngrams")
    memory.fill_vectors()
    [first, *_] = memory.retrieve_memory_records("guests pay at the table", NS, relevance_score=0.0)
    assert (first.record.text, first.score) == (TEXTS[2], 1.0)
    assert found(memory, "guests pay at the table", relevance_score=1.0) == [TEXTS[2]]


def test_a_record_that_ends_while_its_vector_is_computed_gets_none(store, open_with, monkeypatch):
    wish, fact, _ = add(store, *TEXTS)
    memory = open_with(f"{__name__}:Ngrams")
    compute = Ngrams.__call__

    def slow(model, texts):
        store.forget(Selector(ids=(wish.id,)), dry_run=False)
        store.invalidate(fact.id, "gone")
        return compute(model, texts)

    with monkeypatch.context() as patch:
        patch.setattr(Ngrams, "__call__", slow)
        memory.fill_vectors()
    assert memory._open.database.execute("SELECT COUNT(*) AS n FROM memory_vectors")[0]["n"] == 1


def test_another_model_has_vectors_of_its_own_and_ended_records_have_none(store, open_with):
    first, *_ = add(store, *TEXTS)
    memory, other = open_with(f"{__name__}:Ngrams"), open_with(f"{__name__}:Other")
    memory.fill_vectors()
    assert found(other, "tonerless", relevance_score=0.0) == []
    store.invalidate(first.id, "gone")
    assert other.fill_vectors() == 2
    count = "SELECT COUNT(*) AS n FROM memory_vectors"
    assert other._open.database.execute(count)[0]["n"] == 2
    assert found(other, "tonerless", relevance_score=0.0) != [TEXTS[0]]


@pytest.mark.parametrize(
    ("plugin", "why"),
    [
        (f"{__name__}:Broken", "ZeroDivisionError: no model"),
        (f"{__name__}:Few", "0 vectors for 1 texts"),
        ("no_such_package:Model", "cannot be loaded"),
    ],
)
def test_a_plug_in_that_fails_is_an_error_of_memory_with_its_name(store, open_with, plugin, why):
    add(store, *TEXTS)
    memory = open_with(plugin)
    with pytest.raises(MemoryUnavailable, match=f"memory.embeddings.*{why}"):
        memory.retrieve("the menu", ACTOR)


def test_a_plug_in_is_imported_by_the_guard_alone(store):
    add(store, *TEXTS)
    config = store.config.model_copy(update={"embeddings": f"{__name__}:Ngrams"})
    with pytest.raises(MemoryUnavailable, match="is not known"):
        MemoryStore(store.base_dir, config).retrieve("the menu", ACTOR)


def test_the_plug_in_is_one_that_must_be_pinned():
    llm = {"provider": "openai", "openai": {"model": "m", "api_key": "k", "context_length": 8192}}
    named = settings_of({"llm": llm, "memory": {"embeddings": "my_package.models:Model"}})
    assert plug_ins_of(named) == [("memory.embeddings", "my_package.models:Model")]
    assert plug_ins_of(settings_of({"llm": llm})) == []


def test_none_imports_and_asks_nothing(store):
    before = set(sys.modules)  # tests of this process may have imported anything
    add(store, *TEXTS)
    assert store.config.embeddings == "none"
    assert store.fill_vectors() == 0
    assert found(store, "menu in french") == [TEXTS[1]]
    assert Ngrams.asked == []
    assert not {"numpy", "onnxruntime", "wordllama"} & (set(sys.modules) - before)


def test_what_is_forgotten_has_no_vector(store, open_with):
    add(store, *TEXTS)
    memory = open_with(f"{__name__}:Ngrams")
    memory.fill_vectors()
    memory.forget(Selector(match="toner"), dry_run=False)
    assert memory._open.database.execute("SELECT COUNT(*) AS n FROM memory_vectors")[0]["n"] == 2


def test_a_plug_in_that_takes_long_keeps_no_other_process_from_forgetting(store, open_with, monkeypatch):
    add(store, *TEXTS)
    memory = open_with(f"{__name__}:Ngrams")
    memory.fill_vectors()
    vector, forgotten = Ngrams.vector, []

    def meanwhile(self, text):
        forgotten.append(store.forget(Selector(match="toner"), dry_run=False))
        return vector(self, text)

    monkeypatch.setattr("agent.memory.purge.PATIENCE", 0.0)
    monkeypatch.setattr(Ngrams, "vector", meanwhile)
    assert TEXTS[0] not in found(memory, "tonerless", relevance_score=0.0)
    assert [(len(one.records), one.remains) for one in forgotten] == [(1, ())]
