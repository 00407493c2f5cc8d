"""How much may be sent: the window of a model, what of it is the answer's, and where compaction begins.

The window is the least of what is configured (`config.window`), what the server says is loaded, what an error has
taught and `assembler.max_tokens` (design: "The window of a model"; seed 001, FR-1).  Everything is in tokens and works
from 2,048 to 2,000,000; a larger window never gives a smaller limit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from agent.config.window import CAP, assumed_window, configured_window, window_cap

if TYPE_CHECKING:
    from agent.config import Settings
    from agent.values import Counter

LEARNT = "learnt from an error"

UNKNOWN_OUTPUT = 8192
"""Room for an answer when nobody said how long one may be; a quarter of the window where that is less."""

MARGIN_EXACT = 50
"""One part in so many of the room, where tokens are counted with the model's own vocabulary."""

MARGIN_ESTIMATE = 16
"""The same for estimates: -7 to +4 % on a conversation (tokens.md section 7)."""

LEAST_ANSWER = 256
"""Tokens that an answer needs to hold one call; one part in LEAST_PART of a larger window, at most the reserve."""

LEAST_PART = 16

STEP = 256
"""Tokens to which a window that is named to a person is rounded up."""

COMPRESS_SHARE = 0.9
"""Of the room for input (design: compress mark)."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What one request may be, in tokens.

    `reserve` is kept free for the answer, `margin` for errors of counting; `input_limit` is the most that is sent,
    tools included; past `compress_at` it is time to compact.  `most` is the hard limit: what is sent, with a smaller
    answer, before a task ends; `least` is that answer.  `output` is what the request asks as its longest answer:
    what is configured, else the reserve, so that an answer without an end is cut where its room ends.  `sources` are
    the candidates of `window`, the deciding one first.
    """

    window: int
    reserve: int
    margin: int
    input_limit: int
    compress_at: int
    output: int = 0
    most: int = 0
    least: int = 0
    sources: tuple[tuple[str, int], ...] = ()

    @classmethod
    def of(
        cls,
        settings: Settings,
        client_window: int | None = None,
        learnt: int | None = None,
        *,
        provider: str | None = None,
        model: str | None = None,
        exact: bool = False,
    ) -> Limits:
        """The limits of the configured model, or of another `provider` and `model`.

        `client_window` is what the server says is loaded, `learnt` what an error taught, None for unknown; `exact`
        whether the counter is.  ConfigError when a variable is no number.
        """
        tokens, said = configured_window(settings, provider, model)
        assembler = settings.assembler
        provider = provider or settings.llm.provider
        told = client_window or learnt
        assumed = assumed_window(settings, provider, model or settings.llm.of(provider).model)
        candidates = [
            (CAP, window_cap(settings)) if told and assumed else (said, tokens),
            ("loaded by the server", client_window),
            (LEARNT, learnt),
            ("assembler.max_tokens", assembler.max_tokens),
        ]
        named = settings.provider_of(provider)
        return cls.from_window(
            [(name, size) for name, size in candidates if size],
            max_output_tokens=named.max_output_tokens,
            threshold=settings.context_storage.compression_threshold,
            share=assembler.token_safety_margin,
            exact=exact,
        )

    @classmethod
    def from_window(
        cls,
        sources: list[tuple[str, int]],
        *,
        max_output_tokens: int | None = None,
        threshold: float = 0.7,
        share: float = 0.8,
        exact: bool = False,
    ) -> Limits:
        """The arithmetic alone: the least of `sources`, and what follows from it."""
        ordered = tuple(sorted(sources, key=lambda source: source[1]))
        window = ordered[0][1]
        # Never more than a quarter: a wrong or unknown output limit must not leave nothing for the conversation.
        reserve = min(max_output_tokens or UNKNOWN_OUTPUT, window // 4)
        room = window - reserve
        margin = room // (MARGIN_EXACT if exact else MARGIN_ESTIMATE)
        input_limit = max(1, min(room - margin, int(window * share)))
        least = min(reserve, max(LEAST_ANSWER, window // LEAST_PART))
        doubt = (window - least) // (MARGIN_EXACT if exact else MARGIN_ESTIMATE)
        return cls(
            window=window,
            reserve=reserve,
            margin=margin,
            input_limit=input_limit,
            compress_at=max(1, min(int(window * threshold), int(input_limit * COMPRESS_SHARE))),
            output=min(max_output_tokens or reserve, reserve),
            most=max(input_limit, window - least - doubt),
            least=least,
            sources=ordered,
        )

    def output_for(self, tokens: int) -> int:
        """The longest answer to a request of `tokens`: what is asked for as long as the request keeps to `input_limit`,
        beyond it what is left of the window."""
        if tokens <= self.input_limit:
            return self.output
        return min(self.output, max(self.least, self.most + self.least - tokens))

    def needed_for(self, tokens: int, *, exact: bool) -> int:
        """The least window, rounded up to STEP, whose hard limit takes a request of `tokens`."""

        def most(steps: int) -> int:
            return Limits.from_window([("", steps * STEP)], exact=exact).most

        low, high = 1, 2
        while most(high) < tokens:
            low, high = high, high * 2
        while low < high:
            middle = (low + high) // 2
            if most(middle) < tokens:
                low = middle + 1
            else:
                high = middle
        return low * STEP

    def explain(self, counter: Counter | None = None) -> str:
        """Lines for `show` and `doctor`: every number and where it comes from, and whether counts are estimates."""
        least, *others = self.sources
        lines = [f"window {self.window:,} tokens: {least[0]}"]
        lines += [f"  {'not' if size > self.window else 'also'} {size:,}: {name}" for name, size in others]
        most = f"max_output_tokens, else {UNKNOWN_OUTPUT:,}, at most a quarter of the window"
        lines += [
            f"answer {self.reserve:,} kept free, and no more asked for ({most})",
            f"input at most {self.input_limit:,}; {self.margin:,} kept for errors of counting",
            f"compacts above {self.compress_at:,}; at the most {self.most:,} of input with an answer of {self.least:,}",
        ]
        if counter is not None:
            kind = "the model's own vocabulary" if counter.exact else "an estimate, corrected by what servers report"
            lines.append(f"tokens counted by {counter.name}: {kind}")
        return "\n".join(lines)
