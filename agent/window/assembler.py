"""The planner selects the bytes of a request, and checks that they are a legal message list and fit into the window.

The planner itself never makes the view smaller. If a request does not fit, the planner only reports that; the
compressor then makes the view smaller and records the compaction, and the request is planned again (docs/window.md). A
plan parses only the lines of the view that are new since the last plan. A task begins with `assemble_context`, which
writes the first messages; the loop calls `plan` each turn.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agent import clock
from agent.config import sections
from agent.context.usage_reports import FURTHEST
from agent.prompts import render
from agent.tokens import PRIMING, cautious_of, count_tools, drift, plain, ratio_of
from agent.tokens.base import cautious, fewest
from agent.tokens.ratios import DRIFT, PART
from agent.values import Plan, Span
from agent.window.base import DoesNotFit
from agent.window.budgets import Shares
from agent.window.context_layers import AssembledContext, AssemblyOptions, ContextMetadata, MemoryLayer
from agent.window.counted_view import Seen, View
from agent.window.limits import LEARNT
from agent.window.long_term_recall import LongTermRecall
from agent.window.view_selection import Selection, select_lines

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from agent.context.usage_reports import MessageCost
    from agent.observe.events import EventSink
    from agent.values import Counter
    from agent.values import MemoryLayer as LongTermMemory
    from agent.window.limits import WindowLimits
    from agent.window.store_interfaces import PlannableMessages, PlannableSummaries

DOUBT = 0.5
"""The true number of tokens of a request is certainly at least this share of its estimate, also if the server has never
reported its count.

