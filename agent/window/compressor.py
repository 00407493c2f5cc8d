"""The compressor: makes room in the view, by the cheapest means that helps, and records what it did.

Means in the order of the strategy: mask old tool results, summarise the oldest groups, leave them out, and last the
deterministic reset.  Groups are never split and the newest turn is never touched.  Every means aims at the level of
`room.py`; what a summary says is used only if `judge.py` takes it for one; each compaction must free a tenth or the
next means is used, and two in a row that could not end in CompactionStuck.  Nothing in memory grows with the
conversation but a few numbers a group.  `context.MessageStore.compact` keeps the order of the writes.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent.config import settings_of
from agent.context.survey import BESIDE
from agent.errors import ModelError
from agent.tokens import counter_for, ratio_of
from agent.window import summary as request
from agent.window.assembler import ContextAssembler
from agent.window.attempts import AWAY, Attempts
from agent.window.base import MEANS, STRATEGIES, CompactionStuck
from agent.window.beside import KEPT_SHARE
from agent.window.carried import Carrying
from agent.window.groups import kept_by_messages, kept_by_tokens, open_groups
from agent.window.judge import TOLERANCE, BadSummary
from agent.window.limits import Limits
from agent.window.room import LOW_WATER, PROGRESS, WINDOW_WATER, Need, Room
from agent.window.shares import Shares
from agent.window.writer import SummaryWriter, marked

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from agent.config import Settings
    from agent.context import MessageStore, SummaryStore
    from agent.values import Counter, Json
    from agent.window.assembler import Announce

WHOLE_RESULTS = 0.4
"""Of the mark: the newest results that a mask leaves whole where that is enough."""

REST = 20
"""One part in so many of the mark: how much a conversation grows before what did not help is tried again."""

MOST_WEAK = 2
"""Compactions in a row that freed less; after them the task ends."""

ROUND_FILES = 20
"""Tokens of the heading of files and the line ends around it."""

LEAST_SUMMARY = 120
"""Tokens: a summary that has to be shorter is not asked for."""


class NothingToDo(Exception):
    """Too few messages for a summary, and the request still fits.  Never leaves this module."""


class NotAsked(BadSummary):
    """No summary was asked for, since it would not be used.  Never leaves this module."""


class ContextCompressor:
    """Compacts one task's conversation.

    `llm_client` writes the summaries (`get_summary`); it may be another, cheaper model than the conversation's, whose
    limits and counter are then `summary_limits` and `summary_counter`.  `config` is the seeds' mapping or Settings.
    Without an `assembler` the compressor makes its own.  `marker` is the run's, by which data is fenced.
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
        marker: str = "",
        carrying: Carrying | None = None,
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
            marker=marker,
        )
        self.writer.tidy()
        self.carrying = carrying or Carrying(message_store)
        self.unreachable = 0  # summaries in a row that the server did not give
        self.attempts = Attempts.of(message_store)
        self.room = Room(message_store, self.assembler, storage.keep_recent_messages)

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

    def reset_to_newest(self) -> None:
        """Leave out all that stands before the newest turn, however little that frees: the last means before a task
        ends.  Nothing is carried where the request cannot be sent otherwise."""
        need = self.room.need(force=True)
        kept = open_groups(need.groups)
        if kept >= len(need.groups):
            return
        end = need.groups[len(need.groups) - kept - 1].end
        nothing: Json = {"comments": []}
        for carried in (self._carried(end), nothing):
            freed = self.room.freed(need, "reset", end, carried=carried)
            if freed > 0 and (need.estimate - freed) * need.scale <= self.limits.most:
                self._commit("reset", need, end, carried=carried)
                return

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
        # What a summary cannot do, leaving out the oldest does; the reset needs nothing and stands last.
        behind = [
            name for name in ("window", "reset") if name not in wanted and (name == "reset" or "summary" in wanted)
        ]
        return (*wanted, *behind)

    def _go(self, order: tuple[str, ...], *, force: bool) -> int | None:
        """Try the means in order until one has made enough room; the id of the summary, if one was made."""
        masked = False
        for name in order:
            need = self.room.need(force=force)
            if masked and need.estimate <= self.room.level(need, LOW_WATER):
                break
            try:
                made = self._means()[name](need) if need.groups else None
            except NothingToDo:
                return None
            except (BadSummary, ModelError) as why:
                self._failed(name, str(why))
                if not isinstance(why, (NotAsked, *AWAY)):
                    self.attempts.waste()
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
        groups, room = need.groups, self.room
        least = kept_by_messages(groups, self.keep_recent_messages, room.room(need, WINDOW_WATER))
        soft = kept_by_tokens(groups, int(self.limits.compress_at * WHOLE_RESULTS / need.scale))
        for kept in sorted({least, max(least, soft)}, reverse=True):
            old = groups[: len(groups) - kept]
            freed = sum(group.maskable for group in old)
            enough = need.estimate - freed <= room.level(need, WINDOW_WATER)
            if freed and (enough or kept == least) and room.frees(need, "mask", old[-1].end):
                self._commit("mask", need, old[-1].end)
                return 0
        self._failed("mask", f"old tool results are less than {PROGRESS:.0%} of the conversation")
        return None

    def _summary(self, need: Need) -> int | None:
        """A summary in the place of the oldest groups and of the summary before."""
        if not self.attempts.due():
            raise NotAsked(f"not asked for: the last {self.attempts.wasted} could not be used")
        end, budget = self._worth(need)
        text = marked(self.writer.write(end, self.summary_limits or self.limits, budget))
        self.unreachable = 0
        tokens = self.assembler.plain.count(text)
        brings: dict[str, Any] = {"summary": text, "summary_tokens": tokens, "carried": self._carried(end)}
        if not self.room.frees(need, "summary", end, **brings):
            raise BadSummary(f"it has {tokens} tokens and frees less than {PROGRESS:.0%}")
        self._commit("summary", need, end, **brings, usage=self.writer.spent(), request=self.writer.request)
        latest = self.summary_store.get_latest_summary()
        return int(latest["id"]) if latest else 0

    def _worth(self, need: Need) -> tuple[int, int]:
        """(last message, budget in tokens) of a summary that would free a tenth even at the longest that is taken, and
        has room for what the summary before had; NotAsked where there is none, NothingToDo where it is for too few
        messages."""
        groups, few, empty = need.groups, False, marked("-")
        least = self.assembler.plain.count(empty)
        most, ratio = self._shares().summary, ratio_of(self.assembler.counter)
        latest = self.summary_store.get_latest_summary() if self.message_store.survey.cut.summary_id else None
        before = int(latest.get("summary_tokens") or 0) * ratio if latest else 0.0
        if self.summary_limits is not None and self.summary_limits.output:
            most = min(most, self.summary_limits.output)

        def brings(end: int, tokens: int = int(most / ratio)) -> dict[str, Any]:
            return {"summary": empty, "summary_tokens": tokens, "carried": self._carried(end)}

        for kept in self.room.kept(need, "summary", brings):
            old = groups[: len(groups) - kept]
            if not need.must and sum(group.messages for group in old) < self.min_messages_to_summarize:
                few = True
                continue
            end = old[-1].end
            freed = self.room.freed(need, "summary", end, **brings(end, least))
            budget = min(most, int((freed - PROGRESS * need.view) * ratio / TOLERANCE))
            if budget >= max(LEAST_SUMMARY, min(most, before * KEPT_SHARE)):
                return end, budget
            few = False
        if few or (len(groups) < self.min_messages_to_summarize and not need.must):
            raise NothingToDo
        raise NotAsked("not asked for: one that keeps what the last one had would free less than a tenth")

    def _window(self, need: Need) -> int | None:
        """The oldest groups are left out; the newest that fit stay."""
        return self._leave_out("window", need)

    def _reset(self, need: Need) -> int | None:
        """Briefing, what is carried, the newest groups that fit."""
        return self._leave_out("reset", need)

    def _leave_out(self, strategy: str, need: Need) -> int | None:
        end = 0
        # A summary in force stays, unless it is what leaves no room.
        for keep_summary in (True, False):

            def brings(end: int, keep_summary: bool = keep_summary) -> dict[str, Any]:
                return {"carried": self._carried(end), "keep_summary": keep_summary}

            for kept in self.room.kept(need, strategy, brings):
                end = need.groups[-kept - 1].end if kept else need.groups[-1].end
                freed = self.room.freed(need, strategy, end, **brings(end))
                if freed >= PROGRESS * need.view and (not need.must or self.room.fits(need, freed)):
                    self._commit(strategy, need, end, **brings(end))
                    return 0
            if end and self.room.frees(need, strategy, end, **brings(end)):
                self._commit(strategy, need, end, **brings(end))
                return 0
        # The last means, at most twice in a row: what it frees is little, but then the request can be sent.  Where all
        # messages belong to the newest turn it is what is carried, and the summary, that give way.
        end = end or self.message_store.survey.cut.end_seq
        last = end and strategy == "reset" and need.must and self.failures < MOST_WEAK
        for keep_summary in (True, False) if last else ():
            lean = {"carried": self._carried(end, lean=True), "keep_summary": keep_summary}
            if self.room.frees(need, strategy, end, least=0.0, **lean):
                self._commit(strategy, need, end, **lean)
                return 0
        old = end > self.message_store.survey.cut.end_seq
        why = f"it would free less than {PROGRESS:.0%}" if old else "all messages belong to the newest turn"
        self._failed(strategy, why)
        return None

    # --- parts ------------------------------------------------------------------------------------------------

    def _commit(self, strategy: str, need: Need, end_seq: int, **more: Any) -> None:
        """Record it; the view is derived again."""
        store = self.message_store
        if "carried" in more:
            more["carried"] = self._with_files(need, strategy, end_seq, more)
        store.compact(strategy=strategy, end_seq=end_seq, **more)
        weak = need.view - store.get_current_token_count() < PROGRESS * need.view
        self.failures = self.failures + 1 if weak else 0
        self.attempts.compacted(strategy)
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
            if record.get("strategy") in BESIDE:
                continue  # it says nothing of the older messages
            before, after = int(record.get("tokens_before") or 0), int(record.get("tokens_after") or 0)
            if before - after >= PROGRESS * before:
                break
            number += 1
        return number

    def _carried(self, end_seq: int, *, room: int = 0, lean: bool = False) -> Json:
        """What is said again behind a cut at message `end_seq`; the content of files may have `room` tokens of the
        counter.  `lean`: the least, where the request does not fit otherwise."""
        ratio = ratio_of(self.assembler.counter)
        shares = self._shares().lean() if lean else self._shares()
        return self.carrying.look(shares, end_seq=end_seq, ratio=ratio, room=room)

    def _with_files(self, need: Need, strategy: str, end_seq: int, more: Mapping[str, Any]) -> Json:
        """What is carried with the content of files, as far as the view stays at the level that a compaction aims at.
        `more` is what the compaction brings without it."""
        brought = {key: value for key, value in more.items() if key not in ("usage", "request")}
        after = need.estimate - self.room.freed(need, strategy, end_seq, **brought)
        room = self.room.level(need, WINDOW_WATER) - after - ROUND_FILES
        files = self._carried(end_seq, room=room).get("files") if room > 0 else None
        carried: Json = more["carried"]
        return carried | {"files": files} if files else carried

    def _shares(self) -> Shares:
        return Shares.of(self.limits, self.assembler.scaled(self.room.head()))
