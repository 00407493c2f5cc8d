"""What becomes of a task whose attempt ended by an error: one table.

`dispose` is pure: it looks at the error and at what is known of the task, and `handler.py` carries out what it says.

| error | state | what |
|---|---|---|
| another daemon has the issue | | stop, and say nothing |
| the forge shows the end of the task | | believe: close the row by it, and say nothing |
| the row is another attempt's, or cannot be reached | | leave: nothing is written or said |
| the disk | the model's part is done | leave: the row stays, and is given back |
| the disk | else | pause; the daemon resumes it when the disk can be written |
| one of FINAL, or a mistake of this program | | fail: what was done is delivered as a draft |
| anything else | a person stopped the task | stop; the daemon tells it later |
| anything else | its patience is not used up | requeue |
| anything else | it is used up | fail |

What is final is a list, and what may be over in a while is not: nobody can list how a host, a network or another
program falls ill.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Literal

from agent.errors import (
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
"""How often a task that is not done is tried again, and how far apart tries are."""

LONGEST_PAUSE = 3600.0
"""Seconds of Retry-After that a task sits out in the queue; longer ones are of a limit per day."""

PUBLISHING_HOURS = 72.0
"""How long publishing is tried: long enough for a person to renew a token after a weekend."""

FINAL: tuple[type[Exception], ...] = (
    *(ConfigError, UsageError, ContextError),  # a person has to mend it
    *(BaseMissing, RebaseConflict, PushRejected, LfsRefused, PolicyViolation, RulesRefused),  # of the repository
    *(IssueUnreadable, PictureRefused, ToolError),
    *(QuotaExhausted, AccessRefused, ModelNotFound, RequestRefused),  # of the model's server
    *(ContextOverflow, HistoryRefused, AnswerUnreadable, DoesNotFit, CompactionStuck),  # of the conversation
)
"""What a wait does not mend; some others end a task where `_may_wait` says so."""

MISTAKES: tuple[type[Exception], ...] = (
    *(ArithmeticError, AssertionError, AttributeError, LookupError, NameError, NotImplementedError),
    *(RecursionError, TypeError, ValueError),
)
"""What a mistake of this program raises; it makes the same one again.  Every other foreign error is of the host."""

What = Literal["requeue", "pause", "fail", "stop", "leave", "believe"]


@dataclass(frozen=True, slots=True)
class State:
    """What is known of the task when the error comes.

    `outcome` is what its work came to, None while the model works; `over`: the row says so; `begun`: the conversation
    has begun; `tries`: how often in a row the task was given back, with no answer of the model between; `waits`: for
    how long its publication has waited, None when it has not; `lost`: the task has had many attempts and this folder
    is new, so that `tries` counts nothing."""

    outcome: Outcome | None = None
    over: bool = False
    begun: bool = True
    tries: int = 0
    waits: timedelta | None = None
    lost: bool = False


@dataclass(frozen=True, slots=True)
class Disposition:
    """`when`: seconds until the next try; `code` and `why` are the row's; `silent`: nothing is said on the issue."""

    what: What
    code: str
    why: str
    when: float = 0.0
    silent: bool = False


def dispose(error: Exception, state: State) -> Disposition:
    """The row of the table."""
    code, why = code_of(error), str(error) or type(error).__name__
    if isinstance(error, TakenElsewhere):
        return Disposition("stop", code, why, silent=True)
    if isinstance(error, EndedBefore):
        return Disposition("believe", code, why, silent=True)
    if isinstance(error, LedgerError):
        return Disposition("leave", code, why, silent=True)
    if isinstance(error, DiskError):
        return Disposition("leave" if state.over else "pause", code, why)
    if not is_final(error):
        if state.outcome is not None and state.outcome.end is End.STOPPED:
            return Disposition("stop", "stopped", why)
        if _may_wait(error, state):
            silent = isinstance(error, ForgeError)  # where it would be said is what is away
            return Disposition("requeue", code, why, when=_seconds(error, state.tries), silent=silent)
    return Disposition("fail", code, why)


def is_final(error: Exception) -> bool:
    """Whether an error ends a task however long is waited."""
    return isinstance(error, FINAL if isinstance(error, MakimonoError) else MISTAKES)


def code_of(error: Exception) -> str:
    """The row's code: `bug` for a mistake of this program, `host` for any other foreign error."""
    if isinstance(error, MakimonoError):
        return error.code
    return "bug" if is_final(error) else "host"


def _may_wait(error: Exception, state: State) -> bool:
    """A token that never let anybody in is told at once; one that did, and does no longer, is waited for."""
    if isinstance(error, SetupFailed) and not error.passing:
        return False
    if isinstance(error, ModelStalled) and error.answering:
        return False  # it would write as much again
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
