"""Rules for a new message: its kind, the call that a tool result answers, and its effect on the view.

The rules for a new message are functions of a `MessageIndex`, without state; `MessageStore.add_message` calls them
before it writes anything. `agent/message_list_check.py` has the rule about which message may come between calls and
their results.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.context.message_records import KINDS, UNSEEN_KINDS, is_seen
from agent.errors import RecordRefused
from agent.message_list_check import ROLES, answers_nothing, breaks_group

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agent.context.index import MessageIndex
    from agent.values import Json


def kind_of(survey: MessageIndex, role: str, kind: str | None) -> str | None:
    """The kind for the record of a new message; system messages and the first plain user message get their kind
    automatically, any other message without a given `kind` has none.

    The view has one system message, at its head: a later system message is used from the next compaction that omits
    messages.

    Raises RecordRefused for an unknown role or kind, or for a kind that does not match the role.
    """
    if kind is None:
        if role == "user":
            return "task" if survey.task is None else None
        if role == "system":
            return "system"
        if role not in ROLES:
            raise RecordRefused(f"role is {role!r}; allowed are {', '.join(ROLES)}")
        return None
    if KINDS.get(kind) != role:
        allowed = ", ".join(f"{name} ({owner})" for name, owner in KINDS.items())
        raise RecordRefused(f"kind {kind!r} does not go with role {role!r}; allowed are {allowed}")
    return kind


def call_for(survey: MessageIndex, tool_name: str | None, tool_call_id: str | None) -> Json:
    """The open call that a tool result answers.

    With `tool_call_id`, the result answers the call that has this id, or that had this id in the model's answer
    (`given_id`). Without an id, a result answers the oldest open call of the tool `tool_name`, else the oldest open
    call. Raises RecordRefused when the tool result answers no open call.
    """
    calls = survey.calls
    if tool_call_id is not None:
        if tool_call_id in calls:
            return calls[tool_call_id]
        for call in calls.values():
            if call.get("given_id") == tool_call_id:
                return call
    if tool_call_id is not None or not calls:
        raise RecordRefused(answers_nothing(f"a result of {tool_name or 'a tool'}", tool_call_id, _named(calls)))
    return next((call for call in calls.values() if call["name"] == tool_name), next(iter(calls.values())))


def check_between(survey: MessageIndex, role: str, kind: str | None) -> None:
    """Raise RecordRefused for a message, other than a tool result, while tool calls are open, unless its kind is one of
    UNSEEN_KINDS, which the view does not contain."""
    if kind not in UNSEEN_KINDS and (problem := breaks_group(f"a {role} message", _named(survey.calls))):
        raise RecordRefused(problem)


def _named(calls: Mapping[str, Json]) -> dict[str, str]:
    """The open tool calls in the form that `message_list_check.py` uses: id → name of the tool."""
    return {call_id: call["name"] for call_id, call in calls.items()}


def change_of(survey: MessageIndex, record: Json) -> str:
    """The effect of a new record on the view: the record adds a "line" at the end, changes "all" of the view, or
    "nothing"."""
    kind = record.get("kind")
    if kind in ("system", "task"):
        if (survey.system if kind == "system" else survey.task) is not None:
            return "nothing"  # the view shows the message only after the next compaction that omits messages
        alone = survey.follows is None and not survey.cut.strategy
        return "line" if alone and (kind == "task" or survey.task is None) else "all"
    if not is_seen(record):
        return "nothing"
    # The text that a compaction puts in front of the first message depends on the role of that message, so a first
    # message of a user changes that text too.
    begins = survey.follows is None and bool(survey.cut.strategy) and record["role"] == "user"
    return "all" if begins else "line"
