"""Stores the result of one pass over messages.jsonl: counters and offsets, never contents.

A caller adds the records to a `MessageIndex` one by one.  A store adds each appended record to its index, a reopening
adds the records of the whole file, and the projection uses the offsets of the index, so all of them agree about the
file.  `Cut` is the result of one pass over compactions.jsonl.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from agent.context import pictures
from agent.context.comments import CONDITION, Note, RecordedComment, form_of, is_comment, question_of
from agent.context.hash_set import HashSet
from agent.context.message_records import is_legible, is_seen, open_calls_of
from agent.context.usage_reports import MessageCost, UsageReports
from agent.store.jsonl import DamagedLines, records

if TYPE_CHECKING:
    from pathlib import Path

    from agent.context.provider_fields import Origin
    from agent.values import Json

CUTTING = frozenset(("summary", "window", "reset"))
"""Values of `strategy` in compactions.jsonl that omit messages; the others shorten messages or replace the briefing."""

BESIDE = frozenset(("trim", "brief"))
"""Values of `strategy` in compactions.jsonl that do not change older messages: a trim changes the newest turn only, a
brief replaces the briefing."""

MOST_NOTES = 512
"""The maximum number of the model's answers with text of which the offsets are stored, the newest ones."""

FIRST_ANSWER = 3
"""The `seq` of an answer that follows only the system message and the briefing."""


@dataclass(frozen=True, slots=True)
class Cut:
    """The combined effect of a task's compactions.

    Messages up to `end_seq` are omitted by `strategy`, the summary `summary_id` (if any) replaces them, and `carried`
    is shown again; tool results up to `mask_end` are pointers.  `trims` are (first message, last message, maximum bytes
    of one message).  `at_seq` is the last message at the time of the compaction that omitted messages, `changed_at` the
    last message at the time of the newest compaction of any kind, `changed_before` at the time of the compaction before
    it.
    """

    strategy: str = ""
    end_seq: int = 0
    at_seq: int = 0
    summary_id: int | None = None
    carried: Any = None
    mask_end: int = 0
    changed_at: int = 0
    changed_before: int = 0
    count: int = 0
    summaries: int = 0  # the highest id of a summary in all compactions
    trims: tuple[tuple[int, int, int], ...] = ()
    # number of a message: the newest briefing up to it (or up to `at_seq`, if that is larger) is valid
    briefed_at: int = 0

    def with_compaction(self, record: Json) -> Cut:
        """The combined effect of the compactions together with one more line of compactions.jsonl."""
        end = int(record.get("end_seq") or 0)
        at = int(record.get("at_seq") or end)
        more: dict[str, Any] = {"changed_at": at, "changed_before": self.changed_at, "count": self.count + 1}
        if record.get("strategy") in CUTTING:
            more |= {"strategy": record["strategy"], "end_seq": end, "at_seq": at}
            more |= {"summary_id": record.get("summary_id"), "carried": record.get("carried")}
            more["summaries"] = max(self.summaries, int(record.get("summary_id") or 0))
            more["trims"] = tuple(trim for trim in self.trims if trim[1] > end)
        elif record.get("strategy") == "trim":
            trim = int(record.get("start_seq") or 0), end, int(record.get("largest") or 0)
            more["trims"] = (*(one for one in self.trims if not _covers(trim, one)), trim)
        elif record.get("strategy") == "brief":
            more["briefed_at"] = end
        else:
            more["mask_end"] = end
        kept = {name: getattr(self, name) for name in self.__slots__}
        return Cut(**(kept | more))

    def largest_of(self, seq: int) -> int | None:
        """The maximum bytes of message `seq` according to the smallest trim that covers the message; None if no trim
        does."""
        return min((size for start, end, size in self.trims if start <= seq <= end), default=None)

    @classmethod
    def read(cls, path: Path, damage: DamagedLines | None = None) -> Cut:
        """Read the combined effect of the compactions from compactions.jsonl."""
        cut = cls()
        for _, record in records(path, id_key="id", damage=damage):
            cut = cut.with_compaction(record)
        return cut


def _covers(trim: tuple[int, int, int], other: tuple[int, int, int]) -> bool:
    """Whether `trim` makes the trim `other` redundant."""
    return trim[0] <= other[0] and other[1] <= trim[1] and trim[2] <= other[2]


