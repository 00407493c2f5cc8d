"""One table that decides what happens to a task after an error has ended its attempt.

`dispose` is pure: it reads the error and the state of the task; `end_by_error.py` carries out the disposition.

| error | state | disposition |
|---|---|---|
| another daemon has the issue | any | stop the task without a comment |
| the forge shows the end of the task | any | believe: close the row with that end, without a comment |
| another attempt owns the row, or the row cannot be reached | any | leave: nothing is written or posted |
| the disk fails | the model has finished | leave: the row stays open, and is released |
| the disk fails | the model has not finished | pause; the daemon resumes the task when the disk can be written |
| a mistake of this program | the program's files were replaced | requeue, until the tries of the task are used up |
| one of FINAL, or a mistake of this program | any | fail: the work so far is delivered as a draft |
| any other error | a person stopped the task | stop; the daemon notifies the person later |
| any other error | the task has tries left | requeue the task |
| any other error | the task has no tries left | fail: the work so far is delivered as a draft |

The table lists only final errors.  Temporary failures of a host, a network or another program cannot be listed
completely.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Literal

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
"""The number of tries of an unfinished task, and the shortest and longest seconds between two tries."""

LONGEST_PAUSE = 3600.0
"""The longest Retry-After, in seconds, that a task waits for in the queue; a longer one belongs to a daily limit."""

PUBLISHING_HOURS = 72.0
"""How long publication is tried: long enough for a person to renew a token after a weekend."""

FINAL: tuple[type[Exception], ...] = (
    *(ConfigError, UsageError, ContextError),  # a person has to correct the cause
    *(BaseMissing, RebaseConflict, PushRejected, LfsRefused, PolicyViolation, RulesRefused),  # errors of the repository
    *(IssueUnreadable, PictureRefused, ToolError),
    *(QuotaExhausted, AccessRefused, ModelNotFound, RequestRefused),  # errors of the model's server
    *(ContextOverflow, HistoryRefused, AnswerUnreadable, DoesNotFit, CompactionStuck),  # errors of the conversation
    RecordRefused,
)
"""Errors that do not pass by waiting; some others also end a task, see `_may_wait`."""

BUG, OF_HOST = "bug", "host"
"""The codes in the row for a mistake of this program, and for any other foreign error."""

REPLACED = "the program's files were replaced while the task ran, so that its modules do not fit to each other"

What = Literal["requeue", "pause", "fail", "stop", "leave", "believe"]


@dataclass(frozen=True, slots=True)
class TaskState:
    """The state of the task at the time of the error.

    `outcome` is the result of the task's work, None while the model works.  `over`: the row records that the model has
    finished: an end is decided, or publication is pending.  `begun`: the conversation has begun.  `tries`: consecutive
    releases without an answer of the model between them.  `waits`: the time for which publication has been pending,
    None if it is not pending.  `lost`: the task has had many attempts and this folder is new, so that `tries` is
    meaningless.  `replaced`: the program's files differ from those that this process has loaded."""

    outcome: Outcome | None = None
    over: bool = False
    begun: bool = True
    tries: int = 0
    waits: timedelta | None = None
    lost: bool = False
    replaced: bool = False


@dataclass(frozen=True, slots=True)
class Disposition:
    """`when`: seconds until the next try; `code` and `why` are values for the row; `silent`: nothing is posted on the
    issue."""

    what: What
    code: str
    why: str
    when: float = 0.0
    silent: bool = False


def dispose(error: Exception, state: TaskState) -> Disposition:
    """Look the error up in the table of dispositions."""
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
            silent = isinstance(error, ForgeError)  # the forge that would get the comment is unreachable
            return Disposition("requeue", code, why, when=_seconds(error, state.tries), silent=silent)
    return Disposition("fail", code, why)


def reading_of(error: Exception, *, replaced: bool) -> tuple[bool, str, str]:
    """(whether the error ends a task even though waiting might help, the code for the row, the message for the row).

    `replaced`: the program's files differ from those that this process has loaded.  If the program's files were
    replaced, a mistake counts as an error of the host."""
    why = str(error) or type(error).__name__
    if replaced and isinstance(error, MISTAKES):
        return False, OF_HOST, f"{REPLACED}: {why}"
    if isinstance(error, MakimonoError):
        return isinstance(error, FINAL), error.code, why
    if isinstance(error, MISTAKES):
        return True, BUG, why
    return False, OF_HOST, why


def is_unforeseen(error: BaseException | None) -> bool:
    """Whether the error, or one of its causes, was unexpected where it occurred, so that the log needs a traceback."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:  # in Python an error can be its own cause
        if isinstance(error, MISTAKES):
            return True
        seen.add(id(error))
        error = error.__cause__
    return False


def _may_wait(error: Exception, state: TaskState) -> bool:
    """Whether it helps to wait until the cause has passed.

    A token that never worked is reported at once; a token that worked before gets time to be renewed.
    """
    if isinstance(error, SetupFailed) and not error.passing:
        return False
    if isinstance(error, ModelStalled) and error.answering:
        return False  # the task would write as much again
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