Estimates of texts of known kinds in sum are within ±10 % of the true number of tokens, and the estimate of the worst
single document is within 38 % (docs/window.md, "How good the estimate is"). The error of an estimate may be larger for
a kind of text that was not measured, so a task ends without sending a request only if the share DOUBT of the estimate
exceeds the window."""


SILENT = 3
"""The number of answers without a report of usage after which the planner expects no report any more, and relies on the
server to refuse a request that is too long."""


class ContextAssembler:
    """Plans the requests of one task.

    `stated` are the token limits that follow from the window; they are replaced if an error of the server shows a
    smaller window. `limits` are the token limits in use; they are lower than `stated` while it is unknown how the model
    counts tokens.

    `tools` are the schemas of tools that are sent with every request. `config` is the section `assembler` of the
    configuration. `recall` retrieves long-term memories for the briefing, by default from the layers in `memory` (name
    → plug-in); `fence` marks these memories as data (`security.fence` with the run's marker). `summary_store` stores
    the summary that is part of the view. `text_mode` is a function that returns, for a model without tool calls, the
    description of the tools, and the tokens that each call costs besides its contents. `sends_back` is a function that
    returns whether the provider field of that name is sent back with its message. `taken` is a function that returns
    the tokens of the longest prompt that the server has answered since it last refused one for its length, as the
    server reported them.

    Stored sums of tokens are counts of `counter` without its learnt ratio; they are multiplied by the ratio when they
    are used.
    """

    def __init__(
        self,
        message_store: PlannableMessages,
        limits: WindowLimits,
        counter: Counter,
        *,
        tools: Sequence[Mapping[str, Any]] = (),
        summary_store: PlannableSummaries | None = None,
        memory: Mapping[str, LongTermMemory] | None = None,
        recall: LongTermRecall | None = None,
        config: sections.Assembler | None = None,
        fence: Callable[[str], str] | None = None,
        events: EventSink | None = None,
        text_mode: Callable[[], tuple[str, int]] | None = None,
        sends_back: Callable[[str], bool] | None = None,
        taken: Callable[[], int] | None = None,
    ) -> None:
        self.message_store = message_store
        self.stated = limits
        self.counter = counter
        self.summary_store = summary_store
        self.config = config or sections.Assembler()
        self.recall = recall or LongTermRecall(memory or {}, self.config.semantic_memory_limit)
        self.fence = fence or (lambda text: text)
        self.events = events
        self.text_mode = text_mode or (lambda: ("", 0))
        self.sends_back = sends_back or (lambda _name: True)
        self.taken = taken or (lambda: 0)
        self.described = ("", 0)  # the description of the tools in text mode, and its tokens
        self.plain = plain(counter)
        # if the model's vocabulary is unknown: a counter of the fewest and one of the most tokens that a text can have
        spread = (fewest(), cautious()) if cautious_of(counter) else ()
        self.view = View(message_store.get_current_context_file(), self.plain, spread)
        self.tools = tools
        self.tool_tokens = count_tools(self.plain, tools)
        self.heard = False  # whether the server has reported usage, or no report of usage is expected from it
        # cache of `plausible_range`: (description of the tools, its tokens by each counter in `View.spread`)
        self._spread_fixed: tuple[str | None, list[int]] = (None, [])

    # --- planning ---------------------------------------------------------------------------------------------

    def plan(self, *, hard: bool = False) -> Plan:
        """Plan the next request, as spans of files; with `hard` it may also use tokens that are reserved for the answer
        (`WindowLimits.most`).

        The plan's `metadata` is a result of `ContextMetadata.to_dict()`; if its field `needs_compaction` is true, the
        request is over the limit and a compaction can help. Raises DoesNotFit if no compaction can make the request fit
        (FR-4, FR-5), or IllegalContext if the view is not a legal message list.
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
        """Plan a request with `options`, and return the plan with facts about it; raises the same errors as `plan`."""
        return self._plan(options or AssemblyOptions())

    def tokens_in_use(self) -> int:
        """The number of tokens of the next request of the conversation.

        It is the sum of the last prompt that the provider reported, the reported part of its answer that the next
        prompt contains, and an estimate of everything later. If there is no report on the present view, or the sum is
        implausibly small, it is an estimate of the whole request, including tools and overhead.
        """
        return self._in_use(self.view.read())

    def needs_compaction(self) -> bool:
        """Whether the next request would exceed the threshold at which a compaction starts."""
        return self.tokens_in_use() > self.limits.compress_at

    def estimate(self) -> int:
        """The tokens of the next request according to the token counter alone, without any ratio."""
        seen = self.view.read()
        return seen.tokens - self.uncounted(seen.fields) + self._blocks(seen) + self.fixed_tokens()

    def least_request(self) -> int:
        """The number of tokens of the shortest possible request: tools, system prompt, briefing, and the newest turn in
        its present length."""
        seen = self.view.read()
        return self.scaled(
            self.fixed_tokens() + seen.head + seen.briefing + seen.tail - self.uncounted(seen.tail_fields)
        )

    @property
    def limits(self) -> WindowLimits:
        """The token limits in use: `stated`, reduced by the factor `estimate_doubt`."""
        return self.stated.scaled_by_doubt(self.estimate_doubt)

    @property
    def estimate_doubt(self) -> float:
        """The factor by which the true number of tokens of the view may exceed its estimate.

        The highest number for an unknown vocabulary (`plausible_range`) is not used if the family of the vocabulary is
        known, the server has reported usage, the server has sent SILENT answers without a report, or the server has
        named its limit in an error. After a server's report of usage, text that was added since may exceed its
        estimate, if a ratio below 1 was learnt from other text.
        """
        if (plausible := self.plausible_range()) is None:
            return self._unreported_doubt()
        return max(1.0, plausible[1] / (self.view.read().tokens + self.fixed_tokens()))

    def _unreported_doubt(self) -> float:
        """The factor by which the true number of tokens of the view may exceed its estimate because a ratio below 1
        reduces the estimate of text that no report covers yet."""
        if not self.message_store.index.reported:
            return 1.0
        seen = self.view.read()
        since = self._sized(self.message_store.index.reports.since, seen)
        return 1.0 + max(0, since - self.scaled(since)) / self._in_use(seen)

    def plausible_range(self) -> tuple[int, int] | None:
        """The fewest and the most tokens that the view and its tools can have, while it is unknown how the model
        counts; else None."""
        if not self._is_doubtful() or not self.view.spread:
            return None
        text, _ = self.text_mode()
        if text != self._spread_fixed[0]:
            fixed = [one.count(text) if text else count_tools(one, self.tools) for one in self.view.spread]
            self._spread_fixed = text, fixed
        self.view.read()
        least, most = (
            PRIMING + fixed + tokens for fixed, tokens in zip(self._spread_fixed[1], self.view.sums, strict=True)
        )
        return least, most

    def _is_doubtful(self) -> bool:
        if not self.heard:
            account = self.message_store.index
            known = cautious_of(self.counter) is None or self.is_measured or self.taken() > 0
            self.heard = known or account.turns >= SILENT
            if self.heard:
                self.view.forget_spread()
        return not self.heard

    def count(self, text: str) -> int:
        """The number of tokens of a text, to check whether it fits into a part of the window.

        The tokens of a text are counted as the model counts, as far as that is known; if nothing is known about that,
        the highest possible number is returned.
        """
        return cautious().count(text) if self._is_doubtful() else self.counter.count(text)

    def emit(self, name: str, **fields: Any) -> None:
        """Emit an event, if there is a listener."""
        if self.events:
            self.events.emit(name, **fields)

    def head(self) -> int:
        """The tokens of the parts of a request that no compaction removes: tools, system prompt and briefing."""
        seen = self.view.read()
        return self.scaled(self.fixed_tokens() + seen.head + seen.briefing)

    def scaled(self, tokens: int) -> int:
        """A sum of the counter's tokens, multiplied by the learnt ratio of the server's count to the counter's."""
        return round(tokens * ratio_of(self.counter))

    def fixed_tokens(self) -> int:
        """The tokens (without the ratio) of a request without messages: the tools, or their description in text mode,
        and the start of the answer."""
        text, _ = self.text_mode()
        if not text:
            return self.tool_tokens + PRIMING
        if text != self.described[0]:
            self.described = text, self.plain.count(text)
        return self.described[1] + PRIMING

    def _blocks(self, seen: Seen) -> int:
        """The tokens that tool calls written as text cost besides their contents."""
        return self.text_mode()[1] * seen.calls

    def uncounted(self, fields: Mapping[str, int]) -> int:
        """The tokens of the provider fields (name → tokens) that do not count in a prompt, because they are not sent
        back or the server ignores them.

        The program has learnt from prompts with the whole view whether the server ignores provider fields, so it does
        not use this knowledge if only a part of the view is sent.
        """
        skips = self.message_store.index.reports.skips_fields and self.config.working_memory_limit is None
        return sum(tokens for name, tokens in fields.items() if skips or not self.sends_back(name))

    def _sized(self, cost: MessageCost, seen: Seen) -> int:
        """The tokens that a part of the view has in a prompt: with its provider fields, or without them if they do not
        count in a prompt."""
        counts = not seen.fields or self.uncounted(seen.fields) < sum(seen.fields.values())
        return cost.tokens if counts else cost.text

    def _in_use(self, seen: Seen) -> int:
        account = self.message_store.index
        known, guessed = account.reported + self.scaled(self._sized(account.reports.since, seen)), self._guess(seen)
        # A server that reports only the tokens that were not cached reports far fewer tokens than were sent. A reported
        # number of tokens may also be lower than the estimate because the estimate is bad, but for ordinary text no
        # estimate is wrong by the factor FURTHEST.
        least = guessed * PART if account.reports.is_partial else guessed // FURTHEST
        return known if account.reported and known >= least else guessed

    def _guess(self, seen: Seen) -> int:
        """An estimate of the tokens of the whole request without the newest report, which cannot be used right after a
        compaction.

        Parts of the request that were reported before and are still in the view are not estimated again: the beginning
        of the request, and the messages that the compaction left unchanged. The tokens of the messages that a
        compaction left unchanged are the difference between the prompt tokens that the server reported for two
        requests. The difference of two reports is not used if it is far from the estimate (perhaps two servers share
        one address), nor if the counter is exact.
        """
        account, reports = self.message_store.index, self.message_store.index.reports
        everything, known = seen.tokens - self.uncounted(seen.fields) + self._blocks(seen) + self.fixed_tokens(), 0
        head, kept = seen.head + seen.briefing + self.fixed_tokens(), self._sized(reports.kept_cost, seen)
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
        cut = self.message_store.index.cut
        has_summary = cut.summary_id is not None
        count = seen.messages - bool(seen.head) - bool(seen.briefing) - has_summary
        part = self._part(seen, options)
        counted = self.estimate() if part is None else part.tokens + self._blocks(seen) + self.fixed_tokens()
        tokens = self._in_use(seen) if part is None else self.scaled(counted)
        limit = self.limits.input_limit
        if hard and tokens > limit:  # the reserve for the answer is not used if the request fits without it
            limit = self.limits.most
        if tokens > limit:
            self._must_fit(seen)
        has_summary = has_summary and options.include_session_summary
        summary = self._summary_tokens() if has_summary else 0
        whole = seen.tokens - self.uncounted(seen.fields) if part is None else part.tokens
        working = whole - seen.head - seen.briefing - summary
        memories, memory_tokens, missing = self.recalled()
        later, later_tokens = self.recalled_later()
        metadata = ContextMetadata(
            working_memory_count=count if part is None else part.working,
            semantic_memory_count=memories + later,
            has_session_summary=has_summary,
            total_tokens=tokens,
            token_limit=limit,
            compression_applied=cut.count > 0,
            assembly_latency_ms=round((clock.monotonic() - started) * 1000, 3),
            needs_compaction=tokens > limit,
            estimated=not (self.counter.exact or self.message_store.index.reported),
            layer_tokens={
                MemoryLayer.SYSTEM.value: self.scaled(seen.head + self.fixed_tokens()),
                MemoryLayer.SEMANTIC.value: self.scaled(memory_tokens + later_tokens),
                MemoryLayer.USER_MESSAGE.value: self.scaled(seen.briefing - memory_tokens),
                MemoryLayer.SESSION_SUMMARY.value: self.scaled(summary),
                MemoryLayer.WORKING.value: self.scaled(max(0, working - later_tokens)),
            },
            layer_counts={
                MemoryLayer.SYSTEM.value: int(bool(seen.head)),
                MemoryLayer.SEMANTIC.value: memories + later,
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
            counted=counted,
            reading=self.view.get_reading() if part is None else None,
        )
        return AssembledContext(plan, metadata)

    def _part(self, seen: Seen, options: AssemblyOptions) -> Selection | None:
        """The lines of the view to send if the options exclude some lines; None for all lines."""
        limit = options.working_memory_limit or self.config.working_memory_limit
        store, survey = self.message_store, self.message_store.index
        if limit is None and (options.include_session_summary or survey.cut.summary_id is None):
            return None
        words = (store.at(one.at).get("content") for one in survey.comments if one.seq > survey.cut.end_seq)
        return select_lines(
            self.view.path,
            seen.offset,
            self.plain,
            limit=limit,
            summary=options.include_session_summary,
            bridge=store.bridge_lines(),
            words={str(text) for text in words},
            room=int(Shares.for_window(self.stated, self.head()).comments / ratio_of(self.counter)),
        )

    def recalled(self) -> tuple[int, int, tuple[str, ...]]:
        """Returns (number of memories in the briefing, their tokens without the ratio, layers that were unavailable),
        as recorded with the briefing."""
        memory = self.message_store.index.memory or {}
        return int(memory.get("count") or 0), int(memory.get("tokens") or 0), tuple(memory.get("missing") or ())

    def recalled_later(self) -> tuple[int, int]:
        """Returns (number of memories after the briefing that are still in the view, their tokens without the
        ratio)."""
        index = self.message_store.index
        seen = [one for one in index.memories if one.seq > index.cut.end_seq]
        return sum(one.count for one in seen), sum(one.tokens for one in seen)

    @property
    def is_disproved(self) -> bool:
        """Whether the server has answered a prompt that is longer than `stated` allows.

        If the server has answered such a prompt, the assumed window is smaller than the true one, which becomes known
        only when the server refuses a request because of its length.
        """
        return self.taken() > self.stated.most

    @property
    def is_measured(self) -> bool:
        """Whether the program knows the number of tokens, or the window, from more than an estimate.

        Numbers of tokens are known if the model's own tokenizer counts, if the server has reported usage in this
        conversation, or if the window was learnt from a server that refused a request because of its length.
        """
        account = self.message_store.index
        taught = bool(self.stated.sources) and self.stated.sources[0][0] == LEARNT
        return self.counter.exact or taught or bool(account.reported or account.head)

    def is_too_much(self, tokens: int) -> bool:
        """Whether a request of `tokens` tokens certainly cannot be sent.

        If the number is only an estimate, the request is certainly too large only if the share DOUBT of the number
        exceeds the whole window. If the server has answered a prompt that is longer than the window allows
        (`is_disproved`), no request counts as certainly too large.
        """
        if self.is_disproved:
            return False
        if self.is_measured:
            return tokens > self.stated.most
        return tokens * DOUBT > self.stated.window

    def _must_fit(self, seen: Seen) -> None:
        """Raise DoesNotFit if the parts of the request that cannot be made smaller do not fit (FR-4 and FR-5)."""
        if self.is_too_much(self.scaled(seen.head + self.fixed_tokens())):
            raise self.does_not_fit("system prompt")
        least = seen.least - self.uncounted(seen.tail_fields)
        if self.is_too_much(self.scaled(seen.head + self.fixed_tokens() + seen.briefing + least)):
            raise self.does_not_fit("turn")

    def does_not_fit(self, what: str, planned: int = 0) -> DoesNotFit:
        """Make the DoesNotFit error, with the tokens of each part and the smallest window that would be sufficient.

        `planned` is the number of tokens of the smallest request that could be made, 0 if none could be made.
        """
        seen, limits = self.view.read(), self.stated
        parts = {"tools": self.scaled(self.fixed_tokens()), "system prompt": self.scaled(seen.head)}
        if what == "turn":
            parts["issue with rules and comments"] = self.scaled(seen.briefing)
            parts["newest turn, its results shortened as far as possible"] = self.scaled(
                seen.least - self.uncounted(seen.tail_fields)
            )
        if (rest := planned - sum(parts.values())) > 0:
            parts["what stands for older messages"] = rest
        tokens = sum(parts.values())
        needed = limits.needed_for(tokens, exact=self.counter.exact)
        parts["answer, at least"] = limits.least
        return DoesNotFit(
            what, tokens, limits.most, parts=parts, window=limits.window, needed=needed, exact=self.counter.exact
        )

    def _summary_tokens(self) -> int:
        """The tokens of the summary in the view; 0 if the view has none."""
        if self.message_store.index.cut.summary_id is None:
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
        comments: Sequence[Mapping[str, Any]] = (),
    ) -> AssembledContext:
        """Begin the conversation with `user_message` as the task, or add it as a comment to a conversation that has
        begun; then plan the request.

        A new conversation begins with the system prompt: the configured one, or else the program's own. Long-term
        memories for `query` are put before the text of the task in the same message, marked as data; `comments` has the
        `id` and the time of the last change of each comment in that text. The messages are synced to disk before the
        request is planned. `assemble_context` raises the same errors as `plan`; the messages are recorded even if the
        planning fails.
        """
        store = self.message_store
        if store.last_seq == 0:
            store.add_message("system", self.system_prompt, kind="system")
        if store.last_seq == 1:
            room = Shares.for_window(self.limits).memory
            memory, record = self.recall.for_briefing(query or user_message, room, self)
            text = memory + user_message
            store.add_message("user", text, kind="task", images=images, memory=record, comments=comments)
        else:
            store.add_message("user", user_message, kind="comment", images=images)
        store.sync()
        return self._plan(options or AssemblyOptions())

    @property
    def system_prompt(self) -> str:
        """The configured system prompt, or else the program's own system prompt."""
        return self.config.system_prompt or render("system")
