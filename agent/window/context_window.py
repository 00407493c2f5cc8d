"""Implements the window that the loop uses: plans requests, decides when a compaction is due, and makes requests fit.

`Window` connects the planner, the compressor and the limits, and learns: an error of the server that a request is too
long corrects the window, and each report of usage corrects the estimates (docs/design/compression.md, NFR-1).  `Window`
itself only decides when the planner, the compressor and the limits act.
"""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from agent.config.configured_window import UNKNOWN
from agent.errors import ContextOverflow
from agent.llm import make_client
from agent.security.fence import defuse, fence, new_marker
from agent.tokens import EstimatedCounter, counter_for, drift
from agent.tokens.counters import PER_MESSAGE
from agent.tokens.ratios import DRIFT
from agent.window.assembler import ContextAssembler
from agent.window.base import CompactionStuck
from agent.window.budgets import Shares
from agent.window.carry_over import CarryOver
from agent.window.compressor import ContextCompressor
from agent.window.limits import LEARNT, WindowLimits
from agent.window.long_term_recall import LongTermRecall
from agent.window.minimum_window import too_small
from agent.window.trimming import Trimming

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from agent.config import Settings
    from agent.context import MessageStore, SummaryStore
    from agent.errors import RequestRefused
    from agent.observe.events import EventSink
    from agent.values import Answer, MemoryLayer, Plan, PresentWork, Ratios
    from agent.window.context_layers import ContextMetadata
    from agent.window.recall_layers import OwnMemory

BLIND = 0.75
"""If a server refuses a request as too long and names no number, the window is assumed to be the share BLIND of the
tokens of the prompt (and of the requested answer, if it is longer than the prompt)."""

SPARE = 8
"""If a request fits by count but a server refuses it as too long, the newest turn is shortened by 1/SPARE of the
request's tokens."""

SMALLEST = 1024
"""The smallest window, in tokens, that can be learnt from an error."""

NEAR = 0.6
"""A number in a server's refusal is taken for the server's count of the request if it is from NEAR times the estimate
to the estimate divided by NEAR."""

_NUMBER = re.compile(r"(?<![\w.])\d{3,9}(?![\w.]*\w)")


