"""Retrieves memories for a task after its briefing: about new comments, after a compaction, and after the
repository's history was indexed for the first time.

Each retrieval is first recorded as a line of recalled.jsonl and then appended as a message. A process that continues
after a crash appends the message of a recorded retrieval if the message is missing, and retrieves memories for a
compaction that has no retrieval.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.context.recalled import BRIEFING, COMMENT, COMPACTION, HISTORY
from agent.values import FencedComment
from agent.window.long_term_recall import message_data
from agent.worker.long_term_memory import awaited_index

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from agent.tools import Toolbox
    from agent.values import Json
    from agent.window.context_window import Window
    from agent.worker.task_run import TaskRun

LATER = (COMMENT, COMPACTION, HISTORY)
PART = 2
"""The memories of one retrieval after the briefing get at most 1/PART of the budget for memories."""


class LaterRecall:
    """The retrievals of one task after its briefing. Each method yields the messages to append; except for `take_lost`,
    it yields none if the program's long-term memory is off.
    """

    def __init__(self, run: TaskRun, window: Window, tools: Toolbox) -> None:
        self.base_dir = run.settings.base_dir
        self.window = window
        self.tools = tools
        self.store = run.context.get_message_store()
        self.records = run.context.get_recalled_store()
        self.is_on = window.assembler.recall.own is not None
        self.lost = self._line_without_message()
        self.awaited = awaited_index(run.context) if self.is_on else None
        newest = self.records.newest(COMPACTION)
        done = self.store.index.cut.count if newest is not None else 0
        self.compactions = int(newest.get("compactions", done)) if newest is not None else 0

    def _line_without_message(self) -> Json | None:
        """The newest retrieval, if its message was not appended because the process died; else None."""
        line = self.records.newest(*LATER)
        if line is None or not line.get("text"):
            return None
        for record in self.store.backwards():
            if str(record.get("timestamp")) < str(line.get("timestamp")):
                return line
            data = record.get("memory")
            if isinstance(data, dict) and (data.get("recalled") == line["seq"] or record["content"] == line["text"]):
                return None
        return line

    def take_lost(self) -> Iterator[FencedComment]:
        """Yield the message of a retrieval that an earlier process did not append."""
        line, self.lost = self.lost, None
        if line is not None:
            yield FencedComment(str(line["text"]), kind="memory", memory=message_data(line))

    def about(self, query: str) -> Iterator[FencedComment]:
        """Retrieve memories about new comments."""
        yield from self._recall(COMMENT, query, self.records.given())

    def after_compaction(self) -> Iterator[FencedComment]:
        """Retrieve memories for the open steps of the plan and for the query of the briefing, once after each
        compaction."""
        count = self.store.index.cut.count
        if not self.is_on or count <= self.compactions:
            return
        self.compactions = count
        begun = self.records.briefing()
        steps = [step["text"] for step in self.tools.plan() if step.get("status") != "done"]
        query = "\n\n".join([*steps, str(begun["query"]) if begun else ""])
        shown = {memory.recalled for memory in self.store.index.memories}
        yield from self._recall(COMPACTION, query, self.records.given(BRIEFING, shown))

    def after_index(self) -> Iterator[FencedComment]:
        """Retrieve the files that similar changes touched, once after the repository's history was indexed for the
        first time, since the briefing could not contain them."""
        if self.awaited is None or self.awaited.is_open(self.base_dir):
            return
        self.awaited = None
        if (begun := self.records.briefing()) is not None:
            yield from self._recall(HISTORY, str(begun["query"]), self.records.given(), kinds=("file",))

    def _recall(
        self, purpose: str, query: str, given: frozenset[str], kinds: Collection[str] | None = None
    ) -> Iterator[FencedComment]:
        """Yield a message with the memories that the model has not got yet, if there are any."""
        assembler, room = self.window.assembler, self.window.shares.memory // PART
        count = self.store.index.cut.count
        text, data = assembler.recall.again(purpose, query, room, assembler, given, count, kinds)
        if data is not None:
            yield FencedComment(text, kind="memory", memory=data)
