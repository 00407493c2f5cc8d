"""MessageStore: messages.jsonl and its view current.jsonl (seed 002, 3.2, 3.3 and 4.2; design: section 4).

An append writes one line to each file and costs the same for the 200,000th message as for the first: numbers, counts
and tokens are counters, contents stay on disk.  What may stand where is checked at entry, so that the view is a legal
request at any time.  Compactions are committed here (`compact`), because a view follows from them.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent import clock
from agent.context import folding, pictures, plain_form, projection, trims
from agent.context.compactions import CompactionStore
from agent.context.places import call_for, change_of, check_between, kind_of
from agent.context.provider_fields import Origin, to_keep, tokens_of
from agent.context.records import INTERRUPTED, NO_OUTPUT, calls_of, content_of, is_legible, is_seen, wire
from agent.context.requests import RequestStore
from agent.context.summaries import SummaryStore
from agent.context.survey import Survey
from agent.context.totals import Totals, cost_of
from agent.context.view import View
from agent.errors import DiskError
from agent.security.redact import Redactor
from agent.store.jsonl import JsonlFile, find
from agent.store.text import fit, fit_json, line
from agent.tokens import count_fields, counter_for, plain
from agent.values import Usage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from agent.config import Settings
    from agent.context.tools import ToolStore
    from agent.values import Counter, Json, Ratios


class MessageStore:
    """The messages of one task.

    `config` is the seeds' mapping or the validated object.  `counter` defaults to the model's.  The other stores are
    given by `TaskContextManager`, so that each file has one writer; alone the store makes its own.

    Opening repairs: a torn tail, calls that a dead process left without a result (they get an "interrupted, outcome
    unknown" result), a view that is missing, shorter or different.  `repairs` tells what was done.

    People look at these files with editors: before each append and each plan it is looked whether another program has
    changed or removed one.  Then the facts are read again and the view is derived again; `noticed`, when set, is told.
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
    ) -> None:
        from agent.config import settings_of

        settings = settings_of(config)
        provider = settings.provider()
        self.context_dir = Path(context_dir)
        self.context_length = provider.context_length
        self.origin = Origin(provider.wire, provider.model)
        self.counter = counter or counter_for(provider.model, ratios)
        self.redact = Redactor(settings.secrets())  # whoever said it: a model repeats what it was shown
        self.plain = plain(self.counter)  # `tokens` of a record never change their meaning, whatever is learnt
        durability = settings.context_storage.durability
        self.summaries = summaries or SummaryStore(self.context_dir, durability=durability)
        self.compactions = compactions or CompactionStore(self.context_dir, durability=durability)
        self.requests = requests or RequestStore(self.context_dir, durability=durability, redact=self.redact)
        self.tools = tools
        self._price = provider.price
        self.messages_path = self.context_dir / "messages.jsonl"
        self.current_path = self.context_dir / "current.jsonl"
        self.repairs: list[str] = []
        self._count = self.plain.count
        if plain_form.is_plain(self.messages_path):
            self.repairs.append(plain_form.convert(self.messages_path))
        self._file = JsonlFile(self.messages_path, durability=durability)
        self._file.make()
        self._view = View(self.current_path, sync=durability != "none")
        self._stale = False
        self._lost: set[str] = set()  # calls that were open, and that another program took out of the file
        self._load()
        answered = self._answer_interrupted()
        existed = self.current_path.exists()
        if not self._view.settle(self._lines) and (existed or self._file.count) and not answered:
            self.repairs.append("current.jsonl: derived again, it was missing or not what the facts say")
        self.repairs += self._file.damaged
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
    ) -> int:
        """Append a message; returns its `seq`.

        A tool message without an id answers the oldest open call of `tool_name`, else the oldest open call.  The first
        system message is `kind: system`, the first plain user message `kind: task`.  `output` (a file below the task's
        folder) and `tool_seq` (its line in tools.jsonl, by itself the newest one of that tool) say where a masked
        result can be read again.  `request` is the line of requests.jsonl that counts what an answer has cost; where it
        is not named, `usage` counts.  `images` (`pictures.py`) belong to a user's message.  An empty tool result reads
        "(no output)", an empty message "(empty message)"; an answer with neither text nor calls is recorded and stays
        out of the view.  `provider_fields` are what came with an answer for its server alone
        (`provider_fields.to_keep`).  `form` says of calls that they came as text (`llm/text_mode.py`).  `memory` says
        what long-term memory gave for a briefing (`window/assembler.py`).

        ValueError, with nothing written, for what would make the view illegal: an unknown role or kind, content that
        is no text, a result without an open call, anything else while calls are open.  DiskError when a write fails;
        then neither file has the message.  The result of a call that another program took out of the file is left out.
        """
        self._look()
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
            record["tool_name"] = fit(tool_name) if tool_name else call["name"]
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
                raise ValueError(f"a {role} message has no tool calls; only an assistant message has")
            record["tool_calls"] = calls_of(tool_calls, survey.ids.__contains__, seq)
            if form is not None:
                record["form"] = form
            for entry in record["tool_calls"]:
                function = entry["function"]
                function["arguments"] = self.redact(function["arguments"])
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
            record["usage"] = usage.to_dict() if isinstance(usage, Usage) else Usage.of(usage).to_dict()
        if finish_reason is not None:
            record["finish_reason"] = fit(finish_reason)
        if images:
            if role != "user":
                raise ValueError(f"a {role} message has no pictures; only a user's has")
            record[pictures.NAME] = pictures.of_message(images)
            record["tokens"] = tokens = tokens + pictures.tokens_of(record)
        if request is not None:
            record["request"] = request
        if memory is not None:
            record["memory"] = fit_json(memory)
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

        `strategy` is mask, summary, window or reset.  `end_seq` is moved back where it would cut a group or an open
        call.  With `summary`, its text is recorded first, and copied to messages.jsonl (`usage`: what writing it cost;
        `request`: the newest line of requests.jsonl that counts it).
        `keep_summary` lets the summary in force stand on after a window or reset.  Order: summary, copy, sync,
        compactions.jsonl, sync; that line is the commit.  See `folding.py`; `forecast` tells the effect beforehand.
        """
        self._catch_up()
        return folding.compact(self, strategy, end_seq, summary, summary_tokens, carried, keep_summary, usage, request)

    def trim(self, *, start_seq: int, end_seq: int, largest: int) -> int:
        """Commit a compaction that shows tool results and user messages from `start_seq` to `end_seq` with at most
        `largest` bytes (UTF-8), and derive the view; returns the compaction's id (`trims.py`)."""
        self._catch_up()
        return folding.trim(self, start_seq, end_seq, largest)

    def forecast_trim(self, start_seq: int, end_seq: int, largest: int) -> int:
        """The tokens of the view after such a trim; nothing is written."""
        self._catch_up()
        return folding.tokens_after(self, folding.trimmed(self, start_seq, end_seq, largest))

    def briefing(self) -> Json | None:
        """The record of the briefing that the view shows, None before there is one."""
        self._catch_up()
        return self.at(self._survey.task) if self._survey.task is not None else None

    def brief_again(self, text: str) -> int:
        """Append another briefing and show it in the place of the old one, with the pictures that are still shown;
        returns the compaction's id.  Not while calls are open: nothing is between a call and its result."""
        record, cut = self.briefing() or {}, self._survey.cut
        shown = record.get("seq", 0) > max(cut.end_seq, cut.mask_end)
        images = record.get(pictures.NAME, ()) if shown else ()
        return folding.brief(
            self, self.add_message("user", text, kind="task", images=images, memory=record.get("memory"))
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
        """Put a summary in the place of everything but the newest messages, which are the lines of the file given.

        ValueError, with nothing written, when the lines are not the newest messages of the conversation, or the
        summary is empty.  A summary that `SummaryStore.add_summary` just recorded is used, not recorded twice.
        """
        self._catch_up()
        end_seq = folding.end_before(self, Path(unsummarized_file_path))
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
        """The tokens of the view after such a compaction; nothing is written."""
        self._catch_up()
        plan = folding.plan(self, strategy, end_seq, summary, summary_tokens, carried, keep_summary)
        return folding.tokens_after(self, plan)

    # --- reading ---------------------------------------------------------------------------------------------

    @property
    def last_seq(self) -> int:
        """The number of the newest message, 0 before the first."""
        return self._file.last_id

    @property
    def damaged(self) -> list[str]:
        """Lines of messages.jsonl that were skipped, as sentences."""
        return self._file.damaged

    def count_messages(self) -> int:
        """How many messages were ever recorded; a counter, nothing is read."""
        return self._file.count

    def last(self) -> Json | None:
        """The newest record of messages.jsonl, None when there is none."""
        return self._file.last()

    def records(self, start_seq: int = 1) -> Iterator[Json]:
        """The records from `start_seq` on, one in memory at a time."""
        start, survey = 0, self._survey
        if start_seq > survey.cut.end_seq:
            start = self._file.size if survey.first is None else survey.first
        for _, record in self._file.records(start):
            if record["seq"] >= start_seq:
                yield record

    def at(self, offset: int) -> Json:
        """The record whose line begins at byte `offset`, a place that `survey` knows; {} when it is gone."""
        return self._file.at(offset) or {}

    def backwards(self) -> Iterator[Json]:
        """The records, newest first, one in memory at a time."""
        return self._file.backwards()

    def text_of(self, seq: int) -> str | None:
        """The whole text of message `seq`, a tool result or a user's; None for any other."""
        record = find(self.messages_path, seq)
        shown = record is not None and is_legible(record) and is_seen(record) and record["role"] in trims.ROLES
        return str(record["content"]) if record is not None and shown else None

    def open_calls(self) -> list[Json]:
        """`{"id", "name"}` of the calls that have no result yet, oldest first."""
        return [{"id": call["id"], "name": call["name"]} for call in self._survey.calls.values()]

    def get_current_context_file(self, unsummarized_file_path: Path | str | None = None) -> Path:
        """current.jsonl; with a path, `context.jsonl`: current.jsonl and behind it the lines of that file (a missing
        one reads as empty), copied inside the kernel.  Who sends the request removes it."""
        self._catch_up()
        if unsummarized_file_path is None:
            return self.current_path
        return folding.joined(self.current_path, Path(unsummarized_file_path), self.context_dir / "context.jsonl")

    def get_current_token_count(self) -> int:
        """The tokens of current.jsonl by the model's counter: the sum of `tokens` of its messages, and of the lines
        that are derived.  A counter; nothing is read."""
        self._catch_up()
        return self._view.tokens

    def tokens_in_use(self) -> int:
        """What the next request will have: the prompt that the provider reported last, what was stored of its answer,
        and the estimate of what came since; before the first report, and after a compaction, the estimate of all."""
        self._catch_up()
        survey = self._survey
        return survey.reported + survey.since if survey.reported else self._view.tokens

    def totals(self) -> Totals:
        """What all requests have cost: those of requests.jsonl, and answers that came without one (an older folder)."""
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
        """Make what was appended durable, as `context_storage.durability` says: the tool calls first, since a result
        names its call.  With `view` current.jsonl too: at the end, after which nobody derives it again."""
        self.requests.sync(force=force)
        if self.tools is not None:
            self.tools.sync(force=force)
        self.summaries.sync(force=force)
        self._file.sync(force=force)
        self.compactions.sync(force=force)
        if view:
            self._view.sync()

    def close(self) -> None:
        """Give the descriptors back; nothing can be added any more."""
        self._file.close()
        self._view.close()
        self.requests.close()

    def moved(self, context_dir: Path) -> None:
        """The folder has another place now; the files are closed."""
        self.context_dir = context_dir
        self.messages_path = self._file.path = context_dir / "messages.jsonl"
        self.current_path = self._view.path = context_dir / "current.jsonl"
        self.requests.moved(context_dir)

    # --- inside ----------------------------------------------------------------------------------------------

    @property
    def survey(self) -> Survey:
        """The account of the history; for `folding`."""
        return self._survey

    def append_copy(self, record: Json) -> None:
        """Append a record that is not in the view: the copy of a summary; for `folding`."""
        offset = self._file.append(record)
        self._survey.feed(record, offset)

    def _load(self, known: Survey | None = None) -> None:
        self._survey = Survey.of(
            self.messages_path, self.compactions.cut(), self._file.damage, known, origin=self.origin
        )

    def _lines(self) -> Iterator[projection.Line]:
        return projection.lines(
            self.context_dir, count=self._count, cut=self._survey.cut, survey=self._survey, origin=self.origin
        )

    def _recut(self) -> None:
        """A compaction was committed: take it in and derive the view again."""
        self._stale = True
        self._load(self._survey)
        self._derive()

    def _derive(self) -> None:
        """Replace the view.  Should that fail, the next use tries again before anything is added to an old one."""
        self._stale = True
        self._view.replace(self._lines())
        self._stale = False

    def _catch_up(self) -> None:
        """Take in a compaction that another instance committed."""
        if self.compactions.file.refresh():
            self._recut()
        else:
            self._look()

    def _look(self) -> None:
        """Take in what another program did to messages.jsonl, and undo what it did to current.jsonl."""
        if self._file.refresh():
            before = self._survey.calls
            self._stale = True
            self._load()  # all of it: what is known of places in the file may be of another file
            self._derive()
            self._close_gaps(before)
        elif self._stale:
            self._derive()
        elif not self._view.is_ours():
            self._notice("current.jsonl: changed or removed by another program; derived again")
            self._derive()

    def _close_gaps(self, before: Mapping[str, Json]) -> None:
        """An editor that saves into the file itself loses what came since it was opened.  A call whose result is lost
        gets one, as after a kill; the result of a call that is lost itself is not added (`add_message`)."""
        now = self._survey.calls
        self._lost.update(before.keys() - now.keys())
        if reopened := now.keys() - before.keys():
            self._answer_interrupted(reopened)
            self._derive()

    def _notice(self, what: str) -> None:
        if self.noticed is not None:
            self.noticed(what)

    def _answer_interrupted(self, only: AbstractSet[str] | None = None) -> bool:
        """Append a result for each call (of `only`) that a dead process left open, before the view is derived; whether
        there was one.  The first may have its result in tools.jsonl already, which is written first."""
        waiting = bool(self._survey.calls)
        for call in [call for name, call in self._survey.calls.items() if only is None or name in only]:
            known = self._recorded(call["name"])
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
            self._survey.feed(record, self._file.append(record))
            self.repairs.append(
                f"messages.jsonl: call {call['id']} of {call['name']} had no result; "
                + ("its outcome is unknown" if known is None else f"taken from tools.jsonl, {known['seq']}")
            )
        self._file.sync()
        return waiting

    def _recorded(self, name: str) -> Json | None:
        """The newest record of tools.jsonl when it is of this tool and no message has its result."""
        if self.tools is None or self.tools.newest_of(name) <= self._survey.tool_seq:
            return None
        return self.tools.last()

    def _place(self, record: Json, output: str | None, tool_seq: int | None) -> None:
        """Note where the whole result is, for the pointer that may stand for it one day."""
        if tool_seq is None and self.tools is not None:
            newest = self.tools.newest_of(record["tool_name"])
            tool_seq = newest if newest > self._survey.tool_seq else None
        if output is not None:
            record["output"] = output
        if tool_seq is not None:
            record["tool_seq"] = tool_seq

    def _write(self, record: Json, tokens: int) -> None:
        """Both lines or none; then the counters.  Every text in the record is fit for JSON by now."""
        change = change_of(self._survey, record)
        before = self._file.size
        offset = self._file.append_line(line(record))
        try:
            if change == "line":
                self._view.append(line(wire(record, self.origin)), tokens)
            self._survey.take(record, offset)
            if change == "all":
                self._derive()
        except DiskError:
            self._view.cut_back()
            self._file.cut_back(before, record["seq"] - 1)
            self._load()
            raise
