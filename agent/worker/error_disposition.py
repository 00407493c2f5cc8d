"""Decides, by one table, what happens to a task after an error has ended its attempt.

The function `dispose` has no side effects: it uses only the error and the state of the task; `end_by_error.py` carries
out the result.

| error | state | disposition |
|---|---|---|
| another daemon works on the issue | any | stop: without a comment |
| the issue shows the end of the task | any | believe: close the row with that end, without a comment |
| another attempt owns the row, or the ledger cannot be used | any | leave: nothing is written or posted |
| the disk fails | the model has finished | leave: the row stays open, and is released later |
| the disk fails | the model has not finished | pause: the daemon resumes the task when the disk can be written |
| a mistake of this program | the program's files were replaced | requeue, as any other error |
| an error in FINAL, or a mistake of this program | any | fail: the work so far is delivered as a draft |
| any other error | a person stopped the task | stop: the daemon posts the comment later |
| any other error | the task has tries left | requeue the task |
| any other error | the task has no tries left | fail: the work so far is delivered as a draft |

FINAL lists the errors for which waiting does not help; every error that FINAL and the other rows of the table do not
name counts as temporary. Temporary failures of a host, a network or another program cannot all be listed.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Literal

from agent.error_text import text_of
from agent.errors import (
    MISTAKES,
    AccessRefused,
    AnswerUnreadable,
    BaseMissing,
    ConfigError,
    ContextError,
    ContextOverflow,
    DiskError,
    EndedBefore,
    ForgeError,
    HistoryRefused,
    IssueUnreadable,
    LedgerError,
    LfsRefused,
    MakimonoError,
    ModelNotFound,
    ModelStalled,
    PictureRefused,
    PolicyViolation,
    PushRejected,
    QuotaExhausted,
    RateLimited,
    RebaseConflict,
    RecordRefused,
    RemoteRefused,
    RepositoryMissing,
    RequestRefused,
    RulesRefused,
    SetupFailed,
    TakenElsewhere,
    ToolError,
    UsageError,
)
from agent.values import End
from agent.window.base import CompactionStuck, DoesNotFit

if TYPE_CHECKING:
    from agent.values import Outcome

ATTEMPTS = 8
FIRST_SECONDS, LONGEST_SECONDS = 60.0, 1800.0
"""The maximum number of tries of a task that the model has not finished, and the shortest and longest seconds between
two tries, unless the model's server asks for a longer time."""

LONGEST_PAUSE = 3600.0
"""The longest Retry-After of the model's server, in seconds, for which a task waits in the queue; a longer one, as of a
daily limit, ends the task."""

PUBLISHING_HOURS = 72.0
"""The number of hours for which a failed publication is tried again: enough for a person to renew a token after a
weekend."""

FINAL: tuple[type[Exception], ...] = (
    *(ConfigError, UsageError, ContextError),  # mistakes in the configuration or in a call
    *(BaseMissing, RebaseConflict, PushRejected, LfsRefused, PolicyViolation, RulesRefused),  # errors of the repository
    *(IssueUnreadable, PictureRefused, ToolError),
    *(QuotaExhausted, AccessRefused, ModelNotFound, RequestRefused),  # errors of the model's server
    *(ContextOverflow, HistoryRefused, AnswerUnreadable, DoesNotFit, CompactionStuck),  # errors of the conversation
    RecordRefused,
)
"""Errors that end a task because waiting does not help; `_may_wait` names further conditions under which an error ends
the task."""

BUG, OF_HOST = "bug", "host"
"""The error codes in the row for a mistake of this program, and for any other error that is no class of
`agent/errors.py`."""

REPLACED = "the program's files were replaced while the task ran, so that its modules do not fit to each other"

What = Literal["requeue", "pause", "fail", "stop", "leave", "believe"]


@dataclass(frozen=True, slots=True)
class TaskState:
    """The state of the task at the time of the error.

    `outcome` is the result of the model's work, None if that work had not ended. `over`: the row says that the model
    has finished: an end is stored, or publication is pending. `begun`: the conversation of the task has begun. `tries`:
    how often in a row the task was released without an answer of the model in between. `waits`: for how long
    publication has been pending, None if it is not pending. `lost`: the task had many attempts but its folder is new,
    so `tries` is too low. `replaced`: the program's files differ from those that this process has loaded."""

    outcome: Outcome | None = None
    over: bool = False
    begun: bool = True
    tries: int = 0
    waits: timedelta | None = None
    lost: bool = False
    replaced: bool = False


@dataclass(frozen=True, slots=True)
class Disposition:
    """`when`: seconds until the next try; `code` and `why` are written into the row; `silent`: nothing is posted on the
    issue."""

    what: What
    code: str
    why: str
    when: float = 0.0
    silent: bool = False


def dispose(error: Exception, state: TaskState) -> Disposition:
    """Decide what happens to a task after an error, by the table in the docstring of `error_disposition.py`."""
    final, code, why = reading_of(error, replaced=state.replaced)
    if isinstance(error, TakenElsewhere):
        return Disposition("stop", code, why, silent=True)
    if isinstance(error, EndedBefore):
        return Disposition("believe", code, why, silent=True)
    if isinstance(error, LedgerError):
        return Disposition("leave", code, why, silent=True)
    if isinstance(error, DiskError):
        return Disposition("leave" if state.over else "pause", code, why)
    if not final:
        if state.outcome is not None and state.outcome.end is End.STOPPED:
            return Disposition("stop", "stopped", why)
        if _may_wait(error, state):
            # Nothing is posted about an error of the forge, since the same forge would have to show the comment.
            silent = isinstance(error, ForgeError)
            return Disposition("requeue", code, why, when=_seconds(error, state.tries), silent=silent)
    return Disposition("fail", code, why)


def reading_of(error: Exception, *, replaced: bool) -> tuple[bool, str, str]:
    """Returns (whether the error is final, so that waiting does not help; the code for the row; the message for the
    row).

    `replaced`: the program's files differ from those that this process has loaded. If the program's files were
    replaced, a mistake counts as an error of the host, for which waiting may help."""
    why = text_of(error) or type(error).__name__
    if replaced and isinstance(error, MISTAKES):
        return False, OF_HOST, f"{REPLACED}: {why}"
    if isinstance(error, MakimonoError):
        return isinstance(error, FINAL), error.code, why
    if isinstance(error, MISTAKES):
        return True, BUG, why
    return False, OF_HOST, why


def _may_wait(error: Exception, state: TaskState) -> bool:
    """Whether the task may wait until the cause of the error is gone.

    If the repository cannot be reached with the token, the task ends if its conversation has not begun; else it waits
    until a person renews the token.
    """
    if isinstance(error, SetupFailed) and not error.passing:
        return False
    if isinstance(error, ModelStalled) and error.answering:
        return False  # a further try would not help, since the model would again write an answer that is too long
    if isinstance(error, RateLimited) and (error.retry_after or 0.0) > LONGEST_PAUSE:
        return False
    if state.outcome is not None:
        return state.waits is None or state.waits < timedelta(hours=PUBLISHING_HOURS)
    if isinstance(error, RemoteRefused | RepositoryMissing) and not state.begun:
        return False
    return not state.lost and state.tries + 1 < ATTEMPTS


def _seconds(error: Exception, tries: int) -> float:
    seconds = min(LONGEST_SECONDS, FIRST_SECONDS * 2.0**tries)
    return max(seconds, (error.retry_after or 0.0) if isinstance(error, RateLimited) else 0.0)
