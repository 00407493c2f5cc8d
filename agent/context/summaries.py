"""SummaryStore has summaries.jsonl, every summary of a compaction (docs/design/context.md, 3.5 and 4.3).

A line in summaries.jsonl alone does not change the view: the summary becomes part of the view when a compaction refers
to it (`compaction_store.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent import clock
from agent.context.base import Store
from agent.errors import RecordRefused
from agent.store.storable_text import replace_surrogates

if TYPE_CHECKING:
    from agent.values import Json


class SummaryStore(Store):
    """The summaries of one task."""

    NAME = "summaries.jsonl"
    ID = "id"

    def add_summary(
        self, start_seq: int, end_seq: int, summary_text: str, original_tokens: int, summary_tokens: int
    ) -> int:
        """Record a summary of messages `start_seq` to `end_seq`; returns its id, from 1.

        The record has the field `ratio`, summary_tokens / original_tokens.  An empty `summary_text` raises
        RecordRefused, since an empty summary would erase the messages from the view.
        """
        text = self.redact(replace_surrogates(summary_text))
        if not text.strip():
            raise RecordRefused("the summary is empty; an empty summary is never recorded")
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
        """The newest summary, None when there is none; it is read from the end of the file."""
        return self.file.last()

    def count_summaries(self) -> int:
        """The number of recorded summaries."""
        self.file.refresh()
        return self.file.count
