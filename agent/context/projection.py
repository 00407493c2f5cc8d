"""current.jsonl = f(messages.jsonl, summaries.jsonl, compactions.jsonl; wire and model): the one pure function.

A start, a compaction and a resume all come here (design: section 4).  The view is, in this order:

1. the newest `kind: system` record and 2. the newest `kind: task` record, the briefing.  Both at or before the newest
   compaction that left messages out, or the first ones; later ones wait, unseen, for the next such compaction, so that
   bytes sent once stay the same bytes.  A briefing that a `brief` line names counts from that line on.
3. After a compaction with a summary: the summary as an assistant message, then one user message with what is carried
   and the word to go on, unless what follows starts with a user message.  Then what is carried is put in front of that
   message's text.  Without a summary the same stands only if something is carried, behind a note that messages were
   left out.  Comments of people are carried by reference (`comments.py`).  A compaction without references, of an
   earlier version or of the library interface, carries the newest words of a person instead: always after a reset, and
   never where what follows starts with a user message.
4. Every message behind the cut.  Copies of summaries and answers with neither text nor calls are left out.  A damaged
   file may lack one half of a group: a result without its call is left out, a call without its result is answered.
5. Tool results up to the newest mask become pointers, where a pointer is shorter, and pictures a line of text; the
   pictures of the head go with the first compaction of any kind that reaches it (`pictures.py`).  Results that are no
   pointers, and user messages, have at most the bytes of the smallest trim that reaches them (`trims.py`).
6. What only a server understands (`provider_fields.py`) stands in the answers of the wire and model in force, and in no
   others: with another model in the configuration the next start derives another view.

Memory: one line, and the ids of the calls that are open.  Readers of other processes may call `derive` at any time;
nothing is repaired here.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from agent import disk
from agent.context import carried as carrying
from agent.context import comments, pictures, trims
from agent.context.provider_fields import tokens_of
from agent.context.records import LOST, is_legible, is_seen, open_calls_of, result_line, wire
from agent.context.survey import Cut, Survey
from agent.store.jsonl import backwards, records
from agent.store.text import line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from agent.context.provider_fields import Origin
    from agent.values import Json

Line = tuple[bytes, int]
"""One line of the view with its newline, and its tokens."""


def derive(context_dir: Path, out: int | Path, origin: Origin | None = None) -> int:
    """Write the view of the task in `context_dir` to a descriptor, or to a new file; returns its size in bytes."""
    if isinstance(out, int):
        return write(out, (data for data, _ in lines(Path(context_dir), origin=origin)))
    with disk.replacing(out) as descriptor:
        return write(descriptor, (data for data, _ in lines(Path(context_dir), origin=origin)))


def write(descriptor: int, chunks: Iterable[bytes]) -> int:
    """Write `chunks` in blocks; returns how many bytes they were."""
    size = 0
    block = bytearray()
    for chunk in chunks:
        block += chunk
        if len(block) >= disk.BLOCK:
            disk.write_all(descriptor, bytes(block))
            size += len(block)
            block.clear()
    disk.write_all(descriptor, bytes(block))
    return size + len(block)


def pointer(record: Json) -> str | None:
    """What stands for a masked tool result: where `read_output` finds it; None when it is nowhere else."""
    name = record.get("output") or (f"tools:{record['tool_seq']}" if record.get("tool_seq") else None)
    if name is None:
        return None
    return f'[left out; read_output("{name}") shows it]'


def lines(
    context_dir: Path,
    *,
    count: Callable[[str], int] | None = None,
    cut: Cut | None = None,
    survey: Survey | None = None,
    summary: Json | None = None,
    origin: Origin | None = None,
) -> Iterator[Line]:
    """The lines of the view in order, for the wire and model of `origin`.

    `count` counts the text of lines that are no record (else they count 0).  `cut` and `survey` save passes where the
    caller has them; `summary` stands for the record that `cut.summary_id` names, to see what a compaction would do.
    """
    messages = context_dir / "messages.jsonl"
    count = count or (lambda _text: 0)
    cut = Cut.of(context_dir / "compactions.jsonl") if cut is None else cut
    survey = Survey.of(messages, cut, origin=origin) if survey is None else survey
    for offset in (survey.system, survey.task):
        if offset is not None:
            record = _at(messages, offset)
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
    context_dir: Path, cut: Cut, survey: Survey, summary: Json | None
) -> Iterator[tuple[Json, int | None] | str]:
    """Rule 3: the messages between the head and what follows, each with its tokens if they are known; or, as text,
    what is to be put in front of the first message that follows."""
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


def _carried(messages: Path, cut: Cut, survey: Survey, *, speaks: bool) -> str:
    """What is carried, as text; "" for nothing."""
    if carrying.has_references(cut.carried):
        return carried_over(messages, cut.carried, survey, cut.end_seq)
    words = None
    if not speaks and survey.words is not None:
        words = _at(messages, survey.words)["content"]
    return carrying.carried_text(cut.carried, words)


def carried_over(messages: Path, carried: Json, survey: Survey, end_seq: int) -> str:
    """The text of what a compaction up to `end_seq` carries, with the comments that it refers to; "" for nothing."""
    said = comments.show(carried[carrying.COMMENTS], survey.comments, end_seq, lambda offset: _at(messages, offset))
    notes = carrying.notes_until(carried.get("notes"), end_seq)
    return carrying.carried_text({**carried, carrying.COMMENTS: said, "notes": notes})


def _conversation(
    messages: Path, start: int, cut: Cut, prefix: str, count: Callable[[str], int], origin: Origin | None
) -> Iterator[Line]:
    """Rules 4 and 5, from byte `start` on; `prefix` goes in front of the first message's text."""
    calls: dict[str, Json] = {}
    for _, record in records(messages, start):
        if record["seq"] <= cut.end_seq or not is_legible(record) or not is_seen(record):
            continue
        tokens = tokens_of(record, origin)
        if record["role"] == "tool":
            if calls.pop(record["tool_call_id"], None) is None:
                continue
            if record["seq"] <= cut.mask_end and (text := shorter(record)) is not None:
                record, tokens = {**record, "content": text}, count(text)  # noqa: PLW2901 - the same, masked
            else:
                record, tokens = _trimmed(record, tokens, cut, count)  # noqa: PLW2901 - the same, shorter
        else:
            record, tokens = _trimmed(record, tokens, cut, count)  # noqa: PLW2901 - the same, shorter
            if record.get(pictures.NAME) and record["seq"] <= cut.mask_end:
                record, tokens = _without_pictures(record, tokens, count)  # noqa: PLW2901 - the same, masked
            for identifier in calls:
                yield line(result_line(identifier, LOST)), count(LOST)
            calls = {call["id"]: call for call in open_calls_of(record)}
        if prefix:
            record = {**record, "content": f"{prefix}\n\n{record['content']}"}  # noqa: PLW2901 - the same, with more
            tokens += count(prefix)
            prefix = ""
        yield line(wire(record, origin)), tokens


