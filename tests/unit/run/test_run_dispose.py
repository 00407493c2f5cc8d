"""Every row of the table that says what an error makes of a task."""

from dataclasses import replace
from datetime import timedelta

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
    IssueUnreadable,
    LedgerError,
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
)
from agent.run.dispose import ATTEMPTS, LONGEST_PAUSE, LONGEST_SECONDS, PUBLISHING_HOURS, State, dispose
from agent.values import End, Outcome

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
        (SetupFailed("pip: Temporary failure in name resolution", network=True), NEW, "requeue"),
        (SetupFailed("exit code 1"), NEW, "fail"),
        (ForgeUnreachable("away"), LAST, "fail"),
        (ModelStalled("sent nothing"), LAST, "fail"),
        (SetupFailed("no network", network=True), LAST, "fail"),
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
        (SandboxUnavailable("no namespaces"), AT_WORK, "fail"),
        (GitError("corrupt"), AT_WORK, "fail"),
        (ZeroDivisionError("division by zero"), AT_WORK, "fail"),
    ],
)
def test_the_table(error, state, what):
    todo = dispose(error, state)
    assert (todo.what, todo.why) == (what, str(error))
    assert todo.code == ("stopped" if state is STOPPED else getattr(error, "code", "bug"))


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
