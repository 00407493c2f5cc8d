"""Detects prompts that a server truncated silently: the status is 200, and the token count is far below that of the
prompt (case 34).

Ollama truncates prompts on `/v1`, and on `/api/chat` for models with a template that ignores `truncate` (docs/wire.md,
"Ollama's silent cut").  The answer to a truncated prompt is not used; this module raises the error that the server
omitted: an overflow.

For some texts the token estimate is wrong by a factor, so the estimate never decides alone.  A low count is only a
reason to query the window that the server has allocated.  The server's own numbers prove a truncation: the count
matches a cut for that window, or the prompt has grown and its count has not.  Without such a proof the reported count
is trusted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from agent.errors import ContextOverflow
from agent.llm.model_info import entries, positive_int

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent.values import Answer, Plan

SMALLEST_CUT = 1_000
"""A cut prompt has about half as many tokens as the window, and no window is below 2048.

Smaller counts come from older servers that report only uncached tokens.
"""

SUSPECT = 0.7
"""A reported count below this share of the estimate is checked."""

KEPT = 32
"""Tokens that remain after a cut beyond half of the window: the start of the prompt (`num_keep`), and rounding."""

LEAST_GROWTH = 64
"""Minimum tokens added since the last report, unless the count matches a cut: templates format the newest message
differently from older messages."""

STEP = 1024
"""Windows are multiples of this number."""


class Size(Protocol):
    """The part of `context.usage_reports.MessageCost` that this module uses."""

    @property
    def text(self) -> int:
        """Estimated tokens of text and calls."""
        ...


class Reports(Protocol):
    """The part of `context.usage_reports.Reports` that this module uses."""

    is_partial: bool

    @property
    def read(self) -> int:
        """The prompt tokens in the newest report about this view, 0 if there is none."""
        ...

    @property
    def added(self) -> Size:
        """The size of the text after the newest report."""
        ...

    def lacks_growth(self, prompt: int) -> bool:
        """Whether the server reports a later prompt of the view as hardly longer, or as shorter, although it has more
        text."""
        ...


def check_not_truncated(
    answer: Answer,
    plan: Plan | None,
    reports: Reports | None,
    window: int,
    allocated: Callable[[], int | None],
    who: str,
    advice: str,
) -> None:
    """Raise ContextOverflow when the prompt of this answer was truncated.

    `reports` are the conversation's reports at the time of the plan, None if there are none.  `window` is the assumed
    window in tokens.  `allocated` queries the server's real window; it is called only for a prompt that seems to be
    truncated.  Without a plan (a summary) only a count that matches a cut for `window` proves a truncation.
    """
    reported = answer.usage.prompt if answer.usage is not None else 0
    if reported < SMALLEST_CUT:
        return
    found: int | None = None
    if plan is None:
        found = window if is_mark(reported, window) else None
    else:
        suspect = reported < SUSPECT * estimate_of(plan)
        if suspect and (true := allocated()) and is_mark(reported, true):
            found = true
        elif reports is not None and is_whole(plan) and has_not_grown(reported, reports):
            found = window_behind(reported, reports.read)
    estimated = estimate_of(plan) if plan is not None else 0
    if found is not None:
        raise ContextOverflow(
            f"{who} read only {reported} tokens of the {estimated or 'many'} that were sent: it cut the prompt "
            f"silently. {advice}",
            limit=found,
        )


def is_whole(plan: Plan) -> bool:
    """Whether the plan covers the whole view; only such prompts can be compared."""
    return len(plan.spans) == 1 and not plan.spans[0].start


def estimate_of(plan: Plan) -> int:
    """The estimate of the token counter for a plan.

    `plan.tokens` is based on reports, one of which may be about a truncated prompt.
    """
    layers: dict[str, int] = plan.metadata.get("layer_tokens") or {}
    return max(plan.tokens, sum(layers.values()))


def has_not_grown(reported: int, reports: Reports) -> bool:
    """Whether a prompt has grown since the last report although its token count has not.

    A cut leaves at least about half of a window that held the previous prompt.  A count below half of that window, or
    close to that of the new text, comes from a server that reports only uncached tokens.  Chat templates may also drop
    the thinking of earlier turns.
    """
    if not reports.read or reports.is_partial or reported < reports.read // 2 - KEPT:
        return False
    new = reports.added.text
    if is_mark_of_any(reported):
        return reports.lacks_growth(reported)
    return new >= LEAST_GROWTH and reports.lacks_growth(reported) and not 0.6 * new <= reported <= 1.6 * new


def is_mark(reported: int, window: int) -> bool:
    """Whether the count matches a prompt that was cut for `window`: half of the window plus a few tokens."""
    return 0 <= reported - window // 2 <= KEPT


def is_mark_of_any(reported: int) -> bool:
    """Whether the count matches a cut for any window."""
    return 0 <= 2 * reported - round(2 * reported / STEP) * STEP <= 2 * KEPT


def window_behind(reported: int, before: int) -> int:
    """The true window after a cut prompt.

    The result is the window for which the count is that of a cut prompt, if the whole prompt `before` fits into that
    window; else the smallest window that holds both prompts.
    """
    marked = round(2 * reported / STEP) * STEP
    if is_mark_of_any(reported) and marked >= before:
        return marked
    return -(-max(reported, before) // STEP) * STEP


def allocated_of(answer: Any, model: str, is_same: Callable[[str, str], bool]) -> int | None:
    """The window that Ollama reports in `/api/ps` as allocated for the model; None if it does not report one."""
    for entry in entries(answer, "models"):
        if is_same(model, str(entry.get("model") or entry.get("name"))):
            return positive_int(entry.get("context_length"))
    return None
