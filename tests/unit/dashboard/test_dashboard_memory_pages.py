"""The pages of long-term memory: list, search, and a record with what it was made of."""

import re
from contextlib import closing

import pytest
from cli_home import DONE, Home
from page_home import served

from agent.config import load
from agent.wiring.memory import open_memory

HOSTILE = "<script>alert(1)</script>\x1b[2J\u202e"
FACTS = "/facts/local--a--b/"


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    made = Home(tmp_path_factory.mktemp("home"))
    made.config.write_text(made.config.read_text() + "memory: {enabled: true}\n")
    settings = load(made.config, environ={})
    with closing(open_memory(settings, "test")) as store:
        event = store.create_event("local--a--b", DONE, f"We round half up. {HOSTILE}", source="issue")
        more = {"strategy": "facts", "event_ids": [event]}
        made.old = store.create_memory_record(FACTS, "Prices are rounded down.", title="Rounding", **more)
        made.new = store.create_memory_record(
            FACTS, f"Prices are rounded half up. {HOSTILE}", title=HOSTILE, supersedes=[made.old.id], **more
        )
        for number in range(60):
            store.create_memory_record(
                "/facts/local--c--d/", f"Module number{number} reads file{number}.", strategy="facts"
            )
    return made


@pytest.fixture(scope="module")
def page(home):
    with served(load(home.config, environ={})) as found:
        yield found


def test_the_list_has_pages_and_filters(page):
    first = page.json("/memory")
    assert (first["exists"], first["events"], len(first["records"])) == (True, 1, 50)
    rest = page.json(f"/memory?after={first['next']}")
    assert len({one["id"] for one in (*first["records"], *rest["records"])}) == 62
    assert rest["next"] == ""
    assert [one["status"] for one in page.json(f"/memory?namespace={FACTS}&status=superseded")["records"]] == [
        "superseded"
    ]
    assert len(page.json(f"/memory?namespace={FACTS}&strategy=facts")["records"]) == 2
    assert page.json(f"/memory?namespace={FACTS}&strategy=episodes")["records"] == []
    assert page.get("/memory?namespace=/%00%/").status == 400
    assert page.get("/memory?text=%00").status == 200
    for query in ("namespace=nonsense", "status=nonsense", "after=mem-none", "strategy=x"):
        assert page.get(f"/memory?{query}").status == 400


def test_the_search_finds_by_text_and_shows_the_relevance(page, home):
    found = page.json("/memory?text=are+prices+rounded")["records"]
    assert found[0]["id"] == home.new.id
    assert 0 < found[0]["score"] <= 1
    assert "Relevance" in page.get("/memory?text=are+prices+rounded").text


def test_a_record_shows_its_sources_and_its_history(page, home):
    shown = page.json(f"/memory/{home.old.id}")
    assert (shown["record"]["status"], shown["record"]["superseded_by"]) == ("superseded", home.new.id)
    assert shown["events"][0]["session_id"] == DONE
    assert shown["history"][0]["operation"] == "created"
    text = page.get(f"/memory/{home.old.id}").text
    assert f'href="/memory/{home.new.id}"' in text
    assert f'href="/tasks/{DONE}"' in text


def test_texts_of_memory_are_texts(page, home):
    for path in ("/memory", f"/memory/{home.new.id}", "/memory?text=prices"):
        text = page.get(path).text
        assert "<script>alert" not in text
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e]", text)
    assert "&lt;script&gt;" in page.get(f"/memory/{home.new.id}").text


def test_a_damaged_memory_is_said(tmp_path):
    home = Home(tmp_path / "h")
    settings = home.settings
    settings.base_dir.mkdir(exist_ok=True)
    (settings.base_dir / "memory.db").write_bytes(b"nonsense" * 2000)
    with served(settings) as page:
        answer = page.get("/memory", Accept="application/json")
        assert answer.status == 503
        assert "memory.db" in answer.json["problems"][0]
