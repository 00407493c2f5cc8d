"""CompactionStore: compactions.jsonl, the file that defines what the view omits (docs/files.md, "Rules").

A line commits a compaction: the summary that it refers to is durable before the line is written, and the view is
derived after it.  `MessageStore.compact` ensures the order of these writes (summary, line, view), and that a compaction
splits no group of calls and results; code that calls `CompactionStore.add` directly must ensure the order and the
groups itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agent import clock
from agent.context.base import Store
from agent.context.index import Cut
from agent.context.secret_masking import masked, unmasked
from agent.errors import RecordRefused
from agent.store.jsonl import last_record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from agent.values import Json, Redact

STRATEGIES = ("mask", "summary", "window", "reset", "trim", "brief")
"""mask: tool results up to end_seq become pointers.  summary: messages up to end_seq are omitted, and a summary
replaces them.  window, reset: messages up to end_seq are omitted (with the summary of `summary_id`, if any).  trim:
tool results and user messages from start_seq to end_seq are shown with at most `largest` bytes.  brief: the newest
briefing (end_seq) is valid from now on."""


class CompactionStore(Store):
    """The compactions of one task. The function `committed`, if set, is called after each line is durable."""

    NAME = "compactions.jsonl"
    ID = "id"
    NAMES_MESSAGES = True

    def __init__(self, context_dir: Path, *, durability: str = "turn", redact: Redact = unmasked) -> None:
        super().__init__(context_dir, durability=durability, redact=redact)
        self.committed: Callable[[], None] | None = None
        self._cut = Cut()
        self._read = 0  # the number of bytes of compactions.jsonl that `_cut` covers

    def add(
        self,
        *,
        strategy: str,
        start_seq: int,
        end_seq: int,
        summary_id: int | None = None,
        carried: Any = None,
        tokens_before: int = 0,
        tokens_after: int = 0,
        tools: int | None = None,
        requests: int | None = None,
        largest: int | None = None,
    ) -> int:
        """Commit a compaction of messages `start_seq` to `end_seq`; returns its id, from 1.

        `carried` is the state that is shown to the model again after the summary: a text, or a mapping with headings as
        keys (`plan`, `read`, `changed`, `question`, …). `tokens_before` and `tokens_after` are the tokens of the view
        before and after the compaction. `tools` is the present number of calls in tools.jsonl: the next compaction
        derives its carried state from the calls after them. `requests` is the number of the newest line of
        requests.jsonl, so that requests for this summary can be told from requests for later summaries. `largest` is
        only for a trim: the maximum size of one message in bytes (UTF-8).

        Raises RecordRefused, with nothing written, for arguments that do not fit together.
        """
        if strategy not in STRATEGIES:
            raise RecordRefused(f"strategy is {strategy!r}; allowed are {', '.join(STRATEGIES)}")
        if strategy == "summary" and summary_id is None:
            raise RecordRefused("a compaction by summary names its summary_id; record the summary first")
        if (strategy == "trim") != (largest is not None):
            raise RecordRefused(
                f"strategy is {strategy!r}, largest is {largest}; only a trim, and every trim, has the largest size"
            )
        self.file.refresh()
        newest = last_record(self.context_dir / "messages.jsonl")
        record: Json = {
            "id": self.file.next_id(),
            "strategy": strategy,
            "start_seq": start_seq,
            "end_seq": end_seq,
            "at_seq": int(newest["seq"]) if newest else 0,
            "summary_id": summary_id,
            "carried": masked(carried, self.redact),
            "tokens_before": tokens_before,
            "tokens_after": tokens_after,
            "timestamp": clock.stamp(),
        }
        if tools is not None:
            record["tools"] = tools
        if requests is not None:
            record["requests"] = requests
        if largest is not None:
            record["largest"] = largest
        self.file.append(record)
        self.file.sync(force=True)
        if self.committed is not None:
            self.committed()
        return int(record["id"])

    def all(self) -> Iterator[Json]:
        """All compactions of the task, in order."""
        for _, record in self.file.records():
            yield record

    def last(self) -> Json | None:
        """The newest compaction, None when there is none."""
        return self.file.last()

    def count(self) -> int:
        """The number of compactions of the task."""
        self.file.refresh()
        return self.file.count

    def cut(self) -> Cut:
        """The combined effect of all compactions; only new lines are read."""
        if self._read > self.file.size:
            self._cut, self._read = Cut(), 0
        for _, record in self.file.records(self._read):
            self._cut = self._cut.with_compaction(record)
        self._read = self.file.size
        return self._cut

    def newest(self) -> Iterator[Json]:
        """All compactions of the task, the newest first."""
        return self.file.backwards()
