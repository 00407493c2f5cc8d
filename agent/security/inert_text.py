"""Makes published text inert, so that it closes no issue, notifies no person and triggers no action.

Forges and bots act on texts of the program's account: a closing keyword before a reference (`fixes #2`, also in a
commit message), a mention (`@octocat`), a quick action (`/close`), a command to a bot (`bors r+`, `[skip ci]`).
Templates of this program may trigger an action of a forge or a bot on purpose (`prompts.Live`). Text of a model, an
issue or a command is published only after this module has made it inert. Every reference and every mention is disarmed,
with any words before it, since closing keywords are configurable. To disarm a reference, mention or command, an
invisible character (U+200B) is inserted, like Renovate and Dependabot do; URLs of issues become code. Code is left
unchanged, since forges ignore commands and references in code, with two exceptions: the body of a pull request
(`description`), and languages of which a server of the forge draws diagrams (`diagrams.py`).

Sources: docs.github.com "Linking a pull request to an issue" and "Skipping workflow runs"; docs.gitlab.com "Default
closing pattern" and "Quick actions"; dependabot/dependabot-core#2820; renovatebot/renovate lib/util/markdown.ts.
"""

from __future__ import annotations

import re
from collections import deque
from itertools import groupby
from typing import TYPE_CHECKING

from agent.security import links
from agent.security.diagrams import undrawn
from agent.security.links import APART

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Collection, Iterator

_ADDRESS = re.compile(r"\bhttps?://[^\s<>\"'`|\\^{}]+", re.IGNORECASE)
_OF_ITEM = re.compile(
    r"/(?=[ipmwed])(?:issues|pulls?|merge_requests|work_items|epics|discussions)/(?=[0-9])", re.IGNORECASE
)
# Each pattern of a command begins with its rarest character and looks back from there, so that `re` skips other text
# quickly.
_SIGNS = re.compile(
    r"@(?<![^\W_]@)(?=\w)|#(?<!&#)(?=[0-9])|!(?<!&!)(?=[0-9])|g(?<=\bg)[hlHL]-(?=[0-9])|G(?<=\bG)[hlHL]-(?=[0-9])"
)
_C = r"[cCfFrRiI\u0130\u0131]"  # the first letters of closing keywords, and Turkish letters that fold to them
_CLOSING = rf"{_C}(?<=\b{_C})(?i:(?<=c)lose|(?<=f)ix|(?<=r)esolve|(?<=i)mplement)(?i:s|d|es|ed|ing)?\b:?"
_CLOSING_KEY = re.compile(rf"({_CLOSING}\s{{1,9}}+(?i:[A-Z][A-Z0-9_]{{1,30}}+-))(?=[0-9])")
_CLOSING_WORD = re.compile(rf"({_CLOSING})(?=\s{{0,9}}+(?i:[\w./-]{{0,200}}+[#!]|G[HL]-|https?:)[0-9]?)")
_MENTION = re.compile(r"@(?<![^\W_]@)(?=\w)")
_ENTITY = re.compile(
    r"&(?=[#A-Za-z])(?=#|(?:commat|num|excl|sol|dash|hyphen|colon|quest|equals|period|bsol|lpar|rpar|lsqb|lbrack|rsqb|rbrack|Tab"
    r"|NewLine|grave|DiacriticalGrave|lowbar|UnderBar|ast|midast|percnt|shy|ZeroWidthSpace|zwj|zwnj|NoBreak);)"
)
"""Since `&#64;octocat` is a mention and `&#104;ttps:` begins a URL, entities that may encode the characters of a
mention or of a URL are escaped."""
_ORDER = re.compile(r"^([^\S\n]{0,20}(?:[>*+-][^\S\n]{0,4}){0,4}/)(?=[A-Za-z])(?![\w.+~-]{1,255}/[\w.])", re.MULTILINE)
"""A path of several parts such as `/a/b` is no command: no forge and no bot accepts a command that ends at a slash."""
_MACHINE = re.compile(
    r"^([^\w\n]{0,20}[bhrtoa])(?=(?:ors|omu|echeck|etest|est\sthis|k\sto\stest|dd\sto\swhitelist)(?:[\s,:]|$))",
    re.MULTILINE | re.IGNORECASE,
)
"""Matches commands to bots that need no slash or mention: bors-ng, Zuul, Jenkins' pull request builder."""
_SKIP = re.compile(
    r"\[(?=[^\S\n]?\w)(?=[^\S\n]?(?:(?i:skip|no)[ -]\w++|\w++[ -](?i:skip))[^\S\n]?\])"
    r"|\*\*\*(?=(?i:NO_CI))"
    r"|s(?<=\bs)(?i:kip-(?=checks:))|S(?<=\bS)(?i:kip-(?=checks:))|\u017f(?<=\b\u017f)(?i:kip-(?=checks:))"
)
_TRAILER = re.compile(r"^([^\S\n]{0,9}[A-Za-z]+(?:-[A-Za-z]+){0,3}-by)(?=[^\S\n]{0,3}:)", re.MULTILINE)
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})([^\n]*)")
_MAY_DRAW = re.compile(r"```|~~~|lang", re.IGNORECASE)
_TICKS = re.compile(r"`+")


