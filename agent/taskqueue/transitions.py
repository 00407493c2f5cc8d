"""Defines which changes of a row's status are allowed, and what a request from outside (stop, pause, resume) changes in
each status.

    queued ⇄ running → completed, failed, stopped
    queued → paused ← running          paused → queued
    queued, paused → stopped           queued → failed (it can never start)

A request that the holder of a running row has not executed takes effect when the holder releases the row or dies
(`status_after_release`).

The functions of `transitions.py` are pure. A closed row never becomes open again: a new run of the same issue gets a
new row.
"""

from __future__ import annotations

from typing import Literal, get_args

from agent.errors import LedgerError
from agent.values import CLOSED_STATUSES, Status

Request = Literal["stop", "pause", "resume"]
REQUESTS: tuple[Request, ...] = get_args(Request)
DONE: dict[Request, str] = {"stop": "stopped", "pause": "paused", "resume": "resumed"}
"""Request → its past participle, for sentences to people."""

TRANSITIONS: dict[Status, frozenset[Status]] = {
    Status.QUEUED: frozenset({Status.RUNNING, Status.PAUSED, Status.STOPPED, Status.FAILED}),
    Status.RUNNING: frozenset({Status.QUEUED, Status.PAUSED, Status.COMPLETED, Status.FAILED, Status.STOPPED}),
    Status.PAUSED: frozenset({Status.QUEUED, Status.STOPPED}),
    **{status: frozenset() for status in CLOSED_STATUSES},
}


def check(uuid: str, was: Status, to: Status) -> None:
    """Raises LedgerError unless TRANSITIONS allows the change from the status `was` to the status `to`."""
    if to not in TRANSITIONS[was]:
        allowed = ", ".join(sorted(TRANSITIONS[was])) or "nothing: it is closed"
        raise LedgerError(f"task {uuid} is {was} and cannot become {to}; from here it can become {allowed}")


def status_after_release(requested: str | None) -> Status:
    """The new status of a running row when its holder dies or releases the row.  A request in the row is executed at
    once, because otherwise the request would wait for the next holder, perhaps for hours."""
    match requested:
        case "stop":
            return Status.STOPPED
        case "pause":
            return Status.PAUSED
    return Status.QUEUED


def apply_request(word: Request, status: Status, requested: str | None) -> tuple[Status, str | None]:
    """The effect of the request `word` on an open row: (the new status, the request that stays for the holder to
    execute).

    Only a running row has a holder that executes the request; the status of a queued or paused row changes at once.  A
    request that follows a stop does not cancel the stop.
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
