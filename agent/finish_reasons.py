"""Decides by the finish reason of a model's answer whether the answer is complete, whether its calls run, which hint
follows, and how the run ends after too many answers that are not usable."""

from __future__ import annotations

from agent.prompts import render
from agent.tools import END
from agent.values import WHOLE, End, Outcome

NUDGES = {"length": "cut", **dict.fromkeys(WHOLE, "empty")}
"""Maps the finish reason of an answer without a usable text to the reason of the hint in the event `nudge`."""


def is_answer(text: str, reason: str) -> bool:
    """Whether an answer without a call is complete and not empty."""
    return bool(text.strip()) and reason in WHOLE


def hint_text(reason: str) -> str:
    """The text of the hint after an answer that ended with the finish reason `reason` and is not usable."""
    if reason == "length":
        return render("length")
    return render("empty") if reason in WHOLE else render("broken_off", reason=reason)


def refusal_reason(tool: str, reason: str) -> str:
    """The text with which a tool call in an answer with the finish reason `reason` is refused; "" if the call is run.

    If the answer of the model was cut at the token limit (finish reason `length`), no call in it is run. In an answer
    with a finish reason that is neither `length` nor in WHOLE the arguments of a call may be complete, so all calls but
    `finish` are run: the task may continue after such an answer, but not end with it.
    """
    if reason == "length" or (tool == END and reason not in WHOLE):
        return hint_text(reason)
    return ""


def outcome_of_giving_up(reason: str) -> Outcome:
    """The outcome after too many consecutive answers that are not usable; the last of these answers ended with the
    finish reason `reason`."""
    why = {"length": "answer_cut", **dict.fromkeys(WHOLE, "no_answer")}.get(reason, "answer_broken_off")
    return Outcome(End.FAILED, code=why, summary=render("gave_up", why=why, reason=reason))