class Inert:
    """Makes texts for one forge inert. Pictures and links of the hosts in `own` are left unchanged; `found` gets the
    number of changes by rule."""

    def __init__(self, own: Collection[str], found: Counter[str]) -> None:
        self.own, self.found = own, found

    def plain(self, text: str) -> str:
        """Make a text inert that is not Markdown: a title or a commit message."""
        return self._stilled(self._unskipped(text), is_markdown=False)

    def markdown(self, text: str) -> str:
        """Make the Markdown of a comment inert; code is left unchanged, but no diagram is drawn of it."""
        return "".join(part if is_code else self._stilled(part) for part, is_code in parts(self._undrawn(text)))

    def description(self, text: str) -> str:
        """Make the body of a pull request inert.

        The body is treated as a commit message too, since a squash merge can turn it into one, in which code is not
        recognised (docs.github.com "Configuring commit squashing"). So the rules for commit messages are applied to the
        whole body of a pull request, code included. GitLab also searches the whole body for closing keywords; inside
        code only the keyword is separated from its reference."""
        return "".join(
            self._unskipped(self._put(_CLOSING_WORD, rf"\1{APART}", part) if is_code else self._stilled(part))
            for part, is_code in parts(self._undrawn(text))
        )

    def _undrawn(self, text: str) -> str:
        """Keep the forge from drawing a diagram of a block of code, also of one that not every renderer finds."""
        if _MAY_DRAW.search(text) is None:
            return text
        done = []
        for part, is_code in _parts(text):
            head, line_end, rest = part.partition("\n") if is_code else (part, "", "")
            if not is_code:
                head, count = undrawn(part)
            elif line_end:  # a block, and not a span of code in a line
                head, count = undrawn(_ENTITY.sub("&amp;", head))
            else:
                count = 0
            self.found["PU-07"] += count
            done += [head, line_end, rest]
        return "".join(done)

    def _put(self, pattern: re.Pattern[str], new: str, text: str, rule: str = "PU-04") -> str:
        text, count = pattern.subn(new, text)
        if count:
            self.found[rule] += count
        return text

    def _unskipped(self, text: str) -> str:
        """Disarm the commands in a text that skip CI checks, and trailers of commit messages."""
        return self._put(_TRAILER, rf"\1{APART}", self._put(_SKIP, rf"\g<0>{APART}", text))

    def _stilled(self, text: str, *, is_markdown: bool = True) -> str:
        """Disarm the references, mentions and commands in `text`, which is not code."""
        if is_markdown:  # entities are escaped first, since an entity may encode a character of a URL
            text = _ENTITY.sub("&amp;", text)
        text = links.defang_links(text, self.own, self.found, is_markdown=is_markdown)
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
    """Pairs of (part of the text, whether every Markdown renderer treats this part as code), in order."""
    for is_code, parts in groupby(_parts(text), key=lambda part: part[1]):
        yield "".join(part for part, _ in parts), is_code


def _parts(text: str) -> Iterator[tuple[str, bool]]:
    """Pairs like those of `parts`, but neighbouring pieces are not joined if both are code or both are not code.

    A block of code begins and ends with a fence at the start of a line.  In doubt (a fence in a list or a quotation,
    raw HTML in the same paragraph, backticks across lines) the text does not count as code, since renderers disagree.
    """
    lines = text.splitlines(keepends=True)
    number, html = 0, False
    endless: dict[str, int] = {}  # character of a fence → shortest length for which the text has no closing fence
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
    """The number of the line with the closing fence of a code block; None if there is none."""
    for number in range(start + 1, len(lines)):
        closing = lines[number].strip()
        indent = len(lines[number]) - len(lines[number].lstrip(" "))
        if indent <= 3 and len(closing) >= len(fence) and not closing.strip(fence[0]):
            return number
    return None


def _inline(line: str) -> Iterator[tuple[str, bool]]:
    """(text, whether it is code) for each part of one line: a code span reaches from a run of backticks to the next run
    of the same length."""
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
        if same and not line.endswith("\\", 0, start):
            yield line[position:start], False
            position = runs[same[0]][1]
            yield line[start:position], True
            place = same[0]
        place += 1
    yield line[position:], False
