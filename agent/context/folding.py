"""Compactions, worked out and committed in the order that survives a crash (design: section 4).

    summary → its copy in messages.jsonl → sync → line in compactions.jsonl → sync (the commit) → view derived

A crash before the commit leaves a summary that nothing names; after it, a view that the next opening derives.  The
functions here are `MessageStore`'s, which see.  When to compact and what to write in a summary is `window`'s business.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson

from agent import clock, disk
from agent.context import trims
from agent.context.compactions import STRATEGIES
from agent.context.projection import lines, shorter
from agent.context.provider_fields import tokens_of
from agent.context.records import LOST, is_legible, is_seen
from agent.context.survey import BESIDE, CUTTING, Cut, Survey
from agent.store.jsonl import backwards, last_record
from agent.store.text import fit

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from agent.context.messages import MessageStore
    from agent.values import Json, Usage


@dataclass(frozen=True, slots=True)
class Fold:
    """One compaction, worked out: what it covers, the summary it brings (text and tokens), and the cut it makes."""

    strategy: str
    start_seq: int
    end_seq: int
    carried: Any
    summary: Json | None
    summary_id: int | None
    cut: Cut


def plan(
    store: MessageStore,
    strategy: str,
    end_seq: int,
    summary: str | None,
    summary_tokens: int | None,
    carried: Any,
    keep_summary: bool,
) -> Fold:
    """Check and round; ValueError when there cannot be such a compaction."""
    if strategy not in STRATEGIES or strategy in BESIDE:
        allowed = ", ".join(one for one in STRATEGIES if one not in BESIDE)
        raise ValueError(f"strategy is {strategy!r}; allowed are {allowed}")
    if (strategy == "summary") != (summary is not None):
        raise ValueError("a compaction by summary, and only that, brings the text of a summary")
    before = store.survey.cut
    end_seq = min(end_seq, store.last_seq)
    if strategy in CUTTING:
        if end_seq < before.end_seq:
            raise ValueError(f"messages up to {before.end_seq} are left out already; end_seq is {end_seq}")
        end_seq = whole_groups(store, end_seq)
    entry: Json | None = None
    if summary is not None:
        text = fit(summary)
        if not text.strip():
            raise ValueError("the summary is empty; an empty summary is never recorded")
        tokens = store.plain.count(text) if summary_tokens is None else summary_tokens
        entry = {"summary": text, "summary_tokens": tokens}
    kept = before.summary_id if keep_summary and strategy in ("window", "reset") else None
    cut = before.after(
        {"strategy": strategy, "end_seq": end_seq, "at_seq": store.last_seq, "summary_id": kept, "carried": carried}
    )
    start = before.mask_end if strategy == "mask" else before.end_seq
    return Fold(strategy, start + 1, end_seq, carried, entry, kept, cut)


def tokens_after(store: MessageStore, fold: Fold) -> int:
    """The tokens of the view under the fold; two passes over what is in the view now."""
    survey = Survey.of(store.messages_path, fold.cut, known=store.survey, origin=store.origin)
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
    store: MessageStore,
    strategy: str,
    end_seq: int,
    summary: str | None,
    summary_tokens: int | None,
    carried: Any,
    keep_summary: bool,
    usage: Usage | None,
    request: int | None = None,
) -> int:
    """Record and commit; returns the compaction's id."""
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


def trimmed(store: MessageStore, start_seq: int, end_seq: int, largest: int) -> Fold:
    """A trim of the messages from `start_seq` to `end_seq`, worked out."""
    before = store.survey.cut
    line = {"strategy": "trim", "start_seq": start_seq, "end_seq": end_seq, "largest": largest}
    cut = before.after({**line, "at_seq": store.last_seq})
    return Fold("trim", start_seq, end_seq, None, None, None, cut)


def trim(store: MessageStore, start_seq: int, end_seq: int, largest: int) -> int:
    """Record and commit; returns the compaction's id."""
    before, after = store.get_current_token_count(), tokens_after(store, trimmed(store, start_seq, end_seq, largest))
    store.sync(force=True)  # the messages that it shortens are durable before it
    return store.compactions.add(
        strategy="trim",
        start_seq=start_seq,
        end_seq=end_seq,
        tokens_before=before,
        tokens_after=after,
        largest=largest,
    )


def brief(store: MessageStore, seq: int) -> int:
    """Let the briefing `seq`, the newest message, count from now on; returns the compaction's id."""
    before = store.get_current_token_count()
    line = {"strategy": "brief", "end_seq": seq, "at_seq": store.last_seq}
    cut = store.survey.cut.after(line)
    after = tokens_after(store, Fold("brief", seq, seq, None, None, None, cut))
    store.sync(force=True)  # the briefing is durable before the line that names it
    return store.compactions.add(strategy="brief", start_seq=seq, end_seq=seq, tokens_before=before, tokens_after=after)


