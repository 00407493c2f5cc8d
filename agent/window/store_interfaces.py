"""The parts of the stores, and of the events, that the planner uses (`assembler.py`); each is a protocol.

The stores themselves are in `agent/context/`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from agent.context.comments import Comment
    from agent.context.index import LaterMemories
    from agent.context.usage_reports import UsageReports
    from agent.values import Json


class Compacted(Protocol):
    """The part of `context.Cut` that the planner needs."""

    @property
    def summary_id(self) -> int | None:
        """The id of the summary that the view contains."""
        ...

    @property
    def count(self) -> int:
        """The number of compactions so far."""
        ...

    @property
    def strategy(self) -> str:
        """The strategy that left messages out, "" if none did."""
        ...

    @property
    def end_seq(self) -> int:
        """The number of the newest message that is left out, 0 if there is none."""
        ...

    @property
    def mask_end(self) -> int:
        """Tool results up to the message with this number are shown as pointers."""
        ...


class Account(Protocol):
    """The part of `context.MessageIndex` that the planner needs."""

    reports: UsageReports  # the reports on prompts; their estimates are without any ratio
    head: int  # reported tokens of a request with only tools, system message and briefing; 0 if unknown
    memory: Json | None  # the memories in the briefing: their number, their tokens, the layers that were missing

    @property
    def reported(self) -> int:
        """Tokens in use according to the newest valid report of the provider, without the messages after it; 0 if there
        is no report."""
        ...

    @property
    def turns(self) -> int:
        """The number of answers in the conversation."""
        ...

    @property
    def memories(self) -> Sequence[LaterMemories]:
        """The memories behind the briefing, in messages after the newest compaction."""
        ...

    @property
    def comments(self) -> Sequence[Comment]:
        """Comments of people since the beginning of the task, the oldest first."""
        ...

    @property
    def cut(self) -> Compacted:
        """The combined effect of all compactions."""
        ...


class Conversation(Protocol):
    """The part of `context.MessageStore` that the planner needs."""

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
        """Append a message; returns its `seq`."""
        ...

    def sync(self) -> None:
        """Make the appended messages durable."""
        ...

    def at(self, offset: int) -> Json:
        """The record at a byte offset of messages.jsonl."""
        ...

    def bridge_lines(self) -> tuple[int, int]:
        """Numbers of lines of the view after the briefing: (lines of the summary, lines of the newest carry-over)."""
        ...


class Summaries(Protocol):
    """The part of `context.SummaryStore` that the planner needs."""

    def get_latest_summary(self) -> Json | None:
        """The newest summary record."""
        ...


class Announce(Protocol):
    """The part of `observe.events.Events` that this room needs."""

    def emit(self, name: str, /, **fields: Any) -> None:
        """Announce an event to the listeners."""
        ...
