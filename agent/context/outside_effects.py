"""EffectStore has effects.jsonl, by which an outside effect happens only once (docs/files.md, "Outside effects").

The order of the steps is: an intent, the effect with a marker that can be found again, a receipt. After a crash between
intent and receipt the next process first searches for the marker. `EffectStore` only records effects; other packages
cause them, for example a comment, a push or a pull request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agent import clock
from agent.context.base import Store
from agent.context.secret_masking import unmasked
from agent.store import jsonl

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from agent.values import Json, Redact


NAME = "effects.jsonl"

ROW = "row"
"""The name of the receipt that repeats columns of the task's row (`manager.KEPT`), from which a lost row can be
restored."""


def receipt_in(context_dir: Path, name: str) -> Json | None:
    """The newest receipt of the effect `name` in a task's folder, None if there is none.

    `receipt_in` only reads the file, since the folder may belong to another process.
    """
    for _, record in jsonl.backwards(context_dir / NAME):
        if (record.get("name"), record.get("state")) == (name, "receipt"):
            receipt: Json | None = record.get("receipt")
            return receipt
    return None


class EffectStore(Store):
    """The outside effects of one task.

    Every line of effects.jsonl is durable before the call that writes it returns, with any value of `durability`. In
    effects.jsonl no secret is masked, since the records are compared with the texts and names that exist outside, for
    example on the forge.
    """

    NAME = NAME

    def __init__(self, context_dir: Path, *, durability: str = "turn", redact: Redact = unmasked) -> None:
        super().__init__(context_dir, durability=durability, redact=redact)
        self._receipts: dict[str, int] = {}  # name of an effect → offset of its newest receipt
        self._intended: set[str] = set()
        self._load()

    def _load(self) -> None:
        self._receipts.clear()
        for offset, record in self.file.records():
            self._remember(record, offset)

    def once(
        self,
        name: str,
        look_up: Callable[[], Json | None],
        do: Callable[[], Json],
        *,
        is_new: bool = False,
        **detail: Any,
    ) -> Json:
        """The receipt of effect `name`: the recorded one, else the one that `look_up` finds by the marker.

        If no receipt is recorded and `look_up` finds none, an intent is written and synced, `do` runs, and its result
        is recorded as the receipt. Errors of `look_up` or `do` are raised; the intent stays, and the next call looks
        the effect up first. With `is_new` the caller knows that no other process has caused the effect: then `look_up`
        is called only if the task's folder has an intent.
        """
        found = self.receipt(name)
        if found is not None:
            return found
        found = None if is_new and name not in self._intended else look_up()
        if found is None:
            self.intend(name, **detail)
            found = do()
        return self.done(name, found)

    def receipt(self, name: str) -> Json | None:
        """The recorded receipt of an effect, None when the effect is not known to have happened."""
        if self.file.refresh():
            self._load()
        offset = self._receipts.get(name)
        record = self.file.at(offset) if offset is not None else None
        return record["receipt"] if record else None

    def intend(self, name: str, **detail: Any) -> None:
        """Record the intent to cause the effect `name`."""
        self._append({"name": name, "state": "intent", "detail": detail})

    def done(self, name: str, receipt: Json) -> Json:
        """Record that the effect `name` happened; returns the receipt in the form in which later calls read it."""
        self._append({"name": name, "state": "receipt", "receipt": receipt})
        return self.receipt(name) or {}

    def intended(self) -> frozenset[str]:
        """Names of all effects with an intent, with or without receipt."""
        return frozenset(self._intended)

    def pending(self) -> list[str]:
        """Names of the effects with an intent but no receipt: their result is unknown."""
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