class Window:
    """Implements `loop.Window`, which describes the methods.

    `client` is the model client of the conversation; the usage in its last answer (`last`) corrects the estimates.
    `remember` is called with `client.model` and a window that was learnt from the server, so that later processes know
    it.
    """

    def __init__(
        self,
        settings: Settings,
        assembler: ContextAssembler,
        compressor: ContextCompressor,
        client: Any,
        remember: Callable[[str, int], None] | None = None,
    ) -> None:
        self.settings = settings
        self.assembler = assembler
        self.compressor = compressor
        self.client = client
        self.remember = remember
        # a function that shortens the briefing for a smaller window, and returns whether it did;
        # `worker/conversation.py` replaces this default
        self.shorten_briefing: Callable[[], bool] = lambda: False
        self.learnt: int | None = None
        self.planned = 0  # tokens of the newest planned request by the counter, without the ratio
        # the fewest and the most tokens of the newest planned request, while it is unknown how the model counts
        self.plausible: tuple[int, int] | None = None
        self.asked = 0  # tokens of the newest planned request by the counter, multiplied by the ratio
        # tokens of the longest prompt that the server answered
        self.taken = max(assembler.message_store.index.reported, assembler.taken())
        # tokens of a request that the server refused, perhaps because of its length; 0 after the next answer
        self._suspected = 0
        self.trimming = Trimming(compressor.message_store, assembler)
        self._seen: Answer | None = None
        self._overflowed_at = -1

    @property
    def limits(self) -> WindowLimits:
        """The token limits in use."""
        return self.assembler.limits

    @property
    def shares(self) -> Shares:
        """The budgets into which the window in use is divided."""
        return Shares.for_window(self.assembler.stated, self.assembler.head())

    def plan(self) -> Plan:
        """Plan the next request of the conversation.

        A request over the limit is made to fit by these means, one after the other: those of the compaction strategy, a
        shorter newest turn, the reset, a smaller reserve for the answer. Raises DoesNotFit if all means together are
        not enough (FR-4, FR-5). If a request is over the limit only by an estimate, which may be too high, it is sent,
        and the server decides whether it is too long.
        """
        self._observe()
        plan = self.assembler.plan()
        if plan.metadata["needs_compaction"]:
            plan = self._made_to_fit(plan)
        self.planned = plan.counted
        self.plausible = self._plausible(plan)
        self.asked = plan.tokens
        return plan

    def _plausible(self, plan: Plan) -> tuple[int, int] | None:
        """The fewest and the most tokens of the planned request, while it is unknown how the model counts; else
        None."""
        found = self.assembler.plausible_range()
        if found is None or not (whole := self.assembler.estimate()):
            return found
        return found[0] * plan.counted // whole, found[1] * plan.counted // whole

    def check(self) -> None:
        """Raise DoesNotFit if the window is too small for any task."""
        assembler = self.assembler
        configured = assembler.config.system_prompt is not None
        system = assembler.scaled(assembler.plain.count(assembler.system_prompt) + PER_MESSAGE)
        tools = assembler.scaled(assembler.fixed_tokens())
        error = too_small(assembler.stated, tools, system, exact=assembler.counter.exact, configured=configured)
        if error is not None:
            raise error

    def _made_to_fit(self, plan: Plan) -> Plan:
        """Make a request plan that fits into the window from one that is over the limit; raises DoesNotFit if that is
        impossible."""
        share = partial(self.trimming.fit, self.shares.results)
        means: list[Callable[[], object]] = [self.compressor.compress, share, self.compressor.reset, self._trim]
        # If even a request without older turns is too long, the newest turn is shortened first.
        if self.assembler.least_request() > plan.limit:
            means.insert(0, share)
        for attempt in means:
            with suppress(CompactionStuck):  # if this means of compaction is not enough, the next one is tried
                attempt()
            plan = self.assembler.plan()
            if not plan.metadata["needs_compaction"]:
                return plan
        for attempt in (self.compressor.reset_to_newest, self._trim):
            plan = self.assembler.plan(hard=True)
            if not plan.metadata["needs_compaction"]:
                return plan
            with suppress(CompactionStuck):
                attempt()
        plan = self.assembler.plan(hard=True)
        if not plan.metadata["needs_compaction"]:
            return plan
        if self.assembler.is_too_much(plan.tokens):
            raise self.assembler.does_not_fit("turn", plan.tokens)
        return replace(plan, limit=plan.tokens)  # only an estimate exceeds the limit, so the request is sent

    def _trim(self) -> None:
        """Shorten the newest turn until the request fits, or as far as possible.

        The tokens of the request are counted again after each step.
        """
        over = self.assembler.tokens_in_use() - self.limits.input_limit
        while over > 0 and self.trimming.free_tokens(over):
            over = self.assembler.tokens_in_use() - self.limits.input_limit

    def needs_compaction(self) -> bool:
        """Whether the next request would exceed the number of tokens at which a compaction starts."""
        self._observe()
        return self.compressor.should_compress()

    def compact(self, overflow: ContextOverflow | None = None) -> bool:
        """Compact the conversation once; returns False if that freed no tokens and the next request would not ask for a
        shorter answer either.

        `overflow` is the server's error that a request was too long; its numbers correct the window.  If the server
        refuses a second request in a row as too long, the reset is used.
        """
        before = self.assembler.estimate()
        if overflow is None:
            with suppress(CompactionStuck):  # if this frees nothing, the next `plan` tries more means of compaction
                self.compressor.compress()
            return self.assembler.estimate() < before
        answer = self.limits.output_for(self.asked)
        self._learn(overflow, answer)
        answers = self.compressor.message_store.totals().turns
        again = answers == self._overflowed_at
        self._overflowed_at = answers
        if self.shorten_briefing() and self.assembler.tokens_in_use() <= self.limits.input_limit:
            # The briefing exceeded its budgets by the server's count; it was shortened, and that is enough.
            return True
        if again or not self._is_for_the_answer(overflow, answer):
            self._free(self.compressor.reset if again else partial(self.compressor.compress, force=True))
        return self.assembler.estimate() < before or self._shortens(answer, self.limits.most)

    def explain_overflow(self, overflow: ContextOverflow) -> ContextOverflow:
        """The error to show to a person if the view could not be made small enough.

        The error contains the server's message, the tokens of each part as far as they are known, and the smallest
        sufficient window. An error of a subclass of ContextOverflow, about a limit per minute, is returned unchanged.
        """
        if type(overflow) is not ContextOverflow:
            return overflow
        found = self.assembler.does_not_fit("turn", overflow.requested or 0)
        return ContextOverflow(
            f"{str(overflow).rstrip(' .')}. {found.details(at_most=self.limits.window)}{found.advice}",
            status=overflow.status,
            limit=overflow.limit,
            requested=overflow.requested,
        )

    def _is_for_the_answer(self, overflow: ContextOverflow, answer: int) -> bool:
        """Whether the prompt fits by the server's own numbers, so that it is enough to ask for a shorter answer than
        the `answer` tokens that the request asked for."""
        told = bool(overflow.limit and overflow.requested and overflow.requested < overflow.limit)
        return told and self._shortens(answer, self.limits.input_limit)

    def _shortens(self, answer: int, limit: int) -> bool:
        """Whether the next request would be within `limit` and would ask for a shorter answer than `answer`."""
        used = self.assembler.tokens_in_use()
        return used <= limit and self.limits.output_for(used) < answer

    def _free(self, means: Callable[[], object]) -> None:
        """Make the view smaller by `means`, because the server refused a request as too long; if that frees nothing,
        shorten the newest turn."""
        before = self.assembler.estimate()
        with suppress(CompactionStuck):
            means()
        if self.assembler.estimate() >= before:
            self._trim()
            if self.assembler.estimate() >= before:  # the request fits by count, but the server refuses it as too long
                self.trimming.free_tokens(self.assembler.tokens_in_use() // SPARE)

    def compact_if_too_long(self, refused: RequestRefused) -> bool:
        """Make the view smaller once after the server refused a request without a known reason, if its length may be
        the reason.

        Returns False if the length of the request cannot be the reason of the refusal, or if no tokens were freed and
        the next request would not ask for a shorter answer either. The length may be the reason if the error names
        numbers of a request that is too long, if no request of this length was answered before, or if the request fills
        more than half of the window. If the error names no numbers, a smaller window is learnt only after the server
        has answered the shorter request.
        """
        if not refused.unexplained or not self.asked:
            return False
        limit, requested = lengths(str(refused), self.asked)
        if not limit and self.asked <= min(self.taken, self.limits.window // 2):
            return False
        before = self.assembler.estimate()
        self._emit("length_suspected", model=self.client.model, tokens=self.asked, why=str(refused))
        if limit:
            return self.compact(ContextOverflow(str(refused), limit=limit, requested=requested))
        # A compaction after a refusal without a known reason uses limits below the length of the request.  With the
        # usual limits the compaction would free little, since the request is far below the usual limits.
        known = self.assembler.stated
        self.assembler.stated = self._limits(int(self.asked * BLIND))
        try:
            self._free(partial(self.compressor.compress, force=True))
        finally:
            self.assembler.stated = known
        self._suspected = self.asked
        return self.assembler.estimate() < before

    def explain(self) -> str:
        """The limits, and how tokens are counted, as lines for a person."""
        return self.limits.explain(self.assembler.counter)

    def write_opening(
        self,
        task: str,
        query: str,
        images: Sequence[Mapping[str, Any]] = (),
        comments: Sequence[Mapping[str, Any]] = (),
    ) -> ContextMetadata:
        """Write the first messages of a task: the system prompt, and `task` with long-term memories for `query`.

        `comments` has the `id` and the time of the last change of each comment in `task`.

        Raises DoesNotFit if no request with the first messages can be sent; the messages are recorded nevertheless.
        """
        return self.assembler.assemble_context(task, query=query, images=images, comments=comments).metadata

    def _learn(self, overflow: ContextOverflow, answer: int = 0) -> None:
        """Reduce the window to the limit that the server's error names, converted to tokens of the program's counter;
        if the error names none, to the share BLIND of the tokens of the request.

        `answer` is the length of the answer that the request asked for.
        """
        told, requested, counter = overflow.limit, overflow.requested or 0, self.assembler.counter
        if requested and self.planned and isinstance(counter, EstimatedCounter) and type(overflow) is ContextOverflow:
            counter.learn(self.planned, requested)  # `requested` is the server's count of the same prompt
            self.assembler.heard = True
            self.asked = max(self.asked, self.assembler.scaled(self.planned))
        if told and requested > self.asked > 0:
            # The server counts more tokens for the same request, so its limit is fewer tokens by the program's counter.
            told = told * self.asked // requested
        # If the error names no limit, the new window is a share of the tokens of the prompt, plus those of the
        # requested answer if it was longer than the prompt: then the sum may have been too long for the server.
        claimed = self.asked + (answer if answer > self.asked else 0)
        found = told or int(min(claimed or self.limits.window, self.limits.window) * BLIND)
        self._narrow(found, "an error of the server")

    def _narrow(self, found: int, source: str) -> None:
        """If the window has more than `found` tokens (learnt from `source`), reduce it, and store it for the model."""
        found = max(SMALLEST, min(found, self.limits.window))
        if found < self.limits.window:
            self.learnt = found
            if self.remember is not None:
                self.remember(self.client.model, found)
            self.assembler.stated = self._limits(found)
            self.shorten_briefing()
            self._emit("window_learnt", model=self.client.model, window=found, source=source)

    def _limits(self, found: int) -> WindowLimits:
        """The limits for a window of at most `found` tokens."""
        return WindowLimits.from_window(
            [(LEARNT, max(SMALLEST, found)), *self.limits.sources],
            max_output_tokens=self.settings.provider().max_output_tokens,
            threshold=self.settings.context_storage.compression_threshold,
            share=self.settings.assembler.token_safety_margin,
            exact=self.assembler.counter.exact,
        )

    def _observe(self) -> None:
        """Compare the newest usage report of the server with the estimate for its request, and learn from the
        difference."""
        last: Answer | None = self.client.last
        if last is None or last is self._seen:
            return
        self._seen = last
        self.taken = max(self.taken, self.asked)
        # The server answered a shorter request, so the length counts as the reason of the refusal before it.
        if self._suspected > self.asked:
            self.asked, asked = self._suspected, self.asked
            self._learn(ContextOverflow("a shorter request was answered"))
            self.asked = asked
        self._suspected = 0
        if allocated := getattr(self.client, "allocated", None):
            self._narrow(allocated, "the server")
        if last.usage is None or not last.usage.prompt or not self.planned:
            return
        estimated, reported = self.assembler.scaled(self.planned), last.usage.prompt
        counter = self.assembler.counter
        ratio = 1.0
        if isinstance(counter, EstimatedCounter):
            ratio = counter.learn(self.planned, reported, self.plausible)
        if abs(drift(estimated, reported)) > DRIFT:
            self._emit("token_drift", model=self.client.model, estimated=estimated, reported=reported, ratio=ratio)

    def _emit(self, name: str, **fields: Any) -> None:
        if self.assembler.events:
            self.assembler.events.emit(name, **fields)


def lengths(text: str, asked: int) -> tuple[int, int]:
    """The numbers of tokens in a server's refusal: (limit, requested); (0, 0) if one of the two is missing.

    `requested` is the largest number in the error that is near `asked`, the number of tokens that were sent.  `limit`
    is the largest number in the error that is below `requested` and at least SMALLEST.
    """
    numbers = sorted({int(digits) for digits in _NUMBER.findall(text.replace(",", ""))})
    requested = next((one for one in reversed(numbers) if NEAR * asked <= one <= asked / NEAR), 0)
    below = [one for one in numbers if SMALLEST <= one < requested]
    return (below[-1], requested) if requested and below else (0, 0)


class Context(Protocol):
    """The interface of `context.TaskContextManager` that this module needs."""

    def get_message_store(self) -> MessageStore:
        """The store with the conversation's messages."""
        ...

    def get_summary_store(self) -> SummaryStore:
        """The store with the conversation's summaries."""
        ...


class Schemas(Protocol):
    """The interface of `tools.Toolbox` that this module needs."""

    def schemas(self) -> Sequence[Mapping[str, Any]]:
        """The schemas of the tools that are sent with every request."""
        ...


def make_window(
    settings: Settings,
    context: Context,
    client: Any,
    tools: Schemas | None = None,
    events: EventSink | None = None,
    ratios: Ratios | None = None,
    *,
    summariser: Any = None,
    memory: Mapping[str, MemoryLayer] | None = None,
    own_memory: OwnMemory | None = None,
    work: PresentWork | None = None,
) -> Window:
    """Make the window of one task.

    `client` is the model client of the conversation.  The client also provides the window that its server has loaded,
    and the tools if `tools` is None.  `summariser` writes the summaries: by default a client for
    `context_storage.summary_model`, or the conversation's client if that key is not set.

    If the store has a token counter, it counts all tokens of the task, so that all are counted alike; otherwise a
    counter with `ratios` is made. `memory` has the plug-ins of long-term memory, by name; `own_memory` is this
    program's own memory. If `context` has `learnt_window(model)` and `learn_window(model, tokens)`, it stores windows
    that are learnt from errors. `work` is the work tree, of which a compaction carries over the changed files.
    """
    store = context.get_message_store()
    counter = store.counter or counter_for(client.model, ratios)
    marker = getattr(context, "fence", "") or new_marker()
    other = summariser or _summariser(settings, store, client, events)
    known = getattr(context, "learnt_window", None)
    assembler = ContextAssembler(
        store,
        WindowLimits.from_settings(
            settings,
            client.loaded_window(),
            known(client.model) if known else None,
            provider=client.provider,
            model=client.model,
            exact=counter.exact,
        ),
        counter,
        tools=client.tools if tools is None else tools.schemas(),
        summary_store=context.get_summary_store(),
        recall=LongTermRecall(
            memory or {},
            settings.assembler.semantic_memory_limit,
            own_memory,
            recalled() if (recalled := getattr(context, "get_recalled_store", None)) else None,
        ),
        config=settings.assembler,
        fence=lambda text: fence(text, marker, source="memory"),
        events=events,
        text_mode=getattr(client, "text_mode", None),
        sends_back=getattr(client, "sends_back", None),
        taken=lambda: store.requests.sums().taken.get(client.model, 0),
    )
    compressor = ContextCompressor(
        store,
        context.get_summary_store(),
        other or client,
        settings,
        assembler=assembler,
        summary_limits=WindowLimits.from_settings(
            settings, other.loaded_window(), provider=other.provider, model=other.model
        )
        if other
        else None,
        summary_counter=counter_for(other.model, ratios) if other else None,
        events=events,
        marker=marker,
        carrying=CarryOver(
            store,
            fence=lambda text, source: fence(text, marker, source=source),
            harmless=lambda text: defuse(text, marker)[0],
            work=work,
        ),
    )
    _tell(assembler.limits, client, events)
    return Window(settings, assembler, compressor, client, getattr(context, "learn_window", None))


def _tell(limits: WindowLimits, client: Any, events: EventSink | None) -> None:
    """Before the work begins, emit an event about each fact that a person should know about the model; the tasks of one
    ledger together emit each event once."""
    first = getattr(client, "first_time", lambda _word: True)
    named = {"provider": client.provider, "model": client.model}
    if events is None:
        return
    if [source for source, _ in limits.sources] == [UNKNOWN] and first("window_unknown"):
        advice = f"set llm.{client.provider}.context_length to what the model takes"
        events.emit("window_unknown", **named, window=limits.window, advice=advice)
    if getattr(client, "abilities", {}).get("tools") is False and first("tools"):
        advice = "serve it with a template for tools, or use another model"
        events.emit("model_lacks", **named, what="tool calls", advice=advice)


def _summariser(settings: Settings, store: MessageStore, client: Any, events: EventSink | None) -> Any:
    """The client for `context_storage.summary_model`; None if that key is not set."""
    chosen = settings.context_storage.summary_model
    if chosen.provider is None and chosen.model is None:
        return None
    other = make_client(
        settings,
        store,
        store.context_dir,
        control=getattr(client, "control", None),
        events=events,
        provider=chosen.provider or client.provider,
        model=chosen.model,
        kept=getattr(client, "kept", None),
    )
    other.gate = getattr(client, "gate", None)
    return other
