"""The one function that every text from outside passes: `clean`.

It takes out what a person would not see and counts it by rule; what is left is still untrusted and goes into a
`fence`.  Nothing is decoded and nothing is judged: the words that look like an attack are counted for the log and
stay (security facts, 4.3 and "The Attacker Moves Second").

Titles, bodies and comments of a forge: `clean(text)`.  Output of commands and files of a repository:
`clean(text, markup=False)`, because their HTML comments are theirs.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from agent.security import characters
from agent.security import markup as page
from agent.security.rules import RULES, Risk

if TYPE_CHECKING:
    from collections.abc import Mapping

PASSES = 3

_SUSPECT = re.compile(r"[^\n\t -~]")

_WORDS: dict[str, tuple[str, ...]] = {
    "PI-01": (
        "<|im_start|>",
        "<|im_end|>",
        "<|endoftext|>",
        "<|system|>",
        "[inst]",
        "[/inst]",
        "<<sys>>",
        "<system>",
        "</system>",
        "</instructions>",
        "[/system]",
        "[end of ",
        "ignore previous instructions",
        "ignore all previous",
        "ignore the above",
        "ignore your instructions",
        "disregard previous",
        "disregard the above",
        "disregard all",
        "new instructions:",
        "これまでの指示を無視",
        "以前の指示を無視",
        "ignorez les instructions",
    ),
    "PI-04": (
        "system message",
        "trusted content",
        "message from the maintainers",
        "message from the developer",
        "developer mode",
        "admin override",
        "authorized by the owner",
    ),
    "PI-13": (
        "pre-approved",
        "preapproved",
        "approved by security",
        "already approved by",
        "note to reviewer",
        "note to the reviewer",
        "ai reviewer",
        "reviewers should approve",
        "skip the review",
    ),
    "PI-15": (
        "print the environment",
        "printenv",
        "/proc/self/environ",
        "your system prompt",
        "reveal the system prompt",
        "show me your instructions",
        "send the token",
        "your api key",
        "your access token",
    ),
}


@dataclass(frozen=True, slots=True)
class Cleaned:
    """`text` fit for a prompt; `findings` rule id → count; `truncated` when its end was cut (limit, open comment)."""

    text: str
    findings: Mapping[str, int] = field(default_factory=dict)
    truncated: bool = False

    @property
    def high(self) -> bool:
        """Whether something without an honest use was in it."""
        return any(RULES[rule].risk is Risk.HIGH for rule in self.findings)

    def summary(self) -> str:
        """For a person: "2 HTML comments (PI-02), 14 tag characters (PI-05)"; empty when there was nothing."""
        return ", ".join(f"{count} {RULES[rule].noun} ({rule})" for rule, count in sorted(self.findings.items()))


def clean(text: str, *, limit: int | None = None, markup: bool = True) -> Cleaned:
    """`text` without what a person would not see, at most `limit` characters of it.

    Terminal sequences go first, then invisible characters, then (with `markup`) HTML and Markdown that is not shown;
    again until nothing changes, at most three times, after which no comment can begin any more.  Japanese and every
    other script, emoji without their joiners, tabs and newlines stay; other line breaks become newlines.
    Linear: 10 MB take well under a second.
    """
    found: Counter[str] = Counter()
    truncated = False
    if limit is not None and len(text) > 4 * limit + (1 << 16):
        # Whatever is cleaned away, four times the limit is enough to look at.
        found["PI-16"] += len(text) - (4 * limit + (1 << 16))
        text = text[: 4 * limit + (1 << 16)]
        truncated = True
    text, cut = _visible(text, found, markup=markup)
    truncated = truncated or cut
    if limit is not None and len(text) > limit:
        found["PI-16"] += len(text) - limit
        text = text[:limit]
        truncated = True
    _listen(text, found)
    return Cleaned(text, dict(found), truncated)


def output(text: str) -> str:
    """Text of a command or of a file as a model may see it: `clean` without looking for markup, and without counting
    words that nobody is told of."""
    return _visible(text, Counter(), markup=False)[0]


def _visible(text: str, found: Counter[str], *, markup: bool) -> tuple[str, bool]:
    """What a person would see of `text`, and whether a comment without an end was cut off."""
    truncated = False
    text = _normal(text)
    for _ in range(PASSES):
        before = text
        text = _without_characters(_without_escapes(text, found), found)
        if markup:
            text, cut = page.unhide(text, found)
            truncated = truncated or cut
        if text == before:
            break
    else:
        text = _without_characters(text, found)
        text = page.defused(text) if markup else text
    return text, truncated


def _normal(text: str) -> str:
    """One kind of line break, and emoji without what only chooses or joins their pictures."""
    text = text.removeprefix("\ufeff")
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    if text.isascii():
        return text
    for line_break in characters.LINE_BREAKS:
        text = text.replace(line_break, "\n")
    if "\ufe0f" in text or "\ufe0e" in text:
        text = characters.STYLE.sub("", text)
    if "\u200d" in text:
        text = characters.JOINER.sub("", text)
    return text


def _without_escapes(text: str, found: Counter[str]) -> str:
    if characters.STARTS.search(text):
        text, count = characters.ESCAPES.subn("", text)
        if count:
            found["PI-09"] += count
    return text


def _without_characters(text: str, found: Counter[str]) -> str:
    if _SUSPECT.search(text) is None:
        return text
    for rule, bad in characters.removable(text).items():
        text, count = characters.replaced(text, bad)
        found[rule] += count
    return text


def _listen(text: str, found: Counter[str]) -> None:
    """Count the words that imitate, claim or ask.  Fixed phrases, so that the time stays linear."""
    lowered = text.lower()
    for rule, phrases in _WORDS.items():
        if count := sum(lowered.count(phrase) for phrase in phrases):
            found[rule] += count
