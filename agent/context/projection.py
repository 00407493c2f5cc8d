"""Derives current.jsonl, which is a pure function of messages.jsonl, summaries.jsonl and compactions.jsonl, and of the
wire and the model.

A start, a compaction and a resume all derive current.jsonl with this module (docs/files.md, "Rules").  The view
contains, in this order:

1. the newest `kind: system` record and 2. the newest `kind: task` record, the briefing. Of the system records and of
   the briefings the view has the newest record at or before the newest compaction that omitted messages, or else the
   first record; later records stay out of the view until the next compaction that omits messages, so that bytes that
   were sent once do not change. A compaction of the kind `brief` names a briefing, which is valid from that compaction
   on.
3. After a compaction with a summary: the summary as an assistant message, then one user message with the carried state
   and the instruction to continue. If the first message after the cut is a user's, the carried state is put in front of
   that message's text instead. Without a summary, the view has a user message with carried state only if something is
   carried; an assistant message before it notes that messages were left out. Comments of people are carried over by
   reference (`comments.py`). A compaction without such references, made by an earlier version or through the library
   interface, carries the newest message of a person instead, unless the first message after the cut is a user's, or the
   compaction is no reset and has neither a summary nor a carried state.
4. Every message after the cut of the newest compaction, except copies of summaries, and except answers with neither
  text nor calls. A damaged file may lack one half of a group: a result without its call is left out, a call without its
  result gets a result that says that the real one is lost.
5. Tool results up to the newest mask become pointers, where a pointer is shorter (a command's pointer has its exit
   state), and pictures become a line of text. The pictures in the briefing are removed by the first compaction of any
   kind that reaches them (`pictures.py`). Other results, and user messages, have at most the bytes of the smallest trim
   that reaches them (`shortened_message.py`).
6. Provider-specific fields (`provider_fields.py`) appear only in answers of the current wire and model: after a change
   of the model in the configuration the next start derives another view.

While the view is derived, only one line and the ids of the open calls are in memory. Readers in other processes may
call `derive` at any time, since `derive` repairs nothing.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from agent import durable_files
from agent.context import carry_over_text as carrying
from agent.context import comments, pictures, shortened_message
from agent.context.index import Cut, MessageIndex
from agent.context.message_records import LOST, is_legible, is_seen, open_calls_of, result_line, wire
from agent.context.provider_fields import tokens_of
from agent.store.jsonl import backwards, record_at, records
from agent.store.storable_text import line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from agent.context.provider_fields import Origin
    from agent.values import Json

_ENDED = re.compile(r"\[(exit code -?\d+|ended after \S+ s)")
"""The exit state of a command, which is at the beginning of its result (`tools/run_command.py`)."""

Line = tuple[bytes, int]
"""One line of the view (with its newline), and its tokens."""


def derive(context_dir: Path, out: int | Path, origin: Origin | None = None) -> int:
    """Write the view of the task in `context_dir` to a descriptor or to a new file; returns its size in bytes."""
    if isinstance(out, int):
        return write(out, (data for data, _ in lines(Path(context_dir), origin=origin)))
    with durable_files.replacing(out) as descriptor:
        return write(descriptor, (data for data, _ in lines(Path(context_dir), origin=origin)))


def write(descriptor: int, chunks: Iterable[bytes]) -> int:
    """Write `chunks` in blocks; returns the number of bytes written."""
    size = 0
    block = bytearray()
    for chunk in chunks:
        block += chunk
        if len(block) >= durable_files.BLOCK:
            durable_files.write_all(descriptor, bytes(block))
            size += len(block)
            block.clear()
    durable_files.write_all(descriptor, bytes(block))
    return size + len(block)


def pointer(record: Json) -> str | None:
    """The text that replaces a masked tool result: the exit state of a command, and the name for the tool
    `read_output`.

    Returns None when neither `outputs/` nor tools.jsonl has the result.
    """
    name = record.get("output") or (f"tools:{record['tool_seq']}" if record.get("tool_seq") else None)
    if name is None:
        return None
    ended = _ENDED.match(record["content"]) if record.get("tool_name") == "run_command" else None
    return f'[{f"{ended[1]}; " if ended else ""}left out; read_output("{name}") shows it]'


def lines(
    context_dir: Path,
    *,
    count: Callable[[str], int] | None = None,
    cut: Cut | None = None,
    survey: MessageIndex | None = None,
    summary: Json | None = None,
    origin: Origin | None = None,
) -> Iterator[Line]:
    """The lines of the view in order, for the wire and model of `origin`.

    `count` counts the tokens of lines that are not records; by default these lines count 0.  `cut` and `survey` save
    passes over the files if the caller has them.  `summary` replaces the record of `cut.summary_id`, for a preview of a
    compaction.
    """
    messages = context_dir / "messages.jsonl"
    count = count or (lambda _text: 0)
    cut = Cut.read(context_dir / "compactions.jsonl") if cut is None else cut
    survey = MessageIndex.read(messages, cut, origin=origin) if survey is None else survey
    for offset in (survey.system, survey.task):
        if offset is not None:
            record = record_at(messages, offset)
            if record is None:  # the line was damaged after `survey` was made, so the view lacks it
                continue
            tokens = tokens_of(record, origin)
            if record.get(pictures.NAME) and record["seq"] <= max(cut.end_seq, cut.mask_end):
                record, tokens = _without_pictures(record, tokens, count)
            yield line(wire(record)), tokens
    prefix = ""
    for place in _bridge(context_dir, cut, survey, summary):
        if isinstance(place, str):
            prefix = place
        else:
            yield line(place[0]), place[1] if place[1] is not None else count(place[0]["content"])
    if survey.first is not None:
        yield from _conversation(messages, survey.first, cut, prefix, count, origin)


def _bridge(
    context_dir: Path, cut: Cut, survey: MessageIndex, summary: Json | None
) -> Iterator[tuple[Json, int | None] | str]:
    """The messages of rule 3 in the module's docstring (summary and carried state), between the head of the view and
    the first message after the cut, each with its tokens if they are known.

    If the generator yields a text instead of a message, the text is put in front of the first message that follows.
    """
    if summary is None and cut.summary_id is not None:
        summary = _summary(context_dir, cut.summary_id, survey.copy)
    if summary is None and not cut.carried and cut.strategy != "reset":
        return
    speaks = survey.follows == "user"
    text = _carried(context_dir / "messages.jsonl", cut, survey, speaks=speaks)
    if summary is not None:
        yield {"role": "assistant", "content": summary["summary"]}, summary.get("summary_tokens")
    elif text and not speaks:
        yield {"role": "assistant", "content": carrying.LEFT_OUT}, None
    if speaks:
        yield f"{text}\n\n{carrying.NEXT}" if text and carrying.has_references(cut.carried) else text
    elif text or summary is not None:
        yield {"role": "user", "content": f"{text}\n\n{carrying.GO_ON}" if text else carrying.GO_ON}, None


def bridge_lines(context_dir: Path, cut: Cut, survey: MessageIndex) -> tuple[int, int]:
    """(number of lines with the summary, number of lines with the carried state) that follow the briefing in the
    view."""
    places = [place for place in _bridge(context_dir, cut, survey, None) if place]
    first = places[0] if places and cut.summary_id is not None else ""
    summary = not isinstance(first, str) and first[0]["content"] != carrying.LEFT_OUT
    return int(summary), len(places) - summary


def _carried(messages: Path, cut: Cut, survey: MessageIndex, *, speaks: bool) -> str:
    """The carried state as text; "" if there is none."""
    if carrying.has_references(cut.carried):
        return carried_over(messages, cut.carried, survey, cut.end_seq)
    words = None
    if not speaks and survey.words is not None:
        words = (record_at(messages, survey.words) or {}).get("content")
    return carrying.carried_text(cut.carried, words)


def carried_over(messages: Path, carried: Json, survey: MessageIndex, end_seq: int) -> str:
    """The carried state of a compaction up to `end_seq`, with the comments that it refers to; "" if there is none."""
    said = comments.render_comments(
        carried[carrying.COMMENTS], survey.comments, end_seq, lambda offset: record_at(messages, offset) or {}
    )
    notes = carrying.notes_until(carried.get("notes"), end_seq)
    return carrying.carried_text({**carried, carrying.COMMENTS: said, "notes": notes})


def _conversation(
    messages: Path, start: int, cut: Cut, prefix: str, count: Callable[[str], int], origin: Origin | None
) -> Iterator[Line]:
    """The lines of the view for the messages after the cut (rules 4 and 5 of the module's docstring), from byte `start`
    on; `prefix` is put in front of the text of the first message."""
    calls: dict[str, Json] = {}
    for _, record in records(messages, start):
        if record["seq"] <= cut.end_seq or not is_legible(record) or not is_seen(record):
            continue
        tokens = tokens_of(record, origin)
        if record["role"] == "tool":
            if calls.pop(record["tool_call_id"], None) is None:
                continue
            if record["seq"] <= cut.mask_end and (text := shorter_pointer(record)) is not None:
                record, tokens = {**record, "content": text}, count(text)  # noqa: PLW2901 - a copy in which the tool result is masked
            else:
                record, tokens = _trimmed(record, tokens, cut, count)  # noqa: PLW2901 - a copy in which the text is shortened
        else:
            record, tokens = _trimmed(record, tokens, cut, count)  # noqa: PLW2901 - a copy in which the text is shortened
            if record.get(pictures.NAME) and record["seq"] <= cut.mask_end:
                record, tokens = _without_pictures(record, tokens, count)  # noqa: PLW2901 - without pictures
            for identifier in calls:
                yield line(result_line(identifier, LOST)), count(LOST)
            calls = {call["id"]: call for call in open_calls_of(record)}
        if prefix:
            record = {**record, "content": f"{prefix}\n\n{record['content']}"}  # noqa: PLW2901 - a copy that begins with `prefix`
            tokens += count(prefix)
            prefix = ""
        yield line(wire(record, origin)), tokens


def _trimmed(record: Json, tokens: int, cut: Cut, count: Callable[[str], int]) -> tuple[Json, int]:
    text = shortened_message.shorten(record, cut.largest_of(record["seq"])) if cut.trims else None
    if text is None:
        return record, tokens
    return {**record, "content": text}, count(text) + pictures.tokens_of(record)


def _without_pictures(record: Json, tokens: int, count: Callable[[str], int]) -> tuple[Json, int]:
    rest = pictures.without_pictures(record)
    return rest, tokens - pictures.tokens_of(record) + count(rest["content"][len(record["content"]) :])


def shorter_pointer(record: Json) -> str | None:
    """The pointer for a tool result; None if it is not shorter than the result, or if the result is stored nowhere
    else."""
    text = pointer(record)
    return text if text is not None and len(text) < len(record["content"]) else None


def _summary(context_dir: Path, identifier: int, copy: int | None) -> Json | None:
    """The record of one summary; if the line in summaries.jsonl is damaged, the copy of the summary in messages.jsonl;
    None without a copy."""
    for _, record in backwards(context_dir / "summaries.jsonl", id_key="id"):
        if record["id"] < identifier:
            break
        if record["id"] == identifier and isinstance(record.get("summary"), str):
            return record
    found = record_at(context_dir / "messages.jsonl", copy) if copy is not None else None
    return {"summary": found["content"], "summary_tokens": found.get("tokens")} if found is not None else None


def tokens_if_same(path: Path, wanted: Iterable[Line]) -> int | None:
    """The tokens of the view if the file has exactly the lines `wanted`, else None."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return None
    total = 0
    with os.fdopen(descriptor, "rb", buffering=durable_files.BLOCK) as file:
        for data, tokens in wanted:
            if file.read(len(data)) != data:
                return None
            total += tokens
        return None if file.read(1) else total
