"""Makes notices for people from the files of a task, so that the notices also cover the task's earlier processes.

The notices are added to the reports of the run (`task_run.TaskRun.facts`), which appear in the comments and the pull
request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agent.llm.tool_calls_as_text import RECOVERED, TEXT
from agent.worker.issue_pictures import notes

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from agent.context import TaskContextManager


def notices_of(context: TaskContextManager) -> list[str]:
    """The notices about tool calls in text, missing long-term memory and unseen pictures."""
    index = context.get_message_store().index
    return [*_on_text_calls(index.forms), *_on_memory(index.memory), *notes(context.context_dir)]


def _on_text_calls(forms: Collection[str]) -> Iterator[str]:
    """`forms` are the forms in which the model has written tool calls in this conversation."""
    if TEXT in forms:
        yield (
            "the model, or its server as it was started, has no tool calls: it called tools in its text. "
            "Models that have them work better"
        )
    if RECOVERED in forms:
        yield (
            "the model's server left tool calls in the text, and they were run: its tool parser seems not to fit the "
            "model (llama.cpp: `--jinja`, vLLM: `--tool-call-parser`)"
        )


def _on_memory(memory: Mapping[str, Any] | None) -> Iterator[str]:
    """`memory` is what the record of the briefing contains about long-term memory."""
    for layer, why in ((memory or {}).get("missing") or {}).items():
        yield f"the task began without long-term memory {layer}, which could not be had: {why}"
