"""The process of one task: the supervisor forks it, and reads its exit code.

The process is forked from a forkserver that has loaded all modules (`daemon/preload.py`). The process has a POSIX
session of its own (setsid(2)) and the title `makimono: {uuid}`, and survives the end of the daemon. `attempt.py` does
the work on the task.
"""

from __future__ import annotations

import os
import signal
import sys
from contextlib import ExitStack, closing, suppress
from typing import TYPE_CHECKING

from agent import proc
from agent.error_text import named
from agent.errors import ClaimLost, Fenced, HostError, LockHeld, MakimonoError
from agent.observe import log
from agent.observe.events import Events, to_log
from agent.values import End, Status
from agent.wiring.wiring import Wiring
from agent.worker.attempt import Mode, attempt, hold, send_report

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from agent.config import Settings

EXIT_DRAINED = 75
"""Exit code of a worker that released its row because of a drain (sysexits: temporary failure, try again)."""
EXIT_WAITS = HostError.exit_code
"""Exit code of a worker that released its row after an error that may pass."""


def process_task(settings: Settings, uuid: str, report: Connection | None = None, *, own: bool = False) -> int:
    """Work on the task `uuid` until this attempt ends; returns the exit code of the process, 0 also if it could not
    claim the task.

    `report` is the connection to the daemon: after the claim the worker sends `attempt.CLAIMED` on it; if the claim
    fails, it sends the reason. `own`: the process does nothing else than this task.
    """
    with closing(Wiring(settings, events=Events([to_log]))) as wiring, ExitStack() as held:
        try:
            held.enter_context(hold(settings, uuid))
        except LockHeld as error:
            send_report(report, str(error))
            return 0
        try:
            outcome, failed = attempt(wiring, uuid, Mode(named=own, grouped=own, drains=True, report=report))
        except ClaimLost as error:
            send_report(report, str(error))
            return 0
        except Fenced:
            raise
        except Exception:
            if is_queued(wiring, uuid):
                return EXIT_WAITS
            raise
    if outcome.end is End.DRAINED:
        return EXIT_DRAINED
    return 1 if failed else 0


def is_queued(wiring: Wiring, uuid: str) -> bool:
    """Whether the row is `queued`, so that the task is tried again."""
    with suppress(MakimonoError):
        row = wiring.ledger.get(uuid)
        return row is not None and row.status is Status.QUEUED
    return False


def main(settings: Settings, uuid: str, report: Connection | None = None) -> None:
    """Entry point of the forked process; makes a POSIX session for the process (setsid(2)) and sets its title.

    The log and the row record how the task ended; the exit code only repeats it. After an unexpected error the process
    also writes a traceback to stderr.
    """
    os.setsid()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(EXIT_DRAINED))  # TaskHandler replaces this signal handler
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    proc.title(f"makimono: {uuid}")  # the title is set before the process waits for its row
    log.lose_what_stderr_refuses()
    try:
        code = process_task(settings, uuid, report, own=True)
    except Fenced:
        code = 0  # a newer attempt owns the task, which is no failure
    except MakimonoError as error:
        send_report(report, str(error))
        code = error.exit_code
    except Exception as error:
        send_report(report, named(error))
        raise
    sys.exit(code)
