#!/usr/bin/env python3
"""Write the pages that are made from the program: config.yaml, docs/configuration.md, docs/events.md,
docs/cli.md."""

from pathlib import Path

from agent.cli import page
from agent.config import table
from agent.observe import events

ROOT = Path(__file__).resolve().parent.parent
PAGES = {
    "config.yaml": table.example,
    "docs/configuration.md": table.markdown,
    "docs/events.md": events.markdown,
    "docs/cli.md": page.markdown,
}

if __name__ == "__main__":
    for name, made in PAGES.items():
        (ROOT / name).write_text(made(), encoding="utf-8")
        print(name)
