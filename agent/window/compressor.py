"""The compressor: makes room in the view, by the cheapest means that helps, and records what it did.

Means in the order of the strategy: mask old tool results, summarise the oldest groups, leave them out, and last the
deterministic reset (design: section 6; seed 001, section 4; seed 002, 4.5 and 7).  Groups are never split and the
newest turn is never touched.  What a summary says is used only if it is one and shrinks; each compaction must free a
tenth or the next means is used, and two in a row that could not end in CompactionStuck.  Nothing in memory grows with
the conversation but a few numbers a group.  `context.MessageStore.compact` keeps the order of the writes.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent.config import settings_of
from agent.errors import AccessRefused, ModelError, ModelStalled, ModelUnreachable, QuotaExhausted, RateLimited
from agent.tokens import counter_for, ratio_of
from agent.window import summary as request
from agent.window.assembler import ContextAssembler
from agent.window.base import MEANS, STRATEGIES, CompactionStuck
from agent.window.carried import Carrying
from agent.window.groups import Group, groups_of, kept_by_messages, kept_by_tokens
from agent.window.limits import Limits
from agent.window.shares import Shares
from agent.window.summary import BadSummary
from agent.window.writer import SummaryWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from agent.config import Settings
    from agent.context import MessageStore, SummaryStore
    from agent.values import Counter, Json
    from agent.window.assembler import Announce

PROGRESS = 0.10
"""Share of the view that a compaction must free."""

LOW_WATER = 0.8
"""Of the way to the mark: a mask that stays above it is followed by the next means, else it would soon come again."""

WINDOW_WATER = 0.6
"""Of the way to the mark: what a compaction aims at.  Each one makes the provider's prompt cache useless, so few large
ones are better than many small ones."""

WHOLE_RESULTS = 0.4
"""Of the mark: the newest results that a mask leaves whole where that is enough."""

REST = 20
"""One part in so many of the mark: how much a conversation grows before what did not help is tried again."""

MOST_WEAK = 2
"""Compactions in a row that freed less; after them the task ends."""

AWAY = (ModelUnreachable, ModelStalled, RateLimited, QuotaExhausted, AccessRefused)
"""What says nothing about the text that was to be summarised."""


class NothingToDo(Exception):
    """Too few messages for a summary, and the request still fits.  Never leaves this module."""


@dataclass(frozen=True, slots=True)
class Need:
    """One compaction's point of departure.

    `used` is the tokens in use (as reported, where that is known), `estimate` the same by the counter; `scale` makes
    one of the other.  `must`: the request does not fit, so something has to be done whatever it costs.
    """

    groups: list[Group]
    used: int
    estimate: int
    view: int
    must: bool

    @property
    def scale(self) -> float:
        """Reported over estimated."""
        return min(3.0, max(0.5, self.used / self.estimate)) if self.estimate else 1.0


class ContextCompressor:
    """Compacts one task's conversation.

    `llm_client` writes the summaries (`get_summary`); it may be another, cheaper model than the conversation's, whose
    limits and counter are then `summary_limits` and `summary_counter`.  `config` is the seeds' mapping or Settings.
    Without an `assembler` the compressor makes its own.
    """

    def __init__(
        self,
        message_store: MessageStore,
        summary_store: SummaryStore,
        llm_client: Any,
        config: Settings | Mapping[str, Any],
        *,
        assembler: ContextAssembler | None = None,
        summary_limits: Limits | None = None,
        summary_counter: Counter | None = None,
        events: Announce | None = None,
    ) -> None:
        settings = settings_of(config)
        storage = settings.context_storage
        self.message_store = message_store
        self.summary_store = summary_store
        self.llm_client = llm_client
        self.events = events
        self.summary_prompt = storage.summary_prompt
        self.keep_recent_messages = storage.keep_recent_messages
        self.min_messages_to_summarize = storage.min_messages_to_summarize
        self.strategy = STRATEGIES.load(storage.strategy)()
        self.assembler = assembler or self._own_assembler(settings)
        self.context_length = self.assembler.limits.window
        self.compression_threshold = storage.compression_threshold
        self.summary_limits = summary_limits
        self.failures = self._weak()  # compactions in a row that freed too little although something had to be done
        self.rest_until = 0  # tokens in use before which it is not worth another try
        self.writer = SummaryWriter(
            message_store,
            summary_store,
            llm_client,
            storage.summary_prompt,
            summary_counter or self.assembler.counter,
            told=lambda why: self._failed("summary", why),
        )
        self.writer.tidy()
        self.carrying = Carrying(message_store)
        self.unreachable = 0  # summaries in a row that the server did not give

    def _own_assembler(self, settings: Settings) -> ContextAssembler:
        counter = getattr(self.message_store, "counter", None) or counter_for(settings.provider().model)
        loaded = getattr(self.llm_client, "loaded_window", None)
        return ContextAssembler(
            self.message_store,
            Limits.of(settings, loaded() if loaded else None, exact=counter.exact),
            counter,
            tools=getattr(self.llm_client, "tools", ()),
            summary_store=self.summary_store,
        )

    @property
    def limits(self) -> Limits:
        """Those of the conversation."""
        return self.assembler.limits

    # --- the seed's three methods -----------------------------------------------------------------------------

    def should_compress(self) -> bool:
        """Whether more is in use than the mark: the least of threshold × window and 0.9 × the room for input.

        After a try that did not help, while the request still fits, not before the conversation has grown a little.
        """
        used = self.assembler.tokens_in_use()
        return used > self.limits.compress_at and used >= self.rest_until

    def compress(self, *, force: bool = False) -> int | None:
        """Make room once.  Returns the summary's id; None when it only masked or left out, or had nothing to do.

        `force`: a server said too long, whatever was counted.  CompactionStuck when nothing helped for the second time
        in a row and the request does not fit.  What the model client raises for a stop (Interrupted) passes through,
        with nothing recorded.
        """
        return self._go(self._order(), force=force)

    def reset(self) -> None:
        """The deterministic reset alone: briefing, what is carried, newest groups.  No model is asked."""
        self._go(("reset",), force=True)

    def create_summary_request_file(
        self,
        summary_prompt_file: Path | str,
        to_summarize_file: Path | str,
        unsummarized_file: Path | str,  # noqa: ARG002 - the seed's signature; these messages are not in the request
        output_file: Path | str,
    ) -> Path:
        """Prompt + `[ROLE]: content` lines of `to_summarize_file`, streamed to `output_file` (seed 002, 4.5)."""
        output = Path(output_file)
        text = output.with_name("formatted_messages.txt")
        request.format_file(Path(to_summarize_file), text)
        return request.create_request(Path(summary_prompt_file), text, output)

    # --- one compaction ---------------------------------------------------------------------------------------

    def _order(self) -> tuple[str, ...]:
        wanted: tuple[str, ...] = self.strategy.means()
        if unknown := set(wanted) - set(MEANS):
            raise ValueError(f"strategy names unknown means {sorted(unknown)}; allowed are {', '.join(MEANS)}")
        return wanted if "reset" in wanted else (*wanted, "reset")

    def _go(self, order: tuple[str, ...], *, force: bool) -> int | None:
        """Try the means in order until one has made enough room; the id of the summary, if one was made."""
        masked = False
        for name in order:
            need = self._need(force=force)
            if masked and need.estimate <= self._level(need, LOW_WATER):
                break
            try:
                made = self._means()[name](need) if need.groups else None
            except NothingToDo:
                return None
            except (BadSummary, ModelError) as why:
                self._failed(name, str(why))
                if isinstance(why, AWAY) and self._wait_for_model(need):
                    self._rest()
                    return None
                continue
            masked = masked or (name == "mask" and made is not None)
            if made is not None and name != "mask":
                self.rest_until = 0
                return made or None
        if masked:
            self.rest_until = 0
        else:
            self._without_progress(force=force)
        return None

    def _means(self) -> Mapping[str, Callable[[Need], int | None]]:
        """Each answers with the id of the summary it made, 0 for none, or None when it did not help."""
        return {"mask": self._mask, "summary": self._summary, "window": self._window, "reset": self._reset}

    def _need(self, *, force: bool) -> Need:
        store = self.message_store
        cut = store.survey.cut
        used = self.assembler.tokens_in_use()
        return Need(
            groups=groups_of(store.records(cut.end_seq + 1), cut.mask_end, self.assembler.plain.count, store.origin),
            used=used,
            estimate=self.assembler.estimate(),
            view=store.get_current_token_count(),
            must=force or used > self.limits.input_limit,
        )

    def _without_progress(self, *, force: bool) -> None:
        """A request that fits is sent all the same; one that does not, twice in a row, is the end."""
        self._rest()
        used = self.assembler.tokens_in_use()
        if not force and used <= self.limits.input_limit:
            return
        self.failures += 1
        if self.failures >= MOST_WEAK:
            raise CompactionStuck(
                f"Two compactions in a row freed less than {PROGRESS:.0%} of the conversation, so no further one is "
                f"tried: {used:,} tokens are in use, of {self.limits.input_limit:,}. Use a model with a larger window, "
                f"or divide the task."
            )

    def _rest(self) -> None:
        self.rest_until = self.assembler.tokens_in_use() + self.limits.compress_at // REST

    def _wait_for_model(self, need: Need) -> bool:
        """Whether to leave the view as it is because the summariser is away.

        It is away for the conversation too, and what a reset takes away does not come back: so the first time, and
        while the request still fits.
        """
        self.unreachable += 1
        return self.unreachable == 1 and not need.must

    def _failed(self, name: str, why: str) -> None:
        if self.events:
            self.events.emit("compaction_failed", strategy=name, why=why)

    # --- the means --------------------------------------------------------------------------------------------

    def _mask(self, need: Need) -> int | None:
        """Old tool results become pointers; calls and ids stay."""
        groups = need.groups
        least = kept_by_messages(groups, self.keep_recent_messages, self._room(need))
        soft = kept_by_tokens(groups, int(self.limits.compress_at * WHOLE_RESULTS / need.scale))
        for kept in sorted({least, max(least, soft)}, reverse=True):
            old = groups[: len(groups) - kept]
            freed = sum(group.maskable for group in old)
            enough = need.estimate - freed <= self._level(need, WINDOW_WATER)
            if freed and (enough or kept == least) and self._frees(need, "mask", old[-1].end):
                self._commit("mask", need, old[-1].end)
                return 0
        self._failed("mask", f"old tool results are less than {PROGRESS:.0%} of the conversation")
        return None

    def _summary(self, need: Need) -> int | None:
        """A summary in the place of the oldest groups and of the summary before."""
        groups = need.groups
        kept = kept_by_messages(groups, self.keep_recent_messages, self._room_beside(need))
        old = groups[: len(groups) - kept]
        if not need.must and sum(group.messages for group in old) < self.min_messages_to_summarize:
            raise NothingToDo
        if not old:
            raise BadSummary("all messages belong to the newest turn")
        end = old[-1].end
        text = self.writer.write(end, self.summary_limits or self.limits, self.limits.compress_at)
        self.unreachable = 0
        tokens = self.assembler.plain.count(text)
        brings: dict[str, Any] = {"summary": text, "summary_tokens": tokens, "carried": self._carried(end)}
        if not self._frees(need, "summary", end, **brings):
            raise BadSummary(f"it has {tokens} tokens and frees less than {PROGRESS:.0%}")
        self._commit("summary", need, end, **brings, usage=self.writer.spent(), request=self.writer.request)
        latest = self.summary_store.get_latest_summary()
        return int(latest["id"]) if latest else 0

    def _window(self, need: Need) -> int | None:
        """The oldest groups are left out; the newest that fit stay."""
        return self._leave_out("window", need, kept_by_tokens(need.groups, self._room_beside(need)))

    def _reset(self, need: Need) -> int | None:
        """Briefing, what is carried, newest groups: as many as were asked for and fit."""
        kept = kept_by_messages(need.groups, self.keep_recent_messages, self._room_beside(need))
        return self._leave_out("reset", need, kept)

    def _leave_out(self, strategy: str, need: Need, kept: int) -> int | None:
        old = need.groups[: len(need.groups) - kept]
        if not old:
            self._failed(strategy, "all messages belong to the newest turn")
            return None
        end = old[-1].end
        carried = self._carried(end)
        # A summary in force stays, unless it is what leaves no room.
        for keep_summary in (True, False):
            if self._frees(need, strategy, end, carried=carried, keep_summary=keep_summary):
                self._commit(strategy, need, end, carried=carried, keep_summary=keep_summary)
                return 0
        # The last means, at most twice in a row: what it frees is little, but then the request can be sent.
        last = strategy == "reset" and need.must and self.failures < MOST_WEAK
        if last and self._frees(need, strategy, end, least=0.0, carried=carried):
            self._commit(strategy, need, end, carried=carried)
            return 0
        self._failed(strategy, f"it would free less than {PROGRESS:.0%}")
        return None

    # --- parts ------------------------------------------------------------------------------------------------

    def _head(self) -> int:
        """Tokens that no compaction takes away: tools, system prompt, briefing."""
        seen = self.assembler.view.read()
        return self.assembler.fixed() + seen.head + seen.briefing

    def _level(self, need: Need, share: float) -> int:
        """`share` of the way from an empty conversation to the mark, in tokens of the counter."""
        head = self._head()
        return head + int((self.limits.compress_at / need.scale - head) * share)

    def _room(self, need: Need) -> int:
        """Tokens (of the counter) that the kept groups may have."""
        return self._level(need, WINDOW_WATER) - self._head()

    def _room_beside(self, need: Need) -> int:
        """The same where something is carried: what is left beside that."""
        room = self._room(need)
        old = need.groups[: len(need.groups) - kept_by_tokens(need.groups, room)]
        if not old:
            return room
        carried = self.carrying.text(self._carried(old[-1].end), old[-1].end)
        return max(0, room - self.assembler.plain.count(carried))

    def _frees(self, need: Need, strategy: str, end_seq: int, *, least: float = PROGRESS, **more: Any) -> bool:
        """Whether the view would be a tenth smaller.  With `least` 0: whether the request would fit that does not."""
        freed = need.view - self.message_store.forecast(strategy=strategy, end_seq=end_seq, **more)
        if least:
            return freed >= least * need.view
        return freed > 0 and need.used > self.limits.input_limit >= (need.estimate - freed) * need.scale

    def _commit(self, strategy: str, need: Need, end_seq: int, **more: Any) -> None:
        """Record it; the view is derived again."""
        store = self.message_store
        store.compact(strategy=strategy, end_seq=end_seq, **more)
        weak = need.view - store.get_current_token_count() < PROGRESS * need.view
        self.failures = self.failures + 1 if weak else 0
        if self.events:
            self.events.emit(
                "compaction",
                strategy=strategy,
                start_seq=need.groups[0].start,
                end_seq=end_seq,
                tokens_before=need.used,
                tokens_after=self.assembler.tokens_in_use(),
            )

    def _weak(self) -> int:
        """How many of the newest compactions on disk freed less than a tenth: a restart forgets none."""
        number = 0
        for record in self.message_store.compactions.newest():
            before, after = int(record.get("tokens_before") or 0), int(record.get("tokens_after") or 0)
            if before - after >= PROGRESS * before:
                break
            number += 1
        return number

    def _carried(self, end_seq: int) -> Json:
        """What is said again behind a cut at message `end_seq`."""
        shares = Shares.of(self.limits, self.assembler.scaled(self._head()))
        return self.carrying.look(shares, end_seq=end_seq, ratio=ratio_of(self.assembler.counter))
