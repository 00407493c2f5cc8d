"""What one pass over messages.jsonl teaches: counters and places, never contents.

`Survey` is fed record after record.  A store keeps one as its state and feeds it what it appends, a reopening feeds
it the whole file, the projection uses its places: so there is one account of a file, however it is reached.
`Cut` is the same for compactions.jsonl.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from agent.context import pictures
from agent.context.comments import Comment, Note, form_of, is_comment, question_of
from agent.context.hashes import HashSet
from agent.context.records import is_legible, is_seen, open_calls_of
from agent.context.reports import Cost, Reports
from agent.store.jsonl import Damage, records

if TYPE_CHECKING:
    from pathlib import Path

    from agent.context.provider_fields import Origin
    from agent.values import Json

CUTTING = frozenset(("summary", "window", "reset"))
"""Compactions that leave messages out; others only shorten some."""

BESIDE = frozenset(("trim", "brief"))
"""Compactions that leave older messages as they are: of the newest turn, and of the briefing."""

MOST_NOTES = 512
"""Answers with text whose places are kept, the newest."""

FIRST_ANSWER = 3
"""The `seq` of an answer to nothing but the system message and the briefing."""


@dataclass(frozen=True, slots=True)
class Cut:
    """What the compactions of a task come to.

    Messages up to `end_seq` are left out by `strategy`, `summary_id` (if any) stands for them, `carried` is said again;
    tool results up to `mask_end` are pointers.  `trims` are (first message, last, bytes that one may have).  `at_seq`
    is the last message when that was decided, `changed_at` when the newest compaction of any kind was, `changed_before`
    when the one before it.
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
    summaries: int = 0  # the highest summary id that was ever named
    trims: tuple[tuple[int, int, int], ...] = ()
    briefed_at: int = 0  # a briefing up to this message counts, beside those up to `at_seq`

    def after(self, record: Json) -> Cut:
        """With one more line of compactions.jsonl."""
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
        """The bytes that message `seq` may have, None for no limit: the smallest of the trims that reach it."""
        return min((size for start, end, size in self.trims if start <= seq <= end), default=None)

    @classmethod
    def of(cls, path: Path, damage: Damage | None = None) -> Cut:
        """From compactions.jsonl."""
        cut = cls()
        for _, record in records(path, id_key="id", damage=damage):
            cut = cut.after(record)
        return cut


def _covers(trim: tuple[int, int, int], other: tuple[int, int, int]) -> bool:
    """Whether `other` changes nothing beside `trim`."""
    return trim[0] <= other[0] and other[1] <= trim[1] and trim[2] <= other[2]


@dataclass(slots=True)
class Survey:
    """The account of messages.jsonl under a `Cut`.  Offsets are bytes of its lines, None when there is no such line."""

    cut: Cut
    last_seq: int = 0
    system: int | None = None  # offset of the system message of the view
    task: int | None = None  # offset of its briefing
    words: int | None = None  # offset of the newest words of a person that were cut away
    comments: tuple[Comment, ...] = ()  # all of them, on both sides of the cut
    notes: tuple[Note, ...] = ()  # the newest answers with text, of those alike only the newest
    asked: tuple[int, int] | None = None  # number and offset of the answer whose question no person has answered
    copy: int | None = None  # offset of the copy of the summary in force
    first: int | None = None  # offset of the first record behind the cut
    follows: str | None = None  # role of the first message of the view behind its head
    calls: dict[str, Json] = field(default_factory=dict)  # open calls, by id
    group_seq: int = 0  # the answer that made them
    ids: HashSet = field(default_factory=HashSet)  # the call ids in the view
    turns: int = 0  # answers of the conversation
    llm_calls: int = 0  # answers, and summaries with usage, that have no line in requests.jsonl; and what they cost
    prompt: int = 0
    completion: int = 0
    cached: int = 0
    reports: Reports = field(default_factory=Reports)  # of prompts, behind the cut
    head: int = 0  # reported tokens of a request with nothing but system message and briefing, 0 for unknown
    tool_seq: int = 0  # newest line of tools.jsonl that a result names
    origin: Origin | None = None  # the wire and model in force
    memory: Json | None = None  # what long-term memory gave for the briefing of the view
    form: str = ""  # how the newest answer with calls wrote them, "" for a server's own tool calls
    forms: set[str] = field(default_factory=set)  # all of those that there were
    before: Survey | None = field(default=None, compare=False)  # as it was in front of `first`

    @classmethod
    def of(
        cls,
        path: Path,
        cut: Cut,
        damage: Damage | None = None,
        known: Survey | None = None,
        *,
        origin: Origin | None = None,
    ) -> Survey:
        """From the file.  With what is `known` of the same file under an earlier cut only what that one had left in the
        view is read: what lies in front of it counts alike under every later cut."""
        survey, start = cls(cut, origin=origin), 0
        if known is not None and known.cut.end_seq <= cut.end_seq:
            before = known.before
            if before is not None and known.first is not None:
                survey, start = before.in_front(cut, origin), known.first
        for offset, record in records(path, start, damage=damage):
            survey.feed(record, offset, damage)
        return survey

    def feed(self, record: Json, offset: int, damage: Damage | None = None) -> None:
        """Take one record in."""
        if is_legible(record):
            self.take(record, offset)
            return
        self.last_seq = record["seq"]
        if damage is not None:
            damage.add(offset, "role or content is not that of a message")

    def take(self, record: Json, offset: int) -> None:
        """Take in one record that is known to be a message: what a store has just written."""
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
        if self.first is None:
            self.before = before
            self.first = offset
        if is_seen(record):
            self._see(record, seq, role)

    def _converse(self, record: Json, seq: int, offset: int) -> None:
        """Keep the places of a comment, with the question that it answers, of an open question, and of answers."""
        if is_comment(record):
            tokens = int(record.get("tokens") or 0) - pictures.tokens_of(record)
            self.comments = (*self.comments, Comment(seq, offset, tokens, *(self.asked or ())))
            self.asked = None
        elif record["role"] == "assistant" and is_seen(record):
            if record["content"]:
                note = Note(seq, offset, form_of(record["content"]))
                others = (one for one in self.notes[1 - MOST_NOTES :] if one.form != note.form)
                self.notes = (*others, note)
            if question_of(record):
                self.asked = seq, offset

    def in_front(self, cut: Cut, origin: Origin | None) -> Survey:
        """As it is in front of the first record behind `cut`: nothing of the view was read yet."""
        return replace(self, cut=cut, ids=HashSet(), calls={}, reports=Reports(), origin=origin)

    @property
    def reported(self) -> int:
        """Tokens in use by the newest report that still holds, without what came `since`; 0 for none."""
        return self.reports.read + self.reports.stored

    @property
    def since(self) -> int:
        """Estimated tokens of what came after that, without any ratio."""
        return self.sized(self.reports.since)

    def sized(self, cost: Cost) -> int:
        """Estimated tokens in a prompt of this server: without provider fields where it does not count them."""
        return cost.text if self.reports.skips_fields else cost.tokens

    def _account(self, record: Json, seq: int, kind: str | None) -> None:
        """Turns, and the provider's own numbers; what they cost is counted here only where no `request` is named."""
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
            self.reports.answer(
                record,
                Cost.of(record, self.origin),
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
        self.reports.see(Cost.of(record, self.origin))
        if record.get("tool_calls"):
            self.group_seq = seq
            for call in open_calls_of(record):
                self.calls[call["id"]] = call
                self.ids.add(call["id"])
