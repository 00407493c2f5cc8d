"""README and the other top-level documents name only what there is, and show what really happens."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from agent import __version__
from agent.cli import docs_page
from agent.config import settings_of
from scripts import write_docs
from scripts.measures.house import PATH_LINES, House

ROOT = Path(__file__).resolve().parents[2]
TOP = ("README.md", "ARCHITECTURE.md", "AGENTS.md")
OF_TESTS = ("README.md", "crash/README.md", "specs/README.md")
MEASURED = {"docs/bench.md"}
"""Made by `scripts/bench` from a measurement on the machine of a release."""
MADE = {Path(name).name for name in write_docs.PAGES}


def text(name):
    return (ROOT / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", TOP)
def test_commands_that_are_named_exist(name):
    known = {command.split()[0] for command, _ in docs_page.commands()}
    assert set(re.findall(r"main\.py ([a-z]+)\b", text(name))) - known == set()


@pytest.mark.parametrize("name", TOP)
def test_links_lead_somewhere(name):
    links = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", text(name))
    there = {link for link in links if "://" in link or (ROOT / link).exists()}
    assert set(links) - there - MEASURED == set()


@pytest.mark.parametrize("name", TOP)
def test_pages_and_scripts_that_are_named_exist(name):
    named = set(re.findall(r"`((?:docs|scripts)/[\w./-]+)[ `]", text(name)))
    assert {path for path in named if not (ROOT / path).exists()} - MEASURED == set()


def test_the_index_has_one_line_for_each_page():
    index = ROOT / "docs" / "index.md"
    linked = re.findall(r"(?m)^\| \[[^\]]+\]\(([^)]+)\) \| [^|]+ \|$", index.read_text(encoding="utf-8"))
    pages = [path.relative_to(index.parent).as_posix() for path in index.parent.rglob("*.md") if path != index]
    assert sorted(linked) == sorted([*pages, "../ARCHITECTURE.md"])


def test_the_index_is_linked_from_the_readme():
    assert "](docs/index.md)" in text("README.md")


def test_the_readme_is_short_and_says_the_version():
    assert len(text("README.md").splitlines()) <= 90
    assert f"version {__version__}" in text("README.md")


def test_the_way_to_the_loop_is_short():
    assert sum(House().reading_path().values()) <= PATH_LINES


def test_the_configuration_of_the_readme_is_valid(monkeypatch):
    monkeypatch.setenv("GITHUB_TOKEN", "ghp_0123456789")
    (block,) = re.findall(r"(?ms)^```yaml\n(.*?)^```$", text("README.md"))
    settings = settings_of(yaml.safe_load(block))
    assert (settings.task_sources, settings.llm.provider) == (("github",), "openai")
    assert settings.verify.command == "python3 -m unittest -q"


def test_the_excerpt_of_the_readme_is_what_the_demo_prints(tmp_path):
    nowhere = "http://127.0.0.1:9"
    kept = {key: value for key, value in os.environ.items() if key in ("PATH", "LANG", "TZ", "TMPDIR")}
    done = subprocess.run(
        [sys.executable, str(ROOT / "main.py"), "demo", str(tmp_path / "demo")],
        env=kept | {"HOME": str(tmp_path), "OLLAMA_ENDPOINT": nowhere, "LMSTUDIO_BASE_URL": nowhere},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    (block,) = re.findall(r"(?ms)^```text\n(.*?)^```$", text("README.md"))
    printed = iter(done.stdout.splitlines())
    missing = [line for line in block.splitlines() if line != "…" and line not in printed]
    assert missing == []


def test_the_changelog_is_for_somebody_who_upgrades():
    page = text("CHANGELOG.md")
    assert len(page.splitlines()) <= 250, "merge entries that belong together; the history is in git"
    headings = re.findall(r"(?m)^(#+) (.+)$", page)
    versions = [title for level, title in headings if level == "##"]
    assert versions[0] == "Unreleased"
    assert all(re.fullmatch(r"\d+\.\d+\.\d+", one) for one in versions[1:])
    assert {title for level, title in headings if level == "###"} == {"Added", "Changed", "Fixed", "Security"}


def test_entries_of_the_changelog_have_at_most_two_sentences():
    """In the sections; a new entry is at the top of Unreleased until it is sorted in."""
    _, _, sorted_in = text("CHANGELOG.md").partition("\n### ")
    long = []
    for entry in re.findall(r"(?m)^- .*(?:\n  .*)*", sorted_in):
        plain = re.sub(r"`[^`]*`|\[[^\]]*\]\([^)]*\)", "X", " ".join(entry.split()))
        if len(re.findall(r"[.!?](?= |$)", plain)) > 2:
            long.append(entry)
    assert long == []


def test_lines_of_pages_are_short():
    """A row of a table has at most 140 columns, also in made pages: a long cell belongs into a list.  Other lines have
    at most 120, but for examples between ``` and made pages."""
    pages = (ROOT / "docs").rglob("*.md")
    long = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in [*pages, *(ROOT / name for name in TOP), *(ROOT / "tests" / name for name in OF_TESTS)]
        for number, line, is_text in numbered(path)
        if len(line) > (120 if is_text and path.name not in MADE else 140)
    ]
    assert long == []


def numbered(path):
    """(number, line, whether it is in no table and no example) of each line of a page."""
    is_example = False
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        is_example ^= line.startswith("```")
        yield number, line, not (is_example or line.startswith(("|", "    ")))


def test_no_entry_of_the_changelog_is_there_twice():
    begins = re.findall(r"(?m)^- (.{60})", text("CHANGELOG.md"))
    assert sorted(begins) == sorted(set(begins))
