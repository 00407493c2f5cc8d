"""Every pattern that meets foreign text is linear, whatever the text is made of."""

import re

import pytest
from worst_inputs import TooSlow, at_most, attacks, patterns, seconds

from agent.forge.gitlab_text import plain
from agent.llm.said import MATCHED

MEGABYTE = 1 << 20
PER_MEGABYTE = 0.05
"""Seconds that a search of a megabyte takes at most, measured on an idle machine of 2025."""

GENEROUS = 20
"""How much slower than that a busy machine may be; a search that is not linear is thousands of times slower."""

SHORT, LONG = 1024, 1 << 17
MOST = 50
"""Inputs tried of one pattern."""

BOUNDED = {
    "agent.llm.wording": MATCHED,
    "agent.llm.said": MATCHED,
    "agent.llm.parameters": MATCHED,
    "agent.llm.ids": MATCHED,
    "agent.llm.send_back": MATCHED,
}
"""Modules that look at error bodies only, and only at their beginning."""

ELSEWHERE = {
    "agent.forge.gitlab_text._LEFT_OUT": "used on texts with few openings only; the test below",
    "agent.llm.call_formats": "reads one answer of a model, whose length the request limits; tags that nothing closes",
    "agent.window.names._LINE": "used on names, which have 120 characters at most",
    "agent.window.telling._MESSAGE": "used on a line in at most LONGEST characters",
}
"""Patterns that look for an end which may never come → what holds their time."""


def met(room):
    return [one for one in patterns("agent", [room]) if not one[0].startswith(tuple(ELSEWHERE))]


@pytest.mark.parametrize("room", ["forge", "llm", "run", "security", "window"])
def test_each_pattern_is_linear_on_its_worst_input(room):
    found = met(room)
    assert len(found) > 3
    slow = []
    for name, pattern, anchored in found:
        longest = next((size for module, size in BOUNDED.items() if name.startswith(module)), LONG)
        tried = attacks(pattern, SHORT)
        tried = tried[:: max(1, len(tried) // MOST)]
        try:
            with at_most(GENEROUS * PER_MEGABYTE * len(tried) * SHORT / MEGABYTE + 1.0):
                worst = max(tried, key=lambda text: seconds(pattern, text, anchored))
            text = (worst * (longest // len(worst) + 1))[:longest]
            with at_most(GENEROUS * PER_MEGABYTE * max(longest, LONG) / MEGABYTE):
                seconds(pattern, text, anchored)
        except TooSlow:
            slow.append((name, pattern.pattern[:60]))
    assert slow == []


@pytest.mark.parametrize("opening", ["<a>\n\n", "```\n\n", ">>>\n\n", "/close\n<a>\n\n"])
def test_what_gitlab_is_given_is_read_in_linear_time(opening):
    with at_most(GENEROUS * PER_MEGABYTE):
        plain(f"/close\n{opening * (MEGABYTE // 4 // len(opening))}")


def test_a_pattern_that_is_not_linear_is_found_by_its_own_worst_input():
    """Else the tests above would prove nothing."""
    for text in (r"(a+)+$", r"\s*<b>", r"<a>.*?</a>", r"gl[a-z]+-", r"(?:\\n|[^-]){0,40}?x"):
        pattern = re.compile(text, re.DOTALL)
        with pytest.raises(TooSlow), at_most(0.2):
            max(seconds(pattern, attack, anchored=False) for attack in attacks(pattern, 1 << 14))
