"""The pictures of the pages are there, are small, and belong to a page."""

import re
from pathlib import Path

DOCS = Path(__file__).resolve().parents[2] / "docs"
MOST_BYTES = 150_000


def test_each_picture_is_on_a_page_and_each_picture_of_a_page_is_there():
    named = set()
    for page in DOCS.rglob("*.md"):
        for link in re.findall(r"\]\(([^)\s]+\.png)\)", page.read_text(encoding="utf-8")):
            named.add((page.parent / link).resolve())
    there = {path.resolve() for path in DOCS.rglob("*.png")}
    assert named == there
    assert {path.name for path in there} == {"tasks.png", "task.png", "phone.png"}


def test_each_picture_is_a_small_png():
    for path in DOCS.rglob("*.png"):
        data = path.read_bytes()
        assert data.startswith(b"\x89PNG\r\n\x1a\n"), path
        assert len(data) <= MOST_BYTES, path
