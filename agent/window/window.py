"""The window of one task, as the loop sees it: plan a request, say when it is time to compact, make room.

It binds planner, compressor and limits, and learns: a server's "too long" teaches the true window, each report of
usage how good the estimates are (seed 001, NFR-1).  Nothing is decided here that they could decide.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agent.tokens import EstimatedCounter, counter_for, drift
from agent.tokens.ratios import DRIFT
from agent.window.assembler import Announce, ContextAssembler
from agent.window.base import CompactionStuck, DoesNotFit
from agent.window.compressor import ContextCompressor
from agent.window.layers import ContextConfig
from agent.window.limits import Limits

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from agent.config import Settings
    from agent.context import MessageStore, SummaryStore
    from agent.errors import ContextOverflow
    from agent.values import Answer, Counter, Json, MemoryLayer, Plan, Ratios

BLIND = 0.75
"""Of what was planned: the window that is taken as true when a server says too long and names no number."""

SMALLEST = 1024
"""Tokens; an error never teaches less."""


class Window:
    """What `loop.Window` asks for.  `client` is the conversation's model client; its `last` answer teaches."""

    def __init__(
        self, settings: Settings, assembler: ContextAssembler, compressor: ContextCompressor, client: Any
    ) -> None:
        self.settings = settings
        self.assembler = assembler
        self.compressor = compressor
        self.client = client
        self.learnt: int | None = None
        self.planned = 0  # what the newest plan would have by the counter alone
        self.asked = 0  # tokens of the newest plan
        self._seen: Answer | None = None
        self._overflowed_at = -1

    @property
    def limits(self) -> Limits:
        """How much may be sent, at present."""
        return self.assembler.limits

    def plan(self) -> Plan:
        """The next request.  One that is over the limit is compacted and planned again, at last by the reset;
        DoesNotFit when that does not help either (FR-4, FR-5)."""
        self._observe()
        plan = self.assembler.plan()
        for attempt in (self.compressor.compress, self.compressor.reset):
            if not plan.metadata["needs_compaction"]:
                break
            attempt()
            plan = self.assembler.plan()
        if plan.metadata["needs_compaction"]:
            raise DoesNotFit("turn", plan.tokens, plan.limit)
        self.planned = self.assembler.estimate()
        self.asked = plan.tokens
        return plan

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
            self.compressor.compress()
            return self.assembler.estimate() < before
        self._learn(overflow)
        calls = self.compressor.message_store.totals().llm_calls
        again = calls == self._overflowed_at
        self._overflowed_at = calls
        try:
            if again:
                self.compressor.reset()
            else:
                self.compressor.compress(force=True)
        except CompactionStuck:
            return False
        return self.assembler.estimate() < before

    def recall(self, query: str) -> str:
        """Long-term memory for the briefing, fenced; "" when there is none."""
        return self.assembler.recall(query)

    def _learn(self, overflow: ContextOverflow) -> None:
        """Set the window to what the error told, in tokens of our own counting."""
        told = overflow.limit
        if told and overflow.requested and self.asked and overflow.requested > self.asked:
            # Their count of the same request was higher than ours: a limit in their tokens is fewer of ours.
            told = told * self.asked // overflow.requested
        found = told or int(min(self.asked or self.limits.window, self.limits.window) * BLIND)
        found = max(SMALLEST, min(found, self.limits.window))
        if found < self.limits.window:
            self.learnt = found
            self.assembler.limits = Limits.from_window(
                [("learnt from an error", found), *self.limits.sources],
                max_output_tokens=self.settings.provider().max_output_tokens,
                threshold=self.settings.context_storage.compression_threshold,
                share=self.settings.assembler.token_safety_margin,
                exact=self.assembler.counter.exact,
            )
            self._emit("window_learnt", model=self.client.model, window=found, source="an error of the server")

    def _observe(self) -> None:
        """Compare the newest report with what had been estimated for it."""
        last: Answer | None = self.client.last
        if last is None or last is self._seen:
            return
        self._seen = last
        if last.usage is None or not self.planned:
            return
        estimated, reported = self.planned, last.usage.prompt
        counter = self.assembler.counter
        ratio = counter.learn(estimated, reported) if isinstance(counter, EstimatedCounter) else 1.0
        if abs(drift(estimated, reported)) > DRIFT:
            self._emit("token_drift", model=self.client.model, estimated=estimated, reported=reported, ratio=ratio)

    def _emit(self, name: str, **fields: Any) -> None:
        if self.assembler.events:
            self.assembler.events.emit(name, **fields)


def make_window(
    settings: Settings,
    message_store: MessageStore,
    summary_store: SummaryStore,
    client: Any,
    *,
    tools: Sequence[Mapping[str, Any]] | None = None,
    counter: Counter | None = None,
    ratios: Ratios | None = None,
    summariser: Any = None,
    state: Callable[[], Json] | None = None,
    memory: MemoryLayer | None = None,
    fence: Callable[[str], str] | None = None,
    events: Announce | None = None,
) -> Window:
    """The window of one task.

    `client` is asked for the window that its server has loaded, and for its tools where `tools` is None.  `summariser`
    writes the summaries, by default the client itself.  `counter` defaults to the store's, so that all tokens of a
    task are counted alike.  `state` is `Toolbox.state`.
    """
    counter = counter or getattr(message_store, "counter", None) or counter_for(client.model, ratios)
    limits = Limits.of(
        settings, client.loaded_window(), provider=client.provider, model=client.model, exact=counter.exact
    )
    assembler = ContextAssembler(
        message_store,
        limits,
        counter,
        tools=client.tools if tools is None else tools,
        summary_store=summary_store,
        memory=memory,
        config=ContextConfig.of(settings),
        fence=fence,
        events=events,
    )
    other = summariser if summariser is not None and summariser is not client else None
    compressor = ContextCompressor(
        message_store,
        summary_store,
        other or client,
        settings,
        assembler=assembler,
        summary_limits=Limits.of(settings, other.loaded_window(), provider=other.provider, model=other.model)
        if other
        else None,
        state=state,
        events=events,
    )
    return Window(settings, assembler, compressor, client)