def _trimmed(record: Json, tokens: int, cut: Cut, count: Callable[[str], int]) -> tuple[Json, int]:
    text = trims.trimmed(record, cut.largest_of(record["seq"])) if cut.trims else None
    if text is None:
        return record, tokens
    return {**record, "content": text}, count(text) + pictures.tokens_of(record)


def _without_pictures(record: Json, tokens: int, count: Callable[[str], int]) -> tuple[Json, int]:
    rest = pictures.without(record)
    return rest, tokens - pictures.tokens_of(record) + count(rest["content"][len(record["content"]) :])


def shorter(record: Json) -> str | None:
    """The pointer for a tool result, None where it would not be shorter than the result."""
    text = pointer(record)
    return text if text is not None and len(text) < len(record["content"]) else None


def _at(path: Path, offset: int) -> Json:
    return next(record for _, record in records(path, offset))


def _summary(context_dir: Path, identifier: int, copy: int | None) -> Json | None:
    """The summary of that id; should its line be damaged, its copy in messages.jsonl."""
    for _, record in backwards(context_dir / "summaries.jsonl", id_key="id"):
        if record["id"] < identifier:
            break
        if record["id"] == identifier and isinstance(record.get("summary"), str):
            return record
    if copy is None:
        return None
    record = _at(context_dir / "messages.jsonl", copy)
    return {"summary": record["content"], "summary_tokens": record.get("tokens")}


def same(path: Path, wanted: Iterable[Line]) -> int | None:
    """The tokens of the view when the file holds exactly `wanted`, else None."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return None
    total = 0
    with os.fdopen(descriptor, "rb", buffering=disk.BLOCK) as file:
        for data, tokens in wanted:
            if file.read(len(data)) != data:
                return None
            total += tokens
        return None if file.read(1) else total
