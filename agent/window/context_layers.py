"""Values that describe a planned request (docs/window.md, "What a request is made of").

The messages of a planned request are read from the files at each access, since no list of messages stays in memory.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, overload

import orjson

from agent.message_reader import lines

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agent.values import Json, Plan


class MemoryLayer(StrEnum):
    """The layers of a request, in their order."""

    SYSTEM = "system"
    SEMANTIC = "semantic"
    USER_MESSAGE = "user_message"
    SESSION_SUMMARY = "session_summary"
    WORKING = "working"


@dataclass(frozen=True, slots=True)
class AssemblyOptions:
    """Options for a single request plan (the command `request` offers them too).

    `working_memory_limit` is the maximum number of messages of the conversation; None means the configured number. If
    `include_session_summary` is False, the summary of the omitted messages is not sent.
    """

    working_memory_limit: int | None = None
    include_session_summary: bool = True


@dataclass(frozen=True, slots=True)
class ContextMetadata:
    """Numbers that describe one planned request: its messages, memories and tokens, and the effect of compactions on
    it.

    Counts in the metadata are numbers of messages or memories; `layer_tokens` and `layer_counts` have `MemoryLayer` as
    their key.

    `cut` describes the effect of compactions: the strategy, the number of the last message that was left out, and that
    of the last tool result that was masked; None if there was no compaction.

    `needs_compaction` is True if the planned request is over `token_limit` and a compaction can help.  `missing` names
    the layers of long-term memory that were unavailable when the task began.
    """

    working_memory_count: int
    semantic_memory_count: int
    has_session_summary: bool
    total_tokens: int
    token_limit: int
    compression_applied: bool
    assembly_latency_ms: float
    needs_compaction: bool = False
    estimated: bool = True
    layer_tokens: Mapping[str, int] | None = None
    missing: tuple[str, ...] = ()
    layer_counts: Mapping[str, int] | None = None
    cut: Mapping[str, Any] | None = None

    def to_dict(self) -> Json:
        """The metadata fields by name, for `Plan.metadata` and the log."""
        return {name: getattr(self, name) for name in self.__slots__}


class FileMessages(Sequence["Json"]):
    """The messages of a planned request, which are parsed one by one from its spans."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan

    def __iter__(self) -> Iterator[Json]:
        for span in self.plan.spans:
            descriptor = os.open(span.path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                end = os.fstat(descriptor).st_size if span.end is None else span.end
                for _, line in lines(descriptor, span.start, end):
                    yield orjson.loads(line)
            finally:
                os.close(descriptor)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    @overload
    def __getitem__(self, index: int) -> Json: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Json]: ...
    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            wanted = range(*index.indices(len(self)))
            return [message for number, message in enumerate(self) if number in wanted]
        number = index if index >= 0 else len(self) + index
        for position, message in enumerate(self):
            if position == number:
                return message
        raise IndexError(index)


@dataclass(frozen=True, slots=True)
class AssembledContext:
    """A planned request and its figures: tokens, messages and memories by layer."""

    plan: Plan
    metadata: ContextMetadata

    @property
    def messages(self) -> Sequence[Json]:
        """The messages of the request, read from the files at each access."""
        return FileMessages(self.plan)
