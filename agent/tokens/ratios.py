"""Corrects an estimate by the token numbers that the provider reports: one ratio reported / estimated per model.

`LearntRatios` implements `values.Ratios`.  `store.token_ratios.RatioTable` stores the numbers in tasks.db,
`MemoryTable` holds them for one process.

There is one ratio per model, not one for each kind of text: a message is recorded with one count, and the weights of
each family of vocabularies already cover all scripts (docs/counting.md).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

SMALLEST_SAMPLE = 200
"""The smallest sample, in tokens, from which a ratio is learnt.

In a smaller sample most of the difference is the overhead of the chat template.
"""

LOWEST, HIGHEST = 1 / 8, 8.0
"""Lowest and highest ratio that is learnt.

No tokenizer differs by more: a report outside of the limits is a placeholder, or counts something else.
"""

PART, MANY = 0.6, 3.0
"""A report below PART times or above MANY times the estimate is doubted.

A provider may report only the tokens that were not cached, or include a prompt that a gateway adds.  A doubted report
counts only when further reports agree with it.
"""

AGREE = 1.15
"""Two ratios agree if one is at most this many times the other."""

AGREEING = 4
"""Number of consecutive reports that must agree before a doubted ratio counts."""

GROWN = 1.25
"""Smallest factor between the shortest and the longest request of agreeing reports: a prompt that a gateway adds does
not grow with the request."""

NEW_PART = 1.3
"""A report within this factor of the growth since the previous request proves nothing, since it may count only the
tokens that were not cached."""

WEIGHT = 0.3
"""Weight of the newest report against all earlier reports.

The first three reports are averaged, so that three are enough.
"""

SETTLED = 3
"""Number of reports after which a report that agrees with the known ratio is not stored again."""

KNOWN = 0.005
"""Two ratios count as equal if they differ by at most this share."""

DRIFT = 0.10
"""The smallest relative error of an estimate that is logged."""


class Table(Protocol):
    """A store of ratios: model → (ratio, number of reports that it was learnt from)."""

    def read(self, model: str) -> tuple[float, int]:
        """(ratio, number of reports) of a model; (1.0, 0) when nothing was learnt."""
        ...

    def change(self, model: str, rule: Callable[[float, int], float]) -> tuple[float, int]:
        """Replace the ratio by rule(ratio, reports) and increment the number of reports, in one transaction; returns
        the new row."""
        ...


@dataclass(frozen=True, slots=True)
class Far:
    """A sequence of reports that are far from the estimate and agree with the first of them.

    `ratio` is that of the first report, `count` the number of reports, `shortest` and `longest` the estimated tokens of
    the shortest and the longest of their requests.
    """

    ratio: float
    count: int
    shortest: int
    longest: int

    def with_one(self, ratio: float, estimated: int) -> Far:
        """The sequence with one more report; a new sequence when the report does not agree."""
        if abs(log(ratio / self.ratio)) > log(AGREE):
            return Far(ratio, 1, estimated, estimated)
        return Far(self.ratio, self.count + 1, min(self.shortest, estimated), max(self.longest, estimated))

    @property
    def is_proof(self) -> bool:
        """Whether the reports prove that the tokenizer itself differs from the estimate."""
        return self.count >= AGREEING and self.longest >= GROWN * self.shortest


class LearntRatios:
    """Implements `values.Ratios` over a table.

    Ratios are cached in memory, so that `get` is cheap enough for every count.
    """

    def __init__(self, table: Table) -> None:
        self.table = table
        self._known: dict[str, tuple[float, int]] = {}
        self._far: dict[str, Far] = {}
        self._before: dict[str, int] = {}  # tokens estimated for the newest request

    def get(self, model: str) -> float:
        """The ratio of `model`, 1.0 when nothing was learnt."""
        return self._read(model)[0]

    def reports(self, model: str) -> int:
        """The number of reports that the ratio of `model` was learnt from."""
        return self._read(model)[1]

    def learn(self, model: str, estimated: int, reported: int, plausible: tuple[int, int] | None = None) -> float:
        """Process one report; returns the new ratio.

        `estimated` is in tokens without any ratio, `reported` in tokens as the provider counts.  A report about a small
        sample, and a report that agrees with the known ratio, change nothing.
        """
        known, reports = self._read(model)
        if estimated < SMALLEST_SAMPLE or not LOWEST * estimated <= reported <= HIGHEST * estimated:
            return known
        found = reported / estimated
        growth = estimated - self._before.get(model, 0)
        self._before[model] = estimated
        # The first report of a model may be far from the estimate, within the range of the known vocabularies.
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
    """The new ratio when a report of the ratio `found` comes after `reports` earlier ones."""
    return round(old + max(WEIGHT, 1 / (reports + 1)) * (found - old), 4)


def drift(estimated: int, reported: int) -> float:
    """Error of an estimate, as a signed share of the reported tokens; 0.0 when the sample is too small."""
    if estimated < SMALLEST_SAMPLE or reported <= 0:
        return 0.0
    return (estimated - reported) / reported


class MemoryTable:
    """A `Table` in memory."""

    def __init__(self) -> None:
        self._rows: dict[str, tuple[float, int]] = {}

    def read(self, model: str) -> tuple[float, int]:
        """The row of a model; (1.0, 0) when nothing was learnt."""
        return self._rows.get(model, (1.0, 0))

    def change(self, model: str, rule: Callable[[float, int], float]) -> tuple[float, int]:
        """See `Table`."""
        old, reports = self.read(model)
        self._rows[model] = rule(old, reports), reports + 1
        return self._rows[model]


class MemoryRatios(LearntRatios):
    """`values.Ratios` of one process, for the cases without a database."""

    def __init__(self) -> None:
        super().__init__(MemoryTable())
