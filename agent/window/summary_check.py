"""Checks whether a text is a summary of certain messages, by the structure of the text and the names in it, not by its
wording.

A text is rejected if it is empty, reasoning without an end, a loop, a copy of the prompt or of a message, records of
the conversation, much shorter than its source, not shorter than its source, far above its budget, or without the
requested sections (`text_structure.py`). A text is also rejected as a summary if it contains almost none of the names
in its source, or mostly names that are not in its source (`identifiers.py`). The rules by which a summary is checked do
not depend on its language. A rule that cannot be applied (the source has too few names, or the user's prompt too few
headings) is skipped.
"""

from __future__ import annotations

import re
import zlib
from collections import Counter as Tally
from dataclasses import dataclass, field
from math import log
from typing import TYPE_CHECKING

from agent.errors import MakimonoError
from agent.window.identifiers import NameIndex, found_in, names_in, telling_forms
from agent.window.text_structure import asks_for_sections, body_lines, records, sections

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

LEAST_SHARE = 100
"""A summary must have at least one token for each LEAST_SHARE tokens of its source, between the bounds LEAST_TOKENS and
MOST_LEAST_TOKENS."""
LEAST_TOKENS = 24
MOST_LEAST_TOKENS = 120
"""The bounds of the minimum number of tokens of a summary; for a source with less than four times LEAST_TOKENS tokens,
the minimum is a quarter of the source."""

SECTIONS = 3
"""The minimum number of headings or list entries in a summary, if the prompt has at least this number of headings."""

FEW_NAMES = 5
"""If the source of a summary has fewer names than this, the summary need not contain any of them."""

SECOND_NAME = 20
NAMES_GROW = 3
"""The number of names that a summary must contain grows with the source: one name, two if the source has SECOND_NAME
names, three if it has NAMES_GROW times as many, and so on."""
TOKENS_A_NAME = 100
"""At most one name is required for each TOKENS_A_NAME tokens of the summary's budget (but at least one name), so that
few names are required of a short summary."""
KNOWN_SHARE = 1 / 3
"""If a summary has FEW_NAMES names or more, at least this share of them must be in the source or in the previous
summary: a summary of another project has other names."""

TOLERANCE = 1.5
"""The factor by which a summary may exceed its budget, since models count words only roughly."""

LOOP_WINDOW = 1200
LOOP_RATIO = 0.08
"""A part of LOOP_WINDOW bytes counts as a loop if zlib compresses it to less than the share LOOP_RATIO of its size.
Prose is compressed to 0.4 to 0.6 of its size, a list of numbered paths to 0.1 to 0.2 (measured with zlib)."""
FEW_SENTENCES = 6
DISTINCT = 0.5
"""If a text has FEW_SENTENCES or more sentences and lines, at least the share DISTINCT of them must differ from each
other; if it has FEW_SENTENCES or more words, one word may be at most the share DISTINCT of its words."""

PROMPT_BLOCK = 24
MESSAGE_BLOCK = 200
COPIED = 0.5
"""A text is a copy if the share COPIED of its blocks occurs in the prompt (blocks of PROMPT_BLOCK characters), or in
one message (blocks of MESSAGE_BLOCK characters)."""
SHORTEST_COPY = 400
"""A text with fewer than SHORTEST_COPY characters is not checked for being a copy of a message, since it may be one
quoted sentence."""

_THINK = r"(?:\w+:)?(?:think|thinking|thought|thoughts|reasoning)"
_OPENING = re.compile(rf"\s*(?:<({_THINK})>|\[({_THINK})\])", re.IGNORECASE)
_LONE_END = re.compile(rf"^[^\S\n]*(?:</{_THINK}>|\[/{_THINK}\])[^\S\n]*$", re.IGNORECASE | re.MULTILINE)
_SENTENCE = re.compile(r"(?<![.!?])[.!?]++\s|[\n。！？]+")
_SIGNS = re.compile(r"[\W_]+")


class BadSummary(MakimonoError):
    """The error that an answer cannot be used as a summary; its message has the reason. `agent/window/` catches every
    BadSummary."""

    code = "bad_summary"


