"""What the provider's own numbers teach about an estimate: the ratio reported / estimated, per model.

`LearntRatios` is the rule, `values.Ratios` its contract.  The numbers are kept by `store.ratios.RatioTable` in
tasks.db, or by `MemoryTable` for one process.

There is one ratio a model, not one for each kind of text: a message is recorded with one count, and the weights of each
family of vocabularies already hold for all scripts (docs/counting.md).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

SMALLEST_SAMPLE = 200
"""Tokens; below, the overhead of a template is most of the difference."""

LOWEST, HIGHEST = 1 / 8, 8.0
"""No tokenizer is further off: a report outside is a place-holder, or counts something else."""

PART, MANY = 0.6, 3.0
"""Of the estimate: a report outside may be of the part that was not cached, or hold a prompt that a gateway adds.  It
teaches when others agree with it."""

AGREE = 1.15
"""How far apart ratios that agree are, as a factor."""

AGREEING = 4
"""So many of them in a row."""

GROWN = 1.25
"""And their requests differ by this factor in length: a prompt that is added does not grow with the request."""

NEW_PART = 1.3
"""A report within this factor of the growth since the request before may be of the part that was not cached, and proves
nothing."""

WEIGHT = 0.3
"""Of the newest report, against everything before it; the first three are averaged, so that they are enough."""

SETTLED = 3
"""Reports; from then on one that says what is known is not written again."""

KNOWN = 0.005
"""Share of the ratio: the same, within that."""

DRIFT = 0.10
"""A difference that is worth a line in the log."""


class Table(Protocol):
    """Where ratios are kept: model → (ratio, number of reports that taught it)."""

    def read(self, model: str) -> tuple[float, int]:
        """(1.0, 0) when nothing was learnt."""
        ...

    def change(self, model: str, rule: Callable[[float, int], float]) -> tuple[float, int]:
        """Replace the ratio by rule(ratio, reports) and count one report more, in one transaction; the new row."""
        ...


@dataclass(frozen=True, slots=True)
class Far:
    """Reports in a row that are far from the estimate and agree with the first of them: its ratio, how many they are,
    and the tokens estimated for the shortest and the longest of their requests."""

    ratio: float
    count: int
    shortest: int
    longest: int

    def with_one(self, ratio: float, estimated: int) -> Far:
        """One more, or the first of a new row when it does not agree."""
        if abs(log(ratio / self.ratio)) > log(AGREE):
            return Far(ratio, 1, estimated, estimated)
        return Far(self.ratio, self.count + 1, min(self.shortest, estimated), max(self.longest, estimated))

    @property
    def is_proof(self) -> bool:
        """Whether it is the tokenizer that differs."""
        return self.count >= AGREEING and self.longest >= GROWN * self.shortest


class LearntRatios:
    """`values.Ratios` over a table.  Ratios are kept in memory too, so that `get` is cheap enough for every count."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self._known: dict[str, tuple[float, int]] = {}
        self._far: dict[str, Far] = {}
        self._before: dict[str, int] = {}  # tokens estimated for the newest request

    def get(self, model: str) -> float:
        """The ratio of `model`, 1.0 when nothing was learnt."""
        return self._read(model)[0]

    def learn(self, model: str, estimated: int, reported: int) -> float:
        """Take in one report; the new ratio.

        `estimated` is tokens without any ratio, `reported` tokens by the provider.  A small sample teaches nothing,
        nor does a report that says what is known.
        """
        known, reports = self._read(model)
        if estimated < SMALLEST_SAMPLE or not LOWEST * estimated <= reported <= HIGHEST * estimated:
            return known
        found = reported / estimated
        growth = estimated - self._before.get(model, 0)
        self._before[model] = estimated
        if not PART * min(1.0, known) <= found <= MANY * max(1.0, known):
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
    """The ratio after one more report than `reports`, which found `found`."""
    return round(old + max(WEIGHT, 1 / (reports + 1)) * (found - old), 4)


def drift(estimated: int, reported: int) -> float:
    """How far an estimate was off, as a signed share of what was reported; 0.0 when there is too little to tell."""
    if estimated < SMALLEST_SAMPLE or reported <= 0:
        return 0.0
    return (estimated - reported) / reported


class MemoryTable:
    """A table in memory."""

    def __init__(self) -> None:
        self._rows: dict[str, tuple[float, int]] = {}

    def read(self, model: str) -> tuple[float, int]:
        """(1.0, 0) when nothing was learnt."""
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
