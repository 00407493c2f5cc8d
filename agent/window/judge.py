"""Whether a text is a summary of given messages, judged by its structure and never by its wording.

A text is refused as a summary when it is empty, thoughts without an end, a loop, a copy of the prompt or of a message,
much shorter than its source, without the sections that were asked for, names next to nothing of what its source names,
or does not shrink.  Each rule works in every language; a rule that cannot be measured on a source (no names in it, a
prompt of the user without headings) does not count.
"""

from __future__ import annotations

import re
import zlib
from collections import Counter as Tally
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from agent.window.names import Names, is_named, named, names_in

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

LEAST_SHARE = 100
"""A summary has at least one token for so many of its source ..."""
LEAST_TOKENS = 24
MOST_LEAST_TOKENS = 120
"""... but at least the first number and never more than the second; a source of a few messages may have less."""

SECTIONS = 3
"""Headings, or entries of lists, that a summary has at least where the prompt asks for headings."""

FEW_NAMES = 5
"""With fewer names in the source, names say nothing."""

NAMES_NEEDED = ((60, 3), (20, 2), (FEW_NAMES, 1))
"""(names in the source, how many of them the summary has at least)."""

TOLERANCE = 1.5
"""Times the budget that a summary may have: models count words roughly."""

KEPT_SHARE = 0.75
"""Of the names in the summary before, which the new one has; else the one before stays beside it."""

LOOP_WINDOW = 1200
LOOP_RATIO = 0.08
"""Compressed to less than this share, that many bytes in a row are a repetition; prose is at 0.4 to 0.6, a list of
numbered paths at 0.1 to 0.2 (measured with zlib)."""
FEW_SENTENCES = 6
DISTINCT = 0.5
"""Of at least so many sentences and lines, the share that are different ones."""

PROMPT_BLOCK = 24
MESSAGE_BLOCK = 200
COPIED = 0.5
"""Share of a text's blocks (characters) that stand in the prompt, or in one message, from which on it is a copy."""
SHORTEST_COPY = 400
"""Characters: a shorter text may be one quoted sentence."""

_THINK = r"(?:\w+:)?(?:think|thinking|thought|thoughts|reasoning)"
_OPENING = re.compile(rf"\A\s*(?:<({_THINK})>|\[({_THINK})\])", re.IGNORECASE)
_LONE_END = re.compile(rf"^[^\S\n]*(?:</{_THINK}>|\[/{_THINK}\])[^\S\n]*$", re.IGNORECASE | re.MULTILINE)
_HEADING = re.compile(
    r"""^[ \t]{0,3}(?:
        \#{1,6}[ \t]*\S.*
        | \*\*[^*\n]+\*\*[ \t]*[:：]?[ \t]* | __[^_\n]+__[ \t]*[:：]?[ \t]*
        | [(（]?[0-9０-９]{1,2}[.)）．、:：][ \t]*\S.* | [①-⑳㊀-㊉].*
        | [-*+•・][ \t]+\*\*[^*\n]+\*\*.* | 【[^】\n]+】.* | <[\w-]+>[ \t]* | \[[^\]\n]+\][ \t]*
        | \S.{0,60}[:：][ \t]*
    )$""",
    re.VERBOSE | re.MULTILINE,
)
_ITEM = re.compile(r"^[ \t]*(?:[-*+•・–—]|[0-9０-９]{1,3}[.)．、])[ \t]*\S.*$", re.MULTILINE)
_SENTENCE = re.compile(r"[.!?]+\s|[\n。！？]+")
_SIGNS = re.compile(r"[\W_]+")


class BadSummary(Exception):
    """What came back is not used; the text says why.  Never leaves this room."""


class TooLong(BadSummary):
    """It is over its budget, or was cut at the limit of the answer; a shorter one may be asked for once."""


@dataclass
class Source:
    """What is known of the messages that a summary stands for: their tokens and names, without their text."""

    tokens: int = 0
    names: Names = field(default_factory=Names)


def without_thoughts(text: str) -> str:
    """The text behind a reasoning model's thoughts; BadSummary when they have no end."""
    text = text or ""
    if found := _OPENING.match(text):
        tag, bracketed = found[1] or found[2], found[2] is not None
        end = f"[/{tag}]" if bracketed else f"</{tag}>"
        place = text.lower().find(end.lower())
        if place < 0:
            raise BadSummary("its thoughts have no end, so no summary follows them")
        return without_thoughts(text[place + len(end) :])
    ends = list(_LONE_END.finditer(text))  # a server's template may have opened them inside the prompt
    return text[ends[-1].end() :].strip() if ends else text.strip()


