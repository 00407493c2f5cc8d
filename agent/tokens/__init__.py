"""Counts the tokens of a text for any model, without a network. `counter_for(model)` is the entry point of the package
`tokens`."""

from agent.tokens.counters import (
    PRIMING,
    EstimatedCounter,
    Prefer,
    cautious_of,
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
    "cautious_of",
    "count_fields",
    "count_message",
    "count_tools",
    "counter_for",
    "drift",
    "plain",
    "preload",
    "ratio_of",
]
