"""Stores the end of a run before the end is posted on the issue.

If the process dies while it posts the end of a run, the next process continues the posting.  The next process does not
ask the model again, because a new answer could contradict the end that people have read.

The end is one receipt with the name `end` in `effects.jsonl`. The receipt of the end has the texts of both comments,
since their sources (work tree, result of the check, pull request) may be gone later. The row's `outcome` also has the
end (`ending completed finished`), so that on a host without the task's folder a label that this program has moved does
not count as the request of a person. For work that the reviewers did not approve, the row's `outcome` also has the code
of the review (`ending completed finished denied`): without the code, another host would mark the draft as ready.
`worker/notify.py` composes and posts the texts of the end. If the forge could not be reached, `daemon/finalize.py`
posts these texts later.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from agent.context import receipt_in
from agent.issue.answers import Reply
from agent.taskqueue import ENDING
from agent.values import End, Outcome, Public, Status

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from agent.context import TaskContextManager

NAME = "end"
NOTHING = Public("")


@dataclass(frozen=True, slots=True)
class FinalState:
    """`status`, `code` and `message` are the values for the row; `progress` and `final` are the texts of the comments,
    `replies` the answers to single comments. `quiet`: one of the answers contains the text of `final`, or `final` is
    not needed, so only the progress comment shows the end on the issue."""

    status: Status
    code: str
    message: str
    outcome: Outcome
    progress: Public = NOTHING
    final: Public = NOTHING
    replies: tuple[Reply, ...] = ()
    quiet: bool = False

    @classmethod
    def load(cls, folder: Path) -> FinalState | None:
        """The end that a process has stored in the task's folder; None if none is stored there."""
        found = receipt_in(folder, NAME)
        if not found:
            return None
        replies = tuple(Reply.from_dict(one) for one in found.get("replies") or ())
        values = {"status": Status(found["status"]), "outcome": Outcome.from_dict(found["outcome"]), "replies": replies}
        return cls(**found | values)

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> FinalState | None:
        """The end of the run that the row has, without texts of comments; None if the row has no end."""
        mark, *rest = str(row.get("outcome") or "").split(" ")
        if mark != ENDING:
            return None
        status, end, *review = rest
        code, message = row.get("error_code") or "", row.get("error_message") or ""
        outcome = Outcome(End(end), code=review[0] if review else code, summary=message)
        return cls(Status(status), code, message, outcome)

    def columns(self) -> dict[str, str | None]:
        """The columns of an open row from which `from_row` makes the end again."""
        review = self.outcome.code if self.status is Status.COMPLETED else ""
        mark = f"{ENDING} {self.status} {self.outcome.end} {review}".strip()
        return {"outcome": mark, "error_code": self.code or None, "error_message": self.message or None}

    def save(self, context: TaskContextManager) -> None:
        """Store the end of the run on disk, first in the task's folder and then in the row. Raises DiskError, Fenced or
        LedgerError."""
        kept = asdict(self) | {"status": str(self.status), "outcome": self.outcome.to_dict()}
        context.get_effect_store().done(NAME, kept)
        context.set_columns(**self.columns())
