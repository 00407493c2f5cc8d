"""Writes two texts of long-term memory about a task, its episode and its summary, from the task's events, without a
model.

An episode has the goal, the steps of the plan, the commands that failed and then passed (if none passed, those that
failed), the touched files, the outcome and the cost. The last part of an episode tells how people used the result;
`amended` replaces that part in the text of a stored episode, without the folder of the task, which may be gone by then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agent import clock
from agent.extraction.session_events import PLAN, SUMMARY, command_text, outcome_text, paths_text
from agent.extraction.task_record import memory_requests

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from agent.extraction.session_events import SessionEvent
    from agent.extraction.task_record import TaskRecord
    from agent.taskqueue import Row
    from agent.taskqueue.base import MemoryRequest

AFTERWARDS = "Afterwards: "
MOST_COMMANDS = 8
LONGEST_STEP = 120
SUMMARY_LENGTH = 4000


def episode_text(task: TaskRecord, row: Row, events: Iterable[SessionEvent]) -> str:
    """The text of the episode, one line for each part."""
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


def summary_text(events: Sequence[SessionEvent]) -> str:
    """The summary of the session: the model's final text, or the message of the end if there is none; then the plan.
    The model's final text is without the sentences that repeat other texts."""
    parts = [next((one.text for one in events if one.source == source), "") for source in (SUMMARY, PLAN)]
    return "\n".join(part for part in (parts[0][:SUMMARY_LENGTH], parts[1]) if part.strip())


def cost_text(row: Row, later: Sequence[MemoryRequest] = ()) -> str:
    """The turns, tokens, money and time that a task cost, as text. `later` are the requests of the extraction; the
    tokens and the money of those that the row counts too are subtracted."""
    counted = later[: row.memory_requests]
    tokens = row.total_tokens - sum(one.usage.prompt + one.usage.completion for one in counted)
    cost = row.cost - sum(one.cost for one in counted)
    parts = [f"{row.turns} turns", f"{tokens:,} tokens"]
    if round(cost, 9) > 0:
        parts.append(f"{cost:.4g} in money")
    if row.started_at and row.completed_at:
        seconds = (clock.parse(row.completed_at) - clock.parse(row.started_at)).total_seconds()
        parts.append(f"{round(seconds / 60)} min" if seconds >= 60 else f"{max(1, round(seconds))} s")
    return ", ".join(parts)


# --- what people did with it -----------------------------------------------------------------------------------


def amended(text: str, notes: Sequence[str]) -> str:
    """The text of an episode with `notes` as its last part, in place of the notes that `text` has."""
    body = text.partition(f"\n{AFTERWARDS}")[0]
    return f"{body}\n{AFTERWARDS}{' '.join(notes)}" if notes else body


def notes_of(metadata: Mapping[str, Any]) -> dict[str, str]:
    """The notes of a stored episode, by subject (`pull`, `branch`, `review-…`)."""
    found = metadata.get("afterwards")
    return {str(name): str(note) for name, note in found.items()} if isinstance(found, dict) else {}
