"""RecalledStore has recalled.jsonl: one line for each retrieval from long-term memory for this task.

A line of recalled.jsonl is written before the message that shows the memories, and has the text of that message. A
process that continues after a crash between the write of the line and that of the message thus writes the same message
without a second retrieval: a message names its line of recalled.jsonl in its data (`recalled`), so a line without a
message is found. `memory why` shows the lines; extraction reads the ids, so that it does not store a recalled text as a
new memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agent import clock
from agent.context.base import Store
from agent.store.storable_text import fit_json, replace_surrogates

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from agent.config import Settings
    from agent.values import Json

BRIEFING, COMMENT, COMPACTION, HISTORY, TOOL = "briefing", "comment", "compaction", "history", "tool"
"""The purposes of a retrieval from long-term memory."""


class RecalledStore(Store):
    """The retrievals of one task from long-term memory."""

    NAME = "recalled.jsonl"

    @classmethod
    def is_used(cls, settings: Settings) -> bool:
        """Whether the configuration enables long-term memory, or names a plug-in for it (`assembler.memory`)."""
        return settings.memory.enabled or bool(settings.assembler.memory)

    def add(
        self,
        purpose: str,
        query: str,
        *,
        hits: Sequence[Mapping[str, Any]] = (),
        dropped: Sequence[Mapping[str, Any]] = (),
        missing: Mapping[str, str] | None = None,
        text: str = "",
        tokens: int = 0,
        compactions: int = 0,
    ) -> int:
        """Record a retrieval from long-term memory; returns its number, from 1.

        Each of `hits` has `id` ("" for a memory of a plug-in), `kind` (record, file, event, commit, memory), `layer`,
        `score` (0 to 1), `source` and `tokens`; each of `dropped` has `why` in place of the tokens. `missing` maps each
        unavailable memory layer to the reason. `text` is the text that the model gets, `tokens` its tokens without the
        learnt ratio, `compactions` the number of compactions so far.
        """
        self.file.refresh()
        number = self.file.next_id()
        record: Json = {
            "seq": number,
            "purpose": purpose,
            "query": self.redact(replace_surrogates(query)),
            "hits": [fit_json(one) for one in hits],
            "dropped": [fit_json(one) for one in dropped],
            "missing": fit_json(missing or {}),
            "text": self.redact(replace_surrogates(text)),
            "tokens": tokens,
            "compactions": compactions,
            "timestamp": clock.stamp(),
        }
        self.file.append(record)
        return number

    def records(self) -> list[Json]:
        """All retrievals of the task, the oldest first."""
        self.file.refresh()
        return [record for _, record in self.file.records()]

    def briefing(self) -> Json | None:
        """The newest retrieval for the briefing, None when there is none."""
        return self.newest(BRIEFING)

    def newest(self, *purposes: str) -> Json | None:
        """The newest retrieval for one of the given purposes, None when there is none."""
        return next((one for one in reversed(self.records()) if one.get("purpose") in purposes), None)

    def given(self, purpose: str | None = None, numbers: Collection[int] = ()) -> frozenset[str]:
        """The ids of all memories that the model was given so far; with `purpose` only those from retrievals for this
        purpose, together with those from retrievals with a number in `numbers`."""
        return frozenset(
            str(hit["id"])
            for record in self.records()
            if purpose in (None, record.get("purpose")) or record.get("seq") in numbers
            for hit in record.get("hits") or ()
            if isinstance(hit, dict) and hit.get("id")
        )
