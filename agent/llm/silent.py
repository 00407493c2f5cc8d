"""Whether a server cut a prompt without a word: HTTP 200, and a count that is far below what was sent (case 34).

Ollama does it on `/v1`, and on `/api/chat` for models whose template does not heed `truncate` (docs/wire.md, "Ollama's
silent cut").  The answer to a cut prompt is not used; what is raised is the overflow that the server should have told.

An estimate is wrong by a factor for some texts, so it decides nothing.  It is a reason to ask the server which window
it has allocated.  A cut is told by the server's own numbers: the count is the mark of a cut for that window, or the
prompt has grown and its number has not.  Until then the report is believed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from agent.errors import ContextOverflow
from agent.llm.windows import entries, whole

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent.values import Answer, Plan

SMALLEST_CUT = 1_000
"""A cut prompt is about half of a window, and no window is below 2048: smaller counts are a server that reports only
what it did not have cached (older versions)."""

SUSPECT = 0.7
"""Of the estimate: a report of less is looked at."""

KEPT = 32
"""Tokens beside the half of the window that a cut leaves: the start of the prompt (`num_keep`), and rounding."""

LEAST_GROWTH = 64
"""Tokens that must have come since, unless the count is the mark of a cut: templates write a newest message otherwise
than an older one."""

STEP = 1024
"""Windows are multiples of it."""


class Size(Protocol):
    """What is needed of `context.reports.Cost`."""

    @property
    def text(self) -> int:
        """Estimated tokens of text and calls."""
        ...


class Reports(Protocol):
    """What is needed of `context.reports.Reports`."""

    is_partial: bool

    @property
    def read(self) -> int:
        """The prompt of the newest report of this view, in tokens, 0 for none."""
        ...

    @property
    def added(self) -> Size:
        """What came after it."""
        ...

    def lacks_growth(self, prompt: int) -> bool:
        """Whether a later prompt of the view is reported as hardly longer, or shorter, though there is more in it."""
        ...


def judge(
    answer: Answer,
    plan: Plan | None,
    reports: Reports | None,
    window: int,
    allocated: Callable[[], int | None],
    who: str,
    advice: str,
) -> None:
    """ContextOverflow when the prompt of this answer was cut.

    `reports` is the account of the conversation as it was when the request was planned, None where there is none;
    `window` is the window that is believed in, in tokens; `allocated` asks the server for the one that it has, and is
    only called for a prompt that looks cut.  Without a plan (a summary) only the mark of `window` tells.
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
    """Whether the plan is of the whole view, of which two prompts can be compared."""
    return len(plan.spans) == 1 and not plan.spans[0].start


def estimate_of(plan: Plan) -> int:
    """Tokens of a plan by the counter.  `plan.tokens` rests on reports, and one of them may be of a cut prompt."""
    layers: dict[str, int] = plan.metadata.get("layer_tokens") or {}
    return max(plan.tokens, sum(layers.values()))


def has_not_grown(reported: int, reports: Reports) -> bool:
    """Whether a prompt has grown since the report before, and its number has not.

    A cut leaves at least about half of a window that has held the prompt before; less than that, or about what is new,
    is of a server that reports only what it had not cached.  Thinking of earlier turns may go from a prompt by itself.
    """
    if not reports.read or reports.is_partial or reported < reports.read // 2 - KEPT:
        return False
    new = reports.added.text
    if is_mark_of_any(reported):
        return reports.lacks_growth(reported)
    return new >= LEAST_GROWTH and reports.lacks_growth(reported) and not 0.6 * new <= reported <= 1.6 * new


def is_mark(reported: int, window: int) -> bool:
    """Whether this is the count of a prompt that was cut for `window`: its half, and a few tokens."""
    return 0 <= reported - window // 2 <= KEPT


def is_mark_of_any(reported: int) -> bool:
    """The same for a window that is not known."""
    return 0 <= 2 * reported - round(2 * reported / STEP) * STEP <= 2 * KEPT


def window_behind(reported: int, before: int) -> int:
    """The true window behind a cut prompt: the one whose mark the count is, when it has room for the prompt `before`,
    which was whole; else the least that has room for both."""
    marked = round(2 * reported / STEP) * STEP
    if is_mark_of_any(reported) and marked >= before:
        return marked
    return -(-max(reported, before) // STEP) * STEP


def allocated_of(answer: Any, model: str, is_same: Callable[[str, str], bool]) -> int | None:
    """The window that Ollama's `/api/ps` says is allocated for the model, None where it does not say."""
    for entry in entries(answer, "models"):
        if is_same(model, str(entry.get("model") or entry.get("name"))):
            return whole(entry.get("context_length"))
    return None
