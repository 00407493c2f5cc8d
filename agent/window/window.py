"""The window of one task, as the loop sees it: plan a request, say when it is time to compact, make room.

It binds planner, compressor and limits, and learns: a server's "too long" teaches the true window, each report of
usage how good the estimates are (seed 001, NFR-1).  Nothing is decided here that they could decide.
"""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from agent.config.window import UNKNOWN
from agent.errors import ContextOverflow
from agent.llm import make_client
from agent.security.fence import fence, new_marker
from agent.tokens import EstimatedCounter, counter_for, drift
from agent.tokens.counters import PER_MESSAGE
from agent.tokens.ratios import DRIFT
from agent.window.assembler import Announce, ContextAssembler
from agent.window.base import CompactionStuck
from agent.window.carried import Carrying
from agent.window.compressor import ContextCompressor
from agent.window.least import too_small
from agent.window.limits import LEARNT, Limits
from agent.window.shares import Shares
from agent.window.trimming import Trimming

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from agent.config import Settings
    from agent.context import MessageStore, SummaryStore
    from agent.errors import RequestRefused
    from agent.values import Answer, MemoryLayer, Plan, PresentWork, Ratios
    from agent.window.layers import ContextMetadata

BLIND = 0.75
"""Of what was planned: the window that is taken as true when a server says too long and names no number."""

SPARE = 8
"""One part in so many of a request, which a shorter newest turn frees when a server says too long of what fits."""

SMALLEST = 1024
"""Tokens; an error never teaches less."""

NEAR = 0.6
"""Of an estimate: a server's own count of the same request is within that, both ways."""

NUMBER = re.compile(r"(?<![\w.])\d{3,9}(?![\w.]*\w)")


