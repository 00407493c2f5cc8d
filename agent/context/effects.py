"""EffectStore: effects.jsonl, so that an outside effect happens once (design: section 8).

Intent → do, with a marker that can be found again → receipt.  A process that died between the two looks for the
marker first.  The effects themselves (comment, push, pull request) belong to `forge` and `work`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent import clock
from agent.store import jsonl
from agent.store.jsonl import JsonlFile

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent.values import Json


NAME = "effects.jsonl"


def receipt_in(context_dir: Path, name: str) -> Json | None:
    """The newest receipt of `name` in a task's folder, which is only read: it may be somebody else's."""
    for _, record in jsonl.backwards(context_dir / NAME):
        if (record.get("name"), record.get("state")) == (name, "receipt"):
            receipt: Json | None = record.get("receipt")
            return receipt
    return None


class EffectStore:
    """The effects of one task.  Every line is durable before the call returns, whatever the durability."""

    def __init__(self, context_dir: Path) -> None:
        self.path = Path(context_dir) / NAME
        self.file = JsonlFile(self.path)
        self._receipts: dict[str, int] = {}  # name → offset of its newest receipt
        self._intended: set[str] = set()
        self._load()

    def _load(self) -> None:
        self._receipts.clear()
        for offset, record in self.file.records():
            self._remember(record, offset)

    def once(self, name: str, look_up: Callable[[], Json | None], do: Callable[[], Json], **detail: Any) -> Json:
        """The receipt of effect `name`: the recorded one, else what `look_up` finds by the marker, else intent is
        written and synced, `do` runs, and what it returns is recorded as the receipt.

        What `look_up` or `do` raise is raised; the intent stays, and the next call looks first.
        """
        found = self.receipt(name)
        if found is not None:
            return found
        found = look_up()
        if found is None:
            self.intend(name, **detail)
            found = do()
        return self.done(name, found)

    def receipt(self, name: str) -> Json | None:
        """The recorded receipt, None when the effect is not known to have happened."""
        if self.file.refresh():
            self._load()
        offset = self._receipts.get(name)
        record = self.file.at(offset) if offset is not None else None
        return record["receipt"] if record else None

    def intend(self, name: str, **detail: Any) -> None:
        """Write that `name` is about to be done."""
        self._append({"name": name, "state": "intent", "detail": detail})

    def done(self, name: str, receipt: Json) -> Json:
        """Write that `name` was done; returns the receipt as it will be read again."""
        self._append({"name": name, "state": "receipt", "receipt": receipt})
        return self.receipt(name) or {}

    def intended(self) -> frozenset[str]:
        """Names of all effects that were intended, whatever came of them."""
        return frozenset(self._intended)

    def pending(self) -> list[str]:
        """Effects that were intended and have no receipt: their outcome is unknown."""
        return sorted(self._intended - self._receipts.keys())

    def _append(self, fields: Json) -> None:
        if self.file.refresh():
            self._load()
        record = {"seq": self.file.next_id(), **fields, "timestamp": clock.stamp()}
        offset = self.file.append(record)
        self.file.sync(force=True)
        self._remember(record, offset)

    def _remember(self, record: Json, offset: int) -> None:
        if record.get("state") == "receipt" and isinstance(record.get("receipt"), dict):
            self._receipts[str(record.get("name"))] = offset
        elif record.get("state") == "intent":
            self._intended.add(str(record.get("name")))
