"""Whether a text is a summary of given messages, judged by its structure and never by its wording.

A text is refused as a summary when it is empty, thoughts without an end, a loop, a copy of the prompt or of a message,
records of the conversation, much shorter than its source, without the sections that were asked for (`sections.py`), or
does not shrink; and when it names next to nothing of what its source names, or mostly what it does not name
(`names.py`).  Each rule works in every language; a rule that cannot be measured on a source (no names in it, a prompt
of the user without headings) does not count.
"""

from __future__ import annotations

import re
import zlib
from collections import Counter as Tally
from dataclasses import dataclass, field
from math import log
from typing import TYPE_CHECKING

from agent.window.names import Names, names_in, telling, told
from agent.window.sections import asks_for_sections, bodies, records, sections

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

LEAST_SHARE = 100
"""A summary has at least one token for so many of its source ..."""
LEAST_TOKENS = 24
MOST_LEAST_TOKENS = 120
"""... but at least the first number and never more than the second; a source of a few messages may have less."""

SECTIONS = 3
"""Headings, or entries of lists, that a summary has at least where the prompt asks for headings."""

FEW_NAMES = 5
"""With fewer names in the source, names say nothing."""

SECOND_NAME = 20
NAMES_GROW = 3
"""Of so many names in the source a summary has two, of three times as many three, and so on; of fewer, one."""
TOKENS_A_NAME = 100
"""No more names are asked for than one for so many tokens of the budget."""
KNOWN_SHARE = 1 / 3
"""Of FEW_NAMES or more names in a summary, those that the source has at least: another project has its
own."""

TOLERANCE = 1.5
"""Times the budget that a summary may have: models count words roughly."""

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
_SENTENCE = re.compile(r"(?<![.!?])[.!?]++\s|[\n。！？]+")
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
    if _is_copy("\n".join(bodies(text)) or text, prompt, PROMPT_BLOCK):
        raise BadSummary("it repeats the prompt")
    if records(text) * 2 > len([line for line in text.splitlines() if line.strip()]):
        raise BadSummary("it goes on with the records of the conversation")
    own = telling({*names_in(text)} - {*names_in(prompt)} - source.names.tools)
    strange = _compared(text, own, messages, before)
    least = min(MOST_LEAST_TOKENS, max(LEAST_TOKENS, source.tokens // LEAST_SHARE), max(1, source.tokens // 4))
    if tokens < least:
        raise BadSummary(f"it has {tokens} tokens for {source.tokens:,} of messages")
    if asks_for_sections(prompt) >= SECTIONS and sections(text) < SECTIONS:
        raise BadSummary("it has none of the sections that were asked for")
    known = source.names.pool(names_in(before), names_in(prompt), FEW_NAMES)
    has = len(told(known, text))
    if has < min(names_needed(len(known)), max(1, budget // TOKENS_A_NAME)):
        raise BadSummary(f"it names {has} of the {len(known)} paths, identifiers and ids in the messages")
    if len(own) >= FEW_NAMES and len(own) - strange < KNOWN_SHARE * len(own):
        raise BadSummary(f"{strange} of its {len(own)} names stand in no message")
    if tokens >= source.tokens + count(before):
        raise BadSummary(f"it has {tokens} tokens and its source {source.tokens}")
    if tokens > budget * TOLERANCE:
        raise TooLong(f"it has {tokens} tokens; {budget} were asked for")
    return text


def names_needed(known: int) -> int:
    """How many of `known` names a summary has at least."""
    if known < FEW_NAMES:
        return 0
    return 1 if known < SECOND_NAME else 2 + int(log(known / SECOND_NAME, NAMES_GROW) + 1e-9)


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


def _compared(text: str, own: Mapping[str, tuple[str, ...]], messages: Iterable[str], before: str) -> int:
    """How many of its `own` names stand neither in a message nor in the summary before.  BadSummary for a copy of a
    message."""
    strange = {name: forms for name, forms in own.items() if not any(form in before for form in forms)}
    for message in messages:
        if len(text) >= SHORTEST_COPY and _is_copy(text, message, MESSAGE_BLOCK):
            raise BadSummary("it is a copy of a message")
        strange = {name: forms for name, forms in strange.items() if not any(form in message for form in forms)}
    return len(strange)


def _is_copy(text: str, source: str, block: int) -> bool:
    """Whether half of the blocks of `text` stand in `source`, white space aside."""
    flat, other = " ".join(text.split()), " ".join(source.split())
    blocks = {flat[start : start + block] for start in range(0, max(1, len(flat) - block + 1), block)}
    return len(other) >= block and sum(one in other for one in blocks) >= COPIED * len(blocks)
