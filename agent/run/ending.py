"""How a run ended, kept before anybody is told: who is killed while he tells it goes on telling, and the model is not
asked again for another end than the one that people may have read already.

One receipt named `end` in `effects.jsonl`, with the words of both comments: what they are made of (work tree, verdict,
pull request) need not be there a second time.  The row's `outcome` says it too (`ending completed finished`), for a
host that has not the folder: a label that is moved already must not be taken for a person's word.  Used by
`run/handler.py`, and by `run/closing.py` for a forge that was away; `run/telling.py` finds the words and posts them.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from agent.context import receipt_in
from agent.taskqueue import ENDING
from agent.values import End, Outcome, Public, Status

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from agent.context import TaskContextManager

NAME = "end"
NOTHING = Public("")


@dataclass(frozen=True, slots=True)
class Ending:
    """`status`, `code` and `message` as the row will have them; `progress` and `final` are the comments' words."""

    status: Status
    code: str
    message: str
    outcome: Outcome
    progress: Public = NOTHING
    final: Public = NOTHING

    @classmethod
    def kept(cls, folder: Path) -> Ending | None:
        """The end that a process has kept in the task's folder, which is only read; None while the task goes on."""
        found = receipt_in(folder, NAME)
        if not found:
            return None
        return cls(**found | {"status": Status(found["status"]), "outcome": Outcome.of(found["outcome"])})

    @classmethod
    def in_row(cls, row: Mapping[str, Any]) -> Ending | None:
        """The same as far as the row knows it, without the words."""
        mark, *rest = str(row.get("outcome") or "").split(" ")
        if mark != ENDING:
            return None
        status, end = rest
        code, message = row.get("error_code") or "", row.get("error_message") or ""
        return cls(Status(status), code, message, Outcome(End(end), code=code, summary=message))

    def keep(self, context: TaskContextManager) -> None:
        """Make it durable, in the folder and then in the row.  DiskError; Fenced, LedgerError."""
        kept = asdict(self) | {"status": str(self.status), "outcome": self.outcome.to_dict()}
        context.get_effect_store().done(NAME, kept)
        mark = f"{ENDING} {self.status} {self.outcome.end}"
        context.set_columns(outcome=mark, error_code=self.code or None, error_message=self.message or None)
