"""Every row of the table that says what an error makes of a task."""

import errno
import re
from dataclasses import replace
from datetime import timedelta
from importlib import import_module
from pathlib import Path

import pytest

from agent.errors import (
    AccessRefused,
    ContextOverflow,
    DiskError,
    Fenced,
    ForgeAccessRefused,
    ForgeLimited,
    ForgeUnreachable,
    GitError,
    GitKilled,
    GitStarved,
    IssueUnreadable,
    LedgerError,
    MakimonoError,
    ModelNotFound,
    ModelStalled,
    ModelUnreachable,
    PushRejected,
    QuotaExhausted,
    RateLimited,
    RemoteAway,
    RemoteRefused,
    RepositoryMissing,
    RequestRefused,
    SandboxUnavailable,
    SetupFailed,
    TakenElsewhere,
    WorkError,
)
from agent.run.dispose import ATTEMPTS, FINAL, LONGEST_PAUSE, LONGEST_SECONDS, PUBLISHING_HOURS, State, dispose
from agent.values import End, Outcome

ROOT = Path(__file__).resolve().parents[3]

AT_WORK = State()
NEW = State(begun=False)
DONE = State(outcome=Outcome(End.FINISHED, "It is done."), over=True)
BROKEN = State(outcome=Outcome(End.FAILED, "No quota.", code="quota_exhausted"))
STOPPED = State(outcome=Outcome(End.STOPPED, "A person asked for it."))
LAST = State(tries=ATTEMPTS - 1)
OLD = replace(DONE, waits=timedelta(hours=PUBLISHING_HOURS, seconds=1))
YOUNG = replace(DONE, tries=ATTEMPTS + 5, waits=timedelta(hours=PUBLISHING_HOURS - 1))


def answering(error):
    error.answering = True
    return error


