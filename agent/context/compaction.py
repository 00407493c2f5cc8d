"""Computes compactions and commits them in an order that survives a crash (docs/files.md, "Rules").

    The steps of a compaction are: summary → its copy in messages.jsonl → sync → line in compactions.jsonl → sync (the
    commit) → view derived

A crash before the commit leaves a summary to which no compaction refers; if the crash comes after the commit,
`MessageStore` derives the view again when it is next opened.  The package `agent/window` decides when to compact and
writes summaries.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import orjson

from agent import clock, durable_files
from agent.context import shortened_message
from agent.context.compaction_store import STRATEGIES
from agent.context.index import BESIDE, CUTTING, Cut, MessageIndex
from agent.context.message_records import LOST, is_legible, is_seen
from agent.context.projection import lines, shorter_pointer
from agent.context.provider_fields import tokens_of
from agent.errors import RecordRefused
from agent.store.jsonl import backwards, last_record
from agent.store.storable_text import replace_surrogates

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from agent.context.compaction_store import CompactionStore
    from agent.context.provider_fields import Origin
    from agent.context.requests import RequestStore
    from agent.context.summaries import SummaryStore
    from agent.context.tools import ToolStore
    from agent.values import Counter, Json, Usage


class CompactableMessages(Protocol):
    """The part of `MessageStore` that a compaction needs; the docstrings of the methods are in `messages.py`."""

    context_dir: Path
    messages_path: Path
    origin: Origin
    plain: Counter
    summaries: SummaryStore
    compactions: CompactionStore
    requests: RequestStore
    tools: ToolStore | None

    @property
    def index(self) -> MessageIndex: ...

    @property
    def last_seq(self) -> int: ...

    def get_current_token_count(self) -> int: ...

    def records(self, start_seq: int = 1) -> Iterator[Json]: ...

    def sync(self, *, force: bool = False) -> None: ...

    def append_copy(self, record: Json) -> None: ...


@dataclass(frozen=True, slots=True)
class PlannedCompaction:
    """One computed compaction: the messages that it covers, its summary (text and tokens), and the resulting `Cut`."""

    strategy: str
    start_seq: int
    end_seq: int
    carried: Any
    summary: Json | None
    summary_id: int | None
    cut: Cut


def plan(
    store: CompactableMessages,
    strategy: str,
    end_seq: int,
    summary: str | None,
    summary_tokens: int | None,
    carried: Any,
    keep_summary: bool,
) -> PlannedCompaction:
    """Compute a compaction by mask, summary, window or reset; nothing is written. If the compaction omits messages, its
    end is rounded down to whole groups. Raises RecordRefused for arguments that do not fit together."""
    if strategy not in STRATEGIES or strategy in BESIDE:
        allowed = ", ".join(one for one in STRATEGIES if one not in BESIDE)
        raise RecordRefused(f"strategy is {strategy!r}; allowed are {allowed}")
    if (strategy == "summary") != (summary is not None):
        found = "no text" if summary is None else "a text"
        raise RecordRefused(
            f"strategy is {strategy!r} with {found} of a summary; a compaction by summary, and only that, brings one"
        )
    before = store.index.cut
    end_seq = min(end_seq, store.last_seq)
    if strategy in CUTTING:
        if end_seq < before.end_seq:
            raise RecordRefused(
                f"messages up to {before.end_seq} are left out already; end_seq is {end_seq}, and must not be less"
            )
        end_seq = whole_groups(store, end_seq)
    entry: Json | None = None
    if summary is not None:
        text = replace_surrogates(summary)
        if not text.strip():
            raise RecordRefused("the summary is empty; an empty summary is never recorded")
        tokens = store.plain.count(text) if summary_tokens is None else summary_tokens
        entry = {"summary": text, "summary_tokens": tokens}
    kept = before.summary_id if keep_summary and strategy in ("window", "reset") else None
    cut = before.with_compaction(
        {"strategy": strategy, "end_seq": end_seq, "at_seq": store.last_seq, "summary_id": kept, "carried": carried}
    )
    start = before.mask_end if strategy == "mask" else before.end_seq
    return PlannedCompaction(strategy, start + 1, end_seq, carried, entry, kept, cut)


def tokens_after(store: CompactableMessages, fold: PlannedCompaction) -> int:
    """The number of tokens that the view would have after the compaction, counted in two passes over the present
    view."""
    survey = MessageIndex.read(store.messages_path, fold.cut, known=store.index, origin=store.origin)
    view = lines(
        store.context_dir,
        count=store.plain.count,
        cut=fold.cut,
        survey=survey,
        summary=fold.summary,
        origin=store.origin,
    )
    return sum(tokens for _, tokens in view)


def compact(
    store: CompactableMessages,
    strategy: str,
    end_seq: int,
    summary: str | None,
    summary_tokens: int | None,
    carried: Any,
    keep_summary: bool,
    usage: Usage | None,
    request: int | None = None,
) -> int:
    """Record the summary and commit the compaction; returns the compaction's id."""
    fold = plan(store, strategy, end_seq, summary, summary_tokens, carried, keep_summary)
    before, after = store.get_current_token_count(), tokens_after(store, fold)
    identifier = fold.summary_id
    if fold.summary is not None:
        identifier = _record_summary(store, fold, usage, request)
    store.sync(force=True)
    return store.compactions.add(
        strategy=strategy,
        start_seq=fold.start_seq,
        end_seq=fold.end_seq,
        summary_id=identifier,
        carried=carried,
        tokens_before=before,
        tokens_after=after,
        tools=_tool_calls(store),
        requests=store.requests.newest(),
    )


