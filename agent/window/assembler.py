"""The planner: which bytes are sent, whether they are legal, and whether they fit.

It never cuts conversation: it says what does not fit, the compressor acts and records it, and the view is planned
again (docs/window.md).  A plan parses only the lines that are new since the last one.  A task begins with
`assemble_context`, which writes the first messages; the loop calls `plan` each turn.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from agent import clock
from agent.config import sections
from agent.context.reports import FURTHEST
from agent.prompts import render
from agent.tokens import PRIMING, count_tools, drift, plain, ratio_of
from agent.tokens.ratios import DRIFT, PART
from agent.values import Plan, Span
from agent.window.base import DoesNotFit
from agent.window.layers import AssembledContext, AssemblyOptions, ContextMetadata, MemoryLayer
from agent.window.limits import LEARNT
from agent.window.recall import recall
from agent.window.selection import Selection, select
from agent.window.shares import Shares
from agent.window.view import Seen, View

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from agent.context.reports import Cost, Reports
    from agent.values import Counter, Json
    from agent.values import MemoryLayer as LongTermMemory
    from agent.window.limits import Limits

DOUBT = 0.5
"""Of an estimate: what is certain without a server's word.  Sums of texts of known classes are within ±10 % and the
worst single document within 38 % (docs/window.md, "How good the estimate is"); a kind of text that nobody measured may
be further off, so only what is over the window at half the estimate ends a task unsent."""


class Compacted(Protocol):
    """What the planner needs of `context.Cut`."""

    @property
    def summary_id(self) -> int | None:
        """The summary that is in the view."""
        ...

    @property
    def count(self) -> int:
        """How many compactions there were."""
        ...

    @property
    def strategy(self) -> str:
        """What left messages out, "" for nothing."""
        ...

    @property
    def end_seq(self) -> int:
        """The newest message that is left out, 0 for none."""
        ...

    @property
    def mask_end(self) -> int:
        """Tool results up to this message are pointers."""
        ...


class Account(Protocol):
    """What the planner needs of `context.Survey`."""

    reports: Reports  # of prompts; its estimates are without any ratio
    head: int  # reported tokens of tools, system message and briefing alone, 0 for unknown
    follows: str | None  # role of the first message of the conversation
    memory: Json | None  # what was recalled for the briefing: count, tokens, missing layers

    @property
    def reported(self) -> int:
        """Tokens in use by the provider's newest report that still holds, without what came since; 0 for none."""
        ...

    @property
    def cut(self) -> Compacted:
        """What the compactions come to."""
        ...


class Conversation(Protocol):
    """What the planner needs of `context.MessageStore`."""

    @property
    def last_seq(self) -> int:
        """The number of the newest message, 0 before the first."""
        ...

    @property
    def survey(self) -> Account:
        """The account of the history."""
        ...

    def get_current_context_file(self, unsummarized_file_path: Path | None = None) -> Path:
        """The view."""
        ...

    def add_message(
        self,
        role: str,
        content: str | None,
        *,
        kind: str | None = None,
        images: Sequence[Mapping[str, Any]] = (),
        memory: Mapping[str, Any] | None = None,
    ) -> int:
        """Append; returns `seq`."""
        ...

    def sync(self) -> None:
        """Make what was appended durable."""
        ...


class Summaries(Protocol):
    """What the planner needs of `context.SummaryStore`."""

    def get_latest_summary(self) -> Json | None:
        """The newest summary record."""
        ...


class Announce(Protocol):
    """The part of `observe.events.Events` that the window uses."""

    def emit(self, name: str, /, **fields: Any) -> None:
        """Tell listeners."""
        ...