def _tool_calls(store: MessageStore) -> int:
    if store.tools is not None:
        return store.tools.count_tool_calls()
    newest = last_record(store.context_dir / "tools.jsonl")
    return int(newest["seq"]) if newest else 0


def _record_summary(store: MessageStore, fold: Fold, usage: Usage | None, request: int | None) -> int:
    """The summary in summaries.jsonl, unless it is there already and nothing names it yet, and its copy."""
    assert fold.summary is not None
    text, tokens = fold.summary["summary"], fold.summary["summary_tokens"]
    latest = store.summaries.get_latest_summary()
    if latest is not None and latest["id"] > store.survey.cut.summaries and latest.get("summary") == text:
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


def whole_groups(store: MessageStore, end_seq: int) -> int:
    """`end_seq`, or the place before the group that it would cut: an answer with calls and its results stay together,
    and a group with an open call stays whole."""
    survey = store.survey
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


def end_before(store: MessageStore, path: Path) -> int:
    """The number of the last message that is not among the lines of `path`.

    The lines must be the newest messages of the conversation, in order, as the view has them; else ValueError.
    """
    survey = store.survey
    heads = (survey.system, survey.task)
    oldest = store.last_seq + 1
    candidates = _backwards(store)
    for number, wanted in _lines_backwards(path):
        if wanted.get("role") == "tool" and wanted.get("content") == LOST:
            continue  # stands for a damaged record
        for offset, record in candidates:
            if _matches(wanted, record, survey.cut):
                oldest = min(oldest, record["seq"])
                break
            if offset not in heads:
                raise ValueError(
                    f"{path}: line {number} from the end is not message {record['seq']} of the conversation; the "
                    f"lines must be its newest messages"
                )
        else:
            raise ValueError(f"{path} has more lines than there are messages behind the last compaction")
    return oldest - 1


def _backwards(store: MessageStore) -> Iterator[tuple[int, Json]]:
    """Records behind the cut that the view shows, newest first, its head among them."""
    survey = store.survey
    heads = (survey.system, survey.task)
    for offset, record in backwards(store.messages_path):
        if not is_legible(record):
            continue
        if record["seq"] <= survey.cut.end_seq:
            return
        if is_seen(record) or offset in heads:
            yield offset, record


def _lines_backwards(path: Path) -> Iterator[tuple[int, Json]]:
    """(number from the end, message) of a file of OpenAI messages."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        raise ValueError(f"{path} does not exist; it must hold the messages that stay, and may be empty") from None
    try:
        for number, (_, data) in enumerate(disk.read_backwards(descriptor, os.fstat(descriptor).st_size), 1):
            with suppress(orjson.JSONDecodeError):
                message = orjson.loads(data)
                if isinstance(message, dict):
                    yield number, message
                    continue
            raise ValueError(f"{path}: line {number} from the end is not a JSON object")
    finally:
        os.close(descriptor)


def _matches(wanted: Json, record: Json, cut: Cut) -> bool:
    """Whether a line of the view is this record: as it is, masked, trimmed, or with what is carried in front."""
    if wanted.get("role") != record["role"]:
        return False
    if "tool_call_id" in wanted and wanted["tool_call_id"] != record.get("tool_call_id"):
        return False
    said, content = wanted.get("content"), record["content"]
    short = trims.trimmed(record, cut.largest_of(record["seq"]))
    content = content if short is None else short
    if said == content:
        return [call.get("id") for call in wanted.get("tool_calls") or ()] == [
            call["id"] for call in record.get("tool_calls") or ()
        ]
    if record["role"] == "tool":
        return bool(said in (shorter(record), record["content"]))
    return record["role"] == "user" and isinstance(said, str) and said.endswith(f"\n\n{content}")


def joined(first: Path, second: Path, target: Path) -> Path:
    """`target` with the bytes of both files, copied inside the kernel; a missing second file reads as empty."""
    with disk.writing(target):
        out = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            for path in (first, second):
                with suppress(FileNotFoundError):
                    source = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
                    try:
                        size = os.fstat(source).st_size
                        disk.copy_range(source, out, 0, size)
                        if size and os.pread(source, 1, size - 1) != b"\n":
                            os.write(out, b"\n")
                    finally:
                        os.close(source)
        finally:
            os.close(out)
    return target
