"""Reads and writes the database table `token_ratios`: for each model a learnt factor that corrects token estimates.

`tokens.ratios.LearntRatios` computes the factors and calls `RatioTable`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent import clock

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent.store.base import Database


class RatioTable:
    """Implements the interface `tokens.ratios.Table` in a database."""

    def __init__(self, database: Database) -> None:
        self.database = database

    def read(self, model: str) -> tuple[float, int]:
        """(ratio of reported to estimated tokens of `model`, number of reports from which it was learnt); (1.0, 0)
        before the first report."""
        rows = self.database.run("ratio_get", model=model)
        return (float(rows[0]["ratio"]), int(rows[0]["samples"])) if rows else (1.0, 0)

    def change(self, model: str, rule: Callable[[float, int], float]) -> tuple[float, int]:
        """Replace the ratio of `model` by the result of `rule(ratio, reports)` and increment the number of reports, in
        one transaction; returns (new ratio, new number of reports)."""
        with self.database.transaction():
            old, reports = self.read(model)
            ratio = rule(old, reports)
            self.database.run("ratio_put", model=model, ratio=ratio, now=clock.stamp())
        return ratio, reports + 1