def judged(
    text: str,
    source: Source,
    messages: Iterable[str],
    *,
    prompt: str,
    before: str,
    budget: int,
    count: Callable[[str], int],
) -> str:
    """The summary of `source` in `text`, or BadSummary.

    `messages` are the texts of the source, read once; `prompt` is what was asked without them, `before` the summary
    that was in force, "" for none; `budget` in tokens of `count`.
    """
    text = without_thoughts(text)
    tokens = count(text)
    if not any(letter.isalnum() for letter in text):
        raise BadSummary("it is empty")
    if why := looped(text):
        raise BadSummary(why)
    if _copied("\n".join(_bodies(text)) or text, [prompt], PROMPT_BLOCK):
        raise BadSummary("it repeats the prompt")
    if len(text) >= SHORTEST_COPY and _copied(text, messages, MESSAGE_BLOCK):
        raise BadSummary("it is a copy of a message")
    least = min(MOST_LEAST_TOKENS, max(LEAST_TOKENS, source.tokens // LEAST_SHARE), max(1, source.tokens // 4))
    if tokens < least:
        raise BadSummary(f"it has {tokens} tokens for {source.tokens:,} of messages")
    if len(set(_HEADING.findall(prompt))) >= SECTIONS and sections(text) < SECTIONS:
        raise BadSummary("it has none of the sections that were asked for")
    known = source.names.pool(FEW_NAMES) | set(names_in(before))
    known -= set(names_in(prompt))
    has = len(named(known, text))
    needed = next((number for size, number in NAMES_NEEDED if len(known) >= size), 0)
    if has < needed:
        raise BadSummary(f"it names {has} of the {len(known)} paths, identifiers and ids in the messages")
    if tokens >= source.tokens + count(before):
        raise BadSummary(f"it has {tokens} tokens and its source {source.tokens}")
    if tokens > budget * TOLERANCE:
        raise TooLong(f"it has {tokens} tokens; {budget} were asked for")
    return text


def sections(text: str) -> int:
    """How many different headings, or entries of lists where those are more, a text has."""
    return max(len(set(_HEADING.findall(text))), len(set(_ITEM.findall(text))))


def looped(text: str) -> str:
    """Why a text is a repetition, "" when it is none."""
    data = text.encode("utf-8", "replace")
    for start in range(0, max(1, len(data) - LOOP_WINDOW // 2), LOOP_WINDOW // 2):
        part = data[start : start + LOOP_WINDOW]
        if len(part) >= LOOP_WINDOW // 4 and len(zlib.compress(part, 6)) < LOOP_RATIO * len(part):
            return "it repeats itself"
    said = [one for one in (_SIGNS.sub(" ", part).strip().casefold() for part in _SENTENCE.split(text)) if len(one) > 8]
    if len(said) >= FEW_SENTENCES and len(set(said)) < DISTINCT * len(said):
        return "it says the same sentences again and again"
    words = [word for word in text.split() if any(letter.isalnum() for letter in word)]
    if len(words) >= FEW_SENTENCES and Tally(words).most_common(1)[0][1] > DISTINCT * len(words):
        return "it repeats one word"
    return ""


def _bodies(text: str) -> Iterator[str]:
    """The lines of a text that are no headings."""
    for line in text.splitlines():
        if line.strip() and not _HEADING.match(line):
            yield line


def _copied(text: str, sources: Iterable[str], block: int) -> bool:
    """Whether half of the blocks of `text` stand in one of `sources`, white space aside."""
    flat = " ".join(text.split())
    blocks = {flat[start : start + block] for start in range(0, max(1, len(flat) - block + 1), block)}
    for source in sources:
        other = " ".join(source.split())
        if len(other) >= block and sum(one in other for one in blocks) >= COPIED * len(blocks):
            return True
    return False


def beside(before: str, text: str, budget: int, count: Callable[[str], int]) -> str:
    """`text`, with the summary before in front of it where `text` has lost what that one named.

    In the budget and its tolerance stands the first of these that fits: both whole; `text` with the lines of the
    summary before that hold what was lost; the summary before with the first lines of `text`; where `text` has half of
    the names, the lines with enough of the others and its own first lines.  BadSummary where none does: the summary
    before is worth more.
    """
    names = list(dict.fromkeys(names_in(before)))
    enough, has = KEPT_SHARE * len(names), len(named(names, text))
    if len(names) < SECTIONS or has >= enough:
        return text
    most = int(budget * TOLERANCE)
    known = set(before.splitlines())
    more = "\n".join(line for line in text.splitlines() if line not in known or _HEADING.match(line))
    if not any(True for _ in _bodies(more)):
        return before
    if count(both := f"{before}\n\n{more}") <= most:
        return both
    lost = [name for name in names if not is_named(name, more)]
    kept = _lines_with(before, lost, len(lost), most - count(more), count)
    if len(named(names, both := f"{kept}\n\n{more}")) >= enough:
        return both
    olders = [before, _lines_with(before, names, int(enough) + 1, most, count) if has >= len(names) / 2 else ""]
    for older in filter(None, olders):
        if (start := _first_lines(more, most - count(older), count)) and len(named(names, older + start)) >= enough:
            return f"{older}\n\n{start}"
    raise BadSummary(f"it names {has} of {len(names)} names of the summary before")


def _lines_with(text: str, names: list[str], wanted: int, room: int, count: Callable[[str], int]) -> str:
    """The lines of `text` with the most of `names`, in their order, until `wanted` are named, in `room` tokens."""
    lines = text.splitlines()
    found = {number: set(named(names, line)) for number, line in enumerate(lines)}
    chosen: list[int] = []
    missing = set(names)
    while len(names) - len(missing) < wanted:
        number = max(found, key=lambda one: len(found[one] & missing), default=-1)
        if number < 0 or not found[number] & missing:
            break
        gained = found.pop(number) & missing
        if (tokens := count(lines[number]) + 1) <= room:
            room -= tokens
            chosen.append(number)
            missing -= gained
    return "\n".join(lines[number] for number in sorted(chosen))


def _first_lines(text: str, room: int, count: Callable[[str], int]) -> str:
    """The lines of `text` from its beginning that fit in `room` tokens, "" when there is no entry among them."""
    kept: list[str] = []
    for line in text.splitlines():
        room -= count(line) + 1
        if room < 0:
            break
        kept.append(line)
    found = "\n".join(kept).strip()
    return found if any(True for _ in _bodies(found)) else ""
