"""README and the other top-level documents name only what there is."""

import re
from pathlib import Path

import pytest

from agent.cli import page

ROOT = Path(__file__).resolve().parents[2]
TOP = ("README.md", "ARCHITECTURE.md", "AGENTS.md")
MEASURED = {"docs/bench.md"}
"""Made by `scripts/bench` from a measurement on the machine of a release."""


def text(name):
    return (ROOT / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", TOP)
def test_commands_that_are_named_exist(name):
    known = {command.split()[0] for command, _ in page.commands()}
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


def test_every_page_is_linked_or_named_from_the_top():
    named = "".join(text(name) for name in TOP)
    assert [path.name for path in sorted(ROOT.glob("docs/*.md")) if f"docs/{path.name}" not in named] == []
