"""Whether a server cut a prompt without a word: HTTP 200, and a count that is far below what was sent (case 34).

Ollama does it on `/v1`, and on `/api/chat` for models whose template does not heed `truncate` (facts on wires,
section 2).  The answer to a cut prompt is not used; what is raised is the overflow that the server should have told.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.errors import ContextOverflow

if TYPE_CHECKING:
    from agent.values import Answer, Plan

SMALLEST_CUT = 1_000
"""A cut prompt is about half of a window, and no window is below 2048: smaller counts are a server that reports only
what it did not have cached (older versions)."""


class SilentCuts:
    """Looks at one conversation's counts.  `believed` is the largest prompt count that agreed with its estimate."""

    def __init__(self) -> None:
        self.believed = 0

    def judge(self, answer: Answer, plan: Plan | None, window: int, who: str, advice: str) -> None:
        """ContextOverflow when the prompt of this answer was cut.  Without a plan (a summary) only the mark tells."""
        if answer.usage is None:
            return
        reported, estimated = answer.usage.prompt, plan.tokens if plan is not None else 0
        if was_cut(reported, estimated, window, self.believed if plan is not None else 0):
            raise ContextOverflow(
                f"{who} read only {reported} tokens of the {estimated or 'many'} that were sent: it cut the prompt "
                f"silently. {advice}",
                limit=window_behind(reported),
                requested=estimated or None,
            )
        if plan is not None:
            self.believed = max(self.believed, reported)


def was_cut(reported: int, estimated: int, window: int, before: int = 0) -> bool:
    """Whether the server silently cut the prompt: far fewer tokens reported than sent (case 34).

    Half of the estimate is a cut.  Seven tenths are one when the prompt was about as long as the window, or the count
    is the mark of a cut; else the estimate is taken to be wrong.  `before` is the last count that was believed in this
    conversation: a cut leaves about half of the true window, which is at least `before`, so less than half of that is
    a server that reports only what it had not cached.  Without an estimate only the mark counts: half of `window` and
    a few.
    """
    if reported < SMALLEST_CUT or reported < before // 2 - 8:
        return False
    if estimated <= 0:
        return 0 <= reported - window // 2 <= 8
    if reported < 0.5 * estimated:
        return True
    return reported < 0.7 * estimated and (estimated >= 0.9 * window or window_behind(reported) is not None)


def window_behind(reported: int) -> int | None:
    """The true window behind a cut prompt, when the count tells: half of a multiple of 1024, and a few."""
    double = 2 * reported
    nearest = round(double / 1024) * 1024
    return nearest if nearest and 0 <= double - nearest <= 32 else None