class ContextAssembler:
    """Plans the requests of one task.

    `limits` may be replaced when an error has taught a smaller window.  `tools` are the schemas that are sent with
    every request.  `config` is section `assembler` of the configuration.  `memory` gives long-term memories for the
    briefing, layers by name; `fence` makes them data of the run (`security.fence` with its marker).  `summary_store`
    tells whether a summary is in the view.  `text_mode` says what a model without tool calls is told of the tools, and
    the tokens that a call costs there beside its contents.  `sends_back` says whether a provider field of an answer
    goes out with its message, `taken` the longest prompt, in reported tokens, that the server has answered since it
    last refused one for its length.  Sums are kept of what `counter` counts without its learnt ratio, and multiplied
    with what the ratio is now.
    """

    def __init__(
        self,
        message_store: Conversation,
        limits: Limits,
        counter: Counter,
        *,
        tools: Sequence[Mapping[str, Any]] = (),
        summary_store: Summaries | None = None,
        memory: Mapping[str, LongTermMemory] | None = None,
        config: sections.Assembler | None = None,
        fence: Callable[[str], str] | None = None,
        events: Announce | None = None,
        text_mode: Callable[[], tuple[str, int]] | None = None,
        sends_back: Callable[[str], bool] | None = None,
        taken: Callable[[], int] | None = None,
    ) -> None:
        self.message_store = message_store
        self.limits = limits
        self.counter = counter
        self.summary_store = summary_store
        self.memory: Mapping[str, LongTermMemory] = memory or {}
        self.config = config or sections.Assembler()
        self.fence = fence or (lambda text: text)
        self.events = events
        self.text_mode = text_mode or (lambda: ("", 0))
        self.sends_back = sends_back or (lambda _name: True)
        self.taken = taken or (lambda: 0)
        self.described = ("", 0)  # what a text mode says of the tools, and its tokens
        self.plain = plain(counter)
        self.view = View(message_store.get_current_context_file(), self.plain)
        self.tool_tokens = count_tools(self.plain, tools)

    # --- planning ---------------------------------------------------------------------------------------------

    def plan(self, *, hard: bool = False) -> Plan:
        """The next request, as spans of files; with `hard` it may take from the answer's room (`Limits.most`).

        `metadata` is `ContextMetadata.to_dict()`; with `needs_compaction` in it the plan is over the limit and a
        compaction can help.  DoesNotFit when nothing can (FR-4, FR-5), IllegalContext when the view is no legal list.
        """
        planned = self._plan(AssemblyOptions(), hard=hard)
        if self.events:
            metadata = planned.metadata
            self.events.emit(
                "context_assembled",
                tokens=metadata.total_tokens,
                limit=metadata.token_limit,
                latency_ms=metadata.assembly_latency_ms,
                layers=metadata.layer_tokens,
                counts=metadata.layer_counts,
                cut=metadata.cut,
                dropped=list(metadata.missing),
            )
        return planned.plan

    def assemble(self, options: AssemblyOptions | None = None) -> AssembledContext:
        """The plan with its metadata and its messages, and no word about it: nothing is sent for it.  Raises as `plan`
        does."""
        return self._plan(options or AssemblyOptions())

    def tokens_in_use(self) -> int:
        """What the next request costs: the prompt that the provider reported last, what was stored of its answer, and
        an estimate of what came since; before a report an estimate of everything, tools and overhead included."""
        return self._in_use(self.view.read())

    def past_the_mark(self) -> bool:
        """Whether it is time to compact."""
        return self.tokens_in_use() > self.limits.compress_at

    def estimate(self) -> int:
        """The same by the counter alone, without any ratio."""
        seen = self.view.read()
        return seen.tokens - self.uncounted(seen.fields) + self._blocks(seen) + self.fixed()

    def least(self) -> int:
        """What is sent at least, were there nothing but the newest turn, as long as it is now."""
        seen = self.view.read()
        return self.scaled(self.fixed() + seen.head + seen.briefing + seen.tail - self.uncounted(seen.tail_fields))

    def emit(self, name: str, **fields: Any) -> None:
        """Tell listeners, where there are any."""
        if self.events:
            self.events.emit(name, **fields)

    def head(self) -> int:
        """What no compaction takes away: tools, system prompt and briefing."""
        seen = self.view.read()
        return self.scaled(self.fixed() + seen.head + seen.briefing)

    def scaled(self, tokens: int) -> int:
        """What a sum of the counter's own tokens comes to by what servers have reported so far."""
        return round(tokens * ratio_of(self.counter))

    def fixed(self) -> int:
        """Tokens (without any ratio) of a request without any message: tools, or what a text mode says of them, and the
        start of the answer."""
        text, _ = self.text_mode()
        if not text:
            return self.tool_tokens + PRIMING
        if text != self.described[0]:
            self.described = text, self.plain.count(text)
        return self.described[1] + PRIMING

    def _blocks(self, seen: Seen) -> int:
        """Tokens that the calls of a text mode cost beside their contents."""
        return self.text_mode()[1] * seen.calls

    def uncounted(self, fields: Mapping[str, int]) -> int:
        """Tokens of those provider fields (by name) that are not in a prompt: they are not sent, or the server does not
        count them."""
        skips = self.message_store.survey.reports.skips_fields
        return sum(tokens for name, tokens in fields.items() if skips or not self.sends_back(name))

    def _sized(self, cost: Cost, seen: Seen) -> int:
        """Tokens of a part of the view in a prompt."""
        counts = not seen.fields or self.uncounted(seen.fields) < sum(seen.fields.values())
        return cost.tokens if counts else cost.text

    def _in_use(self, seen: Seen) -> int:
        account = self.message_store.survey
        known, guessed = account.reported + self.scaled(self._sized(account.reports.since, seen)), self._guess(seen)
        # A server that tells only what it had not cached reports far less than was sent.  So does one whose prompts are
        # estimated badly, but no ordinary text is that far off, and its prompts grow.
        least = guessed * PART if account.reports.is_partial else guessed // FURTHEST
        return known if account.reported and known >= least else guessed

    def _guess(self, seen: Seen) -> int:
        """An estimate of the whole request, without the newest report: right after a compaction.

        What was reported once and is still there is not estimated again: the head of the request, and the messages
        that the compaction left whole.  The latter is the difference of two reports: where it is far from the estimate
        it is no measure (two servers behind one address, say), and a vocabulary knows better anyway.
        """
        account, reports = self.message_store.survey, self.message_store.survey.reports
        everything, known = seen.tokens - self.uncounted(seen.fields) + self._blocks(seen) + self.fixed(), 0
        head, kept = seen.head + seen.briefing + self.fixed(), self._sized(reports.kept_cost, seen)
        if account.head >= PART * self.scaled(head):
            known, everything = known + account.head, everything - head
        if (
            not self.counter.exact
            and kept
            and reports.kept > 0
            and abs(drift(self.scaled(kept), reports.kept)) <= DRIFT
        ):
            known, everything = known + reports.kept, everything - kept
        return known + self.scaled(everything)

    def _plan(self, options: AssemblyOptions, *, hard: bool = False) -> AssembledContext:
        started = clock.monotonic()
        seen = self.view.complete()
        cut = self.message_store.survey.cut
        has_summary = cut.summary_id is not None
        count = seen.messages - bool(seen.head) - bool(seen.briefing) - has_summary
        part = self._part(seen, options)
        tokens = self._in_use(seen) if part is None else self.scaled(part.tokens + self._blocks(seen) + self.fixed())
        limit = self.limits.most if hard else self.limits.input_limit
        if tokens > limit:
            self._must_fit(seen)
        has_summary = has_summary and options.include_session_summary
        summary = self._summary_tokens() if has_summary else 0
        whole = seen.tokens - self.uncounted(seen.fields) if part is None else part.tokens
        working = whole - seen.head - seen.briefing - summary
        memories, memory_tokens, missing = self.recalled()
        metadata = ContextMetadata(
            working_memory_count=count if part is None else part.working,
            semantic_memory_count=memories,
            has_session_summary=has_summary,
            total_tokens=tokens,
            token_limit=limit,
            compression_applied=cut.count > 0,
            assembly_latency_ms=round((clock.monotonic() - started) * 1000, 3),
            needs_compaction=tokens > limit,
            estimated=not (self.counter.exact or self.message_store.survey.reported),
            layer_tokens={
                MemoryLayer.SYSTEM.value: self.scaled(seen.head + self.fixed()),
                MemoryLayer.SEMANTIC.value: self.scaled(memory_tokens),
                MemoryLayer.USER_MESSAGE.value: self.scaled(seen.briefing - memory_tokens),
                MemoryLayer.SESSION_SUMMARY.value: self.scaled(summary),
                MemoryLayer.WORKING.value: self.scaled(working),
            },
            layer_counts={
                MemoryLayer.SYSTEM.value: int(bool(seen.head)),
                MemoryLayer.SEMANTIC.value: memories,
                MemoryLayer.USER_MESSAGE.value: int(bool(seen.briefing)),
                MemoryLayer.SESSION_SUMMARY.value: int(has_summary),
                MemoryLayer.WORKING.value: count if part is None else part.working,
            },
            missing=missing,
            cut={"by": cut.strategy, "left_out_to": cut.end_seq, "masked_to": cut.mask_end} if cut.count else None,
        )
        plan = Plan(
            spans=(Span(self.view.path, 0, seen.offset),) if part is None else part.spans,
            tokens=tokens,
            limit=limit,
            output=self.limits.output_for(tokens),
            metadata=metadata.to_dict(),
        )
        return AssembledContext(plan, metadata)

    def _part(self, seen: Seen, options: AssemblyOptions) -> Selection | None:
        """The lines that are sent where the options want less than all; None for all."""
        limit = options.working_memory_limit or self.config.working_memory_limit
        survey = self.message_store.survey
        has_summary = survey.cut.summary_id is not None
        if limit is None and (options.include_session_summary or not has_summary):
            return None
        return select(
            self.view.path,
            seen.offset,
            self.plain,
            limit=limit,
            summary=options.include_session_summary,
            has_summary=has_summary,
            bridged=has_summary and survey.follows != "user",
        )

    def recalled(self) -> tuple[int, int, tuple[str, ...]]:
        """(memories in the briefing, their tokens without any ratio, layers that could not be had), from its record."""
        memory = self.message_store.survey.memory or {}
        return int(memory.get("count") or 0), int(memory.get("tokens") or 0), tuple(memory.get("missing") or ())

    @property
    def is_disproved(self) -> bool:
        """Whether the server has answered a longer prompt than the limit says that it takes.  Then the window that is
        believed in is too small, and the true one is known when the server refuses a request for its length."""
        return self.taken() > self.limits.most

    @property
    def is_measured(self) -> bool:
        """Whether more than an estimate says what a request has: the model's own vocabulary, a report of the server in
        this conversation, or an error of it that named or taught the window."""
        account = self.message_store.survey
        taught = bool(self.limits.sources) and self.limits.sources[0][0] == LEARNT
        return self.counter.exact or taught or bool(account.reported or account.head)

    def is_too_much(self, tokens: int) -> bool:
        """Whether a request of so many tokens certainly cannot be sent.  An estimate alone never says so, unless half
        of it is over the whole window; nor does a limit that the server has gone beyond."""
        if self.is_disproved:
            return False
        if self.is_measured:
            return tokens > self.limits.most
        return tokens * DOUBT > self.limits.window

    def _must_fit(self, seen: Seen) -> None:
        """FR-4 and FR-5: what nothing can make smaller."""
        if self.is_too_much(self.scaled(seen.head + self.fixed())):
            raise self.does_not_fit("system prompt")
        least = seen.least - self.uncounted(seen.tail_fields)
        if self.is_too_much(self.scaled(seen.head + self.fixed() + seen.briefing + least)):
            raise self.does_not_fit("turn")

    def does_not_fit(self, what: str, planned: int = 0) -> DoesNotFit:
        """The error with the tokens of each part, and the least window that would do.  `planned`: of the smallest
        request that could be made, where one was."""
        seen, limits = self.view.read(), self.limits
        parts = {"tools": self.scaled(self.fixed()), "system prompt": self.scaled(seen.head)}
        if what == "turn":
            parts["task"] = self.scaled(seen.briefing)
            parts["newest turn, its results shortened as far as possible"] = self.scaled(
                seen.least - self.uncounted(seen.tail_fields)
            )
        if (rest := planned - sum(parts.values())) > 0:
            parts["what stands for older messages"] = rest
        tokens = sum(parts.values())
        needed = limits.needed_for(tokens, exact=self.counter.exact)
        parts["answer, at least"] = limits.least
        return DoesNotFit(what, tokens, limits.most, parts=parts, window=limits.window, needed=needed)

    def _summary_tokens(self) -> int:
        """Tokens of the summary in the view, 0 when there is none."""
        if self.message_store.survey.cut.summary_id is None:
            return 0
        latest = self.summary_store.get_latest_summary() if self.summary_store else None
        return int(latest.get("summary_tokens") or 0) if latest else 0

    # --- the start of a task ----------------------------------------------------------------------------------

    def assemble_context(
        self,
        user_message: str,
        options: AssemblyOptions | None = None,
        *,
        query: str = "",
        images: Sequence[Mapping[str, Any]] = (),
    ) -> AssembledContext:
        """Begin the conversation with `user_message` as the task, or add it to one that has begun; then plan.

        A new conversation gets the system prompt first (the configured one, else the program's), and what long-term
        memory recalls for `query` at the head of the task's message, as data.  What was written is durable before it is
        planned.  Raises as `plan` does; the messages are recorded then too.
        """
        store = self.message_store
        if store.last_seq == 0:
            store.add_message("system", self.system_prompt, kind="system")
        if store.last_seq == 1:
            memory, record = self._recall(query or user_message)
            store.add_message("user", memory + user_message, kind="task", images=images, memory=record)
        else:
            store.add_message("user", user_message, kind="comment", images=images)
        store.sync()
        return self._plan(options or AssemblyOptions())

    @property
    def system_prompt(self) -> str:
        """The configured one, else the program's."""
        return self.config.system_prompt or render("system")

    def _recall(self, query: str) -> tuple[str, Json | None]:
        """(long-term memory for the briefing, fenced, "" for none; what its record says of it, None without a layer).

        The least relevant are left out first, to the budget of memory.  A layer that cannot be had is reported.
        """
        if not self.memory:
            return "", None
        room = Shares.of(self.limits).memory
        found = recall(self.memory, query, self.config.semantic_memory_limit, room, self.counter.count)
        for layer, why in found.missing.items():
            if self.events:
                self.events.emit("layer_failed", layer=layer, error=why)
        text = f"{self.fence(found.text)}\n\n" if found.text else ""
        tokens = self.plain.count(text) if text else 0
        return text, {"count": found.count, "tokens": tokens, "missing": dict(found.missing)}
