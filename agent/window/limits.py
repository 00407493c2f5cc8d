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

UNKNOWN_OUTPUT = 8192
"""Room for an answer when nobody said how long one may be; a quarter of the window where that is less."""

MARGIN_EXACT = 50
"""One part in so many of the room, where tokens are counted with the model's own vocabulary."""

MARGIN_ESTIMATE = 16
"""The same for estimates: -7 to +4 % on a conversation (tokens.md section 7)."""

COMPRESS_SHARE = 0.9
"""Of the room for input (design: compress mark)."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What one request may be, in tokens.

    `reserve` is kept free for the answer, `margin` for errors of counting; `input_limit` is the most that is sent,
    tools included; past `compress_at` it is time to compact.  `output` is what the request asks as its longest answer:
    what is configured, else the reserve, so that an answer without an end is cut where its room ends.  `sources` are
    the candidates of `window`, the deciding one first.
    """

    window: int
    reserve: int
    margin: int
    input_limit: int
    compress_at: int
    output: int = 0
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
            ("learnt from an error", learnt),
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
        return cls(
            window=window,
            reserve=reserve,
            margin=margin,
            input_limit=input_limit,
            compress_at=max(1, min(int(window * threshold), int(input_limit * COMPRESS_SHARE))),
            output=min(max_output_tokens or reserve, reserve),
            sources=ordered,
        )

    def explain(self, counter: Counter | None = None) -> str:
        """Lines for `show` and `doctor`: every number and where it comes from, and whether counts are estimates."""
        least, *others = self.sources
        lines = [f"window {self.window:,} tokens: {least[0]}"]
        lines += [f"  {'not' if size > self.window else 'also'} {size:,}: {name}" for name, size in others]
        most = f"max_output_tokens, else {UNKNOWN_OUTPUT:,}, at most a quarter of the window"
        lines += [
            f"answer {self.reserve:,} kept free, and no more asked for ({most})",
            f"input at most {self.input_limit:,}; {self.margin:,} kept for errors of counting",
            f"compacts above {self.compress_at:,}",
        ]
        if counter is not None:
            kind = "the model's own vocabulary" if counter.exact else "an estimate, corrected by what servers report"
            lines.append(f"tokens counted by {counter.name}: {kind}")
        return "\n".join(lines)
