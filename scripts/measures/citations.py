"""Citations that a reader of the repository cannot follow: other documents, missing pages, missing headings."""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from .source_text import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from .source_text import Block

OUTSIDE = re.compile(
    r"\bseeds?\s+\d{3}\b|\bthe\s+seeds?\b"
    r"|(?<!\bby )\bdesign(?::\s|,?\s+\(?sections?\s+\d)"
    r"|\b(?:security|durability|field|public|wire|tokens?|memory|team|peers?|fidelity)\s+facts?\b"
    r"|\bfacts?\s+(?:page|on\s+wires)\b",
    re.IGNORECASE,
)
"""How documents that this program was made from are named: they do not lie in the repository."""
HOME = "docs/design/"
"""Pages below it say in our words what those documents ask, and may name them."""
REQUIREMENT = re.compile(r"\bN?FR-\d+\b")
NUMBER = r"(?:N?FR-)?\d[\d.]*"
PAGE = re.compile(
    r"(?P<page>(?:\.\./)*(?:[\w.-]+/)*[\w-]+\.md)`?\)?"
    r"(?:#(?P<anchor>[\w-]+)"
    rf"|(?:[,:]?\s+sections?|,)\s+(?P<numbers>{NUMBER}(?:(?:,|\s+and|\s+to|,\s+and)\s+{NUMBER})*)"
    r"|,\s+[\"“](?P<title>[^\"”\n]+)[\"”])?"
)
HEADING = re.compile(r"(?m)^#{1,6}\s+(.+?)\s*#*$")


class Broken(NamedTuple):
    """A citation that leads nowhere, with its place and the reason."""

    path: str
    line: int
    why: str


def broken(block: Block, root: Path = ROOT) -> Iterator[Broken]:
    """Each citation in a block that a reader of the repository cannot follow."""
    if not block.path.startswith(HOME):
        for found in OUTSIDE.finditer(block.text):
            yield Broken(
                block.path, block.line_at(found.start()), f"{' '.join(found[0].split())!r} is not in the repository"
            )
    for found in REQUIREMENT.finditer(block.text):
        if not re.search(rf"\b{found[0]}\b", _pages(root)):
            yield Broken(block.path, block.line_at(found.start()), f"{found[0]} stands on no page of docs/")
    for found in PAGE.finditer(block.text):
        if why := _wrong(found, block.path, root):
            yield Broken(block.path, block.line_at(found.start()), why)


def _wrong(found: re.Match[str], path: str, root: Path) -> str:
    """Why a page, or the heading cited of it, is not there; "" when both are.  A name alone may be that of any file;
    tests/docs/test_docs_paths.py looks at those."""
    name, heading = found["page"], found["anchor"] or found["numbers"] or found["title"]
    page = _page(name, path, root)
    if page is None:
        return f"the page {name} is not there" if heading or name.startswith("../") else ""
    titles = [re.sub(r"[`*]", "", title) for title in HEADING.findall(page.read_text(encoding="utf-8"))]
    if found["anchor"] and found["anchor"] not in map(slug, titles):
        return f"{name} has no heading for #{found['anchor']}"
    if found["title"] and found["title"] not in titles:
        return f'{name} has no heading "{found["title"]}"'
    for number in re.findall(r"(?:N?FR-)?\d+(?:\.\d+)*", found["numbers"] or ""):
        if not any(re.match(rf"(?:Section )?{re.escape(number)}(?![\d])(?!\.\d)", title) for title in titles):
            return f"{name} has no heading with the number {number}"
    return ""


def _page(name: str, path: str, root: Path) -> Path | None:
    """The page that is meant: from the top, beside the file that names it, or in docs/ by its name alone."""
    for start in (root, (root / path).parent, root / "docs", root / "docs" / "design"):
        if (start / name).is_file():
            return start / name
    return None


def slug(title: str) -> str:
    """The anchor that GitHub makes of a heading."""
    return re.sub(r"[^\w\- ]", "", re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title).lower()).replace(" ", "-")


@cache
def _pages(root: Path) -> str:
    """All pages of docs/ in one text."""
    return "\n".join(page.read_text(encoding="utf-8") for page in sorted((root / "docs").rglob("*.md")))
