"""Words that are published read like words: nothing in them closes an issue, calls a person or gives an order.

Hosts and their machines act on what our account writes: a closing word before a reference (`fixes #2`, in a commit
message too), a mention (`@octocat`), a quick action (`/close`), an order to a machine (`bors r+`, `[skip ci]`).  What
the program itself says so, it says on purpose (`prompts.Live`); what a model, an issue or a command said is put here
first.  No wording is judged where a sign will do: every reference and every mention is made inert, whatever stands
before it, since closing words can be configured.  A sign that is not seen (U+200B) is put in, as Renovate and
Dependabot do; addresses of issues become code.  Code stays as it is: hosts look for none of this in it, with one
exception (`description`).

Sources: docs.github.com "Linking a pull request to an issue" and "Skipping workflow runs"; docs.gitlab.com "Default
closing pattern" and "Quick actions"; dependabot/dependabot-core#2820; renovatebot/renovate lib/util/markdown.ts.
"""

from __future__ import annotations

import re
from collections import deque
from itertools import groupby
from typing import TYPE_CHECKING

from agent.security import links
from agent.security.links import APART

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Collection, Iterator

_ADDRESS = re.compile(r"\bhttps?://[^\s<>\"'`|\\^{}]+", re.IGNORECASE)
_OF_ITEM = re.compile(r"/(?:issues|pulls?|merge_requests|work_items|epics|discussions)/(?=[0-9])", re.IGNORECASE)
_SIGNS = re.compile(r"(?<![^\W_])@(?=\w)|(?<!&)[#!](?=[0-9])|\bG[HL]-(?=[0-9])", re.IGNORECASE)
_CLOSING = r"\b(?:close|fix|resolve|implement)(?:s|d|es|ed|ing)?\b:?"
_CLOSING_KEY = re.compile(rf"({_CLOSING}\s{{1,9}}[A-Z][A-Z0-9_]{{1,30}}-)(?=[0-9])", re.IGNORECASE)
_CLOSING_WORD = re.compile(rf"({_CLOSING})(?=\s{{0,9}}(?:[\w./-]{{0,200}}[#!]|G[HL]-|https?:)[0-9]?)", re.IGNORECASE)
_MENTION = re.compile(r"(?<![^\W_])@(?=\w)")
_ENTITY = re.compile(
    r"&(?=#|(?:commat|num|excl|sol|dash|hyphen|colon|quest|equals|period|bsol|lpar|rpar|lsqb|lbrack|rsqb|rbrack|Tab"
    r"|NewLine|grave|DiacriticalGrave|lowbar|UnderBar|ast|midast|percnt|shy|ZeroWidthSpace|zwj|zwnj|NoBreak);)"
)
"""`&#64;octocat` is a mention, `&#104;ttps:` begins an address: an entity that may stand for one of the signs is shown
as it is written."""
_ORDER = re.compile(r"^([^\S\n]{0,20}(?:[>*+-][^\S\n]{0,4}){0,4}/)(?=[A-Za-z])", re.MULTILINE)
_MACHINE = re.compile(
    r"^([^\w\n]{0,20}[bhrtoa])(?=(?:ors|omu|echeck|etest|est\sthis|k\sto\stest|dd\sto\swhitelist)(?:[\s,:]|$))",
    re.MULTILINE | re.IGNORECASE,
)
"""Machines that read a line for an order without a sign before it: bors-ng, Zuul, Jenkins' pull request builder."""
_SKIP = re.compile(
    r"\[(?=[^\S\n]?(?:skip|no)[ -]\w+[^\S\n]?\]|[^\S\n]?\w+[ -]skip[^\S\n]?\])|\*{3}(?=NO_CI)|\bskip-(?=checks:)",
    re.IGNORECASE,
)
_TRAILER = re.compile(r"^([^\S\n]{0,9}[A-Za-z]+(?:-[A-Za-z]+){0,3}-by)(?=[^\S\n]{0,3}:)", re.MULTILINE)
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})([^\n]*)")
_TICKS = re.compile(r"`+")


