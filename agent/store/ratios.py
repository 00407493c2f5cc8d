"""What was learnt about the estimates of each model: reported / estimated tokens, kept in tasks.db.

The real form of `values.Ratios`.  `tokens` multiplies its estimates with it, whoever sends requests teaches it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent import clock

if TYPE_CHECKING:
    from agent.store.base import Database

# The rule of `tokens.ratios.blend`, which stands on the same floor and cannot be called from here.
WEIGHT = 0.3  # of the newest pair, against everything before it; the first three are averaged
LEAST, MOST = 0.5, 3.0  # what is beyond is no property of a tokenizer: images, a cut prompt, a proxy
PART = 0.6  # of the estimate; a report of less is of a server that tells only what it had not cached
SMALLEST_SAMPLE = 200  # tokens; below, the overhead of a template is most of the difference


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

        Returns the new ratio.  A small sample, or a report of a part, teaches nothing.
        """
        if estimated < SMALLEST_SAMPLE or reported < PART * estimated:
            return self.get(model)
        fresh = min(MOST, max(LEAST, reported / estimated))
        with self.database.transaction():
            rows = self.database.run("ratio_get", model=model)
            old, samples = (float(rows[0]["ratio"]), int(rows[0]["samples"])) if rows else (1.0, 0)
            ratio = round(old + max(WEIGHT, 1 / (samples + 1)) * (fresh - old), 4)
            self.database.run("ratio_put", model=model, ratio=ratio, now=clock.stamp())
        self._known[model] = ratio
        return ratio
