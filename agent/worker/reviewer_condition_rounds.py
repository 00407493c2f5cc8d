"""Sends the conditions of the reviewers to the model, up to `consensus.max_rounds` times.

The message with the conditions has the kind `condition`, and every later compaction keeps the message unchanged. The
number of messages of the kind `condition` is the number of rounds: if a process dies before it appends such a message,
the next process delivers the work again and then sends the message. If the model finishes without a further change
after it got the conditions, the same conditions are not sent again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.prompts import render
from agent.worker.fix_rounds import reopen, send_back, send_round
from agent.worker.reviewer_conditions import KIND, conditions_so_far

if TYPE_CHECKING:
    from agent.values import Outcome
    from agent.worker.conversation import Conversation
    from agent.worker.delivery_report import Report


def goes_back(conversation: Conversation, outcome: Outcome, report: Report) -> bool:
    """Send finished work back to the model with findings, or with conditions of the reviewers; returns whether the loop
    continues."""
    return send_back(conversation, outcome, report) or send_conditions(conversation, outcome, report)


def send_conditions(conversation: Conversation, outcome: Outcome, report: Report) -> bool:
    """Send the reviewers' conditions to the model if they were not sent for this commit, a round is left, and no limit
    of the task is reached; returns whether the loop continues."""
    run, review = conversation.run, report.review
    if review is None or review["decision"] != "CONDITIONAL":
        return False
    store = run.context.get_message_store()
    said, rounds = len(conditions_so_far(store)), run.settings.consensus.max_rounds
    before = run.effects.receipt(KIND) or {}
    if said >= rounds or run.limits() is not None or (said and before.get("commit") == report.commit):
        return False
    reopen(conversation, KIND, {"commit": report.commit, "outcome": outcome.to_dict()})
    conditions = [" ".join(one.split()) for one in review["conditions"]]
    text = run.redact(render("condition", round=said + 1, rounds=rounds, conditions=conditions))
    send_round(conversation, KIND, text, round=said + 1, rounds=rounds, why="conditional")
    return True
