"""How many tokens a text is, for any model, without a network.  `counter_for(model)` is the way in."""

from agent.tokens.counters import (
    PRIMING,
    EstimatedCounter,
    Prefer,
    count_fields,
    count_message,
    count_tools,
    counter_for,
    plain,
    preload,
    ratio_of,
)
from agent.tokens.ratios import LearntRatios, MemoryRatios, drift

__all__ = [
    "PRIMING",
    "EstimatedCounter",
    "LearntRatios",
    "MemoryRatios",
    "Prefer",
    "count_fields",
    "count_message",
    "count_tools",
    "counter_for",
    "drift",
    "plain",
    "preload",
    "ratio_of",
]
