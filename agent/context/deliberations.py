"""DeliberationStore has deliberations.jsonl: the requests to reviewers, their answers and votes, and the decisions.

Each line has the number of its deliberation and a `kind`: `begin`, `request`, `refused` (an answer without a vote),
`statement` (a vote or a critique that counts), `failed` (a reviewer that is excluded), `reduction`, `decision`. A
statement or decision of a deliberation is synced at once, so a process that continues after a crash repeats no finished
vote.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from agent import clock
from agent.context.base import Store
from agent.context.secret_masking import unmasked
from agent.store.storable_text import fit_json, replace_surrogates

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from agent.values import Json, Redact

BEGIN, REQUEST, REFUSED, STATEMENT, FAILED, REDUCTION, DECISION = (
    *("begin", "request", "refused"),
    *("statement", "failed", "reduction", "decision"),
)
DURABLE = (STATEMENT, DECISION)


class DeliberationStore(Store):
    """The deliberations of one task. Any thread may call `add`."""

    NAME = "deliberations.jsonl"

    def __init__(self, context_dir: Path, *, durability: str = "turn", redact: Redact = unmasked) -> None:
        super().__init__(context_dir, durability=durability, redact=redact)
        self._lock = threading.Lock()

    def add(self, kind: str, deliberation: int, **fields: Any) -> int:
        """Record one line of a deliberation; returns the line's number, from 1. Secrets in texts are masked, at any
        depth."""
        with self._lock:
            self.file.refresh()
            number = self.file.next_id()
            record: Json = {
                "seq": number,
                "kind": kind,
                "deliberation": deliberation,
                **masked(fit_json(fields), self.redact),
                "timestamp": clock.stamp(),
            }
            self.file.append(record)
            if kind in DURABLE:
                self.file.sync()
        return number

    def records(self) -> Iterator[Json]:
        """All lines of deliberations.jsonl, the oldest first."""
        self.file.refresh()
        yield from (record for _, record in self.file.records())


def masked(value: Any, redact: Redact) -> Any:
    """A JSON value with secrets masked in its texts, at any depth."""
    if isinstance(value, str):
        return redact(replace_surrogates(value))
    if isinstance(value, list):
        return [masked(one, redact) for one in value]
    return {key: masked(one, redact) for key, one in value.items()} if isinstance(value, dict) else value