@dataclass(frozen=True, slots=True)
class LaterMemories:
    """A message with memories that follows the briefing: its number, the number of memories, their tokens without any
    ratio, and the number of their retrieval in recalled.jsonl, 0 if it is not known."""

    seq: int
    count: int
    tokens: int
    recalled: int = 0


@dataclass(slots=True)
class MessageIndex:
    """Counters and offsets of messages.jsonl that are valid for one combined effect of a task's compactions (`Cut`).

    Offsets are those of lines in bytes, None when there is no such line.
    """

    cut: Cut
    last_seq: int = 0
    system: int | None = None  # offset of the system message of the view
    task: int | None = None  # offset of the briefing of the view
    words: int | None = None  # offset of the newest message of a person before the cut of the newest compaction
    comments: tuple[RecordedComment, ...] = ()  # all comments of people, before and after the cut
    # The newest answers of the model with text; of several similar answers only the newest.
    notes: tuple[Note, ...] = ()
    # number and offset of the answer with a question to a person that is still open
    asked: tuple[int, int] | None = None
    copy: int | None = None  # offset of the copy of the valid summary in messages.jsonl
    first: int | None = None  # offset of the first record after the cut
    # role of the first message of the view after the system message and the briefing
    follows: str | None = None
    calls: dict[str, Json] = field(default_factory=dict)  # calls without a result, by id
    group_seq: int = 0  # number of the answer that has the open calls
    ids: HashSet = field(default_factory=HashSet)  # the call ids in the view
    turns: int = 0  # number of the model's answers in the conversation
    # number of answers, and of summaries with usage, that have no line in requests.jsonl; the next fields are their
    # tokens
    llm_calls: int = 0
    prompt: int = 0
    completion: int = 0
    cached: int = 0
    # The numbers of tokens that servers reported for prompts after the cut of the newest compaction.
    reports: UsageReports = field(default_factory=UsageReports)
    # The server's count of tokens for a request that had only the system message and the briefing, 0 if unknown.
    head: int = 0
    tool_seq: int = 0  # newest line of tools.jsonl that a tool result refers to
    origin: Origin | None = None  # the API and the model that are in use now
    memory: Json | None = None  # the data from long-term memory for the briefing of the view
    # numbers and tokens of the long-term memories in each message after the cut
    memories: tuple[LaterMemories, ...] = ()
    form: str = ""  # form of the tool calls in the newest answer with calls; "" for tool calls of the server's API
    forms: set[str] = field(default_factory=set)  # each value that `form` has had in this conversation
    # a copy of this index from before the record at the offset `first` was read
    before: MessageIndex | None = field(default=None, compare=False)

    @classmethod
    def read(
        cls,
        path: Path,
        cut: Cut,
        damage: DamagedLines | None = None,
        known: MessageIndex | None = None,
        *,
        origin: Origin | None = None,
    ) -> MessageIndex:
        """Read messages.jsonl.

        With `known`, an index of the same file under an earlier cut, only the records in the view of that cut are read:
        earlier records count the same under every later cut.
        """
        survey, start = cls(cut, origin=origin), 0
        if known is not None and known.cut.end_seq <= cut.end_seq:
            before = known.before
            if before is not None and known.first is not None:
                survey, start = before.in_front(cut, origin), known.first
        for offset, record in records(path, start, damage=damage):
            survey.read_record(record, offset, damage)
        return survey

    def read_record(self, record: Json, offset: int, damage: DamagedLines | None = None) -> None:
        """Add one record of messages.jsonl; if it is illegible, only its number is used, and it is added to
        `damage`."""
        if is_legible(record):
            self.add(record, offset)
            return
        self.last_seq = record["seq"]
        if damage is not None:
            damage.add(offset, "role or content is not that of a message")

    def add(self, record: Json, offset: int) -> None:
        """Add one legible record, for example one that a store has just written."""
        seq: int = record["seq"]
        before = self.in_front(self.cut, self.origin) if self.first is None and seq > self.cut.end_seq else None
        self.last_seq = seq
        role = record["role"]
        kind = record.get("kind")
        if role == "assistant":
            self._account(record, seq, kind)
            if record.get("tool_calls"):
                self.form = str(record.get("form") or "")
                self.forms.add(self.form)
        if kind == "system" and (self.system is None or seq <= self.cut.at_seq):
            self.system, self.head = offset, 0
        elif kind == "task" and (self.task is None or seq <= max(self.cut.at_seq, self.cut.briefed_at)):
            self.task, self.head = offset, 0
            memory = record.get("memory")
            self.memory = memory if isinstance(memory, dict) else None
        elif kind == "summary" and seq <= self.cut.at_seq:
            self.copy = offset
        self._converse(record, seq, offset)
        if seq <= self.cut.end_seq:
            if role == "user" and kind in (None, "comment"):
                self.words = offset
            if role == "tool":
                self.tool_seq = record.get("tool_seq") or self.tool_seq
            return
        if kind == "memory" and isinstance(memory := record.get("memory"), dict):
            numbers = (int(memory.get(name) or 0) for name in ("count", "tokens", "recalled"))
            found = LaterMemories(seq, *numbers)
            self.memories = (*self.memories, found)
        if self.first is None:
            self.before = before
            self.first = offset
        if is_seen(record):
            self._see(record, seq, role)

    def _converse(self, record: Json, seq: int, offset: int) -> None:
        """Store the offset of a comment (with the question that it answers), of an open question, or of an answer with
        text."""
        if is_comment(record):
            tokens = int(record.get("tokens") or 0) - pictures.tokens_of(record)
            if record.get("kind") == CONDITION:
                self.comments = (*self.comments, RecordedComment(seq, offset, tokens, whole=True))
                return
            self.comments = (*self.comments, RecordedComment(seq, offset, tokens, *(self.asked or ())))
            self.asked = None
        elif record["role"] == "assistant" and is_seen(record):
            if record["content"]:
                note = Note(seq, offset, form_of(record["content"]))
                others = (one for one in self.notes[1 - MOST_NOTES :] if one.form != note.form)
                self.notes = (*others, note)
            if question_of(record):
                self.asked = seq, offset

    def in_front(self, cut: Cut, origin: Origin | None) -> MessageIndex:
        """A copy of this index for `cut`, to which no record after `cut` has been added: call ids, open calls and
        reports are empty."""
        return replace(self, cut=cut, ids=HashSet(), calls={}, reports=UsageReports(), origin=origin)

    @property
    def reported(self) -> int:
        """The server's count of tokens of the prompt and stored answer of the newest valid report, without the messages
        after it (`since`); 0 if there is no report."""
        return self.reports.read + self.reports.stored

    @property
    def since(self) -> int:
        """Estimated tokens of the messages after those in the server's newest valid report, without the token ratio."""
        return self.sized(self.reports.since)

    def sized(self, cost: MessageCost) -> int:
        """Estimated tokens of a message in a prompt of this server: without its provider fields if the server does not
        count them."""
        return cost.text if self.reports.skips_fields else cost.tokens

    def _account(self, record: Json, seq: int, kind: str | None) -> None:
        """Count a turn for an answer that is no summary, and add the reported usage to `reports`.

        The field `request` of a record is the number of a line of requests.jsonl, from which `totals` takes the call
        and its tokens. The call and tokens of a record without the field `request`, which a version before
        requests.jsonl wrote, are added to the index.
        """
        usage = record.get("usage")
        self.turns += kind != "summary"
        if "request" not in record and (usage or kind != "summary"):
            self.llm_calls += 1
        if not usage:
            return
        prompt, completion = usage.get("prompt_tokens") or 0, usage.get("completion_tokens") or 0
        if "request" not in record:
            self.prompt += prompt
            self.completion += completion
            self.cached += usage.get("cached_tokens") or 0
        if seq == FIRST_ANSWER and self.system is not None and self.task is not None:
            self.head = prompt
        cut = self.cut
        if kind is None and prompt > 0 and seq > max(cut.end_seq, cut.changed_before):
            self.reports.add_answer(
                record,
                MessageCost.of_record(record, self.origin),
                view=cut.changed_at if seq > cut.changed_at else cut.changed_before,
                is_kept=cut.mask_end < seq <= cut.changed_at,
                holds=seq > cut.changed_at,
            )
            if not is_seen(record):
                self.reports.unseen()

    def _see(self, record: Json, seq: int, role: str) -> None:
        if role == "tool":
            self.tool_seq = record.get("tool_seq") or self.tool_seq
            if self.calls.pop(record["tool_call_id"], None) is None:
                return
        elif self.calls:
            self.calls.clear()
        if self.follows is None:
            self.follows = role
        self.reports.add_message(MessageCost.of_record(record, self.origin))
        if record.get("tool_calls"):
            self.group_seq = seq
            for call in open_calls_of(record):
                self.calls[call["id"]] = call
                self.ids.add(call["id"])
