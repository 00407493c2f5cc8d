"""The table `token_ratios` of tasks.db: what was learnt about the estimates of each model.

`tokens.ratios.LearntRatios` has the rule and calls this table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent import clock

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent.store.base import Database


class RatioTable:
    """`tokens.ratios.Table` in a database."""

    def __init__(self, database: Database) -> None:
        self.database = database

    def read(self, model: str) -> tuple[float, int]:
        """Ratio reported / estimated of `model`, and how many reports taught it; (1.0, 0) when nothing was learnt."""
        rows = self.database.run("ratio_get", model=model)
        return (float(rows[0]["ratio"]), int(rows[0]["samples"])) if rows else (1.0, 0)

    def change(self, model: str, rule: Callable[[float, int], float]) -> tuple[float, int]:
        """Replace the ratio by rule(ratio, reports) and count one report more, in one transaction; the new row."""
        with self.database.transaction():
            old, reports = self.read(model)
            ratio = rule(old, reports)
            self.database.run("ratio_put", model=model, ratio=ratio, now=clock.stamp())
        return ratio, reports + 1
