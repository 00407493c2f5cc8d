"""The episode of a task and the summary of its session, made of its events without a model.

An episode says what was to be done, which steps mattered, which commands failed and then passed, which files were
touched, how it ended and what it cost.  What people do with the result later is its last part: `amended` replaces it,
and needs only the stored record.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agent import clock
from agent.extraction.events import PLAN, SUMMARY, command_text, outcome_text, paths_text
from agent.extraction.task_record import memory_requests

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from agent.extraction.events import TaskEvent
    from agent.extraction.task_record import TaskRecord
    from agent.taskqueue import Row
    from agent.taskqueue.base import MemoryRequest

AFTERWARDS = "Afterwards: "
MOST_COMMANDS = 8
LONGEST_STEP = 120
SUMMARY_LENGTH = 4000


def episode_text(task: TaskRecord, row: Row, events: Iterable[TaskEvent]) -> str:
    """The episode, one part a line."""
    trusted = {one.token for one in events if one.trust > 0}
    plan = next((one.text for one in events if one.source == PLAN), "")
    steps = [step.removeprefix("- ")[:LONGEST_STEP] for step in plan.split("\n")[1:]]
    named = [one for one in task.failures if f"command-{one.seq}" in trusted or not trusted]
    repaired = [one for one in named if one.passed] or named
    lines = [
        f"Goal: {row.title or task.title}",
        f"Steps: {'; '.join(steps)}" if steps else "",
        f"Commands: {' '.join(command_text(one) for one in repaired[:MOST_COMMANDS])}" if repaired else "",
        f"Files: {paths_text(task.files)}" if task.files else "",
        f"Outcome: {outcome_text(task, row)}",
        f"Cost: {cost_text(row, memory_requests(task.folder))}",
    ]
    return "\n".join(line for line in lines if line)


def summary_text(task: TaskRecord, row: Row, events: Iterable[TaskEvent]) -> str:
    """The summary of the session: the model's final text, else the reason of the end, with the last plan."""
    final = next((one.text for one in events if one.source == SUMMARY), "")
    plan = next((one.text for one in events if one.source == PLAN), "")
    said = final or (task.ending.message if task.ending is not None else row.error_message or "")
    return "\n".join(part for part in (said[:SUMMARY_LENGTH], plan) if part.strip())


def cost_text(row: Row, later: Sequence[MemoryRequest] = ()) -> str:
    """Turns, tokens, money and time of a task, without `later`, the requests to take it in."""
    counted = later[: row.memory_requests]
    tokens = row.total_tokens - sum(one.usage.prompt + one.usage.completion for one in counted)
    cost = row.cost - sum(one.cost for one in counted)
    parts = [f"{row.turns} turns", f"{tokens:,} tokens"]
    if round(cost, 9) > 0:
        parts.append(f"{cost:.4g} in money")
    if row.started_at and row.completed_at:
        seconds = (clock.parse(row.completed_at) - clock.parse(row.started_at)).total_seconds()
        parts.append(f"{max(1, round(seconds / 60))} min")
    return ", ".join(parts)


# --- what people did with it -----------------------------------------------------------------------------------


def amended(text: str, notes: Sequence[str]) -> str:
    """The episode with these notes as its last part, instead of earlier ones."""
    body = text.partition(f"\n{AFTERWARDS}")[0]
    return f"{body}\n{AFTERWARDS}{' '.join(notes)}" if notes else body


def notes_of(metadata: Mapping[str, Any]) -> dict[str, str]:
    """The notes of a stored episode, by what they are about."""
    found = metadata.get("afterwards")
    return {str(name): str(note) for name, note in found.items()} if isinstance(found, dict) else {}
