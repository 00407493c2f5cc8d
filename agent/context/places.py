"""Where a message may stand: its kind, the call that a result answers, and what it does to the view.

Questions to a `Survey`, without state of their own; `MessageStore.add_message` asks them before it writes anything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.context.records import KINDS, ROLES, UNSEEN_KINDS, is_seen

if TYPE_CHECKING:
    from agent.context.survey import Survey
    from agent.values import Json


def kind_of(survey: Survey, role: str, kind: str | None) -> str | None:
    """The kind that is recorded; the first system message and the first plain user message get theirs by themselves.

    ValueError for a role or kind that there is not, or that do not go together.
    """
    if kind is None:
        if role == "user":
            return "task" if survey.task is None else None
        if role == "system":
            return "system" if survey.system is None else None
        if role not in ROLES:
            raise ValueError(f"role is {role!r}; allowed are {', '.join(sorted(ROLES))}")
        return None
    if KINDS.get(kind) != role:
        allowed = ", ".join(f"{name} ({owner})" for name, owner in KINDS.items())
        raise ValueError(f"kind {kind!r} does not go with role {role!r}; allowed are {allowed}")
    return kind


def call_for(survey: Survey, tool_name: str | None, tool_call_id: str | None) -> Json:
    """The open call that a result answers: the one of that id (or that had it before it was made unique), else the
    oldest of that name, else the oldest.  ValueError when there is none."""
    calls = survey.calls
    if tool_call_id is not None:
        if tool_call_id in calls:
            return calls[tool_call_id]
        for call in calls.values():
            if call.get("given_id") == tool_call_id:
                return call
        waiting = ", ".join(calls) or "none"
        raise ValueError(f"no open call has the id {tool_call_id!r}; open are {waiting}")
    if not calls:
        raise ValueError(f"no call is open that a result of {tool_name or 'a tool'} could answer")
    return next((call for call in calls.values() if call["name"] == tool_name), next(iter(calls.values())))


def check_between(survey: Survey, role: str, kind: str | None) -> None:
    """ValueError for a message that would stand between calls and their results."""
    if survey.calls and kind not in UNSEEN_KINDS:
        waiting = ", ".join(f"{call['name']} ({call['id']})" for call in survey.calls.values())
        raise ValueError(f"a {role} message cannot stand between calls and their results; open: {waiting}")


def change_of(survey: Survey, record: Json) -> str:
    """What a new record does to the view: "line" at its end, "all" of it, or "nothing"."""
    kind = record.get("kind")
    if kind in ("system", "task"):
        if (survey.system if kind == "system" else survey.task) is not None:
            return "nothing"  # it waits for the next compaction
        alone = survey.follows is None and not survey.cut.strategy
        return "line" if alone and (kind == "task" or survey.task is None) else "all"
    if not is_seen(record):
        return "nothing"
    # What stands before the first message depends on who speaks there.
    begins = survey.follows is None and bool(survey.cut.strategy) and record["role"] == "user"
    return "all" if begins else "line"
