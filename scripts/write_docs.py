#!/usr/bin/env python3
"""Write the pages that are made from the program: config.yaml, docs/configuration.md, docs/events.md,
docs/metrics.md, docs/cli.md and docs/prompts.md.
Called as it is, from any folder: `.venv/bin/python scripts/write_docs.py`."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # the script's own folder stands there, and the program is not installed

from agent import prompts  # noqa: E402 - found by the line above
from agent.cli import docs_page  # noqa: E402
from agent.config import reference  # noqa: E402
from agent.observe import events, metrics  # noqa: E402

PAGES = {
    "config.yaml": reference.example,
    "docs/configuration.md": reference.markdown,
    "docs/events.md": events.markdown,
    "docs/metrics.md": metrics.markdown,
    "docs/cli.md": docs_page.markdown,
    "docs/prompts.md": prompts.markdown,
}

if __name__ == "__main__":
    for name, made in PAGES.items():
        (ROOT / name).write_text(made(), encoding="utf-8")
        print(name)
