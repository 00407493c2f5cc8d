"""`update_plan`, `ask_user`, `finish`: what the model says about the work instead of doing it.

The plan itself is kept by `state.State`, from the record of the call.  Markers of this program are taken out of what
goes to people: only the program sets those.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agent.errors import ToolError
from agent.forge.marks import without_markers
from agent.tools.base import Place, Product, schema
from agent.values import End, Outcome

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agent.values import Json

TITLE = 200
STATUSES = ("pending", "in_progress", "done")


class UpdatePlan:
    """The whole plan, each time."""

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

    def __init__(self, place: Place) -> None:
        pass

    def run(self, arguments: Json) -> Product:
        items = arguments["items"]
        done = sum(item["status"] == "done" for item in items)
        return Product("", head=f"[plan noted: {done} of {len(items)} done]")


class AskUser:
    """A question that only a person can answer; the task waits."""

    name = "ask_user"
    description = "Ask the person one question and wait. Only when the work cannot go on without the answer."
    parameters = schema(("question",), question={"type": "string", "minLength": 1})

    def __init__(self, place: Place) -> None:
        pass

    def run(self, arguments: Json) -> Product:
        outcome = ending("ask_user", arguments)
        return Product("", head="[asked; the task waits for the answer]", outcome=outcome)


class Finish:
    """The end of the work."""

    name = "finish"
    description = (
        "End the task: title (one line, for the commit and pull request) and summary (what and why, Markdown)."
    )
    parameters = schema(
        ("title", "summary"),
        title={"type": "string", "minLength": 1},
        summary={"type": "string", "minLength": 1},
    )

    def __init__(self, place: Place) -> None:
        pass

    def run(self, arguments: Json) -> Product:
        return Product("", head="[finished]", outcome=ending("finish", arguments))


END = Finish.name
"""The only tool that ends a task well."""

AFTER_THE_END = "not run: an earlier call of this answer had ended the run"
"""The result of a call that stands behind `finish` or `ask_user` in one answer."""

STOPPED_BEFORE = "not run: the run was stopped, or a limit was reached, before this call"
"""The result of a call that an earlier call of its answer left no time or room for."""


def ending(tool: str, arguments: Mapping[str, Any]) -> Outcome:
    """The outcome of a call of `ask_user` or `finish`, also of a recorded one; ToolError when it says nothing."""
    if tool == "ask_user":
        question = without_markers(str(arguments.get("question", ""))).strip()
        if not question:
            raise ToolError("question is empty; say what the person has to decide")
        return Outcome(End.ASKED, summary=question)
    title = " ".join(without_markers(str(arguments.get("title", ""))).split())
    summary = without_markers(str(arguments.get("summary", ""))).strip()
    if not title or not summary:
        raise ToolError("title and summary must say something; give both")
    return Outcome(End.FINISHED, summary=summary, title=title if len(title) <= TITLE else title[: TITLE - 1] + "…")