@pytest.mark.parametrize(
    ("error", "state", "what"),
    [
        # nobody else's business
        (TakenElsewhere("another daemon has it"), AT_WORK, "stop"),
        (Fenced("attempt 2"), AT_WORK, "leave"),
        (Fenced("attempt 2"), DONE, "leave"),
        (LedgerError("the database is away"), AT_WORK, "leave"),
        # the disk
        (DiskError("full"), AT_WORK, "pause"),
        (DiskError("full"), DONE, "leave"),
        (DiskError("full"), BROKEN, "pause"),
        # what may be over in a while
        (ForgeUnreachable("away"), NEW, "requeue"),
        (ForgeAccessRefused("401"), NEW, "requeue"),
        (ForgeLimited("slow down", retry_after=5.0), AT_WORK, "requeue"),
        (RemoteAway("away"), NEW, "requeue"),
        (GitKilled("signal 9"), NEW, "requeue"),
        (RemoteRefused("401"), NEW, "fail"),
        (RemoteRefused("401"), AT_WORK, "requeue"),
        (RepositoryMissing("404"), NEW, "fail"),
        (RepositoryMissing("404"), AT_WORK, "requeue"),
        (IssueUnreadable("gone"), AT_WORK, "fail"),
        (ModelUnreachable("502"), AT_WORK, "requeue"),
        (ModelUnreachable("529 overloaded", status=529), AT_WORK, "requeue"),
        (ModelStalled("sent nothing for 360 s"), AT_WORK, "requeue"),
        (answering(ModelStalled("wrote for 30 minutes")), AT_WORK, "fail"),
        (RateLimited("slow down", retry_after=600.0), AT_WORK, "requeue"),
        (RateLimited("a limit per day", retry_after=LONGEST_PAUSE + 1), AT_WORK, "fail"),
        (SetupFailed("pip: Temporary failure in name resolution", passing=True), NEW, "requeue"),
        (SetupFailed("exit code 1"), NEW, "fail"),
        (ForgeUnreachable("away"), LAST, "fail"),
        (ModelStalled("sent nothing"), LAST, "fail"),
        (SetupFailed("no network", passing=True), LAST, "fail"),
        (ForgeUnreachable("away"), State(lost=True), "fail"),
        # only publishing is left
        (ForgeUnreachable("away"), DONE, "requeue"),
        (ForgeUnreachable("away"), YOUNG, "requeue"),
        (ForgeUnreachable("away"), OLD, "fail"),
        (RemoteRefused("401"), BROKEN, "requeue"),
        (ForgeUnreachable("away"), STOPPED, "stop"),
        (PushRejected("protected"), DONE, "fail"),
        # nothing that a wait would mend
        (QuotaExhausted("insufficient_quota"), AT_WORK, "fail"),
        (AccessRefused("401"), AT_WORK, "fail"),
        (ModelNotFound("404"), AT_WORK, "fail"),
        (RequestRefused("400"), AT_WORK, "fail"),
        (ContextOverflow("too long"), AT_WORK, "fail"),
        (ZeroDivisionError("division by zero"), AT_WORK, "fail"),
        (RecursionError("maximum recursion depth exceeded"), AT_WORK, "fail"),
        # a host's illness, and what nobody has listed
        (SandboxUnavailable("no namespaces"), AT_WORK, "requeue"),
        (GitError("git fetch failed with code 128: fatal: words that nobody knows"), NEW, "requeue"),
        (GitStarved("fatal: mmap failed: Cannot allocate memory"), NEW, "requeue"),
        (GitStarved("fatal: mmap failed: Cannot allocate memory"), LAST, "fail"),
        (OSError(errno.EMFILE, "Too many open files"), AT_WORK, "requeue"),
        (BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable"), NEW, "requeue"),
        (MemoryError("no words"), AT_WORK, "requeue"),
        (RuntimeError("can't start new thread"), AT_WORK, "requeue"),
        (RuntimeError("can't start new thread"), DONE, "requeue"),
        (WorkError("what `workspace.setup` left cannot be cleared up"), AT_WORK, "requeue"),
    ],
)
def test_the_table(error, state, what):
    todo = dispose(error, state)
    assert (todo.what, todo.why) == (what, str(error))
    foreign = "bug" if isinstance(error, ArithmeticError | RecursionError) else "host"
    assert todo.code == ("stopped" if state is STOPPED else getattr(error, "code", foreign))


def every(kind):
    """A class and all below it."""
    yield kind
    for one in kind.__subclasses__():
        yield from every(one)


def rooms_with_errors():
    """Modules that define an error of the tree beside agent/errors.py."""
    known = "|".join(kind.__name__ for kind in every(MakimonoError))
    for path in sorted((ROOT / "agent").rglob("*.py")):
        if re.search(rf"^class \w+\((?:\w+, )*(?:{known})\b", path.read_text(encoding="utf-8"), re.MULTILINE):
            yield ".".join(path.relative_to(ROOT).with_suffix("").parts)


def test_what_is_final_is_a_list_and_a_new_error_waits():
    """Whoever adds a class to the tree and wants it final adds it here and there."""

    class Unheard(MakimonoError):
        code = "unheard"

    try:
        for module in rooms_with_errors():
            import_module(module)
        found = {kind.__name__ for kind in every(MakimonoError) if issubclass(kind, FINAL)}
        assert found == {
            *("ConfigError", "UsageError", "ContextError", "IssueUnreadable", "PictureRefused", "ToolError"),
            *("BaseMissing", "RebaseConflict", "PushRejected", "LfsRefused", "PolicyViolation", "RulesRefused"),
            *("QuotaExhausted", "AccessRefused", "ModelNotFound", "RequestRefused", "ToolsRefused"),
            *("ContextOverflow", "RequestTooLarge", "HistoryRefused", "AnswerUnreadable", "CallUnreadable"),
            *("DoesNotFit", "CompactionStuck", "IllegalContext"),
        }
        assert dispose(Unheard("never seen"), AT_WORK).what == "requeue"
    finally:
        del Unheard


@pytest.mark.parametrize(
    ("error", "tries", "seconds"),
    [
        (ModelStalled("sent nothing"), 0, 60.0),
        (ModelStalled("sent nothing"), 3, 480.0),
        (ForgeUnreachable("away"), 6, LONGEST_SECONDS),
        (RateLimited("slow down", retry_after=600.0), 0, 600.0),
        (RateLimited("slow down", retry_after=6.0), 1, 120.0),
    ],
)
def test_the_next_try_is_later_each_time_and_never_before_the_server_said(error, tries, seconds):
    assert dispose(error, State(tries=tries)).when == seconds


def test_where_it_would_be_said_is_what_is_away():
    assert dispose(ForgeUnreachable("away"), AT_WORK).silent
    assert not dispose(ModelStalled("sent nothing"), AT_WORK).silent


def test_an_error_without_words_is_named():
    assert dispose(KeyError(), AT_WORK).why == "KeyError"
