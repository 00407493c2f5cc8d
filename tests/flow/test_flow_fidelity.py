"""`scripts/bench fidelity` measures what it says: a run of it plants all facts, and its servers are real ones."""

import itertools
import sys
from pathlib import Path

import pytest
from length import either

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

from benchmarks import fidelity, fidelity_facts, fidelity_play, fidelity_summaries  # noqa: E402
from benchmarks.fidelity_facts import FACTS  # noqa: E402


def test_a_fact_stands_in_no_other_fact_and_in_no_filler():
    for one, other in itertools.permutations(FACTS, 2):
        assert not one.is_in(other.text)
    for number in range(600):
        step = fidelity_play.filler(number, 20)
        assert fidelity_facts.found([step.text, step.says, list(step.calls)]) == ()
    parts = [text for path, text in fidelity_facts.repository().items() if "part" in path]
    assert fidelity_facts.found(parts) == ()


@pytest.mark.parametrize("wire", either(["ollama", "anthropic"], fidelity.WIRES))
def test_every_fact_is_planted_and_the_task_lives_to_its_end(wire, monkeypatch):
    monkeypatch.setattr(fidelity, "AFTER", (1, 2))
    seen = fidelity.run(fidelity.Cell(16_384, "honest", wire, scale=4))
    assert seen.end == "completed"
    assert seen.refused == 0
    assert len(seen.there[0]) == len(FACTS)
    assert sum(seen.how[name] for name in fidelity.CUTTING) >= 2
    assert set(seen.there) == {0, 1, 2}


def test_the_honest_summariser_keeps_to_headings_and_length():
    rest = "".join(f"A line of filler work, the {number}th of them, says nothing.\n" for number in range(400))
    text = (
        "Summarise the messages, with at most 700 tokens.\n1. Decisions\n2. Problems\n3. Remaining tasks\n"
        f"=== messages ===\n{rest}[USER]: use {FACTS[1].text}\n[TOOL]: {FACTS[15].text}\\nand more\n"
    )
    said = fidelity_summaries.honest(text, 2_000).text
    assert [line for line in said.splitlines() if line[:2] in ("1.", "2.", "3.")] == [
        "1. Decisions",
        "2. Problems",
        "3. Remaining tasks",
    ]
    assert FACTS[1].text in said.split("2. Problems", maxsplit=1)[0]
    assert FACTS[15].text in said.split("2. Problems")[1].split("3. Remaining")[0]
    assert fidelity_summaries.vocabulary.count(said) <= 700
    assert FACTS[1].text not in fidelity_summaries.written(text, 2_000, [FACTS[15]])


def test_a_file_is_found_where_its_folder_is_named_once_and_not_in_another_folder():
    [fact] = [fact for fact in FACTS if fact.text == "src/dugong_parse.py"]
    for text in ("read src/dugong_parse.py", "- src/: part0.py, dugong_parse.py, part1.py", "src/: dugong_parse.py"):
        assert fact.is_in(text)
    for text in (
        "dugong_parse.py",
        "lib/: dugong_parse.py",
        "src/: part0.py\ndugong_parse.py",
        "src/: my_dugong_parse.py",
    ):
        assert not fact.is_in(text)
