"""The tools `update_plan`, `ask_user` and `finish`, which report about the work instead of doing work.

The model's plan is stored in `work_state.WorkState`, which reads it from the record of the call. Markers of this
program are removed from texts for people, since only the program may write them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agent.errors import ToolError
from agent.forge.markers import without_markers
from agent.tools.base import RawResult, ToolContext, schema
from agent.values import CommentAnswer, End, Outcome

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from agent.values import Json

TITLE = 200
STATUSES = ("pending", "in_progress", "done")


class UpdatePlan:
    """The tool that replaces the whole plan at each call."""

    name = "update_plan"
    description = "Replace the plan: short steps with their status. Shown to the person."
    parameters = schema(
        ("items",),
        items={
            "type": "array",
            "maxItems": 50,
            "items": schema(
                ("text", "status"),
                text={"type": "string", "minLength": 1, "maxLength": 500},
                status={"enum": list(STATUSES)},
            ),
        },
    )

    def __init__(self, place: ToolContext) -> None:
        pass

    def run(self, arguments: Json) -> RawResult:
        items = arguments["items"]
        done = sum(item["status"] == "done" for item in items)
        return RawResult("", head=f"[plan noted: {done} of {len(items)} done]")


class AskUser:
    """The tool that asks a question which only a person can answer; the task then waits."""

    name = "ask_user"
    description = "Ask the person one question and wait. Only when the work cannot go on without the answer."
    parameters = schema(("question",), question={"type": "string", "minLength": 1})

    def __init__(self, place: ToolContext) -> None:
        pass

    def run(self, arguments: Json) -> RawResult:
        outcome = outcome_of("ask_user", arguments)
        return RawResult("", head="[asked; the task waits for the answer]", outcome=outcome)


class Finish:
    """The tool with which the model ends the work."""

    name = "finish"
    description = (
        "End the task: title (one line, for commit and pull request), summary (Markdown: what, why), "
        "answers to comments, by id."
    )
    parameters = schema(
        ("title", "summary"),
        title={"type": "string", "minLength": 1},
        summary={"type": "string", "minLength": 1},
        answers={
            "type": "array",
            "items": schema(
                ("comment", "text"),
                comment={"type": "string"},
                text={"type": "string"},
                settled={"type": "boolean"},
            ),
        },
    )

    def __init__(self, place: ToolContext) -> None:
        pass

    def run(self, arguments: Json) -> RawResult:
        return RawResult("", head="[finished]", outcome=outcome_of("finish", arguments))


END = Finish.name
"""The name of the tool with which the model reports that its work is finished."""

AFTER_THE_END = "not run: an earlier call of this answer had ended the run"
"""The result of a call that follows `finish` or `ask_user` in one answer."""

STOPPED_BEFORE = "not run: the run was stopped, or a limit was reached, before this call"
"""The result of a call that is not run because a stop was requested, or a limit was reached, after earlier calls of the
same answer."""


def outcome_of(tool: str, arguments: Mapping[str, Any]) -> Outcome:
    """The outcome of a call of `ask_user` or `finish`, also of a recorded call; raises ToolError when its texts are
    empty."""
    if tool == "ask_user":
        question = without_markers(str(arguments.get("question", ""))).strip()
        if not question:
            raise ToolError("question is empty; say what the person has to decide")
        return Outcome(End.ASKED, summary=question)
    title = " ".join(without_markers(str(arguments.get("title", ""))).split())
    summary = without_markers(str(arguments.get("summary", ""))).strip()
    if not title or not summary:
        raise ToolError("title and summary must say something; give both")
    title = title if len(title) <= TITLE else title[: TITLE - 1] + "…"
    return Outcome(End.FINISHED, summary, title, answers=tuple(_answers(arguments.get("answers") or ())))


def _answers(found: Iterable[Mapping[str, Any]]) -> Iterator[CommentAnswer]:
    """The model's answers to comments (in a call of `finish`), without those that have no text."""
    for one in found:
        if text := without_markers(str(one.get("text", ""))).strip():
            yield CommentAnswer(str(one.get("comment", "")).strip(), text, settled=one.get("settled") is True)
