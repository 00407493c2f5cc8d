"""What the provider's own numbers teach about an estimate: the ratio reported / estimated, per model.

`blend` is the rule; the table that keeps it lives in tasks.db behind `values.Ratios`.  `MemoryRatios` keeps it for one
process, for the cases without a database.
"""

from __future__ import annotations

LOWEST, HIGHEST = 0.5, 3.0
"""A ratio outside is no property of a tokenizer: images, a cut prompt, a proxy that counts otherwise."""

SMALLEST_SAMPLE = 200
"""Tokens; below, the overhead of a template is most of the difference."""

PART = 0.6
"""Of the estimate: a report of less is of a server that tells only what it had not cached."""

WEIGHT = 0.3
"""Of the newest pair, against everything before it; the first three are averaged, so that they are enough."""

DRIFT = 0.10
"""A difference that is worth a line in the log (design: section 6)."""


def is_sample(estimated: int, reported: int) -> bool:
    """Whether a pair teaches anything."""
    return estimated >= SMALLEST_SAMPLE and reported >= PART * estimated


def blend(old: float, estimated: int, reported: int, samples: int = 1000) -> float:
    """The new ratio after one more pair than `samples`; `estimated` is the estimate *before* any ratio was applied, in
    tokens."""
    if not is_sample(estimated, reported):
        return old
    found = min(HIGHEST, max(LOWEST, reported / estimated))
    return round(old + max(WEIGHT, 1 / (samples + 1)) * (found - old), 4)


def drift(estimated: int, reported: int) -> float:
    """How far an estimate was off, as a signed share of what was reported; 0.0 when there is too little to tell."""
    if estimated < SMALLEST_SAMPLE or reported <= 0:
        return 0.0
    return (estimated - reported) / reported


class MemoryRatios:
    """`values.Ratios` in memory."""

    def __init__(self) -> None:
        self._ratios: dict[str, float] = {}
        self._samples: dict[str, int] = {}

    def get(self, model: str) -> float:
        """The ratio, 1.0 when nothing was learnt."""
        return self._ratios.get(model, 1.0)

    def learn(self, model: str, estimated: int, reported: int) -> float:
        """Take one pair in; the new ratio."""
        samples = self._samples.get(model, 0)
        self._ratios[model] = blend(self.get(model), estimated, reported, samples)
        self._samples[model] = samples + is_sample(estimated, reported)
        return self._ratios[model]