class Inert:
    """Makes words inert: `own` are the hosts whose pictures and links stay as they are, `found` counts by rule."""

    def __init__(self, own: Collection[str], found: Counter[str]) -> None:
        self.own, self.found = own, found

    def plain(self, text: str) -> str:
        """Text that nobody reads as Markdown: a title, a commit message."""
        return self._stilled(self._unskipped(text), is_markdown=False)

    def markdown(self, text: str) -> str:
        """A comment: code stays as it is."""
        return "".join(part if is_code else self._stilled(part) for part, is_code in parts(text))

    def description(self, text: str) -> str:
        """The text of a pull request, which a squash merge can make the message of a commit (docs.github.com
        "Configuring commit squashing"): what `plain` looks for in a message is looked for in all of it, code too, since
        no host knows code there.  GitLab looks for closing words in all of it as well; in code the word is put apart
        from its reference, and nothing else is touched."""
        return "".join(
            self._unskipped(self._put(_CLOSING_WORD, rf"\1{APART}", part) if is_code else self._stilled(part))
            for part, is_code in parts(text)
        )

    def _put(self, pattern: re.Pattern[str], new: str, text: str, rule: str = "PU-04") -> str:
        text, count = pattern.subn(new, text)
        if count:
            self.found[rule] += count
        return text

    def _unskipped(self, text: str) -> str:
        """Orders to skip checks and trailers are words."""
        return self._put(_TRAILER, rf"\1{APART}", self._put(_SKIP, rf"\g<0>{APART}", text))

    def _stilled(self, text: str, *, is_markdown: bool = True) -> str:
        """`text` outside of code."""
        if is_markdown:  # first: an entity may stand for a sign of an address
            text = _ENTITY.sub("&amp;", text)
        text = links.still(text, self.own, self.found, is_markdown=is_markdown)
        text = self._put(_ORDER, rf"\1{APART}", self._put(_MACHINE, rf"\1{APART}", text))
        text = self._put(_CLOSING_KEY, rf"\1{APART}", text)
        self.found["PU-04"] += sum(1 for _ in _CLOSING_WORD.finditer(text))
        done, position = [], 0
        for found in _ADDRESS.finditer(text):
            done += [self._still_signs(text[position : found.start()]), _still_address(found[0], code=is_markdown)]
            position = found.end()
        return "".join((*done, self._still_signs(text[position:])))

    def _still_signs(self, text: str) -> str:
        self.found["PU-03"] += text.count("@") and sum(1 for _ in _MENTION.finditer(text))
        return _SIGNS.sub(rf"\g<0>{APART}", text)


def _still_address(address: str, *, code: bool) -> str:
    if _OF_ITEM.search(address) is None:
        return address
    if not code:
        return _OF_ITEM.sub(rf"\g<0>{APART}", address)
    end = len(address.rstrip(".,;:!?)]*_"))
    return f"`{address[:end]}`{address[end:]}"


# --- code ----------------------------------------------------------------------------------------------------


def parts(text: str) -> Iterator[tuple[str, bool]]:
    """(text, whether it is code to every reader of Markdown), in order."""
    for is_code, parts in groupby(_parts(text), key=lambda part: part[1]):
        yield "".join(part for part, _ in parts), is_code


def _parts(text: str) -> Iterator[tuple[str, bool]]:
    """The same in small pieces.

    A block begins and ends with a fence at the edge; in doubt (a fence in a list or a quotation, raw HTML in the same
    paragraph, ticks over the end of a line) nothing is code, for then it depends on who reads it.
    """
    lines = text.splitlines(keepends=True)
    number, html = 0, False
    endless: dict[str, int] = {}  # sign of a fence → from which length on no end follows
    while number < len(lines):
        line = lines[number]
        if not line.strip():
            html = False
        elif "<" in line:
            html = True
        fence = None if html else _FENCE.match(line)
        if fence is not None and not ("`" in fence[2] and fence[1][0] == "`"):
            sign, length = fence[1][0], len(fence[1])
            end = None if length >= endless.get(sign, length + 1) else _end_of_block(lines, number, fence[1])
            if end is None:
                endless[sign] = min(length, endless.get(sign, length))
            else:
                yield "".join(lines[number : end + 1]), True
                number = end + 1
                continue
        if html:
            yield line, False
        else:
            yield from _inline(line)
        number += 1


def _end_of_block(lines: list[str], start: int, fence: str) -> int | None:
    """The line that ends a block of code; None for one that is never ended."""
    for number in range(start + 1, len(lines)):
        closing = lines[number].strip()
        indent = len(lines[number]) - len(lines[number].lstrip(" "))
        if indent <= 3 and len(closing) >= len(fence) and not closing.strip(fence[0]):
            return number
    return None


def _inline(line: str) -> Iterator[tuple[str, bool]]:
    """Spans of code in one line: from a run of ticks to the next of the same length."""
    runs = [(found.start(), found.end()) for found in _TICKS.finditer(line)]
    following: dict[int, deque[int]] = {}
    for place, (start, end) in enumerate(runs):
        following.setdefault(end - start, deque()).append(place)
    position = place = 0
    while place < len(runs):
        start, end = runs[place]
        same = following[end - start]
        while same and same[0] <= place:
            same.popleft()
        if same and not line[:start].endswith("\\"):
            yield line[position:start], False
            position = runs[same[0]][1]
            yield line[start:position], True
            place = same[0]
        place += 1
    yield line[position:], False
