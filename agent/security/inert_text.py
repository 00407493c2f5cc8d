"""Makes published text inert, so that it closes no issue, notifies no person and triggers no action.

Forges and bots act on texts of the program's account: a closing keyword before a reference (`fixes #2`, also in a
commit message), a mention (`@octocat`), a quick action (`/close`), a command to a bot (`bors r+`, `[skip ci]`).
Templates of this program may trigger an action of a forge or a bot on purpose (`prompts.Live`). Text of a model, an
issue or a command is published only after this module has made it inert. Every reference and every mention is disarmed,
with any words before it, since closing keywords are configurable. To disarm a reference, mention or command, an
invisible character (U+200B) is inserted, like Renovate and Dependabot do; URLs of issues become code. Code
(`markdown_code.py`) is left unchanged, since forges ignore commands and references in code, with two exceptions: the
body of a pull request (`description`), and languages of which a server of the forge draws diagrams (`diagrams.py`).

Sources: docs.github.com "Linking a pull request to an issue" and "Skipping workflow runs"; docs.gitlab.com "Default
closing pattern" and "Quick actions"; dependabot/dependabot-core#2820; renovatebot/renovate lib/util/markdown.ts.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from agent.security import links
from agent.security.diagrams import undrawn
from agent.security.links import APART
from agent.security.markdown_code import closed, sure_code

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Collection, Iterator

_ADDRESS = re.compile(r"\bhttps?://(?=[\w\[])(?:\[[0-9a-f:.]{0,45}\])?[^\s<>\"'`|\\^{}()\[\]*]+", re.IGNORECASE)
"""Matches a URL up to the first character at which some renderer ends it, such as a bracket or an asterisk: a mention
may follow there."""
_MAY_END = re.compile(r"~(?=[\W_])|(?<=\w)~|_(?=\W)|\$|&\w{1,32}+;")
"""Matches the characters in a URL at which only some renderers end it, depending on the text before: a mark that may
close strikethrough, emphasis or math, and an entity, which may be white space or a bracket."""
_OF_ITEM = re.compile(
    r"/(?=[ipmwed])(?:issues|pulls?|merge_requests|work_items|epics|discussions)/(?=[0-9])", re.IGNORECASE
)
# `_SIGNS`, `_CLOSING`, `_MENTION` and the words of `_SKIP` match one rare character first and only then look at the
# character before it, so that `re` skips other text quickly.
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
_MAY_DRAW = re.compile(r"```|~~~|lang", re.IGNORECASE)


class Inert:
    """Makes texts for one forge inert. Pictures and links of the hosts in `own` are left unchanged; `found` gets the
    number of changes by rule."""

    def __init__(self, own: Collection[str], found: Counter[str]) -> None:
        self.own, self.found = own, found

    def plain(self, text: str) -> str:
        """Make a text that is not Markdown inert: a title or a commit message."""
        return self._stilled(self._unskipped(text), is_markdown=False)

    def markdown(self, text: str) -> str:
        """Make the Markdown of a comment inert; code is left unchanged, but no diagram is drawn of it, and no block of
        code is left open."""
        return closed("".join(part if is_code else self._stilled(part) for part, is_code in parts(self._undrawn(text))))

    def description(self, text: str) -> str:
        """Make the body of a pull request inert.

        The body is treated as a commit message too, since a squash merge can turn it into one, in which code is not
        recognised (docs.github.com "Configuring commit squashing"). Because the body may become a commit message, the
        rules for commit messages apply to the whole body of a pull request, code included. GitLab also searches the
        whole body for closing keywords; inside code only the keyword is separated from its reference."""
        return closed(
            "".join(
                self._unskipped(self._replace(_CLOSING_WORD, rf"\1{APART}", part) if is_code else self._stilled(part))
                for part, is_code in parts(self._undrawn(text))
            )
        )

    def _undrawn(self, text: str) -> str:
        """Keep the forge from drawing a diagram of a block of code, also of a block that only some renderers
        recognise."""
        if _MAY_DRAW.search(text) is None:
            return text
        done = []
        for part, is_code in parts(text):
            head, line_end, rest = part.partition("\n") if is_code else (part, "", "")
            if not is_code:
                head, count = undrawn(part)
            elif line_end:  # the code is a block, and not a span in a line
                head, count = undrawn(_ENTITY.sub("&amp;", head))
            else:
                count = 0
            self.found["PU-07"] += count
            done += [head, line_end, rest]
        return "".join(done)

    def _replace(self, pattern: re.Pattern[str], new: str, text: str, rule: str = "PU-04") -> str:
        text, count = pattern.subn(new, text)
        if count:
            self.found[rule] += count
        return text

    def _unskipped(self, text: str) -> str:
        """Disarm the commands in a text that skip CI checks, and trailers of commit messages."""
        return self._replace(_TRAILER, rf"\1{APART}", self._replace(_SKIP, rf"\g<0>{APART}", text))

    def _stilled(self, text: str, *, is_markdown: bool = True) -> str:
        """Disarm the references, mentions and commands in `text`, which is not code."""
        if is_markdown:  # entities are escaped first, since an entity may encode a character of a URL
            text = _ENTITY.sub("&amp;", text)
        text = links.defang_links(text, self.own, self.found, is_markdown=is_markdown)
        text = self._replace(_ORDER, rf"\1{APART}", self._replace(_MACHINE, rf"\1{APART}", text))
        text = self._replace(_CLOSING_KEY, rf"\1{APART}", text)
        self.found["PU-04"] += sum(1 for _ in _CLOSING_WORD.finditer(text))
        done, position = [], 0
        for found in _ADDRESS.finditer(text):
            done += [self._still_signs(text[position : found.start()]), self._still_address(found, code=is_markdown)]
            position = found.end()
        return "".join((*done, self._still_signs(text[position:])))

    def _still_signs(self, text: str) -> str:
        self.found["PU-03"] += text.count("@") and sum(1 for _ in _MENTION.finditer(text))
        return _SIGNS.sub(rf"\g<0>{APART}", text)

    def _still_address(self, found: re.Match[str], *, code: bool) -> str:
        address = found[0]
        if (end := _MAY_END.search(address)) is not None:
            address = address[: end.end()] + self._still_signs(address[end.end() :])
        if _OF_ITEM.search(address) is None:
            return address
        if not code or "`" in found.string:  # a backtick here could pair with one around the address
            return _OF_ITEM.sub(rf"\g<0>{APART}", address)
        shown = address.rstrip(".,;:!?)]*_")
        rest = address[len(shown) :]
        before = found.string[found.start() - 1 : found.start()]
        # a backslash would escape the backtick; at an end of the text, a backtick of other code may follow
        first = APART if before in ("", "\\") else ""
        last = APART if found.end() - len(rest) == len(found.string) else ""
        return f"{first}`{shown}`{last}{rest}"


# --- code ----------------------------------------------------------------------------------------------------


def parts(text: str) -> Iterator[tuple[str, bool]]:
    """Pairs of (part of the text, whether it is surely code), in order."""
    position = 0
    for code in sure_code(text):
        if position < code.start:
            yield text[position : code.start], False
        yield text[code.start : code.end], True
        position = code.end
    if position < len(text):
        yield text[position:], False
