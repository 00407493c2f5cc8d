"""Every row of the table that says what an error makes of a task."""

import errno
import re
from dataclasses import replace
from datetime import timedelta
from functools import partial
from importlib import import_module
from pathlib import Path

import pytest

from agent.errors import (
    AccessRefused,
    ContextOverflow,
    DiskError,
    EndedBefore,
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
    RecordRefused,
    RemoteAway,
    RemoteRefused,
    RepositoryMissing,
    RequestRefused,
    SandboxUnavailable,
    SetupFailed,
    TakenElsewhere,
    WorkError,
    is_unforeseen,
)
from agent.values import End, Outcome
from agent.window.base import _NOT_FITTING, DoesNotFit
from agent.worker import program_upgrade
from agent.worker.error_disposition import (
    ATTEMPTS,
    FINAL,
    LONGEST_PAUSE,
    LONGEST_SECONDS,
    PUBLISHING_HOURS,
    REPLACED,
    TaskState,
    dispose,
)

ROOT = Path(__file__).resolve().parents[3]

AT_WORK = TaskState()
NEW = TaskState(begun=False)
DONE = TaskState(outcome=Outcome(End.FINISHED, "It is done."), over=True)
BROKEN = TaskState(outcome=Outcome(End.FAILED, "No quota.", code="quota_exhausted"))
STOPPED = TaskState(outcome=Outcome(End.STOPPED, "A person asked for it."))
LAST = TaskState(tries=ATTEMPTS - 1)
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
        (TakenElsewhere("another daemon has it"), DONE, "stop"),
        (EndedBefore("the issue shows the end", status="completed"), AT_WORK, "believe"),
        (EndedBefore("the issue shows the end", status="completed"), DONE, "believe"),
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
        (ForgeUnreachable("away"), TaskState(lost=True), "fail"),
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
        (RecordRefused("role is 'x'"), AT_WORK, "fail"),
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


def load_all_errors():
    """Import the modules that define an error, until no further one is found: an error may be below one of another room."""
    loaded = set()
    while new := set(rooms_with_errors()) - loaded:
        for module in new:
            import_module(module)
        loaded |= new


def test_what_is_final_is_a_list_and_a_new_error_waits():
    """Whoever adds a class to the tree and wants it final adds it here and there."""

    class Unheard(MakimonoError):
        code = "unheard"

    try:
        load_all_errors()
        found = {kind.__name__ for kind in every(MakimonoError) if issubclass(kind, FINAL)}
        assert found == {
            *("ConfigError", "UsageError", "ContextError", "IssueUnreadable", "PictureRefused", "ToolError"),
            *("RecordRefused", "PlugInRefused", "CommandRefused", "TemplateRefused", "FolderChanges", "ShapeWrong"),
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
    assert dispose(error, TaskState(tries=tries)).when == seconds


def test_where_it_would_be_said_is_what_is_away():
    assert dispose(ForgeUnreachable("away"), AT_WORK).silent
    assert not dispose(ModelStalled("sent nothing"), AT_WORK).silent


def test_an_error_without_words_is_named():
    assert dispose(KeyError(), AT_WORK).why == "KeyError"


def test_the_guide_lists_every_code_that_ends_a_task_at_once():
    load_all_errors()
    text = " ".join((Path(__file__).parents[3] / "docs/operations.md").read_text().split())
    start, end = "These codes end a task at once", "After every other error the task is tried again"
    assert start in text
    assert end in text
    table = text.partition(start)[2].partition(end)[0]
    listed = set(re.findall(r"`([a-z_]+)`", table))
    kinds = [one for one in every(MakimonoError) if issubclass(one, FINAL) and one is not DoesNotFit]
    assert listed == {one.code for one in kinds} | {code for code, *_ in _NOT_FITTING.values()} | {"bug"}


def test_an_error_that_is_its_own_cause_is_looked_at_once():
    """A worker went round such an error for ever, with its task neither requeued nor told."""
    error = GitError("git push failed")
    error.__cause__ = error
    assert not is_unforeseen(error)
    mistake = KeyError("x")
    error.__cause__ = mistake
    mistake.__cause__ = error
    assert is_unforeseen(error)


def test_an_own_error_that_is_also_a_mistake_has_its_own_code_and_a_traceback_in_the_log():
    refused = RecordRefused("role is 'x'; allowed are user, assistant, tool, system")
    assert is_unforeseen(refused)
    assert not is_unforeseen(IssueUnreadable("gone"))
    assert dispose(refused, AT_WORK).code == "record_refused"
    assert dispose(refused, TaskState(replaced=True)).what == "requeue", "as any mistake among modules of two versions"


def test_a_mistake_among_modules_of_two_versions_is_tried_again_by_a_new_worker():
    mistake = AttributeError("module 'agent.durable_files' has no attribute 'read_at'")
    assert dispose(mistake, TaskState()).what == "fail"
    todo = dispose(mistake, TaskState(replaced=True))
    assert (todo.what, todo.code) == ("requeue", "host")
    assert todo.why == f"{REPLACED}: {mistake}"
    assert dispose(mistake, TaskState(replaced=True, tries=ATTEMPTS)).what == "fail", "not for ever"
    assert dispose(IssueUnreadable("gone"), TaskState(replaced=True)).what == "fail"


def test_a_module_that_was_written_anew_is_noticed(tmp_path, monkeypatch):
    (tmp_path / "room").mkdir()
    (tmp_path / "room/one.py").write_text("one = 1\n")
    (tmp_path / "notes.txt").write_text("x")
    monkeypatch.setattr(program_upgrade, "LOADED", program_upgrade.stats(tmp_path))
    monkeypatch.setattr(program_upgrade, "stats", partial(program_upgrade.stats, tmp_path))
    assert not program_upgrade.replaced()
    (tmp_path / "notes.txt").write_text("y")
    assert not program_upgrade.replaced()
    (tmp_path / "room/new.py").write_text("")
    assert program_upgrade.replaced()
