"""Reads and writes the record of one deliberation in deliberations.jsonl; after a crash, a process that continues the
deliberation reads it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from agent.context.deliberations import BEGIN, DECISION, STATEMENT

if TYPE_CHECKING:
    from agent.context.deliberations import DeliberationStore
    from agent.values import Json


@dataclass(frozen=True, slots=True)
class DeliberationRecord:
    """The lines of the deliberation with the number `number` in deliberations.jsonl."""

    store: DeliberationStore
    number: int

    @classmethod
    def open(cls, store: DeliberationStore, subject: str) -> DeliberationRecord:
        """Open the newest deliberation about `subject` (the hash of a commit or of a question), or begin one if none
        exists."""
        newest, found = 0, 0
        for line in store.records():
            newest = max(newest, int(line.get("deliberation") or 0))
            if line.get("kind") == BEGIN and line.get("subject") == subject:
                found = int(line["deliberation"])
        if not found:
            found = newest + 1
            store.add(BEGIN, found, subject=subject)
        return cls(store, found)

    def add(self, kind: str, **fields: Any) -> None:
        """Append one line to deliberations.jsonl."""
        self.store.add(kind, self.number, **fields)

    def statements(self) -> dict[tuple[Any, Any, Any], Json]:
        """(phase, round, persona) → the line of each statement that is recorded so far, with `payload` and `struck`."""
        return {(line.get("phase"), line.get("round"), line.get("persona")): line for line in self._lines(STATEMENT)}

    def decision(self) -> Json | None:
        """The newest decision, None if the deliberation has not ended."""
        return next((line["result"] for line in reversed(self._lines(DECISION))), None)

    def _lines(self, kind: str) -> list[Json]:
        return [
            line for line in self.store.records() if line.get("deliberation") == self.number and line["kind"] == kind
        ]


def decisions_of(store: DeliberationStore) -> list[Json]:
    """The newest decision of each deliberation, ordered by the deliberation's number."""
    found: dict[int, Json] = {}
    for line in store.records():
        if line.get("kind") == DECISION:
            found[int(line["deliberation"])] = line["result"]
    return [found[number] for number in sorted(found)]
