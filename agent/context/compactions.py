"""CompactionStore: compactions.jsonl, the one file that says what the view leaves out (design: section 4).

A line is the commit of a compaction: what it names (a summary) is durable before it, the view is derived after it.
Through `MessageStore.compact` that order is kept and groups stay whole; `add` alone is for who keeps it himself.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent import clock
from agent.context.survey import Cut
from agent.store.jsonl import JsonlFile, last_record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from agent.values import Json

STRATEGIES = ("mask", "summary", "window", "reset", "trim", "brief")
"""mask: tool results up to end_seq become pointers.  summary: messages up to end_seq are left out, a summary stands
for them.  window, reset: they are left out (with the summary that `summary_id` names, if any).  trim: tool results
and user messages from start_seq to end_seq are shown with at most `largest` bytes.  brief: the newest briefing
(end_seq) counts from now on."""


class CompactionStore:
    """The compactions of one task.  `committed`, when set, is called after each line is durable."""

    def __init__(self, context_dir: Path, *, durability: str = "turn") -> None:
        self.context_dir = Path(context_dir)
        self.path = self.context_dir / "compactions.jsonl"
        self.file = JsonlFile(self.path, durability=durability, id_key="id")
        self.committed: Callable[[], None] | None = None
        self._cut = Cut()
        self._read = 0  # bytes of the file that are in it

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

        `carried` is said to the model again behind the summary: text, or a mapping whose keys are its headings
        (`plan`, `read`, `changed`, `question`, …).  Tokens are those of the view; `tools` is how many
        calls tools.jsonl had, from which what is carried goes on the next time; `requests` the number of the newest
        line of requests.jsonl, which says which summaries were asked for before it.  `largest` belongs to a trim: the
        bytes (UTF-8) that one message may have.
        """
        if strategy not in STRATEGIES:
            raise ValueError(f"strategy is {strategy!r}; allowed are {', '.join(STRATEGIES)}")
        if strategy == "summary" and summary_id is None:
            raise ValueError("a compaction by summary names its summary_id")
        if (strategy == "trim") != (largest is not None):
            raise ValueError("a trim, and only that, names the largest size of a message")
        self.file.refresh()
        newest = last_record(self.context_dir / "messages.jsonl")
        record: Json = {
            "id": self.file.next_id(),
            "strategy": strategy,
            "start_seq": start_seq,
            "end_seq": end_seq,
            "at_seq": int(newest["seq"]) if newest else 0,
            "summary_id": summary_id,
            "carried": carried,
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
        """Every compaction, in order."""
        for _, record in self.file.records():
            yield record

    def last(self) -> Json | None:
        """The newest compaction, None when there is none."""
        return self.file.last()

    def count(self) -> int:
        """How many there are."""
        self.file.refresh()
        return self.file.count

    def cut(self) -> Cut:
        """What they come to; only new lines are read."""
        if self._read > self.file.size:
            self._cut, self._read = Cut(), 0
        for _, record in self.file.records(self._read):
            self._cut = self._cut.after(record)
        self._read = self.file.size
        return self._cut

    def newest(self) -> Iterator[Json]:
        """Every compaction, the newest first."""
        return self.file.backwards()

    def sync(self, *, force: bool = False) -> None:
        """Make them durable."""
        self.file.sync(force=force)
