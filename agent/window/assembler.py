"""The planner: which bytes are sent, whether they are legal, and whether they fit.

It never cuts conversation: it says what does not fit, the compressor acts and records it, and the view is planned
again (design: section 5; seed 000).  A plan parses only the lines that are new since the last one.  The loop calls
`plan` each turn; `assemble_context` is the seed's name for the same with the user's message added first.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

from agent import clock
from agent.context.reports import FURTHEST
from agent.tokens import PRIMING, count_tools, drift, plain, ratio_of
from agent.tokens.ratios import DRIFT, PART
from agent.values import Plan, Span
from agent.window.base import DoesNotFit
from agent.window.layers import AssembledContext, AssemblyOptions, ContextConfig, ContextMetadata, MemoryLayer
from agent.window.recall import recall
from agent.window.selection import Selection, select
from agent.window.view import Seen, View

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from agent.context.reports import Cost, Reports
    from agent.values import Counter, Json
    from agent.values import MemoryLayer as LongTermMemory
    from agent.window.limits import Limits

MEMORY_SHARE = 8
"""Memory takes at most one part in so many of the window, as repository rules do."""


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

    def add_message(self, role: str, content: str | None, *, kind: str | None = None) -> int:
        """Append; returns `seq`."""
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
    every request.  `memory` gives long-term memories for the first briefing, one layer or several by name; `fence`
    makes them data of the run (`security.fence` with its marker).  `summary_store` tells whether a summary is in the
    view.  `text_mode` says what a model without tool calls is told of the tools, and the tokens that a call costs there
    beside its contents.  `sends_back` says whether a provider field of an answer goes out with its message.
    Sums are kept of what `counter` counts without its learnt ratio, and multiplied with what the ratio is now.
    """

    def __init__(
        self,
        message_store: Conversation,
        limits: Limits,
        counter: Counter,
        *,
        tools: Sequence[Mapping[str, Any]] = (),
        summary_store: Summaries | None = None,
        memory: LongTermMemory | Mapping[str, LongTermMemory] | None = None,
        config: ContextConfig | None = None,
        fence: Callable[[str], str] | None = None,
        events: Announce | None = None,
        text_mode: Callable[[], tuple[str, int]] | None = None,
        sends_back: Callable[[str], bool] | None = None,
    ) -> None:
        self.message_store = message_store
        self.limits = limits
        self.counter = counter
        self.summary_store = summary_store
        self.memory: Mapping[str, LongTermMemory] = (
            {} if memory is None else memory if isinstance(memory, Mapping) else {MemoryLayer.SEMANTIC.value: memory}
        )
        self.config = config or ContextConfig()
        self.fence = fence or (lambda text: text)
        self.events = events
        self.text_mode = text_mode or (lambda: ("", 0))
        self.sends_back = sends_back or (lambda _name: True)
        self.described = ("", 0)  # what a text mode says of the tools, and its tokens
        self.plain = plain(counter)
        self.view = View(message_store.get_current_context_file(), self.plain)
        self.tool_tokens = count_tools(self.plain, tools)
        self.memories = 0
        self.missing: tuple[str, ...] = ()

    # --- planning ---------------------------------------------------------------------------------------------

    def plan(self) -> Plan:
        """The next request, as spans of files.

        `metadata` is `ContextMetadata.to_dict()`; with `needs_compaction` in it the plan is over the limit and a
        compaction can help.  DoesNotFit when nothing can (FR-4, FR-5), IllegalContext when the view is no legal list.
        """
        return self.assemble().plan

    def assemble(self) -> AssembledContext:
        """The plan with its metadata and its messages."""
        return self._plan(AssemblyOptions())

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
        return seen.tokens - self._uncounted(seen.fields) + self._blocks(seen) + self.fixed()

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

    def _uncounted(self, fields: Mapping[str, int]) -> int:
        """Tokens of those provider fields (by name) that are not in a prompt: they are not sent, or the server does not
        count them."""
        skips = self.message_store.survey.reports.skips_fields
        return sum(tokens for name, tokens in fields.items() if skips or not self.sends_back(name))

    def _sized(self, cost: Cost, seen: Seen) -> int:
        """Tokens of a part of the view in a prompt."""
        counts = not seen.fields or self._uncounted(seen.fields) < sum(seen.fields.values())
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
        everything, known = seen.tokens - self._uncounted(seen.fields) + self._blocks(seen) + self.fixed(), 0
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

    def _plan(self, options: AssemblyOptions) -> AssembledContext:
        started = clock.monotonic()
        seen = self.view.complete()
        cut = self.message_store.survey.cut
        has_summary = cut.summary_id is not None
        count = seen.messages - bool(seen.head) - bool(seen.briefing) - has_summary
        part = self._part(seen, options)
        tokens = self._in_use(seen) if part is None else self.scaled(part.tokens + self._blocks(seen) + self.fixed())
        limit = self.limits.input_limit
        if tokens > limit:
            self._must_fit(seen)
        has_summary = has_summary and options.include_session_summary
        summary = self._summary_tokens() if has_summary else 0
        working = (seen.tokens if part is None else part.tokens) - seen.head - seen.briefing - summary
        metadata = ContextMetadata(
            working_memory_count=count if part is None else part.working,
            semantic_memory_count=self.memories,
            has_session_summary=has_summary,
            total_tokens=tokens,
            token_limit=limit,
            compression_applied=cut.count > 0,
            assembly_latency_ms=round((clock.monotonic() - started) * 1000, 3),
            needs_compaction=tokens > limit,
            estimated=not (self.counter.exact or self.message_store.survey.reported),
            layer_tokens={
                MemoryLayer.SYSTEM.value: self.scaled(seen.head + self.fixed()),
                MemoryLayer.USER_MESSAGE.value: self.scaled(seen.briefing),
                MemoryLayer.SESSION_SUMMARY.value: self.scaled(summary),
                MemoryLayer.WORKING.value: self.scaled(working),
            },
            layer_counts={
                MemoryLayer.SYSTEM.value: int(bool(seen.head)),
                MemoryLayer.SEMANTIC.value: self.memories,
                MemoryLayer.USER_MESSAGE.value: int(bool(seen.briefing)),
                MemoryLayer.SESSION_SUMMARY.value: int(has_summary),
                MemoryLayer.WORKING.value: count if part is None else part.working,
            },
            missing=self.missing,
            cut={"by": cut.strategy, "left_out_to": cut.end_seq, "masked_to": cut.mask_end} if cut.count else None,
        )
        plan = Plan(
            spans=(Span(self.view.path, 0, seen.offset),) if part is None else part.spans,
            tokens=tokens,
            limit=limit,
            output=self.limits.output,
            metadata=metadata.to_dict(),
        )
        if self.events:
            self.events.emit(
                "context_assembled",
                tokens=tokens,
                limit=limit,
                latency_ms=metadata.assembly_latency_ms,
                layers=metadata.layer_tokens,
                counts=metadata.layer_counts,
                cut=metadata.cut,
                dropped=list(self.missing),
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

    def _must_fit(self, seen: Seen) -> None:
        """FR-4 and FR-5: what no compaction can make smaller."""
        limit = self.limits.input_limit
        system = self.scaled(seen.head + self.fixed())
        if system > limit:
            raise DoesNotFit("system prompt", system, limit)
        least = system + self.scaled(seen.briefing + seen.tail - self._uncounted(seen.tail_fields))
        if least > limit:
            raise DoesNotFit("turn", least, limit)

    def _summary_tokens(self) -> int:
        """Tokens of the summary in the view, 0 when there is none."""
        if self.message_store.survey.cut.summary_id is None:
            return 0
        latest = self.summary_store.get_latest_summary() if self.summary_store else None
        return int(latest.get("summary_tokens") or 0) if latest else 0

    # --- the seed's entrance ----------------------------------------------------------------------------------

    def assemble_context(
        self,
        user_message: str,
        user_id: str = "",  # noqa: ARG002 - the seed's signature; a task's folder has one user
        session_id: Any = None,  # noqa: ARG002 - and is one session
        options: AssemblyOptions | None = None,
    ) -> AssembledContext:
        """Add `user_message` and plan (seed 000, 3.1.2).

        In an empty conversation the configured system prompt is written first, and what long-term memory recalls for
        the message stands at the head of the briefing as data.
        """
        chosen = options or AssemblyOptions()
        store = self.message_store
        if store.last_seq == 0:
            store.add_message("system", self.config.system_prompt or "You are a careful coding agent.", kind="system")
            store.add_message("user", self.recall(user_message, chosen) + user_message, kind="task")
        else:
            store.add_message("user", user_message, kind="comment")
        return self._plan(chosen)

    def recall(self, query: str, options: AssemblyOptions | None = None) -> str:
        """Long-term memory for a briefing: fenced lines with source and relevance, "" when there is none.

        The least relevant are dropped first, to at most an eighth of the window.  A memory that cannot be had is
        left out and reported; the task goes on.
        """
        chosen = options or AssemblyOptions()
        if not self.memory or not chosen.include_semantic_memory:
            return ""
        most = chosen.semantic_memory_limit or self.config.semantic_memory_limit
        found = recall(self.memory, query, most, self.limits.window // MEMORY_SHARE, self.counter.count)
        failed = found.missing or {}
        self.missing = tuple(failed)
        for layer, why in failed.items():
            if self.events:
                self.events.emit("layer_failed", layer=layer, error=why)
        self.memories = len(found.lines)
        return self.fence("## Related memories\n\n" + "\n".join(found.lines)) + "\n\n" if found.lines else ""
