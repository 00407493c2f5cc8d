"""What was learnt about the estimates of each model: reported / estimated tokens, kept in tasks.db.

The real form of `values.Ratios`.  `tokens` multiplies its estimates with it, whoever sends requests teaches it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent import clock

if TYPE_CHECKING:
    from agent.store.db import Database

WEIGHT = 0.25  # of a new pair; the first one counts whole
LEAST, MOST = 0.25, 4.0  # what is beyond is no property of a tokenizer, but a cut prompt or a wrong report


class TokenRatios:
    """The table `token_ratios`.  Known ratios are kept in memory, so that `get` is cheap enough for every count."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self._known: dict[str, float] = {}

    def get(self, model: str) -> float:
        """The ratio of `model`, 1.0 when nothing was learnt."""
        if model not in self._known:
            rows = self.database.run("ratio_get", model=model)
            self._known[model] = float(rows[0]["ratio"]) if rows else 1.0
        return self._known[model]

    def learn(self, model: str, estimated: int, reported: int) -> float:
        """Take in one pair: tokens estimated without any ratio, tokens that the provider reported.

        Returns the new ratio.  A pair with a zero in it teaches nothing.
        """
        if estimated <= 0 or reported <= 0:
            return self.get(model)
        fresh = min(MOST, max(LEAST, reported / estimated))
        with self.database.transaction():
            rows = self.database.run("ratio_get", model=model)
            ratio = fresh if not rows else float(rows[0]["ratio"]) + WEIGHT * (fresh - float(rows[0]["ratio"]))
            self.database.run("ratio_put", model=model, ratio=ratio, now=clock.stamp())
        self._known[model] = ratio
        return ratio
