"""SummaryStore: summaries.jsonl, every summary that was ever committed to (seed 002, 3.5 and 4.3).

A line here alone changes nothing: a compaction that names it makes it part of the view (`compactions.py`).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from agent import clock
from agent.store.jsonl import JsonlFile
from agent.store.text import fit

if TYPE_CHECKING:
    from agent.values import Json


class SummaryStore:
    """The summaries of one task."""

    def __init__(self, context_dir: Path, *, durability: str = "turn") -> None:
        self.path = Path(context_dir) / "summaries.jsonl"
        self.file = JsonlFile(self.path, durability=durability, id_key="id")

    def add_summary(
        self, start_seq: int, end_seq: int, summary_text: str, original_tokens: int, summary_tokens: int
    ) -> int:
        """Record a summary of messages `start_seq` to `end_seq`; returns its id, from 1.

        `ratio` is summary_tokens / original_tokens.  An empty text is a ValueError: it would erase what it stands for.
        """
        text = fit(summary_text)
        if not text.strip():
            raise ValueError("the summary is empty; an empty summary is never recorded")
        self.file.refresh()
        identifier = self.file.next_id()
        self.file.append(
            {
                "id": identifier,
                "start_seq": start_seq,
                "end_seq": end_seq,
                "summary": text,
                "original_tokens": original_tokens,
                "summary_tokens": summary_tokens,
                "ratio": round(summary_tokens / original_tokens, 3) if original_tokens else 0.0,
                "timestamp": clock.stamp(),
            }
        )
        return identifier

    def get_latest_summary(self) -> Json | None:
        """The newest summary, None when there is none; read from the end of the file."""
        return self.file.last()

    def count_summaries(self) -> int:
        """How many there are."""
        self.file.refresh()
        return self.file.count

    def sync(self, *, force: bool = False) -> None:
        """Make them durable."""
        self.file.sync(force=force)
