"""Detects prompts that a server truncated silently: the status is 200, but the server's count of prompt tokens is far
below the tokens of the prompt that was sent.

Ollama truncates prompts on `/v1`, and on `/api/chat` for models with a template that ignores `truncate` (docs/wire.md,
"Ollama's silent cut").  The answer to a truncated prompt is not used; `truncation_detector.py` raises the error that
the server should have sent: a ContextOverflow.

For some texts the estimate of prompt tokens is wrong by a factor, so the estimate alone does not prove a truncation. A
token count of the server that is far below the estimate is only a reason to ask the server for the context window that
it has allocated. Two facts prove a truncation: the server's count of prompt tokens is the one that remains after a
prompt was cut for the allocated window, or the prompt has grown since the last request and the server's count has not.
Without a proof of a truncation the server's count of prompt tokens is trusted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from agent.errors import ContextOverflow
from agent.llm.model_info import entries, positive_int

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent.values import Answer, Plan

SMALLEST_CUT = 1_000
"""Counts of prompt tokens below this number do not show a truncation: a truncated prompt has about half as many tokens
as the context window, and no window is below 2048.

Counts of prompt tokens below SMALLEST_CUT come from short prompts, and from older servers, which report only tokens
that were not cached.
"""

SUSPECT = 0.7
"""If the server's count of prompt tokens is below this share of the estimate, the prompt may have been truncated."""

KEPT = 32
"""A truncated prompt has at most this many tokens more than half of the window: Ollama keeps the start of the prompt
(`num_keep`) in addition, and rounds."""

LEAST_GROWTH = 64
"""A prompt counts as grown only if at least this many tokens were added since the last report, since chat templates
format the newest message differently from older ones; LEAST_GROWTH does not apply if the count is one that a truncated
prompt may have."""

STEP = 1024
"""The size of a context window is assumed to be a multiple of this number."""


class Size(Protocol):
    """The part of `context.usage_reports.MessageCost` that `truncation_detector.py` uses."""

    @property
    def text(self) -> int:
        """Estimated tokens of the text and of the tool calls in messages."""
        ...


class Reports(Protocol):
    """The part of `context.usage_reports.UsageReports` that `truncation_detector.py` uses."""

    is_partial: bool

    @property
    def read(self) -> int:
        """The count of prompt tokens in the server's newest report about the current context file, 0 if there is no
        report."""
        ...

    @property
    def added(self) -> Size:
        """The size of the messages that were added after the server's newest report."""
        ...

    def lacks_growth(self, prompt: int) -> bool:
        """Whether the count `prompt` of a later prompt is hardly higher than the reported count, or lower, although the
        later prompt has more text."""
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
    """Raise ContextOverflow when the server truncated the prompt to which `answer` belongs.

    `reports` are the servers' earlier reports on prompts of the conversation, None if there are none. `window` is the
    assumed context window of the model, in tokens. `allocated` asks the server for the window that it has allocated;
    `allocated` is called only for a prompt that seems to be truncated. If `plan` is None (a summary), only the count
    that remains after a cut for `window` proves a truncation.
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
    """Whether the request plan contains the whole context file; only the token counts of prompts with the whole context
    file can be compared with each other."""
    return len(plan.spans) == 1 and not plan.spans[0].start


def estimate_of(plan: Plan) -> int:
    """The estimated number of tokens of a request plan; at least the sum of the token counter's own estimates.

    `plan.tokens` alone may be too low, since it is based on counts of the server, and one of these may be the count of
    a truncated prompt.
    """
    layers: dict[str, int] = plan.metadata.get("layer_tokens") or {}
    return max(plan.tokens, sum(layers.values()))


def has_not_grown(reported: int, reports: Reports) -> bool:
    """Whether the server's count of prompt tokens has not grown since its last report although the prompt has grown.

    A truncation leaves about half of the context window, and the previous prompt fitted into the window. After a
    truncation the count of prompt tokens is therefore not much lower than half of the previous count: a count below
    that, or close to the tokens of the new text alone, shows that the server reports only tokens that were not cached.
    A prompt may also shrink because chat templates drop the reasoning of earlier turns; `lacks_growth` allows for that.
    """
    if not reports.read or reports.is_partial or reported < reports.read // 2 - KEPT:
        return False
    new = reports.added.text
    if is_mark_of_any(reported):
        return reports.lacks_growth(reported)
    return new >= LEAST_GROWTH and reports.lacks_growth(reported) and not 0.6 * new <= reported <= 1.6 * new


def is_mark(reported: int, window: int) -> bool:
    """Whether `reported` is the token count of a prompt that was truncated for `window`: half of the window plus a few
    tokens."""
    return 0 <= reported - window // 2 <= KEPT


def is_mark_of_any(reported: int) -> bool:
    """Whether `reported` may be the token count of a prompt that was truncated for a context window of any size."""
    return 0 <= 2 * reported - round(2 * reported / STEP) * STEP <= 2 * KEPT


def window_behind(reported: int, before: int) -> int:
    """The server's true context window, computed from the token count of a truncated prompt (`reported`) and the token
    count of the previous prompt (`before`).

    If there is a window for which `reported` is the count of a truncated prompt, and the previous prompt fits into it,
    the result is that window; otherwise it is the smallest window into which both prompts fit.
    """
    marked = round(2 * reported / STEP) * STEP
    if is_mark_of_any(reported) and marked >= before:
        return marked
    return -(-max(reported, before) // STEP) * STEP


def allocated_of(answer: Any, model: str, is_same: Callable[[str, str], bool]) -> int | None:
    """The context window that Ollama's response to `/api/ps` names as allocated for the model; None if the response
    names none."""
    for entry in entries(answer, "models"):
        if is_same(model, str(entry.get("model") or entry.get("name"))):
            return positive_int(entry.get("context_length"))
    return None