def trimmed(store: CompactableMessages, start_seq: int, end_seq: int, largest: int) -> PlannedCompaction:
    """A trim of the messages from `start_seq` to `end_seq`, computed but not committed."""
    before = store.index.cut
    line = {"strategy": "trim", "start_seq": start_seq, "end_seq": end_seq, "largest": largest}
    cut = before.with_compaction({**line, "at_seq": store.last_seq})
    return PlannedCompaction("trim", start_seq, end_seq, None, None, None, cut)


def trim(store: CompactableMessages, start_seq: int, end_seq: int, largest: int) -> int:
    """Record and commit a trim; returns the id of the compaction."""
    before, after = store.get_current_token_count(), tokens_after(store, trimmed(store, start_seq, end_seq, largest))
    store.sync(force=True)  # the messages that the trim shortens must be durable before the line that refers to them
    return store.compactions.add(
        strategy="trim",
        start_seq=start_seq,
        end_seq=end_seq,
        tokens_before=before,
        tokens_after=after,
        largest=largest,
    )


def brief(store: CompactableMessages, seq: int) -> int:
    """Make `seq`, the newest message, the valid briefing; returns the id of the compaction."""
    before = store.get_current_token_count()
    line = {"strategy": "brief", "end_seq": seq, "at_seq": store.last_seq}
    cut = store.index.cut.with_compaction(line)
    after = tokens_after(store, PlannedCompaction("brief", seq, seq, None, None, None, cut))
    store.sync(force=True)  # the briefing must be durable before the line that refers to it
    return store.compactions.add(strategy="brief", start_seq=seq, end_seq=seq, tokens_before=before, tokens_after=after)


def _tool_calls(store: CompactableMessages) -> int:
    if store.tools is not None:
        return store.tools.count_tool_calls()
    newest = last_record(store.context_dir / "tools.jsonl")
    return int(newest["seq"]) if newest else 0


def _record_summary(
    store: CompactableMessages, fold: PlannedCompaction, usage: Usage | None, request: int | None
) -> int:
    """Record the summary and its copy in messages.jsonl; returns the summary's id.

    The newest recorded summary is reused if it has the same text and no compaction refers to it.
    """
    assert fold.summary is not None
    text, tokens = fold.summary["summary"], fold.summary["summary_tokens"]
    latest = store.summaries.get_latest_summary()
    if latest is not None and latest["id"] > store.index.cut.summaries and latest.get("summary") == text:
        identifier = int(latest["id"])
    else:
        original = sum(
            tokens_of(record, store.origin)
            for record in store.records(fold.start_seq)
            if record["seq"] <= fold.end_seq and is_legible(record) and is_seen(record)
        )
        identifier = store.summaries.add_summary(fold.start_seq, fold.end_seq, text, original, tokens)
    copy: Json = {
        "seq": store.last_seq + 1,
        "role": "assistant",
        "content": text,
        "timestamp": clock.stamp(),
        "tokens": tokens,
        "kind": "summary",
    }
    if usage is not None:
        copy["usage"] = usage.to_dict()
    if request is not None:
        copy["request"] = request
    store.append_copy(copy)
    return identifier


