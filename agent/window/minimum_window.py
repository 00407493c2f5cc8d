"""Checks before the first request whether a window is large enough for any task at all.

A task needs tokens for tools, system prompt, a few lines of an issue, one call with a shortened result, and an answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.window.base import DoesNotFit

if TYPE_CHECKING:
    from agent.window.limits import WindowLimits

TASK = 256
"""The minimum tokens of a task: a short issue, and the text of the briefing around it."""

CONVERSATION = 512
"""The minimum tokens of a conversation: one turn with shortened results, and the carry-over of a compaction."""

SURE = 0.9
"""The true number of tokens of the program's own tools and prompts is at least this share of their estimate.

English and JSON are counted within ±10 % (docs/window.md, "How good the estimate is"), so no estimate is too high by
more.
"""


def too_small(limits: WindowLimits, tools: int, system: int, *, exact: bool, configured: bool) -> DoesNotFit | None:
    """A DoesNotFit if no task can run in the window of `limits`; None if a task can.

    `tools` and `system` are the numbers of tokens of the tools and of the system prompt. `exact`: the tokens were
    counted with the model's own vocabulary. `configured`: the system prompt comes from the configuration, so a person
    can shorten it.
    """
    head = tools + system
    least = head if exact else int(head * SURE)
    total = head + TASK + CONVERSATION
    if least + TASK + CONVERSATION <= limits.most:
        return None
    parts = {"tools": tools, "system prompt": system}
    if configured and least > limits.most:
        needed = limits.needed_for(total, exact=exact)
        return DoesNotFit(
            "system prompt", head, limits.most, parts=parts, window=limits.window, needed=needed, exact=exact
        )
    parts |= {"shortest task": TASK, "shortest conversation": CONVERSATION, "answer, at least": limits.least}
    needed = limits.needed_for(total, exact=exact)
    return DoesNotFit("window", total, limits.most, parts=parts, window=limits.window, needed=needed, exact=exact)
