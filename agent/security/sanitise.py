"""Cleans text from outside (the function `clean`).

The function `clean` removes content that a person would not see, and counts this content by rule. The cleaned text is
still untrusted and has to go into a `fence`. The function `clean` does not decode encoded parts of a text. Phrases that
look like a prompt injection are counted for the log but not removed (docs/security.md, "Text from outside").

Call `clean(text)` for titles, bodies and comments of a forge. Call `clean(text, markup=False)` for output of commands
and files of a repository, in which HTML comments are part of the content.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from agent.security import hidden_markup as page
from agent.security import invisible_characters
from agent.security.finding_catalogue import RULES, Risk

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
    """`text` is the cleaned text, which is still untrusted; `findings`: rule id → count; `truncated`: the end was cut
    off (limit, unclosed comment)."""

    text: str
    findings: Mapping[str, int] = field(default_factory=dict)
    truncated: bool = False

    @property
    def high(self) -> bool:
        """Whether the text matched a rule for content that has no legitimate use (`Risk.HIGH`)."""
        return any(RULES[rule].risk is Risk.HIGH for rule in self.findings)

    def summary(self) -> str:
        """The findings in the text, for a person: "2 HTML comments (PI-02), 14 tag characters (PI-05)"; "" without
        findings."""
        return ", ".join(f"{count} {RULES[rule].noun} ({rule})" for rule, count in sorted(self.findings.items()))


def clean(text: str, *, limit: int | None = None, markup: bool = True) -> Cleaned:
    """`text` without content that a person would not see, at most `limit` characters.

    The function removes terminal sequences, then invisible characters, then (with `markup`) hidden HTML and Markdown.
    The function repeats the removal until nothing changes, at most three times; if the third time still changed the
    text, it escapes the remaining openers of HTML comments (with `markup`). In a cleaned text, Japanese and every other
    script, emoji without joiners, tabs and newlines are preserved; other line breaks become newlines. The time of
    cleaning is linear in the length of the text: 10 MB take well under a second.
    """
    found: Counter[str] = Counter()
    truncated = False
    if limit is not None and len(text) > 4 * limit + (1 << 16):
        # A longer text is cut before it is cleaned: four times `limit` plus 65,536 characters are enough, even if
        # cleaning removes most of them.
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
    """Clean the output of a command or the content of a file for a model: `clean` without markup, and without counting
    phrases."""
    return _visible(text, Counter(), markup=False)[0]


def _visible(text: str, found: Counter[str], *, markup: bool) -> tuple[str, bool]:
    """(the visible part of `text`, whether an unclosed comment was cut off)."""
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
    """`text` without a byte order mark, with one kind of line break, and without the selectors and joiners of emoji."""
    text = text.removeprefix("\ufeff")
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    if text.isascii():
        return text
    for line_break in invisible_characters.LINE_BREAKS:
        text = text.replace(line_break, "\n")
    if "\ufe0f" in text or "\ufe0e" in text:
        text = invisible_characters.STYLE.sub("", text)
    if "\u200d" in text:
        text = invisible_characters.JOINER.sub("", text)
    return text


def _without_escapes(text: str, found: Counter[str]) -> str:
    if invisible_characters.STARTS.search(text):
        text, count = invisible_characters.ESCAPES.subn("", text)
        if count:
            found["PI-09"] += count
    return text


def _without_characters(text: str, found: Counter[str]) -> str:
    if _SUSPECT.search(text) is None:
        return text
    for rule, bad in invisible_characters.removable(text).items():
        text, count = invisible_characters.replaced(text, bad)
        found[rule] += count
    return text


def _listen(text: str, found: Counter[str]) -> None:
    """Count the phrases of prompt injection in a text. These phrases of prompt injection are fixed strings, so the time
    of the search is linear in the length of the text."""
    lowered = text.lower()
    for rule, phrases in _WORDS.items():
        if count := sum(lowered.count(phrase) for phrase in phrases):
            found[rule] += count
