"""The program's own long-term memory for one task: recall for the briefing, the model's tool `recall`, and the request
to index the repository's history.

Whether the model gets the tool `recall` is decided once and recorded in effects.jsonl, since the tools of a task never
change. A replay has no memory: the tool `recall` returns the recorded results. While memory is off, nothing imports
`agent/memory/`. docs/memory.md, "What comes out", has the rules.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from agent.context.recalled import HISTORY, TOOL, RecalledStore
from agent.errors import MakimonoError, ToolError
from agent.security.fence import fence
from agent.tools.recall import Recall
from agent.window.recall_layers import OWN, OWN_PATIENCE, answer_within, recall_memories

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from agent.context import TaskContextManager
    from agent.memory.index_requests import IndexRequest
    from agent.memory.recall import TaskRecall
    from agent.work.workspace import Workspace
    from agent.worker.preparation import Prepared
    from agent.worker.task_run import TaskRun

OFFERED = "recall_tool"
"""Name of the receipt in effects.jsonl that records whether the model gets the tool `recall`."""

AWAITED = "history_request"
"""Name of the receipt that records the request for the first index of the repository's history."""

HISTORY_LAYER = "history of commits"

TOOL_SECONDS = 5.0


def own_memory(run: TaskRun, prepared: Prepared) -> TaskRecall | None:
    """The program's own memory for the task; None if memory is off, and in a replay."""
    if not (run.publishing and run.settings.memory.enabled):
        return None
    from agent.wiring.memory import task_recall

    parent = prepared.claimed.parent
    return task_recall(
        run.settings,
        run.key,
        run.uuid,
        confidential=prepared.claimed.issue.confidential,
        said_elsewhere=[parent.uuid] if parent is not None else [],
    )


def recall_tool(context: TaskContextManager, own: TaskRecall | None) -> Recall | None:
    """The tool `recall` for the task; None if it was not offered when the task began, because the program's memory was
    off. The first call for a task records whether the tool is offered."""
    effects, records = context.get_effect_store(), context.get_recalled_store()
    if (receipt := effects.receipt(OFFERED)) is not None:
        offered = bool(receipt.get("offered"))
    else:
        offered = own is not None or any(one.get("purpose") == TOOL for one in records.records())
        effects.done(OFFERED, {"offered": offered})
    return Recall(MemoryQuestions(context, own)) if offered else None


class MemoryQuestions:
    """Answers the queries of the tool `recall`, and records them."""

    def __init__(self, context: TaskContextManager, own: TaskRecall | None) -> None:
        self.context = context
        self.own = own

    def __call__(self, query: str) -> str:
        """The memories that match the query, inside a fence; "" if no memory matches. Without memory (in a replay, or
        if it is off by now), the result is the recorded one of the same query, "" if there is none. Raises ToolError if
        the memory cannot be used."""
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
        return text


class _Search:
    """Gives `TaskRecall.search` the interface that `recall_memories` calls."""

    def __init__(self, own: TaskRecall) -> None:
        self.own = own

    def recall(self, query: str) -> Sequence[Mapping[str, Any]]:
        return self.own.search(query)

    def abandon(self) -> None:
        self.own.abandon()


def request_index(run: TaskRun, workspace: Workspace, own: TaskRecall | None) -> None:
    """Before the briefing, request that the daemon indexes the history of the base branch, unless its newest commit is
    indexed already or the index does not answer.

    If no commit is indexed yet, a receipt records the request, so that the task can retrieve similar files later
    (`awaited_index`).
    """
    if own is None or workspace.base_commit is None or not run.settings.remembers:
        return
    from agent.memory.index_requests import IndexRequest
    from agent.wiring.memory import actor_of_task

    tips = answer_within(OWN_PATIENCE, own.indexed_tips, own.abandon)
    if tips is None or workspace.base_commit in tips:
        return
    mirror = workspace.mirror
    place = mirror.path.relative_to(mirror.base_dir).as_posix()
    request = IndexRequest(actor_of_task(run.settings, run.key), place, workspace.base)
    try:
        request.put(run.settings.base_dir)
    except MakimonoError as error:
        run.events.emit("layer_failed", layer=HISTORY_LAYER, error=str(error))
        return
    if not tips:
        run.effects.done(AWAITED, asdict(request))


def awaited_index(context: TaskContextManager) -> IndexRequest | None:
    """The request for the index of the history for which the task waits; None if the task waits for no index, or has
    retrieved files from the index already."""
    receipt = context.get_effect_store().receipt(AWAITED)
    if receipt is None or context.get_recalled_store().newest(HISTORY) is not None:
        return None
    from agent.memory.index_requests import IndexRequest

    return IndexRequest(**receipt)
