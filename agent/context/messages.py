"""MessageStore has messages.jsonl and its view current.jsonl (docs/design/context.md, 3.2, 3.3 and 4.2).

An append writes one line to messages.jsonl, and one to current.jsonl if the message is in the view, at the same cost
for the 200,000th message as for the first: counters give numbers and tokens, and contents stay on disk. The order of
messages is checked before each append, so that the view is a legal message list whenever no call is open.
`MessageStore.compact` also commits a compaction, since a compaction changes the view.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent import clock
from agent.context import compaction, old_format_import, pictures, projection, shortened_message
from agent.context.compaction_store import CompactionStore
from agent.context.cost_totals import Totals, cost_of
from agent.context.index import MessageIndex
from agent.context.message_records import INTERRUPTED, NO_OUTPUT, calls_of, content_of, is_legible, is_seen, wire
from agent.context.message_rules import call_for, change_of, check_between, kind_of
from agent.context.provider_fields import Origin, to_keep, tokens_of
from agent.context.requests import RequestStore
from agent.context.secret_masking import masked, masked_text
from agent.context.summaries import SummaryStore
from agent.context.view_file import ViewFile
from agent.errors import DiskError, RecordRefused
from agent.security.redact import masker_of
from agent.store.jsonl import JsonlFile, find
from agent.store.storable_text import fit_json, line, replace_surrogates
from agent.tokens import count_fields, counter_for, plain
from agent.values import Usage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from agent.config import Settings
    from agent.context.base import Store
    from agent.context.tools import ToolStore
    from agent.values import Counter, Json, Ratios


class MessageStore:
    """The messages of one task.

    `config` is Settings or a mapping (docs/design/context.md, 9.1).  `counter` defaults to the token counter of the
    model.  `TaskContextManager` passes the other stores, so that each file has one writer; without a manager the store
    creates its own. `others` are stores that `sync` syncs as well, each time before messages.jsonl.

    Opening the store repairs a torn last line, calls that a dead process left without a result (they get the result
    from tools.jsonl, or else "interrupted, outcome unknown"), and current.jsonl, the messages that the model sees, if
    that file is missing, too short, or differs from what messages.jsonl and compactions.jsonl imply.
    `repairs` has sentences about these repairs of the files.

    People open messages.jsonl and current.jsonl in editors, so each append and each request plan first checks whether
    another program has changed or removed one of the two files. After a change by another program the store reads
    messages.jsonl again if that was changed, derives current.jsonl again, and calls `noticed`, if set, with a sentence.
    """

    def __init__(
        self,
        context_dir: Path | str,
        config: Mapping[str, Any] | Settings,
        *,
        counter: Counter | None = None,
        ratios: Ratios | None = None,
        summaries: SummaryStore | None = None,
        compactions: CompactionStore | None = None,
        tools: ToolStore | None = None,
        requests: RequestStore | None = None,
        others: Sequence[Store] = (),
    ) -> None:
        from agent.config import settings_of

        settings = settings_of(config)
        provider = settings.provider()
        self.context_dir = Path(context_dir)
        self.context_length = provider.context_length
        self.origin = Origin(provider.wire, provider.model)
        self.counter = counter or counter_for(provider.model, ratios)
        # `redact` masks the texts of every role, since a model may repeat secrets that it has read.
        self.redact = masker_of(settings)
        # the field `tokens` of a record is counted without learnt ratios, so that its meaning does not change
        self.plain = plain(self.counter)
        durability = settings.context_storage.durability
        self.summaries = summaries or SummaryStore(self.context_dir, durability=durability, redact=self.redact)
        self.compactions = compactions or CompactionStore(self.context_dir, durability=durability, redact=self.redact)
        self._owns_requests = requests is None
        self.requests = requests or RequestStore(self.context_dir, durability=durability, redact=self.redact)
        self.tools = tools
        self._others = tuple(others)
        self._price = provider.price
        self.messages_path = self.context_dir / "messages.jsonl"
        self.current_path = self.context_dir / "current.jsonl"
        self.repairs: list[str] = []
        self._count = self.plain.count
        if old_format_import.is_plain(self.messages_path):
            self.repairs.append(old_format_import.convert_file(self.messages_path))
        self._file = JsonlFile(self.messages_path, durability=durability)
        self._file.create()
        self._view = ViewFile(self.current_path, sync=durability != "none")
        self._stale = False
        self._lost: set[str] = set()  # ids of open calls that another program has removed from messages.jsonl
        self._load()
        answered = self._answer_interrupted()
        existed = self.current_path.exists()
        if not self._view.ensure(self._lines) and (existed or self._file.count) and not answered:
            self.repairs.append("current.jsonl: derived again, it was missing or not what the facts say")
        self.repairs += self._file.damaged
        if requests is None:
            self.repairs += self.requests.repairs + self.requests.file.damaged
        self.compactions.committed = self._recut
        self.noticed: Callable[[str], None] | None = None
        self._file.noticed = self._notice

    # --- adding ----------------------------------------------------------------------------------------------

    def add_message(
        self,
        role: str,
        content: str | None,
        tool_name: str | None = None,
        *,
        tool_calls: Sequence[Mapping[str, Any]] | None = None,
        tool_call_id: str | None = None,
        kind: str | None = None,
        usage: Usage | Mapping[str, Any] | None = None,
        finish_reason: str | None = None,
        output: str | None = None,
        tool_seq: int | None = None,
        images: Sequence[Mapping[str, Any]] = (),
        provider_fields: Mapping[str, Any] | None = None,
        form: str | None = None,
        request: int | None = None,
        memory: Mapping[str, Any] | None = None,
        comments: Sequence[Mapping[str, Any]] = (),
    ) -> int:
        """Append a message to the conversation; returns its `seq`.

        A tool message without an id answers the oldest open call of `tool_name`, or the oldest open call if there is
        none of that tool. A system message gets `kind: system`, the first plain user message `kind: task`. `output` (a
        file below the task's folder) and `tool_seq` (the line in tools.jsonl; by default the newest line, if it is a
        call of that tool and no message has its result yet) show where the whole text of a masked result is. `request`
        is the number of the line in requests.jsonl that has the cost of an answer; without `request`, `usage` has that
        cost. `images` (`pictures.py`) are the pictures of a user's message. An empty tool result becomes "(no output)",
        an empty message "(empty message)"; an answer with neither text nor calls is recorded but is not part of the
        view. `provider_fields` are fields of an answer that only its own server understands
        (`provider_fields.to_keep`). `form` marks calls that the model wrote as text (`llm/tool_calls_as_text.py`).
        `memory` describes the memories in a briefing (`window/assembler.py`) or in a message of the kind `memory`.
        `comments` are the identities of the comments in the message's text, in order.

        Raises RecordRefused, with nothing written, for input that would make the view illegal: an unknown role or kind,
        content that is not text, a result without an open call, any other message of the view while calls are open,
        tool calls or pictures in a message of a role that has none. Raises DiskError when a write fails; then neither
        messages.jsonl nor current.jsonl has the message. A tool result is not recorded if another program removed its
        call from messages.jsonl; then the `seq` of the newest message is returned.
        """
        self._read_foreign_changes()
        survey = self._survey
        seq = self._file.last_id + 1
        kind = kind_of(survey, role, kind)
        text = content_of(role, content, calls=bool(tool_calls))
        text = self.redact(text) if text else text
        tokens = self._count(text) if text else 0
        record: Json = {"seq": seq, "role": role}
        if role == "tool" and tool_call_id in self._lost:
            self._lost.discard(tool_call_id)
            return self._file.last_id
        if role == "tool":
            call = call_for(survey, tool_name, tool_call_id)
            record["tool_name"] = replace_surrogates(tool_name) if tool_name else call["name"]
            record["tool_call_id"] = call["id"]
        elif survey.calls:
            check_between(survey, role, kind)
        record["content"] = text
        record["timestamp"] = clock.stamp()
        record["tokens"] = tokens
        if kind is not None:
            record["kind"] = kind
        if tool_calls:
            if role != "assistant":
                raise RecordRefused(f"a {role} message has no tool calls; only an assistant message has")
            record["tool_calls"] = calls_of(tool_calls, survey.ids.__contains__, seq)
            if form is not None:
                record["form"] = form
            for entry in record["tool_calls"]:
                function = entry["function"]
                function["arguments"] = masked_text(function["arguments"], self.redact)
                if "invalid" in entry:
                    entry["invalid"] = self.redact(entry["invalid"])
                tokens += self._count(function["name"]) + self._count(function["arguments"])
            record["tokens"] = tokens
        if provider_fields and role == "assistant":
            fields = to_keep(provider_fields, record.get("tool_calls") or (), self.redact)
            fields["tokens"] = count_fields(self.plain, fields["message"], *fields["calls"].values())
            record["provider_fields"] = fields
            record["tokens"] += fields["tokens"]
            tokens = tokens_of(record, self.origin)
        if usage is not None:
            record["usage"] = usage.to_dict() if isinstance(usage, Usage) else Usage.from_dict(usage).to_dict()
        if finish_reason is not None:
            record["finish_reason"] = replace_surrogates(finish_reason)
        if images:
            if role != "user":
                raise RecordRefused(f"a {role} message has no pictures; only a user's has")
            record[pictures.NAME] = pictures.of_message(images)
            record["tokens"] = tokens = tokens + pictures.tokens_of(record)
        if request is not None:
            record["request"] = request
        if memory is not None:
            record["memory"] = fit_json(memory)
        if comments:
            record["comments"] = fit_json(list(comments))
        if role == "tool":
            self._place(record, output, tool_seq)
        self._write(record, tokens)
        return seq

    def compact(
        self,
        *,
        strategy: str,
        end_seq: int,
        summary: str | None = None,
        summary_tokens: int | None = None,
        carried: Any = None,
        keep_summary: bool = False,
        usage: Usage | None = None,
        request: int | None = None,
    ) -> int:
        """Commit a compaction of everything up to `end_seq` and derive the view; returns the compaction's id.

        `strategy` is mask, summary, window or reset. Except for a mask, `end_seq` is moved back if it would split a
        group, also a group with an open call. A `summary` is first added to the SummaryStore, then copied to
        messages.jsonl (`usage`: the cost of writing it; `request`: the newest line of requests.jsonl that counts it).
        `keep_summary`: the current summary stays in the view after a compaction of the kind window or reset. The order
        of the writes is: summary, copy, sync, compactions.jsonl, sync; the line in compactions.jsonl is the commit. See
        `compaction.py`; `forecast` computes the effect of a compaction without committing it.
        """
        self._catch_up()
        summary = masked(summary, self.redact)
        return compaction.compact(
            self, strategy, end_seq, summary, summary_tokens, carried, keep_summary, usage, request
        )

    def trim(self, *, start_seq: int, end_seq: int, largest: int) -> int:
        """Commit a trim and derive the view; returns the id of the compaction (`shortened_message.py`).

        Tool results and user messages from `start_seq` to `end_seq` are shown with at most `largest` bytes (UTF-8).
        """
        self._catch_up()
        return compaction.trim(self, start_seq, end_seq, largest)

    def forecast_trim(self, start_seq: int, end_seq: int, largest: int) -> int:
        """The tokens that the view would have after `trim` with the same arguments; the method writes nothing."""
        self._catch_up()
        return compaction.tokens_after(self, compaction.trimmed(self, start_seq, end_seq, largest))

    def briefing(self) -> Json | None:
        """The record of the briefing in the view; None if there is no briefing yet, or if its line is damaged."""
        self._catch_up()
        return self._file.at(self._survey.task) if self._survey.task is not None else None

    def brief_again(self, text: str) -> int:
        """Append a new briefing that replaces the old one in the view, with the pictures that are still shown.

        Returns the id of the compaction.  Raises RecordRefused while calls are open, since no message may come between
        a call and its result.
        """
        record, cut = self.briefing() or {}, self._survey.cut
        shown = record.get("seq", 0) > max(cut.end_seq, cut.mask_end)
        images = record.get(pictures.NAME, ()) if shown else ()
        return compaction.brief(
            self,
            self.add_message(
                "user",
                text,
                kind="task",
                images=images,
                memory=record.get("memory"),
                comments=record.get("comments", ()),
            ),
        )

    def recreate_current_context(
        self,
        summary_text: str,
        summary_tokens: int,
        unsummarized_file_path: Path | str,
        *,
        carried: Any = None,
        usage: Usage | None = None,
    ) -> None:
        """Replace all messages by a summary, except the newest ones, which are the lines of the given file.

        Raises RecordRefused, with nothing written, when the lines are not the newest messages of the conversation, or
        the summary is empty.  A summary that `SummaryStore.add_summary` has just recorded is reused.
        """
        self._catch_up()
        end_seq = compaction.end_before(self, Path(unsummarized_file_path))
        self.compact(
            strategy="summary",
            end_seq=end_seq,
            summary=summary_text,
            summary_tokens=summary_tokens,
            carried=carried,
            usage=usage,
        )

    def forecast(
        self,
        *,
        strategy: str,
        end_seq: int,
        summary: str | None = None,
        summary_tokens: int | None = None,
        carried: Any = None,
        keep_summary: bool = False,
    ) -> int:
        """The tokens that the view would have after `compact` with the same arguments; the method writes nothing."""
        self._catch_up()
        plan = compaction.plan(self, strategy, end_seq, summary, summary_tokens, carried, keep_summary)
        return compaction.tokens_after(self, plan)

    # --- reading ---------------------------------------------------------------------------------------------

    @property
    def last_seq(self) -> int:
        """The number of the newest message, 0 if there is none."""
        return self._file.last_id

    @property
    def damaged(self) -> list[str]:
        """Sentences about lines of messages.jsonl that are damaged, so that the store skipped them."""
        return self._file.damaged

    def count_messages(self) -> int:
        """The number of all recorded messages, from a counter; the method reads no file."""
        return self._file.count

    def last(self) -> Json | None:
        """The newest record of messages.jsonl, None when the file has none."""
        return self._file.last()

    def records(self, start_seq: int = 1) -> Iterator[Json]:
        """The records of messages.jsonl from number `start_seq` on, one in memory at a time."""
        start, survey = 0, self._survey
        if start_seq > survey.cut.end_seq:
            start = self._file.size if survey.first is None else survey.first
        for _, record in self._file.records(start):
            if record["seq"] >= start_seq:
                yield record

    def at(self, offset: int) -> Json:
        """The record of messages.jsonl at byte `offset`, one of the offsets of `index`; {} when the record is gone."""
        return self._file.at(offset) or {}

    def backwards(self) -> Iterator[Json]:
        """The records of messages.jsonl, newest first, one in memory at a time."""
        return self._file.backwards()

    def text_of(self, seq: int) -> str | None:
        """The whole text of message `seq` if it is a tool result or a user message that the model may see; else
        None."""
        record = find(self.messages_path, seq)
        shown = (
            record is not None and is_legible(record) and is_seen(record) and record["role"] in shortened_message.ROLES
        )
        return str(record["content"]) if record is not None and shown else None

    def open_calls(self) -> list[Json]:
        """`{"id", "name"}` of the tool calls without a result, oldest first."""
        return [{"id": call["id"], "name": call["name"]} for call in self._survey.calls.values()]

    def get_current_context_file(self, unsummarized_file_path: Path | str | None = None) -> Path:
        """The path of current.jsonl; with an argument, the path of `context.jsonl`: current.jsonl followed by the lines
        of that file.

        The two files are copied inside the kernel; a missing file counts as empty. The caller removes `context.jsonl`;
        one that a killed process left is removed when the folder is opened.
        """
        self._catch_up()
        if unsummarized_file_path is None:
            return self.current_path
        return compaction.concatenate(
            self.current_path, Path(unsummarized_file_path), self.context_dir / "context.jsonl"
        )

    def bridge_lines(self) -> tuple[int, int]:
        """(number of lines with the summary, number of lines with the carry-over of the newest compaction), of the
        lines that follow the briefing in current.jsonl. If the carry-over is part of a person's message, the line of
        that message counts as the line of the carry-over.
        """
        return projection.bridge_lines(self.context_dir, self._survey.cut, self._survey)

    def get_current_token_count(self) -> int:
        """The tokens of current.jsonl according to the model's token counter: the sum over its messages and its derived
        lines.

        The sum is a counter; the method reads no file.
        """
        self._catch_up()
        return self._view.tokens

    def tokens_in_use(self) -> int:
        """The estimated tokens of the next request of the conversation.

        The number is the sum of the last reported prompt, the stored part of its answer, and an estimate for later
        messages. Before the first report, and after a compaction, the number is the counter's estimate of the view
        alone, without the tool definitions.
        """
        self._catch_up()
        survey = self._survey
        return survey.reported + survey.since if survey.reported else self._view.tokens

    def totals(self) -> Totals:
        """Number, tokens and cost of all requests: those in requests.jsonl, and in older folders the answers without a
        line there."""
        survey, sums = self._survey, self.requests.sums()
        rest = Usage(survey.prompt, survey.completion, survey.cached)
        return Totals(
            survey.llm_calls + sums.count,
            rest.prompt + sums.prompt,
            rest.completion + sums.completion,
            rest.cached + sums.cached,
            survey.cut.count,
            cost=sums.cost + cost_of(rest, self._price),
            turns=survey.turns,
            estimated=sums.estimated,
        )

    def sync(self, *, force: bool = False, view: bool = False) -> None:
        """Sync the appended lines, as often as `context_storage.durability` demands: each file after the files to which
        its lines refer.

        With `view` current.jsonl is synced too: at the end of the task, after which it is not derived again.
        """
        for store in self._others:
            store.sync(force=force)
        self.requests.sync(force=force)
        if self.tools is not None:
            self.tools.sync(force=force)
        self.summaries.sync(force=force)
        self._file.sync(force=force)
        self.compactions.sync(force=force)
        if view:
            self._view.sync()

    def close(self) -> None:
        """Close the store's file descriptors; after that nothing can be added. A store of requests that was passed as
        an argument stays open, since several message stores may share it."""
        self._file.close()
        self._view.close()
        if self._owns_requests:
            self.requests.close()

    def move_to(self, context_dir: Path) -> None:
        """Set the paths of the files after the task's folder was moved; the files must be closed before."""
        self.context_dir = context_dir
        self.messages_path = self._file.path = context_dir / "messages.jsonl"
        self.current_path = self._view.path = context_dir / "current.jsonl"
        self.requests.move_to(context_dir)

    # --- inside ----------------------------------------------------------------------------------------------

    @property
    def index(self) -> MessageIndex:
        """The index of messages.jsonl, for the module `compaction`."""
        return self._survey

    def append_copy(self, record: Json) -> None:
        """Append a record that is not in the view, the copy of a summary, for the module `compaction`."""
        offset = self._file.append(record)
        self._survey.read_record(record, offset)

    def _load(self, known: MessageIndex | None = None) -> None:
        self._survey = MessageIndex.read(
            self.messages_path, self.compactions.cut(), self._file.damage, known, origin=self.origin
        )

    def _lines(self) -> Iterator[projection.Line]:
        return projection.lines(
            self.context_dir, count=self._count, cut=self._survey.cut, survey=self._survey, origin=self.origin
        )

    def _recut(self) -> None:
        """Read a compaction that was just committed, and derive the view again."""
        self._stale = True
        self._load(self._survey)
        self._derive()

    def _derive(self) -> None:
        """Replace current.jsonl by a newly derived view.

        If current.jsonl cannot be replaced, the next use of the store tries that again, before it appends to the old
        view.
        """
        self._stale = True
        self._view.replace(self._lines())
        self._stale = False

    def _catch_up(self) -> None:
        """Read a compaction that another MessageStore of the same task committed, or else changes by another program
        (`_read_foreign_changes`)."""
        if self.compactions.file.refresh():
            self._recut()
        else:
            self._read_foreign_changes()

    def _read_foreign_changes(self) -> None:
        """Read changes that another program made in messages.jsonl, and undo those in current.jsonl."""
        if self._file.refresh():
            before = self._survey.calls
            self._stale = True
            # all lines are read again, since the offsets of the old index may be wrong in the changed file
            self._load()
            self._derive()
            self._close_gaps(before)
        elif self._stale:
            self._derive()
        elif not self._view.is_ours():
            self._notice("current.jsonl: changed or removed by another program; derived again")
            self._derive()

    def _close_gaps(self, before: Mapping[str, Json]) -> None:
        """Repair the gaps after an editor overwrote the file without the lines that were appended while it was open in
        the editor.

        A call that lost its result gets a result again, as after a crash: the result from tools.jsonl, or else
        "interrupted, outcome unknown". If the file has lost a tool call itself, the result of that call is not added
        when it arrives (`add_message`).
        """
        now = self._survey.calls
        self._lost.update(before.keys() - now.keys())
        if reopened := now.keys() - before.keys():
            self._answer_interrupted(reopened)
            self._derive()

    def _notice(self, what: str) -> None:
        if self.noticed is not None:
            self.noticed(what)

    def _answer_interrupted(self, only: AbstractSet[str] | None = None) -> bool:
        """Append a result for each open tool call that has none (with `only`: for those with these ids); the caller
        derives the view afterwards.

        Returns whether there was a call without a result. The result of the first open tool call may be in tools.jsonl,
        which is written before messages.jsonl.
        """
        waiting = bool(self._survey.calls)
        for call in [call for name, call in self._survey.calls.items() if only is None or name in only]:
            known = self._pending_call(call["name"])
            content = INTERRUPTED
            if known is not None:
                content = content_of("tool", str(known.get("result") or ""), calls=False) or NO_OUTPUT
            record: Json = {
                "seq": self._file.next_id(),
                "role": "tool",
                "tool_name": call["name"],
                "tool_call_id": call["id"],
                "content": content,
                "timestamp": clock.stamp(),
                "tokens": self._count(content),
            }
            if known is not None:
                self._place(record, known.get("output"), known["seq"])
            self._survey.read_record(record, self._file.append(record))
            self.repairs.append(
                f"messages.jsonl: call {call['id']} of {call['name']} had no result; "
                + ("its outcome is unknown" if known is None else f"taken from tools.jsonl, {known['seq']}")
            )
        self._file.sync()
        return waiting

    def _pending_call(self, name: str) -> Json | None:
        """The newest record of tools.jsonl, if it is a call of the tool `name` of which no message has the result yet;
        else None."""
        if self.tools is None or self.tools.newest_of(name) <= self._survey.tool_seq:
            return None
        return self.tools.last()

    def _place(self, record: Json, output: str | None, tool_seq: int | None) -> None:
        """Add to the record of a tool result where the whole result is, for the pointer that may later replace the
        result in the view."""
        if tool_seq is None and self.tools is not None:
            newest = self.tools.newest_of(record["tool_name"])
            tool_seq = newest if newest > self._survey.tool_seq else None
        if output is not None:
            record["output"] = output
        if tool_seq is not None:
            record["tool_seq"] = tool_seq

    def _write(self, record: Json, tokens: int) -> None:
        """Write the line of messages.jsonl and the line of the view, or neither, then update the counters.

        All texts in the record must be valid for JSON when this method is called.
        """
        change = change_of(self._survey, record)
        before = self._file.size
        offset = self._file.append_line(line(record))
        try:
            if change == "line":
                self._view.append(line(wire(record, self.origin)), tokens)
            self._survey.add(record, offset)
            if change == "all":
                self._derive()
        except DiskError:
            self._view.cut_back()
            self._file.cut_back(before, record["seq"] - 1)
            self._load()
            raise
