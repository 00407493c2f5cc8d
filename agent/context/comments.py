"""Comments of people in messages.jsonl: where they are, and how comments before a cut are shown again.

`index.py` stores one `RecordedComment`, which has no text, for each comment; a compaction refers to comments by `seq`,
so compactions.jsonl has no copy of their text; `projection.py` shows them. A comment that answers a question of the
model (`ask_user`) is shown with the question.

A reference to a comment is `{"seq": 12}`; for a shortened comment it also has the characters at its beginning and end,
`{"seq": 12, "head": 900, "tail": 300}`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple
from zlib import crc32

import orjson

from agent.store.storable_text import replace_surrogates

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from agent.values import Json

CONDITION = "condition"
KINDS = (None, "comment", CONDITION)
"""Kinds of the user messages that a compaction carries over: comments of people, and conditions of the reviewers. A
user message without a kind comes from the library interface."""

MOST_NAMED = 20
"""The maximum number of comments that are listed by number when there is no room for their text; further comments are
only counted."""

FORM = 600
"""The checksum of a text covers this number of characters at its beginning."""

_DIGITS = re.compile(r"\d+")
_OPENING = re.compile(r"<<<UNTRUSTED [^\n]*>>>\n")
_CLOSING = re.compile(r"\n<<<END UNTRUSTED [^\n]*>>>")


class RecordedComment(NamedTuple):
    """One comment in messages.jsonl: its message number, the byte offset of its line, and its estimated tokens (without
    its pictures, and before any learnt ratio is applied).

    `question` is the number of the message with the question that the comment answers, `asked_at` the offset of that
    message; both are 0 if the comment answers no question. `whole`: the comment is a condition of the reviewers, which
    is never shortened or left out.
    """

    seq: int
    at: int
    tokens: int
    question: int = 0
    asked_at: int = 0
    whole: bool = False


class Note(NamedTuple):
    """An answer of the model with text: its message number, the byte offset of its line, and `form_of` of its text."""

    seq: int
    at: int
    form: int


def form_of(text: str) -> int:
    """A checksum of the beginning of a text without its digits, so that `Step 3.` and `Step 41.` have the same
    checksum."""
    return crc32(_DIGITS.sub("0", " ".join(text[:FORM].split())).encode("utf-8", "replace"))


def is_comment(record: Json) -> bool:
    """Whether a message is a comment of a person to the running task, or a condition of the reviewers."""
    return record["role"] == "user" and record.get("kind") in KINDS


def question_of(record: Json) -> str:
    """The question to a person in an answer of the model, "" if there is none.

    If an answer of the model asks several questions, only the first counts: it ends the run, and the later calls of
    that answer are refused.
    """
    for call in record.get("tool_calls") or ():
        function = call.get("function") or {}
        if function.get("name") != "ask_user":
            continue
        try:
            arguments = orjson.loads(function.get("arguments") or "{}")
        except (orjson.JSONDecodeError, TypeError):
            continue
        found = arguments.get("question") if isinstance(arguments, dict) else None
        if isinstance(found, str) and found.strip():
            return found.strip()
    return ""


def render_comments(
    references: Iterable[Any],
    comments: Iterable[RecordedComment],
    end_seq: int,
    read: Callable[[int], Mapping[str, Any]],
) -> str:
    """The comments up to message `end_seq` that `references` name, oldest first, each under a line with its number.

    If a comment that `references` names answers a question of the model, the question is shown before the comment. If
    the question is up to `end_seq` and the comment is not, the question is shown alone. Of the comments up to `end_seq`
    that `references` does not name, the newest MOST_NAMED are listed by number, the newest first. `read(offset)`
    returns a record of messages.jsonl.
    """
    wanted = {one["seq"]: one for one in references if isinstance(one, dict) and isinstance(one.get("seq"), int)}
    parts: list[_Part] = []
    missing: list[int] = []
    for comment in comments:
        if 0 < comment.question <= end_seq and comment.seq in wanted:
            question = _question(comment, read(comment.asked_at), seen=comment.seq > end_seq)
            parts.append(_Part("", question, ""))
        if comment.seq > end_seq:
            continue
        if comment.seq not in wanted:
            missing.append(comment.seq)
            continue
        text = shorten(str(read(comment.at).get("content") or ""), comment.seq, wanted[comment.seq])
        what = "conditions of the reviewers" if comment.whole else "the answer" if comment.question else "a comment"
        part = _part_of(text, f"[message {comment.seq}, {what}]\n")
        if parts and part.opening and (parts[-1].opening, parts[-1].closing) == (part.opening, part.closing):
            part = part._replace(text=f"{parts.pop().text}\n\n{part.text}")
        parts.append(part)
    shown = [part.opening + part.text + part.closing for part in parts]
    return "\n\n".join([*shown, _left_out(missing)] if missing else shown)


class _Part(NamedTuple):
    """A text between its two fence lines; the lines are "" if the text has no fence."""

    opening: str
    text: str
    closing: str


def _part_of(text: str, label: str) -> _Part:
    """A comment in the form in which the carry-over shows it, with its label.

    The label (a line with the number of the message) is inside the fence, so that consecutive comments of one person
    can share a fence. The marker and the author in the fence are taken from the text of the record.
    """
    opening = _OPENING.match(text)
    closing = [found for found in _CLOSING.finditer(text) if found.end() == len(text)]
    if opening is None or not closing:
        return _Part("", label + text, "")
    return _Part(opening[0], label + text[opening.end() : closing[-1].start()], closing[-1][0])


def _question(comment: RecordedComment, record: Mapping[str, Any], *, seen: bool) -> str:
    """The text of the question that a comment answers, with a mark on each line: a question may quote anything, and
    must not look like a comment."""
    quoted = "\n".join(f"> {line}" for line in question_of(dict(record)).splitlines())
    where = "; the answer follows below" if seen else ""
    return f"[message {comment.question}, your question{where}]\n{quoted}"


def _left_out(missing: list[int]) -> str:
    newest = missing[::-1][:MOST_NAMED]
    more = f" and {len(missing) - len(newest)} older ones" if len(missing) > len(newest) else ""
    named = ", ".join(str(seq) for seq in newest)
    return f'[no room for messages {named}{more}; read_output("messages:{newest[0]}") shows one]'


def shorten(text: str, seq: int, how: Mapping[str, Any]) -> str:
    """`text`, or its head and tail with a pointer between them if `how` has `head` and `tail` (characters)."""
    head, tail = how.get("head"), how.get("tail")
    if not isinstance(head, int) or not isinstance(tail, int) or head < 0 or tail < 0 or head + tail >= len(text):
        return replace_surrogates(text)
    note = f'[… {len(text) - head - tail} characters left out; read_output("messages:{seq}") shows them …]'
    return replace_surrogates(f"{text[:head]}\n{note}\n{text[len(text) - tail :]}")


def cut_to(text: str, seq: int, room: int, count: Callable[[str], int]) -> Json | None:
    """The reference that shortens comment `seq` to `room` tokens: `{"seq", "head", "tail"}`, with two thirds of the
    text at the head.

    The fence lines with the author stay whole; returns None if fewer than LEAST_SHOWN characters of the text between
    them fit.
    """
    opening, closing = _OPENING.match(text), None
    for found in _CLOSING.finditer(text):
        closing = found
    first = opening.end() if opening else 0
    last = len(text) - closing.start() if closing else 0

    def way(size: int) -> Json:
        return {"seq": seq, "head": first + size * 2 // 3, "tail": last + size // 3}

    low, high = 0, max(0, len(text) - first - last)
    while low < high:
        middle = (low + high + 1) // 2
        if count(shorten(text, seq, way(middle))) <= room:
            low = middle
        else:
            high = middle - 1
    return way(low) if low >= LEAST_SHOWN else None


LEAST_SHOWN = 40
"""The minimum number of characters of a shortened comment, without its fence lines."""
