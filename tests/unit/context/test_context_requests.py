"""requests.jsonl: one line for every request, the totals over them, and what a kill leaves."""

import os
import signal
import subprocess
import sys
import textwrap
from dataclasses import astuple

import orjson
import pytest

from agent.context import MessageStore, RequestStore, Totals
from agent.errors import DiskError
from agent.values import Usage

CONFIG = {"llm": {"provider": "openai", "openai": {"model": "m", "price": {"input": 1, "cached": 0.5, "output": 10}}}}


def rows(path):
    return [orjson.loads(line) for line in path.read_bytes().splitlines()]


def begin(store, purpose="turn", tokens=900, cost=0.5):
    return store.begin(purpose=purpose, provider="openai", model="m", tokens=tokens, cost=cost)


def test_a_line_is_written_when_the_request_is_over(tmp_path):
    store = RequestStore(tmp_path)
    begun = begin(store)
    assert not (tmp_path / "requests.jsonl").exists()
    assert store.end(begun, status="ok", usage=Usage(100, 20, 5), cost=0.25, first_token_ms=3, duration_ms=9) == 1
    begun = begin(store, "summary")
    error = "model_stalled: it \ud83d stalled"
    assert store.end(begun, status="stalled", usage=Usage(900), estimated_tokens=900, cost=0.5, error=error) == 2
    first, second = rows(tmp_path / "requests.jsonl")
    assert {key: first[key] for key in ("seq", "purpose", "provider", "model", "status", "usage", "error")} == {
        "seq": 1,
        "purpose": "turn",
        "provider": "openai",
        "model": "m",
        "status": "ok",
        "usage": {"prompt_tokens": 100, "completion_tokens": 20, "cached_tokens": 5},
        "error": None,
    }
    assert (first["first_token_ms"], first["duration_ms"], first["estimated"], first["cost"]) == (3, 9, False, 0.25)
    assert (second["purpose"], second["estimated"], second["error"]) == ("summary", True, "model_stalled: it � stalled")
    sums = store.sums()
    assert (sums.count, sums.prompt, sums.completion, sums.estimated, sums.cost) == (2, 1000, 20, 900, 0.75)
    again = RequestStore(tmp_path).sums()
    assert again == sums
    store.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["requests.jsonl"]


def test_the_longest_prompt_that_a_server_took_is_in_the_file(tmp_path):
    store = RequestStore(tmp_path)

    def ended(usage, status="ok", model="m", **more):
        begun = store.begin(purpose="turn", provider="openai", model=model, tokens=900)
        store.end(begun, status=status, usage=usage, **more)

    ended(Usage(900, 20))
    ended(Usage(500, 30), estimated_tokens=30)  # the answer alone was estimated
    ended(Usage(5000, 30), estimated_tokens=5000)
    ended(Usage(4000), status="stalled", estimated_tokens=4000, error="model_stalled (200)")
    ended(Usage(7000, 1), model="other")
    assert store.sums().taken == RequestStore(tmp_path).sums().taken == {"m": 900, "other": 7000}
    ended(Usage(), status="refused", error="context_overflow (400)")
    assert store.sums().taken == {"other": 7000}, "the server takes less now"
    ended(Usage(400, 20))
    assert store.sums().taken == RequestStore(tmp_path).sums().taken == {"m": 400, "other": 7000}


def test_what_was_never_sent_has_no_line_and_two_may_be_under_way(tmp_path):
    store = RequestStore(tmp_path)
    one, two, three = (begin(store, "vote") for _ in range(3))
    store.drop(two)
    store.end(three, status="ok", usage=Usage(1, 1))
    assert (tmp_path / ".requests.begun").stat().st_size > 0
    other = RequestStore(tmp_path)  # of this process, which still waits for the first
    assert not other.repairs
    assert other.sums().count == 1
    store.end(one, status="cancelled", usage=Usage(900), estimated_tokens=900)
    assert (tmp_path / ".requests.begun").stat().st_size == 0
    assert other.sums().count == 2, "what another store of this process wrote is taken in"
    assert [row["seq"] for row in rows(tmp_path / "requests.jsonl")] == [1, 2]


@pytest.mark.parametrize("when", ["begun", "ended"])
def test_a_request_that_a_kill_cut_off_is_closed_once_with_its_estimate(tmp_path, when):
    """Killed between its beginning and its line, or between the line and the removal of the beginning."""
    script = f"""
        import os, signal
        from agent.context import RequestStore
        from agent.values import Usage
        store = RequestStore({str(tmp_path)!r})
        begun = store.begin(purpose="turn", provider="openai", model="m", tokens=0, cost=0)
        store.end(begun, status="ok", usage=Usage(7, 1))
        begun = store.begin(purpose="summary", provider="openai", model="m", tokens=900, cost=0.5)
        if {when!r} == "ended":
            os.ftruncate = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
            store.end(begun, status="ok", usage=Usage(800, 30))
        os.kill(os.getpid(), signal.SIGKILL)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], check=False, cwd=os.getcwd())
    assert done.returncode == -signal.SIGKILL
    store = RequestStore(tmp_path)
    first, second = rows(tmp_path / "requests.jsonl")
    assert first["status"] == "ok"
    if when == "begun":
        assert (second["status"], second["purpose"], second["estimated"], second["cost"]) == (
            "interrupted",
            "summary",
            True,
            0.5,
        )
        assert second["usage"]["prompt_tokens"] == 900
        assert "under way when its process ended" in store.repairs[0]
    else:
        assert (second["status"], store.repairs) == ("ok", [])
    assert not (tmp_path / ".requests.begun").exists()
    assert RequestStore(tmp_path).sums() == store.sums()
    assert store.sums().count == 2


def test_it_is_not_sent_when_its_beginning_cannot_be_written(tmp_path):
    store = RequestStore(tmp_path)
    (tmp_path / ".requests.begun").mkdir()
    with pytest.raises(DiskError):
        begin(store)
    (tmp_path / ".requests.begun").rmdir()
    store.end(begin(store), status="ok", usage=Usage(1, 1))
    assert RequestStore(tmp_path).repairs == []


def test_totals_are_those_of_the_lines_and_of_answers_without_one(tmp_path):
    """A folder of an earlier version has its numbers in messages.jsonl alone; it goes on with lines."""
    store = MessageStore(tmp_path, CONFIG)
    store.add_message("user", "u")
    store.add_message("assistant", "a", usage=Usage(1000, 100, 400))
    store.add_message("user", "u")
    old = Totals(1, 1000, 100, 400, 0, cost=(600 + 400 * 0.5 + 100 * 10) / 1e6, turns=1)
    assert astuple(store.totals()) == astuple(old)
    begun = begin(store.requests, "summary")
    store.requests.end(begun, status="ok", usage=Usage(500, 50), cost=1.0)  # never used
    begun = begin(store.requests)
    seq = store.requests.end(begun, status="ok", usage=Usage(2000, 30), estimated_tokens=30, cost=2.0)
    store.add_message("assistant", "b", usage=Usage(2000, 30), request=seq)
    both = Totals(3, 3500, 180, 400, 0, cost=old.cost + 3.0, turns=2, estimated=30)
    assert astuple(store.totals()) == astuple(both)
    store.close()
    assert astuple(MessageStore(tmp_path, CONFIG).totals()) == astuple(both)