class Window:
    """What `loop.Window` asks for.  `client` is the conversation's model client; its `last` answer teaches.  What an
    error taught about the window of `client.model` goes to `remember`, so that the task keeps it when its process ends.
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
        self.rebrief: Callable[[], bool] = lambda: False  # shortens the briefing for a smaller window, where it can
        self.learnt: int | None = None
        self.planned = 0  # what the newest plan has by the counter alone, without any ratio
        self.asked = 0  # tokens of the newest plan
        self.taken = max(assembler.message_store.survey.reported, assembler.taken())  # the longest that was answered
        self._suspected = 0  # tokens of a request that was refused perhaps for its length, until the next answer
        self.trimming = Trimming(compressor.message_store, assembler)
        self._seen: Answer | None = None
        self._overflowed_at = -1

    @property
    def limits(self) -> Limits:
        """How much may be sent, at present."""
        return self.assembler.limits

    @property
    def shares(self) -> Shares:
        """How the window in force is divided."""
        return Shares.of(self.limits, self.assembler.head())

    def plan(self) -> Plan:
        """The next request.  One that is over the limit is made to fit: by the strategy's means, by a shorter newest
        turn, by the reset, by a smaller room for the answer.  DoesNotFit when all of that does not help (FR-4, FR-5);
        where only an estimate says so, the request is sent and the server decides."""
        self._observe()
        plan = self.assembler.plan()
        if plan.metadata["needs_compaction"]:
            plan = self._made_to_fit(plan)
        self.planned = self.assembler.estimate()
        self.asked = plan.tokens
        return plan

    def check(self) -> None:
        """DoesNotFit where no task at all can work in the window."""
        assembler = self.assembler
        configured = assembler.config.system_prompt is not None
        system = assembler.scaled(assembler.plain.count(assembler.system_prompt) + PER_MESSAGE)
        tools = assembler.scaled(assembler.fixed())
        error = too_small(self.limits, tools, system, exact=assembler.counter.exact, configured=configured)
        if error is not None:
            raise error

    def _made_to_fit(self, plan: Plan) -> Plan:
        """What comes of a plan that is over the limit, or DoesNotFit."""
        share = partial(self.trimming.to, self.shares.results)
        means: list[Callable[[], object]] = [self.compressor.compress, share, self.compressor.reset, self._trim]
        if self.assembler.least() > plan.limit:  # older messages are not what is too much
            means.insert(0, share)
        for attempt in means:
            with suppress(CompactionStuck):  # more can be done here than the compressor knows of
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
        return replace(plan, limit=plan.tokens)  # nothing but an estimate says that it is too much

    def _trim(self) -> None:
        """Shorten the newest turn until the request fits, or to the least.  What is freed is counted anew each time."""
        over = self.assembler.tokens_in_use() - self.limits.input_limit
        while over > 0 and self.trimming.free(over):
            over = self.assembler.tokens_in_use() - self.limits.input_limit

    def past_the_mark(self) -> bool:
        """Whether it is time to compact."""
        self._observe()
        return self.compressor.should_compress()

    def make_room(self, overflow: ContextOverflow | None = None) -> bool:
        """Compact once; False when nothing was freed.

        `overflow` teaches the true window.  The second in a row, without an answer between them, is met by the
        deterministic reset.
        """
        before = self.assembler.estimate()
        if overflow is None:
            with suppress(CompactionStuck):  # `plan` has more means, and says what does not fit
                self.compressor.compress()
            return self.assembler.estimate() < before
        self._learn(overflow)
        answers = self.compressor.message_store.totals().turns
        again = answers == self._overflowed_at
        self._overflowed_at = answers
        self._free(self.compressor.reset if again else partial(self.compressor.compress, force=True))
        return self.assembler.estimate() < before

    def _free(self, means: Callable[[], object]) -> None:
        """Make the view smaller by `means`, else by a shorter newest turn: a server said too long."""
        before = self.assembler.estimate()
        with suppress(CompactionStuck):
            means()
        if self.assembler.estimate() >= before:
            self._trim()
            if self.assembler.estimate() >= before:  # by our count it fits, and the server says that it does not
                self.trimming.free(self.assembler.tokens_in_use() // SPARE)

    def suspect(self, refused: RequestRefused) -> bool:
        """Make room once because of a refusal of no known kind that may be for the length; False when it cannot be, or
        nothing was freed.

        It may be when numbers in it are those of too long a request, when no request as long was answered yet, or when
        this one fills half of the window.  The window is learnt only when the shorter request is answered.
        """
        if not refused.unexplained or not self.asked:
            return False
        limit, requested = lengths(str(refused), self.asked)
        if not limit and self.asked <= min(self.taken, self.limits.window // 2):
            return False
        before = self.assembler.estimate()
        self._emit("length_suspected", model=self.client.model, tokens=self.asked, why=str(refused))
        if limit:
            return self.make_room(ContextOverflow(str(refused), limit=limit, requested=requested))
        known = self.assembler.limits
        self.assembler.limits = self._limits(int(self.asked * BLIND))  # for this compaction: with those that stand,
        try:  # a request that is well below them has little to lose
            self._free(partial(self.compressor.compress, force=True))
        finally:
            self.assembler.limits = known
        self._suspected = self.asked
        return self.assembler.estimate() < before

    def explain(self) -> str:
        """Limits and counting in lines for a person."""
        return self.limits.explain(self.assembler.counter)

    def open(self, task: str, query: str, images: Sequence[Mapping[str, Any]] = ()) -> ContextMetadata:
        """Write the first messages of a task: system prompt, what long-term memory recalls for `query`, and `task`.
        DoesNotFit when no request with them can be sent; they are recorded then too."""
        return self.assembler.assemble_context(task, query=query, images=images).metadata

    def _learn(self, overflow: ContextOverflow) -> None:
        """Set the window to what the error told, in tokens of our own counting."""
        told = overflow.limit
        if told and overflow.requested and self.asked and overflow.requested > self.asked:
            # Their count of the same request was higher than ours: a limit in their tokens is fewer of ours.
            told = told * self.asked // overflow.requested
        found = told or int(min(self.asked or self.limits.window, self.limits.window) * BLIND)
        self._narrow(found, "an error of the server")

    def _narrow(self, found: int, source: str) -> None:
        """The window is no more than `found` tokens, as `source` says; the task keeps it."""
        found = max(SMALLEST, min(found, self.limits.window))
        if found < self.limits.window:
            self.learnt = found
            if self.remember is not None:
                self.remember(self.client.model, found)
            self.assembler.limits = self._limits(found)
            self.rebrief()
            self._emit("window_learnt", model=self.client.model, window=found, source=source)

    def _limits(self, found: int) -> Limits:
        """What follows when the window is no more than `found`."""
        return Limits.from_window(
            [(LEARNT, max(SMALLEST, found)), *self.limits.sources],
            max_output_tokens=self.settings.provider().max_output_tokens,
            threshold=self.settings.context_storage.compression_threshold,
            share=self.settings.assembler.token_safety_margin,
            exact=self.assembler.counter.exact,
        )

    def _observe(self) -> None:
        """Compare the newest report with what had been estimated for it."""
        last: Answer | None = self.client.last
        if last is None or last is self._seen:
            return
        self._seen = last
        self.taken = max(self.taken, self.asked)
        if self._suspected > self.asked:  # it was for the length: a shorter one was answered
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
        ratio = counter.learn(self.planned, reported) if isinstance(counter, EstimatedCounter) else 1.0
        if abs(drift(estimated, reported)) > DRIFT:
            self._emit("token_drift", model=self.client.model, estimated=estimated, reported=reported, ratio=ratio)

    def _emit(self, name: str, **fields: Any) -> None:
        if self.assembler.events:
            self.assembler.events.emit(name, **fields)


def lengths(text: str, asked: int) -> tuple[int, int]:
    """(limit, requested) where a text holds a number near `asked`, the tokens that were sent, and a smaller one, which
    may be the limit; (0, 0) where it does not."""
    numbers = sorted({int(digits) for digits in NUMBER.findall(text.replace(",", ""))})
    requested = next((one for one in reversed(numbers) if NEAR * asked <= one <= asked / NEAR), 0)
    below = [one for one in numbers if SMALLEST <= one < requested]
    return (below[-1], requested) if requested and below else (0, 0)


class Context(Protocol):
    """What is needed of `context.TaskContextManager`."""

    def get_message_store(self) -> MessageStore:
        """The conversation."""
        ...

    def get_summary_store(self) -> SummaryStore:
        """Its summaries."""
        ...


class Schemas(Protocol):
    """What is needed of `tools.Toolbox`."""

    def schemas(self) -> Sequence[Mapping[str, Any]]:
        """The tools that are sent with every request."""
        ...


def make_window(
    settings: Settings,
    context: Context,
    client: Any,
    tools: Schemas | None = None,
    events: Announce | None = None,
    ratios: Ratios | None = None,
    *,
    summariser: Any = None,
    memory: Mapping[str, MemoryLayer] | None = None,
    work: PresentWork | None = None,
) -> Window:
    """The window of one task.

    `client` is the conversation's model client; it is asked for the window that its server has loaded, and for its
    tools where `tools` is None.  `summariser` writes the summaries: by default a client for
    `context_storage.summary_model`, or where that is not set the conversation's.  Tokens are counted by the store's
    counter, so that all of a task are counted alike; `ratios` serve where the store has none.  `memory` are the layers
    of long-term memory, by name.  A `context` with `learnt_window(model)` and `learn_window(model, tokens)` keeps what
    errors teach.  `work` is the work tree, for what a compaction carries.
    """
    store = context.get_message_store()
    counter = store.counter or counter_for(client.model, ratios)
    marker = getattr(context, "fence", "") or new_marker()
    other = summariser or _summariser(settings, store, client, events)
    known = getattr(context, "learnt_window", None)
    assembler = ContextAssembler(
        store,
        Limits.of(
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
        memory=memory,
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
        summary_limits=Limits.of(settings, other.loaded_window(), provider=other.provider, model=other.model)
        if other
        else None,
        summary_counter=counter_for(other.model, ratios) if other else None,
        events=events,
        marker=marker,
        carrying=Carrying(store, fence=lambda text, source: fence(text, marker, source=source), work=work),
    )
    _tell(assembler.limits, client, events)
    return Window(settings, assembler, compressor, client, getattr(context, "learn_window", None))


def _tell(limits: Limits, client: Any, events: Announce | None) -> None:
    """Say what a person should know of this model before the work begins, once for all tasks of a ledger."""
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


def _summariser(settings: Settings, store: MessageStore, client: Any, events: Announce | None) -> Any:
    """The client of `context_storage.summary_model`, None when none is configured."""
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
