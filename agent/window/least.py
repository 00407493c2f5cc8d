"""Whether a window takes any task at all: told before the first request, not after the first results.

Besides tools and system prompt a task needs a few lines of issue, one call with a shortened result, and room for an
answer.  Used at the start of a task (`window.py`) and by `doctor`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.window.base import DoesNotFit

if TYPE_CHECKING:
    from agent.window.limits import Limits

TASK = 256
"""Tokens of a short issue with what the briefing says around it."""

CONVERSATION = 512
"""Tokens of one turn, its results shortened, and what a compaction carries."""

SURE = 0.9
"""Of an estimate of our own tools and prompts: English and JSON are counted within ±10 % (docs/window.md, "How good the
estimate is"), so less than that they do not have."""


def too_small(limits: Limits, tools: int, system: int, *, exact: bool, configured: bool) -> DoesNotFit | None:
    """The error where no task can work in the window of `limits`; None where one can.

    `tools` and `system` are tokens, `exact` whether they were counted with the model's own vocabulary; `configured`:
    the system prompt is the user's, who can shorten it.
    """
    head = tools + system
    least = head if exact else int(head * SURE)
    total = head + TASK + CONVERSATION
    if least + TASK + CONVERSATION <= limits.most:
        return None
    parts = {"tools": tools, "system prompt": system}
    if configured and least > limits.most:
        needed = limits.needed_for(total, exact=exact)
        return DoesNotFit("system prompt", head, limits.most, parts=parts, window=limits.window, needed=needed)
    parts |= {"shortest task": TASK, "shortest conversation": CONVERSATION, "answer, at least": limits.least}
    needed = limits.needed_for(total, exact=exact)
    return DoesNotFit("window", total, limits.most, parts=parts, window=limits.window, needed=needed)
