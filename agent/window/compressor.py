"""The compressor makes the view smaller by the first means of the strategy that frees enough, and records the
compaction.

There are four means of compaction: mask old tool results, summarise the oldest groups, leave the oldest groups out, and
the reset, which needs no model; the strategy says which are tried before the reset, and in which order. A compaction
splits no group (an answer with the results of its calls), and does not change the newest turn. Every means of
compaction aims at a level that `compaction_target.py` computes. A summary is used only if `summary_check.py` accepts
it. A means of compaction that would free less than a tenth of the view is not used, and the next one is tried; only the
reset may free less, if the request fits afterwards. If two compactions in a row freed too little and the request does
not fit, CompactionStuck is raised. Only a few numbers for each group of the conversation are in memory.
`context.MessageStore.compact` ensures the order of the writes.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent.config import settings_of
from agent.context.index import BESIDE
from agent.errors import ConfigError, ModelError
from agent.tokens import counter_for, ratio_of
from agent.window import summary_request as request
from agent.window.assembler import ContextAssembler
from agent.window.base import MEANS, STRATEGIES, CompactionStuck
from agent.window.budgets import Shares
from agent.window.carry_over import CarryOver
from agent.window.compaction_target import LOW_WATER, PROGRESS, WINDOW_WATER, CompactionNeed, CompactionTarget
from agent.window.limits import WindowLimits
from agent.window.message_groups import kept_by_messages, kept_by_tokens, open_groups
from agent.window.summary_attempts import AWAY, SummaryAttempts
from agent.window.summary_check import TOLERANCE, BadSummary
from agent.window.summary_merge import KEPT_SHARE
from agent.window.summary_writer import SummaryWriter, marked

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from agent.config import Settings
    from agent.context import MessageStore, SummaryStore
    from agent.observe.events import EventSink
    from agent.values import Counter, Json

WHOLE_RESULTS = 0.4
"""A mask leaves the results of the newest groups whole, as far as these groups have at most this share of `compress_at`
tokens; it masks more of them if it frees too little otherwise."""

REST = 20
"""After a failed compaction, the next attempt waits until the conversation has grown by `compress_at` / REST tokens,
unless the request does not fit."""

MOST_WEAK = 2
"""CompactionStuck is raised after this number of compactions in a row that freed too little, if the request does not
fit."""

ROUND_FILES = 20
"""Tokens of the heading above the content of files in the carry-over, and of the line ends around it."""

LEAST_SUMMARY = 120
"""If a summary would have to be shorter than this number of tokens, no summary is requested."""


class NothingToDo(Exception):
    """The signal that there are too few messages for a summary while the request still fits. `compressor.py` catches
    every NothingToDo.
    """


class NotAsked(BadSummary):
    """The signal that no summary was requested, since it would not be used. `compressor.py` catches every NotAsked."""


class ContextCompressor:
    """Compacts one task's conversation.

    `llm_client` is the model client that writes the summaries (`get_summary`). `llm_client` may be the client of
    another, cheaper model than that of the conversation; `summary_limits` and `summary_counter` then belong to that
    model. `config` is Settings or a mapping. Without the argument `assembler` the compressor makes one. `marker` is the
    marker of the run, with which data is fenced.
    """

    def __init__(
        self,
        message_store: MessageStore,
        summary_store: SummaryStore,
        llm_client: Any,
        config: Settings | Mapping[str, Any],
        *,
        assembler: ContextAssembler | None = None,
        summary_limits: WindowLimits | None = None,
        summary_counter: Counter | None = None,
        events: EventSink | None = None,
        marker: str = "",
        carrying: CarryOver | None = None,
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
        self.strategy = STRATEGIES.load(storage.strategy, settings.plugin_guard)()
        self.assembler = assembler or self._own_assembler(settings)
        self.context_length = self.assembler.limits.window
        self.compression_threshold = storage.compression_threshold
        self.summary_limits = summary_limits
        self.failures = self._weak()  # number of compactions in a row that were necessary and freed too little
        # number of tokens in use below which no further compaction is tried, unless the request does not fit
        self.rest_until = 0
        self.writer = SummaryWriter(
            message_store,
            summary_store,
            llm_client,
            storage.summary_prompt,
            summary_counter or self.assembler.counter,
            told=lambda why: self._emit_failure("summary", why),
            marker=marker,
            is_other=summary_counter is not None,
        )
        self.writer.clean_up()
        self.carrying = carrying or CarryOver(message_store)
        self.unreachable = 0  # number of summaries in a row that failed because the server could not be reached
        self.attempts = SummaryAttempts.read(message_store)
        self.room = CompactionTarget(message_store, self.assembler, storage.keep_recent_messages)

    def _own_assembler(self, settings: Settings) -> ContextAssembler:
        counter = getattr(self.message_store, "counter", None) or counter_for(settings.provider().model)
        loaded = getattr(self.llm_client, "loaded_window", None)
        return ContextAssembler(
            self.message_store,
            WindowLimits.from_settings(settings, loaded() if loaded else None, exact=counter.exact),
            counter,
            tools=getattr(self.llm_client, "tools", ()),
            summary_store=self.summary_store,
        )

    @property
    def limits(self) -> WindowLimits:
        """The token limits of one request to the model (`window/limits.py`)."""
        return self.assembler.limits

    # --- methods of docs/design/context.md, 4.5 ----------------------------------------------------------------

    def should_compress(self) -> bool:
        """Whether the tokens in use exceed the number at which a compaction starts: the smaller of
        `compression_threshold` × window and 0.9 × the input limit.

        After a failed compaction `should_compress` returns False until the conversation has grown a little; a request
        that does not fit is compacted nevertheless (`Window.plan`).
        """
        used = self.assembler.tokens_in_use()
        return used > self.limits.compress_at and used >= self.rest_until

    def compress(self, *, force: bool = False) -> int | None:
        """Make the view smaller by one compaction.

        Returns the id of the new summary; None if there is none, for example because there was nothing to do.

        `force`: a server has rejected the request as too long, so the request counts as one that does not fit, even if
        it fits by the program's own count. Raises CompactionStuck after the second failure in a row, if the request
        does not fit. If the model client raises Interrupted because the task is stopped, nothing is recorded.
        """
        return self._go(self._order(), force=force)

    def reset(self) -> None:
        """Apply only the reset: the briefing, the carry-over, the newest groups and, if it fits, the summary stay in
        the view.

        A reset sends no request to a model.
        """
        self._go(("reset",), force=True)

    def reset_to_newest(self) -> None:
        """Leave out everything before the newest turn, even if that frees little: the last attempt before a task ends.
        If the request would not fit even with the newest turn alone, nothing changes.

        The text that a reset normally carries over (plan, failures, changed files) is left out as well if the request
        would not fit with that text.
        """
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
        unsummarized_file: Path | str,  # noqa: ARG002 - the interface of the compressor has this parameter, which is not used
        output_file: Path | str,
    ) -> Path:
        """Write to `output_file`, in pieces, the prompt and the messages of `to_summarize_file` as lines of the form
        `[ROLE]: content`."""
        output = Path(output_file)
        text = output.with_name("formatted_messages.txt")
        request.format_file(Path(to_summarize_file), text)
        return request.create_request(Path(summary_prompt_file), text, output)

    # --- one compaction ---------------------------------------------------------------------------------------

    def _order(self) -> tuple[str, ...]:
        wanted: tuple[str, ...] = self.strategy.steps()
        if unknown := set(wanted) - set(MEANS):
            raise ConfigError(
                f"context_storage.strategy: {type(self.strategy).__name__} names the unknown means "
                f"{', '.join(sorted(map(repr, unknown)))}; allowed are {', '.join(MEANS)}. Mend the plug-in, or choose "
                "another strategy"
            )
        # If a summary fails, the oldest groups are left out instead; the reset needs no model and comes last.
        behind = [
            name for name in ("window", "reset") if name not in wanted and (name == "reset" or "summary" in wanted)
        ]
        return (*wanted, *behind)

    def _go(self, order: tuple[str, ...], *, force: bool) -> int | None:
        """Try the means of compaction in order until one has freed enough; returns the id of the summary, None if none
        was made."""
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
                self._emit_failure(name, str(why))
                if not isinstance(why, (NotAsked, *AWAY)):
                    self.attempts.record_unused()
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

    def _means(self) -> Mapping[str, Callable[[CompactionNeed], int | None]]:
        """The method that applies each means of compaction, by its name.

        Each method returns the id of the summary that it made, 0 if it freed enough without a summary, or None if it
        did not free enough.
        """
        return {"mask": self._mask, "summary": self._summary, "window": self._window, "reset": self._reset}

    def _without_progress(self, *, force: bool) -> None:
        """Note a failed compaction, which delays the next; raises CompactionStuck if it is the second in a row in which
        the request did not fit or a server had rejected the request (`force`)."""
        self._rest()
        used = self.assembler.tokens_in_use()
        if not force and used <= self.limits.input_limit:
            return
        self.assembler.emit("compaction_exhausted", tokens=used, limit=self.limits.input_limit)
        self.failures += 1
        if self.failures >= MOST_WEAK:
            raise CompactionStuck(
                f"Two compactions in a row freed less than {PROGRESS:.0%} of the conversation, so no further one is "
                f"tried: {used:,} tokens are in use, of {self.limits.input_limit:,}. Use a model with a larger window, "
                f"or divide the task."
            )

    def _rest(self) -> None:
        self.rest_until = self.assembler.tokens_in_use() + self.limits.compress_at // REST

    def _wait_for_model(self, need: CompactionNeed) -> bool:
        """Whether to leave the view unchanged because the model that writes summaries cannot be reached.

        If the model that writes summaries cannot be reached, the conversation's model probably cannot be reached
        either, and a reset would remove messages from the view for good. The view is left unchanged only after the
        first failed summary in a row, and only if the request fits.
        """
        self.unreachable += 1
        return self.unreachable == 1 and not need.must

    def _emit_failure(self, name: str, why: str) -> None:
        if self.events:
            self.events.emit("compaction_failed", strategy=name, why=why)

    # --- the means --------------------------------------------------------------------------------------------

    def _mask(self, need: CompactionNeed) -> int | None:
        """Replace old tool results by short texts that point to the full ones; calls and their ids stay."""
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
        self._emit_failure("mask", f"old tool results are less than {PROGRESS:.0%} of the conversation")
        return None

    def _summary(self, need: CompactionNeed) -> int | None:
        """Replace the oldest groups and the previous summary by a new summary."""
        if not self.attempts.is_due():
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

    def _worth(self, need: CompactionNeed) -> tuple[int, int]:
        """Returns (number of the last message to summarise, budget in tokens) for a summary that is worth its request.

        A summary is worth its request if it frees a tenth of the view even at the greatest length that is accepted, and
        if its budget is large enough for the content of the previous summary. Raises NotAsked if no summary is worth
        its request, or NothingToDo if there are just too few messages.
        """
        groups, few, empty = need.groups, False, marked("-")
        least = self.assembler.plain.count(empty)
        most, ratio = self._shares().summary, ratio_of(self.assembler.counter)
        latest = self.summary_store.get_latest_summary() if self.message_store.index.cut.summary_id else None
        before = int(latest.get("summary_tokens") or 0) * ratio if latest else 0.0
        if self.summary_limits is not None and self.summary_limits.output:
            most = min(most, self.summary_limits.output)

        def brings(end: int, tokens: int = int(most / ratio)) -> dict[str, Any]:
            return {"summary": empty, "summary_tokens": tokens, "carried": self._carried(end)}

        for kept in self.room.candidate_groups(need, "summary", brings):
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

    def _window(self, need: CompactionNeed) -> int | None:
        """Leave the oldest groups out of the view; the newest groups that fit stay."""
        return self._leave_out("window", need)

    def _reset(self, need: CompactionNeed) -> int | None:
        """Leave everything out of the view except the briefing, the carry-over, the newest groups that fit and, if it
        fits, the summary."""
        return self._leave_out("reset", need)

    def _leave_out(self, strategy: str, need: CompactionNeed) -> int | None:
        end = 0
        # A summary that is in the view stays, unless the request does not fit with it.
        for keep_summary in (True, False):

            def brings(end: int, keep_summary: bool = keep_summary) -> dict[str, Any]:
                return {"carried": self._carried(end), "keep_summary": keep_summary}

            for kept in self.room.candidate_groups(need, strategy, brings):
                end = need.groups[-kept - 1].end if kept else need.groups[-1].end
                freed = self.room.freed(need, strategy, end, **brings(end))
                if freed >= PROGRESS * need.view and (not need.must or self.room.fits(need, freed)):
                    self._commit(strategy, need, end, **brings(end))
                    return 0
            if end and self.room.frees(need, strategy, end, **brings(end)):
                self._commit(strategy, need, end, **brings(end))
                return 0
        # The reset, as the last means, may free less than a tenth of the view if the request then fits, but at most
        # twice in a row. If a reset that frees less than a tenth of the view is not enough, or all messages belong to
        # the newest turn, the carry-over is shortened, and then the summary is removed.
        end = end or self.message_store.index.cut.end_seq
        # If the request is over the limit only because its estimate may be too low (`doubt`), the reset must free a
        # tenth of the view.
        sure = self.limits.doubt == 1.0 or need.used > self.assembler.stated.input_limit
        last = end and strategy == "reset" and need.must and sure and self.failures < MOST_WEAK
        for keep_summary, lean in ((True, False), (True, True), (False, False), (False, True)) if last else ():
            brought = {"carried": self._carried(end, lean=lean), "keep_summary": keep_summary}
            if self.room.frees(need, strategy, end, least=0.0, **brought):
                self._commit(strategy, need, end, **brought)
                return 0
        old = end > self.message_store.index.cut.end_seq
        why = f"it would free less than {PROGRESS:.0%}" if old else "all messages belong to the newest turn"
        self._emit_failure(strategy, why)
        return None

    # --- parts ------------------------------------------------------------------------------------------------

    def _commit(self, strategy: str, need: CompactionNeed, end_seq: int, **more: Any) -> None:
        """Record the compaction, after which the view is derived again, and update the counters of failures."""
        store = self.message_store
        if "carried" in more:
            more["carried"] = self._with_files(need, strategy, end_seq, more)
        store.compact(strategy=strategy, end_seq=end_seq, **more)
        weak = need.view - store.get_current_token_count() < PROGRESS * need.view
        self.failures = self.failures + 1 if weak else 0
        self.attempts.record_compaction(strategy)
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
        """The number of newest compactions on disk that in a row freed less than a tenth of the view, so that a process
        that resumes the task continues the count."""
        number = 0
        for record in self.message_store.compactions.newest():
            if record.get("strategy") in BESIDE:
                continue  # compactions of the kinds `trim` and `brief` do not remove older messages
            before, after = int(record.get("tokens_before") or 0), int(record.get("tokens_after") or 0)
            if before - after >= PROGRESS * before:
                break
            number += 1
        return number

    def _carried(self, end_seq: int, *, room: int = 0, lean: bool = False) -> Json:
        """The carry-over for a compaction that removes messages up to `end_seq`.

        `room` is the budget for the content of files, in tokens by the counter. `lean`: make the shortest carry-over,
        for a request that does not fit otherwise.
        """
        ratio = ratio_of(self.assembler.counter)
        shares = self._shares().lean() if lean else self._shares()
        return self.carrying.collect(shares, end_seq=end_seq, ratio=ratio, room=room)

    def _with_files(self, need: CompactionNeed, strategy: str, end_seq: int, more: Mapping[str, Any]) -> Json:
        """The carry-over, with as much content of files as fits into the view below the number of tokens at which the
        compaction aims.

        `more` is the other content that the compaction adds to the view.
        """
        brought = {key: value for key, value in more.items() if key not in ("usage", "request")}
        after = need.estimate - self.room.freed(need, strategy, end_seq, **brought)
        room = self.room.level(need, WINDOW_WATER) - after - ROUND_FILES
        files = self._carried(end_seq, room=room).get("files") if room > 0 else None
        carried: Json = more["carried"]
        return carried | {"files": files} if files else carried

    def _shares(self) -> Shares:
        return Shares.for_window(self.assembler.stated, self.assembler.scaled(self.room.head()))
