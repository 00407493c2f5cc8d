"""Corrects an estimate of tokens by the numbers of tokens that the provider reports: one ratio reported / estimated per
model.

`LearntRatios` implements `values.Ratios`.  `store.token_ratios.RatioTable` stores the ratios in tasks.db, `MemoryTable`
holds them in memory for one process.

A model has one ratio and not one ratio for each kind of text: a message is recorded with a single count, and the
weights for each family of vocabularies already cover all scripts (docs/counting.md).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

SMALLEST_SAMPLE = 200
"""No ratio is learnt from a report about fewer estimated tokens than SMALLEST_SAMPLE. In a request of fewer than
SMALLEST_SAMPLE tokens, most of the difference between the reported and the estimated tokens is the overhead of the chat
template.
"""

LOWEST, HIGHEST = 1 / 8, 8.0
"""The lowest and the highest ratio that can be learnt.

The tokenizers of models differ by less than the factors LOWEST and HIGHEST: a report with a ratio below LOWEST or above
HIGHEST is a placeholder, or counts something else.
"""

PART, MANY = 0.6, 3.0
"""A report is doubtful if it is below PART times, or above MANY times, both the plain estimate and the estimate times
the known ratio.

A provider with doubtful reports of tokens may report only the tokens that were not cached, or include a prompt that a
gateway adds. A doubtful report of tokens is used only if further reports agree with it.
"""

AGREE = 1.15
"""Two ratios agree if the higher is at most AGREE times the lower."""

AGREEING = 4
"""Number of consecutive doubtful reports of tokens that must agree before their ratio is used."""

GROWN = 1.25
"""Doubtful reports are used only if the longest of their requests has at least this many times the tokens of the
shortest: the ratios of reports that include a gateway's own prompt, which has a fixed length, differ over such a
range."""

NEW_PART = 1.3
"""A doubtful report is ignored if it differs by at most this factor from the number of tokens by which the request has
grown since the previous request, since the provider may count only the tokens that were not cached."""

WEIGHT = 0.3
"""Weight of the newest report of tokens in the new ratio; the old ratio has the remaining weight.

The first three reports of tokens have equal weight, so that three reports are enough for a good ratio.
"""

SETTLED = 3
"""After SETTLED reports about a model, a report with a ratio equal to the known one (see KNOWN) is not stored."""

KNOWN = 0.005
"""Two ratios of tokens count as equal if they differ by at most this share."""

DRIFT = 0.10
"""The error of an estimate is logged if it is at least this share of the reported tokens."""


class Table(Protocol):
    """The interface of a store of ratios: model → (ratio, number of reports from which it was learnt)."""

    def read(self, model: str) -> tuple[float, int]:
        """The row (ratio, number of reports) for a model; (1.0, 0) if nothing was learnt."""
        ...

    def change(self, model: str, rule: Callable[[float, int], float]) -> tuple[float, int]:
        """Replace the ratio by the result of `rule(ratio, reports)` and increment the number of reports, in one
        transaction; returns the new row."""
        ...


@dataclass(frozen=True, slots=True)
class Far:
    """A sequence of doubtful reports of tokens that agree with the first of them.

    `ratio` is that of the first report, `count` the number of reports, `shortest` and `longest` the estimated tokens of
    the shortest and the longest of their requests.
    """

    ratio: float
    count: int
    shortest: int
    longest: int

    def with_one(self, ratio: float, estimated: int) -> Far:
        """The sequence of doubtful reports with one more report; if the ratio of that report does not agree with
        `self.ratio`, a new sequence with that report alone."""
        if abs(log(ratio / self.ratio)) > log(AGREE):
            return Far(ratio, 1, estimated, estimated)
        return Far(self.ratio, self.count + 1, min(self.shortest, estimated), max(self.longest, estimated))

    @property
    def is_proof(self) -> bool:
        """Whether the reports prove that the tokenizer itself differs from the estimate, so that their ratio can be
        used."""
        return self.count >= AGREEING and self.longest >= GROWN * self.shortest


class LearntRatios:
    """Implements `values.Ratios` with a table of ratios.

    Learnt ratios are cached in memory, so that `get` is cheap enough for every count.
    """

    def __init__(self, table: Table) -> None:
        self.table = table
        self._known: dict[str, tuple[float, int]] = {}
        self._far: dict[str, Far] = {}
        # by model, the estimated tokens of the newest request with a report within LOWEST and HIGHEST
        self._before: dict[str, int] = {}

    def get(self, model: str) -> float:
        """The ratio of `model`, 1.0 if nothing was learnt."""
        return self._read(model)[0]

    def reports(self, model: str) -> int:
        """The number of reports from which the ratio of `model` was learnt."""
        return self._read(model)[1]

    def learn(self, model: str, estimated: int, reported: int, plausible: tuple[int, int] | None = None) -> float:
        """Learn from one report of tokens; returns the ratio of the model afterwards.

        `estimated` is the estimate of the tokens without any ratio, `reported` the number of tokens that the provider
        reports. The ratio is not changed by a report about a small request, by a report below LOWEST or above HIGHEST,
        by a doubtful report that no further reports confirm, nor by a report equal to a ratio with SETTLED reports.
        """
        known, reports = self._read(model)
        if estimated < SMALLEST_SAMPLE or not LOWEST * estimated <= reported <= HIGHEST * estimated:
            return known
        found = reported / estimated
        growth = estimated - self._before.get(model, 0)
        self._before[model] = estimated
        # The first report for a model may be far from the estimate if it is within the range of the known vocabularies.
        first = reports == 0 and plausible is not None and plausible[0] / AGREE <= reported <= plausible[1] * AGREE
        if not (first or PART * min(1.0, known) <= found <= MANY * max(1.0, known)):
            if growth / NEW_PART <= reported <= growth * NEW_PART:
                return known
            far = self._far.get(model)
            self._far[model] = far = far.with_one(found, estimated) if far else Far(found, 1, estimated, estimated)
            if not far.is_proof:
                return known
        else:
            self._far.pop(model, None)
        if reports >= SETTLED and abs(found - known) <= KNOWN * known:
            return known
        self._known[model] = self.table.change(model, lambda old, count: blend(old, found, count))
        return self._known[model][0]

    def _read(self, model: str) -> tuple[float, int]:
        if model not in self._known:
            self._known[model] = self.table.read(model)
        return self._known[model]


def blend(old: float, found: float, reports: int) -> float:
    """The new ratio after a report of the ratio `found`, when the old ratio was learnt from `reports` reports."""
    return round(old + max(WEIGHT, 1 / (reports + 1)) * (found - old), 4)


def drift(estimated: int, reported: int) -> float:
    """The error of an estimate of tokens, as a share of the reported tokens, positive if the estimate is too high; 0.0
    for a small request."""
    if estimated < SMALLEST_SAMPLE or reported <= 0:
        return 0.0
    return (estimated - reported) / reported


class MemoryTable:
    """A table of learnt ratios in memory."""

    def __init__(self) -> None:
        self._rows: dict[str, tuple[float, int]] = {}

    def read(self, model: str) -> tuple[float, int]:
        """The row (ratio, number of reports) for a model; (1.0, 0) if nothing was learnt."""
        return self._rows.get(model, (1.0, 0))

    def change(self, model: str, rule: Callable[[float, int], float]) -> tuple[float, int]:
        """See `Table`."""
        old, reports = self.read(model)
        self._rows[model] = rule(old, reports), reports + 1
        return self._rows[model]


class MemoryRatios(LearntRatios):
    """`values.Ratios` for one process, where there is no database."""

    def __init__(self) -> None:
        super().__init__(MemoryTable())
