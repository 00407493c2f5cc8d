"""The token limits of a request: the window of a model, the part that is reserved for the answer, and the number of
tokens at which a compaction starts.

The window is the smallest of four windows: the configured one (`config.configured_window`), the loaded one that the
server reports, the one learnt from an error, and `assembler.max_tokens` (docs/configuration.md, "The window of a
model"). If the configured window is only assumed, and the server or an error has shown the true one, the assumed one is
not used; MLC_MAX_CONTEXT_TOKENS, if it is set, takes the place of the assumed one. All numbers are in tokens, and
windows from 2,048 to 2,000,000 tokens work. A larger window never results in a smaller limit.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from agent.config.configured_window import CAP, assumed_window, configured_window, window_cap

if TYPE_CHECKING:
    from agent.config import Settings
    from agent.values import Counter

LEARNT = "learnt from an error"

UNKNOWN_OUTPUT = 8192
"""The number of tokens that are reserved for an answer if its maximum length is unknown; a quarter of the window if
that is less."""

MARGIN_EXACT = 50
"""The margin for errors of counting is the window without the reserve, divided by this number, if tokens are counted
with the model's own vocabulary."""

MARGIN_ESTIMATE = 16
"""The margin for errors of counting is the window without the reserve, divided by this number, if tokens are estimated.
Estimates are wrong by -7 to +4 % on a conversation (docs/counting.md, "How good it is")."""

LEAST_ANSWER = 256
"""The smaller reserve `WindowLimits.least`, enough for one tool call, is the larger of LEAST_ANSWER tokens and
1/LEAST_PART of the window, but at most the ordinary reserve."""

LEAST_PART = 16

STEP = 256
"""In messages to people a window is rounded up to a multiple of this number of tokens."""

COMPRESS_SHARE = 0.9
"""A compaction starts at latest at this share of `input_limit` (docs/window.md, "Limits")."""


@dataclass(frozen=True, slots=True)
class WindowLimits:
    """The limits of one request, in tokens.

    `reserve` is the number of tokens that are reserved for the answer, `margin` the number for errors of counting.
    `input_limit` is the number of tokens of the largest ordinary request, tools included; above `compress_at` a
    compaction starts. `most` is the hard limit, which leaves the smaller reserve `least` for the answer: if a request
    cannot be made to fit it, the task ends. `output` is the longest answer that a request asks for: the configured
    maximum, at most the reserve, so that an endless answer is cut. `sources` are all known windows with the place where
    each comes from, the smallest first. `doubt` is the factor by which the true number of tokens may exceed an
    estimate.
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
    doubt: float = 1.0

    @classmethod
    def from_settings(
        cls,
        settings: Settings,
        client_window: int | None = None,
        learnt: int | None = None,
        *,
        provider: str | None = None,
        model: str | None = None,
        exact: bool = False,
    ) -> WindowLimits:
        """The token limits of the configured model, or of another `provider` and `model`.

        `client_window` is the loaded window that the server reports, `learnt` the one learnt from an error; None if
        unknown. `exact` is True if the token counter has the model's own vocabulary. Raises ConfigError if an
        environment variable for a window is not a whole number above 0.
        """
        tokens, said = configured_window(settings, provider, model)
        assembler = settings.assembler
        provider = provider or settings.llm.provider
        told = client_window or learnt
        assumed = assumed_window(settings, provider, model or settings.llm.provider_section(provider).model)
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
    ) -> WindowLimits:
        """Compute the limits from the smallest of `sources`."""
        ordered = tuple(sorted(sources, key=lambda source: source[1]))
        window = ordered[0][1]
        # The reserve is at most a quarter of the window: a wrong or unknown output limit must leave tokens for the
        # conversation.
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

    def scaled_by_doubt(self, doubt: float) -> WindowLimits:
        """The token limits for the case that the true number of tokens exceeds an estimate by the factor `doubt`.

        The hard limit stays the same: comments of people must not be removed only because of a doubt.
        """
        if doubt <= 1.0:
            return self
        input_limit = max(1, int(self.input_limit / doubt))
        return replace(
            self,
            margin=self.margin + self.input_limit - input_limit,
            input_limit=input_limit,
            compress_at=max(1, min(self.compress_at, int(input_limit * COMPRESS_SHARE))),
            doubt=doubt,
        )

    def output_for(self, tokens: int) -> int:
        """The longest answer to ask for in a request of `tokens` tokens: the configured maximum if `tokens` is at most
        `input_limit`, else the rest of the window, at least `least` and at most that maximum."""
        if tokens <= self.input_limit:
            return self.output
        return min(self.output, max(self.least, self.most + self.least - tokens))

    def needed_for(self, tokens: int, *, exact: bool) -> int:
        """The smallest window (a multiple of STEP) of which the hard limit is at least `tokens`, for a model whose
        maximum length of an answer is unknown."""

        def most(steps: int) -> int:
            return WindowLimits.from_window([("", steps * STEP)], exact=exact).most

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
        """Lines for `show` and `doctor`: the known windows with their sources, the limits, and, with a `counter`,
        whether its counts are estimates."""
        least, *others = self.sources
        lines = [f"window {self.window:,} tokens: {least[0]}"]
        lines += [f"  {'not' if size > self.window else 'also'} {size:,}: {name}" for name, size in others]
        most = f"max_output_tokens, else {UNKNOWN_OUTPUT:,}, at most a quarter of the window"
        lines += [
            f"answer {self.reserve:,} kept free, and no more asked for ({most})",
            f"input at most {self.input_limit:,}; {self.margin:,} kept for errors of counting",
            f"compacts above {self.compress_at:,}; at the most {self.most:,} of input with an answer of {self.least:,}",
        ]
        if self.doubt > 1.0:
            lines.append(
                f"the vocabulary of the model is not known: until its server reports, a request may have "
                f"{self.doubt:.2f} times the estimate"
            )
        if counter is not None:
            kind = "the model's own vocabulary" if counter.exact else "an estimate, corrected by what servers report"
            lines.append(f"tokens counted by {counter.name}: {kind}")
        return "\n".join(lines)
