"""The long-term memory of one task: recall for the briefing, the model's tool `recall`, and the index of the
repository's history.

Whether the tool is offered is decided once and recorded in effects.jsonl, since the tools of a task never change.  A
replay has no memory: its tool returns the recorded results.  docs/memory.md, "What comes out", has the rules.
"""

from __future__ import annotations

import threading
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Any

from agent.context.recalled import TOOL, RecalledStore
from agent.errors import MakimonoError, MemoryUnavailable, ToolError
from agent.security.fence import fence
from agent.tools.recall import Recall
from agent.window.memory_recall import OWN, OWN_PATIENCE, mark_used, recall_memories
from agent.wiring.memory import actor_of_task, open_memory, task_recall

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from agent.context import TaskContextManager
    from agent.memory.recall import TaskRecall
    from agent.work.workspace import Workspace
    from agent.worker.preparation import Prepared
    from agent.worker.session import TaskRun

OFFERED = "recall_tool"
"""Name of the receipt in effects.jsonl."""

HISTORY = "history of commits"
HISTORY_SECONDS = 1.0
"""Maximum seconds that a briefing waits for the index of the history; the rest is indexed while the task works."""

TOOL_SECONDS = 5.0


def own_memory(run: TaskRun, prepared: Prepared) -> TaskRecall | None:
    """The memory of this program for the task; None if memory is switched off, and in a replay."""
    if not (run.publishing and run.settings.memory.enabled):
        return None
    parent = prepared.parent
    return task_recall(
        run.settings,
        run.key,
        run.uuid,
        confidential=prepared.issue.confidential,
        said_elsewhere=[parent.uuid] if parent is not None else [],
    )


def recall_tool(context: TaskContextManager, own: TaskRecall | None) -> Recall | None:
    """The tool `recall` of the task; None if memory has nothing for the task."""
    effects, records = context.get_effect_store(), context.get_recalled_store()
    if own is None:
        offered = any(one.get("purpose") == TOOL for one in records.records())
    elif (receipt := effects.receipt(OFFERED)) is not None:
        offered = bool(receipt.get("offered"))
    else:
        offered = _has_anything(own)
        effects.done(OFFERED, {"offered": offered})
    return Recall(MemoryQuestions(context, own)) if offered else None


def _has_anything(own: TaskRecall) -> bool:
    """Whether memory has anything for the task; False if it is broken or slow, which the briefing reports."""
    found: list[bool] = []

    def ask() -> None:
        with suppress(MakimonoError):
            found.append(own.has_anything())

    _within(OWN_PATIENCE, ask, "memory look")
    return found == [True]


def _within(seconds: float, call: Callable[[], None], name: str) -> None:
    """Run `call` in a thread, and wait for it at most for `seconds`; the thread then continues."""
    thread = threading.Thread(target=call, name=name, daemon=True)
    thread.start()
    thread.join(seconds)


class MemoryQuestions:
    """Answers the memory queries of the model, and records them."""

    def __init__(self, context: TaskContextManager, own: TaskRecall | None) -> None:
        self.context = context
        self.own = own

    def __call__(self, query: str) -> str:
        """The results inside a fence, "" if there are none.  Raises ToolError when memory cannot be used."""
        records: RecalledStore = self.context.get_recalled_store()
        if self.own is None:
            same = (one for one in records.records() if one.get("purpose") == TOOL and one.get("query") == query)
            return next((str(one.get("text")) for one in same), "")
        store = self.context.get_message_store()
        count = store.counter.count if store.counter is not None else len
        room = self.own.max_tokens
        found = recall_memories({}, query, 0, room, count, own=_Search(self.own), own_patience=TOOL_SECONDS)
        text = fence(found.text, self.context.fence, source="memory") if found.text else ""
        tokens = count(text) if text else 0
        more: Mapping[str, Any] = {"hits": found.hits, "dropped": found.dropped, "missing": found.missing}
        records.add(TOOL, query, text=text, tokens=tokens, **more)
        if why := found.missing.get(OWN):
            raise ToolError(f"memory cannot be asked now: {why}")
        if ids := found.record_ids:
            mark_used(self.own, ids)
        return text


class _Search:
    """Passes `TaskRecall.search` off as the method `recall`."""

    def __init__(self, own: TaskRecall) -> None:
        self.own = own

    def recall(self, query: str) -> Sequence[Mapping[str, Any]]:
        return self.own.search(query)

    def mark_used(self, record_ids: Sequence[str]) -> None:
        self.own.mark_used(record_ids)


def index_history(run: TaskRun, workspace: Workspace) -> None:
    """Index the new commits of the base branch, and wait a short time for that.

    For a large history the indexing continues in a thread while the task works; if the process ends before, the part
    that was written stays.
    """
    if not (run.publishing and run.settings.memory.enabled) or workspace.base_commit is None:
        return
    actor = actor_of_task(run.settings, run.key)

    failed: list[str] = []

    def index() -> None:
        try:
            with closing(open_memory(run.settings, f"task {run.uuid}")) as store:
                store.index_commits(workspace.mirror.path, actor, branch=workspace.base)
        except MemoryUnavailable:
            pass  # the briefing reports the failure
        except MakimonoError as error:
            failed.append(str(error))

    _within(HISTORY_SECONDS, index, "memory history")
    for why in failed:
        run.events.emit("layer_failed", layer=HISTORY, error=why)
