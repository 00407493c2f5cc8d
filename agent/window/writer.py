"""The text of a summary: the seed's intermediate files written, the model asked, the files removed however it ends.

Nothing is recorded here (`compressor.py` does that with what comes back, or not).  Seed 002, 4.5 and 7.2.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from agent.tokens.counters import PER_MESSAGE
from agent.values import Usage
from agent.window import summary as request
from agent.window.summary import Pieces

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from agent.context import MessageStore, SummaryStore
    from agent.values import Answer, Counter, Json
    from agent.window.limits import Limits

LONG = 0.35
"""Of the conversation's mark: a summary that has grown beyond is summarised itself."""


class SummaryWriter:
    """Writes the summaries of one task.  `client` may be another model than the conversation's, then `limits` and
    `counter` are its own."""

    def __init__(
        self,
        message_store: MessageStore,
        summary_store: SummaryStore,
        client: Any,
        prompt: str,
        counter: Counter,
        told: Callable[[str], None],
    ) -> None:
        self.message_store = message_store
        self.summary_store = summary_store
        self.client = client
        self.prompt = prompt
        self.counter = counter
        self.told = told
        self._spent = Usage()
        self._counted: Answer | None = None
        self.request: int | None = None  # the line of the newest summary in requests.jsonl

    def write(self, end_seq: int, limits: Limits, compress_at: int) -> str:
        """The summary of what lies behind the last cut up to `end_seq`, and of the summary before.

        `limits` are the summariser's, `compress_at` the conversation's mark.  BadSummary for what is none, or what the
        client raises.
        """
        store = self.message_store
        folder = store.context_dir
        cut = store.survey.cut
        previous = self._previous(cut.summary_id)
        room = limits.input_limit - PER_MESSAGE
        pieces = Pieces(folder, self.client, self.counter, self.prompt, room, told=self.told, asked=self._count)
        try:
            request.write_lines(folder / "unsummarized.jsonl", store.records(end_seq + 1), cut.mask_end)
            source = folder / "to_summarize.jsonl"
            request.write_lines(source, self._upto(cut.end_seq + 1, end_seq), cut.mask_end)
            text = pieces.summarise(source, previous)
            if self.counter.count(text) > compress_at * LONG:
                text = pieces.shorten(text)
            return text
        finally:
            self.tidy()

    def spent(self) -> Usage | None:
        """What servers counted since this was asked last, over all pieces, for summaries that were not used too; None
        when they told nothing."""
        usage, self._spent = self._spent, Usage()
        return usage if usage != Usage() else None

    def _count(self) -> None:
        written: Answer | None = getattr(self.client, "summary", None)
        if written is not None and written is not self._counted and written.usage is not None:
            self._spent += written.usage
        self._counted = written
        self.request = written.request if written is not None else None

    def tidy(self) -> None:
        """Remove the intermediate files, also those that a killed process left."""
        for name in request.FILES:
            with suppress(FileNotFoundError):
                (self.message_store.context_dir / name).unlink()

    def _upto(self, start: int, end: int) -> Iterator[Json]:
        for record in self.message_store.records(start):
            if record["seq"] > end:
                return
            yield record

    def _previous(self, summary_id: int | None) -> str:
        """The summary in force, which is input of the next."""
        latest = self.summary_store.get_latest_summary() if summary_id is not None else None
        return str(latest["summary"]) if latest and latest.get("id") == summary_id else ""
