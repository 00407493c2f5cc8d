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

SETTLED = 3  # samples; from then on what is known as well as this is not written at every turn again
KNOWN = 0.005


class TokenRatios:
    """The table `token_ratios`.  Known ratios are kept in memory, so that `get` is cheap enough for every count."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self._known: dict[str, tuple[float, int]] = {}  # ratio and samples

    def get(self, model: str) -> float:
        """The ratio of `model`, 1.0 when nothing was learnt."""
        if model not in self._known:
            self._known[model] = self._read(model)
        return self._known[model][0]

    def learn(self, model: str, estimated: int, reported: int) -> float:
        """Take in one pair: tokens estimated without any ratio, tokens that the provider reported.

        Returns the new ratio.  A small sample, or a report of a part, teaches nothing; neither does one that says what
        is known, within half a percent.
        """
        known = self.get(model)
        if estimated < SMALLEST_SAMPLE or reported < PART * estimated:
            return known
        fresh = min(MOST, max(LEAST, reported / estimated))
        if self._known[model][1] >= SETTLED and abs(fresh - known) <= KNOWN * known:
            return known
        with self.database.transaction():
            old, samples = self._read(model)
            ratio = round(old + max(WEIGHT, 1 / (samples + 1)) * (fresh - old), 4)
            self.database.run("ratio_put", model=model, ratio=ratio, now=clock.stamp())
        self._known[model] = ratio, samples + 1
        return ratio

    def _read(self, model: str) -> tuple[float, int]:
        rows = self.database.run("ratio_get", model=model)
        return (float(rows[0]["ratio"]), int(rows[0]["samples"])) if rows else (1.0, 0)