class TooLong(BadSummary):
    """The error that a summary is over its budget, or was cut at the maximum length of an answer; a shorter summary may
    be requested once."""


@dataclass
class Source:
    """The known facts about the messages that a summary replaces: their tokens and names, but not their text."""

    tokens: int = 0
    names: NameIndex = field(default_factory=NameIndex)


def without_thoughts(text: str) -> str:
    """The text after the reasoning of a model; raises BadSummary if the reasoning has no end."""
    text = text or ""
    at = 0
    while found := _OPENING.match(text, at):
        tag = f"</{found[1]}>" if found[1] else f"[/{found[2]}]"
        closed = re.compile(re.escape(tag), re.IGNORECASE).search(text, found.end())
        if closed is None:
            raise BadSummary("its thoughts have no end, so no summary follows them")
        at = closed.end()
    text, at = text[at:], 0
    # The opening tag of the reasoning may be in the prompt, so a closing tag alone on its line ends reasoning too.
    for end in _LONE_END.finditer(text):
        at = end.end()
    return text[at:].strip()


def check_summary(
    text: str,
    source: Source,
    messages: Iterable[str],
    *,
    prompt: str,
    before: str,
    budget: int,
    count: Callable[[str], int],
) -> str:
    """Check that `text` is a summary of `source`, and return it without reasoning; raises BadSummary if it is not.

    `messages` are the texts of the summarised messages; the iterable is read once. `prompt` is the prompt of the
    request, without the messages. `before` is the previous summary, "" if there is none. `budget` is the maximum size
    of the summary in tokens as `count` counts.
    """
    text = without_thoughts(text)
    tokens = count(text)
    if not any(letter.isalnum() for letter in text):
        raise BadSummary("it is empty")
    if why := repetition_in(text):
        raise BadSummary(why)
    if _is_copy("\n".join(body_lines(text)) or text, prompt, PROMPT_BLOCK):
        raise BadSummary("it repeats the prompt")
    if records(text) * 2 > len([line for line in text.splitlines() if line.strip()]):
        raise BadSummary("it goes on with the records of the conversation")
    own = telling_forms({*names_in(text)} - {*names_in(prompt)} - source.names.tools)
    strange = _compared(text, own, messages, before)
    least = min(MOST_LEAST_TOKENS, max(LEAST_TOKENS, source.tokens // LEAST_SHARE), max(1, source.tokens // 4))
    if tokens < least:
        raise BadSummary(f"it has {tokens} tokens for {source.tokens:,} of messages")
    if asks_for_sections(prompt) >= SECTIONS and sections(text) < SECTIONS:
        raise BadSummary("it has none of the sections that were asked for")
    known = source.names.pool(names_in(before), names_in(prompt), FEW_NAMES)
    has = len(found_in(known, text))
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
    """The number of names that a summary must contain if its source has `known` names."""
    if known < FEW_NAMES:
        return 0
    return 1 if known < SECOND_NAME else 2 + int(log(known / SECOND_NAME, NAMES_GROW) + 1e-9)


def repetition_in(text: str) -> str:
    """The reason why a text counts as a loop (it repeats itself); "" if it does not."""
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
    """The number of names in `own` that are neither in a message nor in the previous summary.

    Raises BadSummary if the text is a copy of a message.
    """
    strange = {name: forms for name, forms in own.items() if not any(form in before for form in forms)}
    for message in messages:
        if len(text) >= SHORTEST_COPY and _is_copy(text, message, MESSAGE_BLOCK):
            raise BadSummary("it is a copy of a message")
        strange = {name: forms for name, forms in strange.items() if not any(form in message for form in forms)}
    return len(strange)


def _is_copy(text: str, source: str, block: int) -> bool:
    """Whether at least the share COPIED of the blocks of `text` occurs in `source`; each run of white space counts as
    one blank."""
    flat, other = " ".join(text.split()), " ".join(source.split())
    blocks = {flat[start : start + block] for start in range(0, max(1, len(flat) - block + 1), block)}
    return len(other) >= block and sum(one in other for one in blocks) >= COPIED * len(blocks)