def whole_groups(store: CompactableMessages, end_seq: int) -> int:
    """`end_seq`, or the number of the message before the group that a cut at `end_seq` would split.

    A group is an answer with calls and their results; a group with an open call is left out of the compaction.
    """
    survey = store.index
    group = 0
    for record in store.records(survey.cut.end_seq + 1):
        if not is_legible(record) or not is_seen(record):
            continue
        if record["role"] == "tool":
            if group and record["seq"] > end_seq:
                return group - 1
            continue
        if record["seq"] > end_seq:
            return end_seq
        group = record["seq"] if record.get("tool_calls") else 0
    if survey.calls and survey.group_seq <= end_seq:
        return survey.group_seq - 1
    return end_seq


def end_before(store: CompactableMessages, path: Path) -> int:
    """The number of the last message of the view that is not among the lines of `path`.

    The lines of `path` must be the newest messages of the conversation, in the order and form of the view; otherwise
    RecordRefused is raised.
    """
    survey = store.index
    heads = (survey.system, survey.task)
    oldest = store.last_seq + 1
    candidates = _backwards(store)
    for number, wanted in _lines_backwards(path):
        if wanted.get("role") == "tool" and wanted.get("content") == LOST:
            continue  # the line in `path` only replaces a result that was lost in a damaged file
        for offset, record in candidates:
            if _matches(wanted, record, survey.cut):
                oldest = min(oldest, record["seq"])
                break
            if offset not in heads:
                raise RecordRefused(
                    f"{path}: line {number} from the end is not message {record['seq']} of the conversation; the "
                    f"lines must be its newest messages"
                )
        else:
            raise RecordRefused(
                f"{path} has more lines than there are messages behind the last compaction; leave out the oldest"
            )
    return oldest - 1


def _backwards(store: CompactableMessages) -> Iterator[tuple[int, Json]]:
    """The records of the view after the cut of the newest compaction, newest first; those at the head of the view are
    included if they are after the cut."""
    survey = store.index
    heads = (survey.system, survey.task)
    for offset, record in backwards(store.messages_path):
        if not is_legible(record):
            continue
        if record["seq"] <= survey.cut.end_seq:
            return
        if is_seen(record) or offset in heads:
            yield offset, record


def _lines_backwards(path: Path) -> Iterator[tuple[int, Json]]:
    """(number counted from the end, message) of a file of OpenAI messages."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        raise RecordRefused(f"{path} does not exist; it must hold the messages that stay, and may be empty") from None
    try:
        for number, (_, data) in enumerate(durable_files.read_backwards(descriptor, os.fstat(descriptor).st_size), 1):
            with suppress(orjson.JSONDecodeError):
                message = orjson.loads(data)
                if isinstance(message, dict):
                    yield number, message
                    continue
            raise RecordRefused(f"{path}: line {number} from the end is not a JSON object")
    finally:
        os.close(descriptor)


def _matches(wanted: Json, record: Json, cut: Cut) -> bool:
    """Whether the line `wanted` of a view shows this record, be it unchanged, masked, trimmed, or with carried text in
    front of the record's text."""
    if wanted.get("role") != record["role"]:
        return False
    if "tool_call_id" in wanted and wanted["tool_call_id"] != record.get("tool_call_id"):
        return False
    said, content = wanted.get("content"), record["content"]
    short = shortened_message.shorten(record, cut.largest_of(record["seq"]))
    content = content if short is None else short
    if said == content:
        return [call.get("id") for call in wanted.get("tool_calls") or ()] == [
            call["id"] for call in record.get("tool_calls") or ()
        ]
    if record["role"] == "tool":
        return bool(said in (shorter_pointer(record), record["content"]))
    return record["role"] == "user" and isinstance(said, str) and said.endswith(f"\n\n{content}")


def concatenate(first: Path, second: Path, target: Path) -> Path:
    """Write the bytes of both files to `target`, copied inside the kernel, each with a line break at its end; a missing
    file counts as empty."""
    with durable_files.writing(target):
        out = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            for path in (first, second):
                with suppress(FileNotFoundError):
                    source = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
                    try:
                        size = os.fstat(source).st_size
                        durable_files.copy_range(source, out, 0, size)
                        if size and durable_files.read_at(source, 1, size - 1) != b"\n":
                            os.write(out, b"\n")
                    finally:
                        os.close(source)
        finally:
            os.close(out)
    return target
