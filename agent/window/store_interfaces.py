"""Protocols for the parts of the stores that the planner of requests uses (`assembler.py`).

The stores themselves are in `agent/context/`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from agent.context.comments import RecordedComment
    from agent.context.index import LaterMemories
    from agent.context.usage_reports import UsageReports
    from agent.values import Json


class Compacted(Protocol):
    """The interface of `context.index.Cut` (the combined effect of all compactions) that the planner needs."""

    @property
    def summary_id(self) -> int | None:
        """The id of the summary in the view, None if the view has none."""
        ...

    @property
    def count(self) -> int:
        """The number of compactions so far."""
        ...

    @property
    def strategy(self) -> str:
        """The strategy of the newest compaction that left messages out, "" if there was none."""
        ...

    @property
    def end_seq(self) -> int:
        """The number of the newest message that was left out, 0 if none was."""
        ...

    @property
    def mask_end(self) -> int:
        """Tool results in messages up to this number are masked in the view."""
        ...


class Account(Protocol):
    """The interface of `context.index.MessageIndex` that the planner needs."""

    reports: UsageReports  # token counts of prompts from the provider, with estimates without the token ratio
    head: int  # the server's count of tokens for the request with only tools, system message and briefing; 0 if unknown
    memory: Json | None  # the memories in the briefing: their number, their tokens, the layers that were unavailable

    @property
    def reported(self) -> int:
        """Tokens in use after the newest answer, by the newest valid report of the provider, without the messages after
        that answer; 0 if there is no report."""
        ...

    @property
    def turns(self) -> int:
        """The number of answers in the conversation."""
        ...

    @property
    def memories(self) -> Sequence[LaterMemories]:
        """The memories in messages after the briefing."""
        ...

    @property
    def comments(self) -> Sequence[RecordedComment]:
        """Comments of people since the beginning of the task, oldest first."""
        ...

    @property
    def cut(self) -> Compacted:
        """The combined effect of all compactions of the task."""
        ...


class PlannableMessages(Protocol):
    """The interface of `context.MessageStore` that the planner needs."""

    @property
    def last_seq(self) -> int:
        """The number of the newest message, 0 if there is none."""
        ...

    @property
    def index(self) -> Account:
        """The index of messages.jsonl."""
        ...

    def get_current_context_file(self, unsummarized_file_path: Path | None = None) -> Path:
        """The path of the file with the view."""
        ...

    def add_message(
        self,
        role: str,
        content: str | None,
        *,
        kind: str | None = None,
        images: Sequence[Mapping[str, Any]] = (),
        memory: Mapping[str, Any] | None = None,
        comments: Sequence[Mapping[str, Any]] = (),
    ) -> int:
        """Append a message to the conversation; returns its `seq`."""
        ...

    def sync(self) -> None:
        """Sync the appended messages to disk."""
        ...

    def at(self, offset: int) -> Json:
        """The record at a byte offset of messages.jsonl."""
        ...

    def bridge_lines(self) -> tuple[int, int]:
        """Returns (number of lines of the view after the briefing that are the summary, number of those that are the
        newest carry-over)."""
        ...


class PlannableSummaries(Protocol):
    """The interface of `context.SummaryStore` that the planner needs."""

    def get_latest_summary(self) -> Json | None:
        """The record of the newest summary, None if there is none."""
        ...
