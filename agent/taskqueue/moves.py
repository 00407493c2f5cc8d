"""The one table of states: what a row may become, and what a word from outside does in each state.

    queued ⇄ running → completed, failed, stopped
    queued → paused ← running          paused → queued
    queued, paused → stopped           queued → failed (it can never start)

What was asked of a running task and was not obeyed when its holder let go of it, is done then: `left`.

Pure; used by `ledger.py` for every change.  A closed row never opens again: a new run of the same issue is a new row.
"""

from __future__ import annotations

from typing import Literal, get_args

from agent.errors import LedgerError
from agent.values import CLOSED_STATUSES, Status

Word = Literal["stop", "pause", "resume"]
WORDS: tuple[Word, ...] = get_args(Word)
DONE: dict[Word, str] = {"stop": "stopped", "pause": "paused", "resume": "resumed"}
"""What a word makes of a task, for sentences."""

MOVES: dict[Status, frozenset[Status]] = {
    Status.QUEUED: frozenset({Status.RUNNING, Status.PAUSED, Status.STOPPED, Status.FAILED}),
    Status.RUNNING: frozenset({Status.QUEUED, Status.PAUSED, Status.COMPLETED, Status.FAILED, Status.STOPPED}),
    Status.PAUSED: frozenset({Status.QUEUED, Status.STOPPED}),
    **{status: frozenset() for status in CLOSED_STATUSES},
}


def check(uuid: str, was: Status, to: Status) -> None:
    """LedgerError when the table does not allow the move."""
    if to not in MOVES[was]:
        allowed = ", ".join(sorted(MOVES[was])) or "nothing: it is closed"
        raise LedgerError(f"task {uuid} is {was} and cannot become {to}; from here it can become {allowed}")


def left(requested: str | None) -> Status:
    """What a running row becomes when its holder dies, or gives it back: nobody else would hear the word before the
    next one works on it, perhaps hours later."""
    match requested:
        case "stop":
            return Status.STOPPED
        case "pause":
            return Status.PAUSED
    return Status.QUEUED


def obey(word: Word, status: Status, requested: str | None) -> tuple[Status, str | None]:
    """(the status at once, the word that stays for the holder) for an open row.

    Only a running row has a holder to tell; every other is moved at once.  Stop is never taken back by a later word.
    """
    if status is Status.RUNNING:
        if requested == "stop":
            return status, "stop"
        return status, None if word == "resume" else word
    match word:
        case "stop":
            return Status.STOPPED, None
        case "pause":
            return Status.PAUSED, None
        case "resume":
            return Status.QUEUED, None
