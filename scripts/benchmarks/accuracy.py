"""How far the estimate of tokens is from the tokenizers that are installed: by a family's own fit, for a family that no
fit has seen, and after one report (`scripts/accuracy`, docs/counting.md)."""

from __future__ import annotations

from statistics import mean
from typing import TYPE_CHECKING

from agent.tokens import counter_for
from agent.tokens.byteclass import ByteClassCounter
from agent.tokens.estimate_weights import document, fit_named

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

MODELS = {
    "o200k": "gpt-4o",
    "cl100k": "gpt-4",
    "qwen": "qwen3",
    "qwen-3.5": "qwen3.6",
    "deepseek": "deepseek-chat",
    "tekken": "devstral",
}
"""Fit → a model whose own tokenizer may be installed."""

NEAR = ({"cl100k", "llama-3"}, {"qwen", "qwen-3.5"}, {"claude", "claude-3"})
"""Fits of vocabularies that are made from each other: who holds one out holds out the other too."""

BAND = 0.15

Errors = dict[str, dict[str, float]]
"""Family → class → signed error of a sum."""


class Measured:
    """The true and the estimated tokens of each document: `true` by family, `fits` by fit; class → a number each."""

    def __init__(self, classes: Mapping[str, Sequence[str]]) -> None:
        exact = {fit: counter for fit, model in MODELS.items() if (counter := counter_for(model)).exact}
        fits = {name: ByteClassCounter(fit_named(name)) for name in document()["fits"]}
        self.missing = sorted(set(MODELS) - set(exact))
        self.classes = list(classes)
        self.true = {
            name: {kind: list(map(one.count, texts)) for kind, texts in classes.items()} for name, one in exact.items()
        }
        self.fits = {
            name: {kind: list(map(one.weigh, texts)) for kind, texts in classes.items()} for name, one in fits.items()
        }

    def own(self) -> Errors:
        """Each family by its own fit."""
        return {
            name: {kind: sum(self.fits[name][kind]) / sum(counts) - 1 for kind, counts in found.items()}
            for name, found in self.true.items()
        }

    def held_out(self, name: str, kind: str) -> list[float]:
        """What a fit of all families but this one and its near relatives makes of each document: the number whose
        relative errors against theirs have the smallest squares, as `scripts/fit_estimate` fits `unknown`."""
        out = next((group for group in NEAR if name in group), {name})
        rest = [fit[kind] for other, fit in self.fits.items() if other != "unknown" and other not in out]
        return [
            sum(1 / count for count in counts) / sum(1 / count**2 for count in counts)
            for counts in zip(*rest, strict=True)
        ]

    def unseen(self) -> Errors:
        """Each family as one that is not known, before any report."""
        return {
            name: {kind: sum(self.held_out(name, kind)) / sum(counts) - 1 for kind, counts in found.items()}
            for name, found in self.true.items()
        }

    def reported_once(self) -> Errors:
        """The same behind one report: the ratio is of the first half of a class, the error of the other."""
        result: Errors = {}
        for name, found in self.true.items():
            result[name] = {}
            for kind, counts in found.items():
                guessed, half = self.held_out(name, kind), len(counts) // 2
                ratio = sum(counts[:half]) / sum(guessed[:half])
                result[name][kind] = ratio * sum(guessed[half:]) / sum(counts[half:]) - 1
        return result


def summary(found: Errors) -> str:
    """How many cells are within the band, and the mean of their absolute errors."""
    cells = [abs(error) for column in found.values() for error in column.values()]
    return (
        f"{sum(cell <= BAND for cell in cells)} of {len(cells)} cells within ±{BAND:.0%}, mean error {mean(cells):.1%}"
    )


def table(found: Errors, kinds: Iterable[str]) -> str:
    """Markdown: a line for each class, a column for each family, in %."""
    lines = [f"| class | {' | '.join(found)} |", f"|---|{'---|' * len(found)}"]
    for kind in kinds:
        numbers = [round(100 * column[kind]) for column in found.values()]
        cells = [f"{number:+}".replace("-", "−") if number else "0" for number in numbers]
        lines.append(f"| {kind} | {' | '.join(cells)} |")
    return "\n".join(lines)
