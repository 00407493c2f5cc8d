"""Checks whether this machine can do the work: every part that a task needs is checked once; only `repair_rows.py`
repairs anything.

Each finding of `doctor` has an observation and advice. A broken part leads to a finding, never to an error: a check may
fail in any way that a broken machine or plug-in can cause, and the next check still runs.
"""

from __future__ import annotations

import os
import platform
import stat
import sys
import tempfile
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from agent import cgroups, clock, durable_files, gitcmd, session_keyring
from agent.commands import (
    doctor_configuration,
    doctor_memory,
    doctor_model,
    doctor_network,
    doctor_plug_ins,
    doctor_poke,
    doctor_reviewers,
    doctor_shared_services,
    doctor_templates,
    doctor_traces,
)
from agent.config.url_passwords import without_passwords
from agent.config.value_kinds import size_text
from agent.daemon import program_version, start_holds
from agent.errors import LedgerError, MakimonoError
from agent.security.redact import masker_of
from agent.values import TaskKey
from agent.work import rebase

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from agent.config import Settings
    from agent.forge.base import Forge
    from agent.store.ledgers import Finding

OK, WARN, FAIL = "ok", "warn", "fail"

NOT_LOOKED_AT = "not looked at: the configuration cannot be read"

LOW = 2 << 30
"""`doctor` warns if the disk of base_dir has fewer free bytes than LOW; the daemon starts no task below
`scheduling.min_free`."""

SYNCS, SLOW_SYNC = 5, 0.25
"""The number of disk syncs that `doctor` times, and the median duration in seconds from which it warns."""

FEW_FILES = 50_000
"""`doctor` warns if the disk has fewer than FEW_FILES free inodes, since a work tree may have many files."""

OLDEST_PYTHON = (3, 11)

# Errors of broken machines, files and plug-ins. The tuple of errors is broad on purpose: a failing check must not end
# `doctor`.
ANY = (
    MakimonoError,
    OSError,
    ValueError,
    TypeError,
    LookupError,
    AttributeError,
    ImportError,
    RuntimeError,
    ArithmeticError,
)


@dataclass(frozen=True, slots=True)
class Check:
    """One finding of `doctor` about a part of the machine.

    `state` is ok, warn or fail; `advice` is "" if there is nothing to do.
    """

    name: str
    state: str
    found: str
    advice: str = ""


def examine(load: Callable[[bool], Settings], announce: Callable[[str], None] = lambda _name: None) -> Iterator[Check]:
    """Yields every finding, one after the other; `announce` is called with the name of each part before the part is
    checked.

    `load` is `config.load`, which loads the configuration.  A wrong configuration is also a finding.  If the
    configuration is wrong, the parts that need no configuration are still checked; the others are reported as not
    checked, because a check with the defaults would show nothing about this machine.
    """
    announce("configuration")
    settings, checks = _configuration(load)
    yield from checks
    redact = masker_of(settings) if settings is not None else str
    for name, look in _parts(settings):
        announce(name)
        yield from _masked(name, look, redact)


LOCAL = ("python", "git", "sqlite", "base_dir", "plug-ins", "webhooks", "disk", "sandbox", "processes")
"""The parts of the machine that `doctor` can check without a request to a server and without reading a large file."""


def examine_locally(settings: Settings) -> Iterator[Check]:
    """The findings of `doctor` about the parts of LOCAL."""
    for name, look in _parts(settings):
        if name in LOCAL:
            yield from _masked(name, look, masker_of(settings))


def worst(checks: Iterable[Check]) -> int:
    """The exit code of `doctor`: 3 when a check failed, else 0."""
    return 3 if any(check.state == FAIL for check in checks) else 0


def _parts(settings: Settings | None) -> Iterator[tuple[str, Callable[[], Iterator[Check]]]]:
    yield "python", python
    yield "git", git
    yield "sqlite", sqlite
    if settings is None:
        for name in ("base_dir", "tasks.db", "disk", "sandbox", "model", "sources"):
            yield name, lambda name=name: iter([Check(name, WARN, NOT_LOOKED_AT)])  # type: ignore[misc]
        yield "processes", processes
        return
    yield "base_dir", lambda: base_dir(settings)
    yield "ledger", lambda: ledger(settings)
    if (address := settings.taskqueue.broker) is not None:
        yield "broker", lambda: broker(settings, address)
    if (place := settings.context_storage.replica) is not None:
        yield "replica", lambda: replica(place)
    if settings.memory.enabled:
        yield "memory", lambda: (Check("memory", *one) for one in doctor_memory.findings(settings))
    if settings.mcp_servers:
        yield "mcp", lambda: mcp(settings)
    yield "plug-ins", lambda: (Check("plug-in", *one) for one in doctor_plug_ins.findings(settings))
    yield "webhooks", lambda: (_found("webhooks", one) for one in doctor_poke.findings(settings))
    if settings.observe.otlp is not None:
        yield "traces", lambda: (Check("traces", *one) for one in doctor_traces.findings(settings))
    if settings.prompts.is_set:
        yield "prompts", lambda: (Check("prompts", *one) for one in doctor_templates.findings(settings))
    yield "disk", lambda: space(settings)
    yield "sandbox", lambda: sandbox(settings)
    yield "processes", processes
    yield "model", lambda: model(settings, None, None)
    summary = settings.context_storage.summary_model
    if summary.provider is not None or summary.model is not None:
        yield "summary model", lambda: model(settings, summary.provider or settings.llm.provider, summary.model)
    if doctor_reviewers.are_used(settings):
        yield "reviewers", lambda: (Check("reviewers", *one) for one in doctor_reviewers.findings(settings))
        for provider, named in doctor_reviewers.other_models(settings):
            yield "reviewer model", lambda at=provider, named=named: model(settings, at, named)  # type: ignore[misc]
    for source in settings.task_sources:
        yield source, lambda source=source: forge(settings, source)  # type: ignore[misc]


def _masked(name: str, look: Callable[[], Iterator[Check]], redact: Callable[[str], str]) -> Iterator[Check]:
    """The findings of one part, with secrets masked."""
    for check in _guarded(name, look):
        found, advice = (without_passwords(redact(text)) for text in (check.found, check.advice))
        yield replace(check, found=found, advice=advice)


def _guarded(name: str, look: Callable[[], Iterator[Check]]) -> Iterator[Check]:
    """The findings of one part; if the check itself fails, that is one more finding."""
    try:
        yield from look()
    except ANY as error:
        said = str(error) if isinstance(error, MakimonoError) else f"{type(error).__name__}: {error}"
        yield Check(name, FAIL, said)


# --- parts ---------------------------------------------------------------------------------------------------


def _configuration(load: Callable[[bool], Settings]) -> tuple[Settings | None, list[Check]]:
    """The settings, as far as they can be loaded, and the findings of `doctor` about them."""
    name = "configuration"
    try:
        settings = load(True)
    except ANY as error:
        checks = [Check(name, FAIL, str(error), "docs/configuration.md has every key; `config show` every value")]
    else:
        about = (Check(name, *one) for one in doctor_configuration.findings(settings))
        return settings, [_loaded(settings), *about]
    try:
        return load(False), checks  # an unset ${NAME} must not prevent the other checks
    except ANY:
        return None, checks


def _loaded(settings: Settings) -> Check:
    files = sorted({origin for origin in settings.origins.values() if origin.endswith((".yaml", ".yml"))})
    count = sum(1 for origin in settings.origins.values() if origin != "default")
    where = ", ".join(files) if files else "no file sets anything, the defaults"
    return Check("configuration", OK, f"{where} in {settings.root}; {count} value(s) are set")


def python() -> Iterator[Check]:
    """Check the Python interpreter."""
    found = f"Python {platform.python_version()} at {sys.executable}"
    if sys.version_info[:2] < OLDEST_PYTHON:
        yield Check("python", FAIL, found, "Python 3.11 or newer is needed; install it and run scripts/setup again")
    else:
        yield Check("python", OK, found)


def git() -> Iterator[Check]:
    """Check the program git."""
    version = gitcmd.version()
    found = f"git {'.'.join(map(str, version))} at {gitcmd.program()}"
    if version < gitcmd.MINIMUM:
        least = ".".join(map(str, gitcmd.MINIMUM))
        yield Check("git", FAIL, found, f"git {least} or newer is needed; install a newer one")
    elif version < rebase.NEEDS:
        least = ".".join(map(str, rebase.NEEDS))
        advice = f"install git {least} or newer to have branches rebased"
        yield Check("git", WARN, f"{found}: a branch is not rebased onto a base that has moved on", advice)
    else:
        yield Check("git", OK, found)


def sqlite() -> Iterator[Check]:
    """Check the SQLite library."""
    from agent.store.db import sqlite_version

    version, module, safe = sqlite_version()
    if safe:
        yield Check("sqlite", OK, f"SQLite {version} of {module}")
    else:
        yield Check(
            "sqlite",
            FAIL,
            f"SQLite {version or 'none'} of {module or 'no module'} has the WAL-reset bug, which damages tasks.db",
            "pip install 'pysqlite3>=0.6.1', or run scripts/setup again",
        )


def base_dir(settings: Settings) -> Iterator[Check]:
    """Check the folder of all stored data: whether it is writable, and only this user can access it."""
    folder, name = settings.base_dir, "base_dir"
    if not settings.context_storage.enabled:
        yield Check(
            "task folders",
            WARN,
            "context_storage.enabled is false: a task whose worker ends before it is done (a pause, a question, a stop "
            "of the daemon, a crash) forgets its conversation and begins anew",
            "set context_storage.enabled to true, unless nothing may stay on this disk",
        )
    if not folder.is_dir():
        if folder.exists() or folder.is_symlink():
            yield Check(
                name, FAIL, f"{folder} is not a folder", "move it away, or set context_storage.base_dir elsewhere"
            )
            return
        parent = nearest_existing(folder)
        if os.access(parent, os.W_OK | os.X_OK):
            yield Check(name, OK, f"{folder} is not there yet; it is made at the first use")
        else:
            yield Check(name, FAIL, f"{folder} is not there, and {parent} cannot be written", _WRITE)
        return
    if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        yield Check(name, FAIL, f"{folder} cannot be written by this user", _WRITE)
        return
    yield from _modes(folder) or [Check(name, OK, f"{folder} (mode {mode_of(folder):04o})")]
    try:
        if any(map(durable_files.is_locked, folder.glob("daemon*.lock"))):
            old = program_version.restart_reason(settings)
            yield Check(
                "daemon", WARN if old else OK, old or f"a daemon works on {folder}", program_version.RESTART * bool(old)
            )
        for line in start_holds.lines(folder):
            yield Check("starts", WARN, line, "mend what the newest of these tasks failed by (`show UUID`)")
    except OSError:
        pass  # another user owns the daemon's files and so also base_dir, which is a finding already


_WRITE = "give this user the folder (chown, chmod), or set context_storage.base_dir elsewhere"


def _modes(folder: Path) -> list[Check]:
    """Findings about folders and files that other users can read, or that have modes that block the sandbox."""
    found = []
    passable = durable_files.passable()
    modes = {
        folder: passable,
        folder / "running": passable,
        folder / "completed": 0o700,
        folder / "repos": passable & 0o710,
    }
    for path, wanted in modes.items():
        if not path.is_dir() or (path == folder and durable_files.is_unused(path)):
            continue  # the program sets the mode of an empty base_dir at its first use
        mode = mode_of(path)
        if mode & ~wanted & 0o077:
            more = "others may look into what tasks keep"
            found.append(Check("base_dir", WARN, f"{path} has mode {mode:04o}: {more}", f"chmod {wanted:o} {path}"))
        elif wanted & 0o001 & ~mode:
            found.append(
                Check(
                    "base_dir",
                    WARN,
                    f"{path} has mode {mode:04o}: commands run under another user and cannot reach their work tree",
                    f"chmod {wanted:o} {path}",
                )
            )
    private = [path for path in (folder / "tasks.db", folder / "memory.db") if path.is_file() and mode_of(path) & 0o077]
    found += [Check("base_dir", WARN, f"{path} has mode {mode_of(path):04o}", f"chmod 600 {path}") for path in private]
    return found


def mode_of(path: Path) -> int:
    """The permission bits of a file."""
    return stat.S_IMODE(path.stat().st_mode)


def ledger(settings: Settings) -> Iterator[Check]:
    """Check the rows of tasks in the ledger: whether the program can read them, and whether the source of every open
    task is still configured."""
    from agent.store.ledgers import LedgerKind

    kind = LedgerKind.of(settings)
    check = _found(kind.title, kind.check())
    yield check
    if check.state == OK:
        yield from missing_sources(settings)


def broker(settings: Settings, address: str) -> Iterator[Check]:
    """Check the broker, which notifies the daemons of other hosts of new rows."""
    yield _found("broker", doctor_shared_services.broker(settings, address))


def replica(address: str) -> Iterator[Check]:
    """Check the storage of the replicas of running tasks."""
    yield _found("replica", doctor_shared_services.replica(address))


def mcp(settings: Settings) -> Iterator[Check]:
    """Check the MCP servers: each is started, and its tools are listed."""
    from agent.commands import doctor_mcp

    for state, found, advice in doctor_mcp.findings(settings):
        yield Check("mcp", state, found, advice)


def missing_sources(settings: Settings) -> Iterator[Check]:
    """A finding about open tasks of a source that is not configured any more; no finding if no task has such a source,
    or if the ledger has no rows yet."""
    from agent.store.ledgers import LedgerKind
    from agent.taskqueue.ledger import open_instances
    from agent.wiring import missing_task_sources

    kind = LedgerKind.of(settings)
    if not kind.exists():
        return
    try:
        with closing(kind.look()) as database:
            places = open_instances(database)
    except LedgerError:
        return  # the ledger's database cannot be read, or has an old schema without the tables
    for said in missing_task_sources.without_source(settings, places):
        yield Check("sources", WARN, said)


def _found(name: str, finding: Finding) -> Check:
    fit, found, advice = finding
    return Check(name, OK if fit else FAIL, found, advice)


def space(settings: Settings) -> Iterator[Check]:
    """Check whether the disk of base_dir has enough free space."""
    folder, least = settings.base_dir, settings.scheduling.min_free or 0
    place = nearest_existing(folder)
    found = os.statvfs(place)
    if folder.is_dir() and os.access(folder, os.W_OK):
        yield _speed(folder)
    free = found.f_bavail * found.f_frsize
    text = f"{free / (1 << 30):,.1f} GiB free for {folder}"
    advice = "free some space (`cleanup` removes old tasks), or set context_storage.base_dir elsewhere"
    if found.f_flag & os.ST_RDONLY:
        yield Check("disk", FAIL, f"the file system of {place} is read-only", _WRITE)
    elif free < least:
        yield Check(
            "disk", FAIL, f"{text}; `scheduling.min_free` is {size_text(least)}, so that no task is started", advice
        )
    elif free < max(LOW, 2 * least):
        yield Check("disk", WARN, text, advice)
    elif found.f_files and found.f_favail < FEW_FILES:
        yield Check("disk", WARN, f"{text}, but only {found.f_favail:,} more files are possible", advice)
    else:
        yield Check("disk", OK, text)


def _speed(folder: Path) -> Check:
    """A finding about the duration of a disk sync: the median of a few syncs of an unnamed temporary file."""
    times = []
    with tempfile.TemporaryFile(dir=folder) as file:
        for _ in range(SYNCS):
            os.write(file.fileno(), b"\0" * 4096)
            started = clock.monotonic()
            os.fsync(file.fileno())
            times.append(clock.monotonic() - started)
    median = sorted(times)[SYNCS // 2]
    text = f"a sync on the disk of {folder} takes {median * 1000:,.1f} ms"
    if median < SLOW_SYNC:
        return Check("disk speed", OK, text)
    return Check(
        "disk speed", WARN, f"{text}; a turn has several", "put context_storage.base_dir on a faster, local disk"
    )


def nearest_existing(path: Path) -> Path:
    """`path`, or the nearest existing folder above it."""
    for folder in (path, *path.parents):
        if folder.is_dir():
            return folder
    return Path("/")


def sandbox(settings: Settings) -> Iterator[Check]:
    """Check whether commands can be isolated."""
    from agent.sandbox import make_sandbox, probe, seccomp
    from agent.sandbox.probe import TRIAL

    verdict = probe(settings)
    if not verdict.ok:
        yield Check("sandbox", FAIL, verdict.reason, verdict.advice)
        return
    made = make_sandbox(settings, uuid=TRIAL, base_dir=settings.base_dir)
    if made.kind == "refused":
        yield Check("sandbox", FAIL, made.reason, made.advice)
        return
    user = "" if made.uid is None else f", commands run as user {made.uid}"
    yield Check("sandbox", WARN if verdict.kind == "none" else OK, verdict.reason + user, verdict.advice)
    if made.kind == "bubblewrap":
        whole, filtered = seccomp.describe(settings)
        keys = (
            "a new one for each command"
            if session_keyring.is_supported()
            else "this kernel has none, or refuses a new one"
        )
        yield Check("system calls", OK if whole else WARN, f"{filtered}; session keyring: {keys}")
    for state, found, advice in doctor_network.findings(settings, made):
        yield Check("network", state, found, advice)


def processes() -> Iterator[Check]:
    """Check the means by which a task's processes are found and limited; none of them is required."""
    yield Check("processes", OK, str(cgroups.find()))


def model(settings: Settings, provider: str | None, name: str | None) -> Iterator[Check]:
    """Check the server of the model, the model, its effective window, and the counting of tokens."""
    for part, state, found, advice in doctor_model.findings(settings, provider, name):
        yield Check(part, state, found, advice)


def forge(settings: Settings, source: str) -> Iterator[Check]:
    """Check the instances of one source of tasks, by reading them as a poll does."""
    from agent.forge.base import FORGES, ForgeReports
    from agent.intake.interval import idle_interval

    # If the projects of a section have several sets of labels, the section has an adapter for each set.
    told: set[str] = set()
    for one in FORGES.load(source, settings.plugin_guard).from_settings(settings):
        with closing(one):
            reports = ForgeReports(one)
            try:
                getter = one.task_getter()
                waiting = getter.get_task_list()
            except MakimonoError as error:
                yield Check(source, _missing(settings, one, "local.tracker"), str(error))
            else:
                idle = reports.idle(idle_interval(settings))
                cost = f"; {idle}" if idle else ""
                yield Check(source, OK, f"{one.instance} can be read, {len(waiting)} task(s) wait{cost}")
                skipped = (f"an issue is skipped: {problem}" for problem in getter.problems)
                faults = chain(reports.rights(), _refusals(settings, one), reports.label_problems(), skipped)
                account = reports.account()
                for state, said in chain([(OK, account)] if account else [], ((WARN, fault) for fault in faults)):
                    if said not in told:
                        told.add(said)
                        yield Check(source, state, said)
            yield from repositories(reports.addresses(), _missing(settings, one, "local.repos"))


def _refusals(settings: Settings, place: Forge) -> Iterator[str]:
    """Sentences about repositories in which the forge refused the last change of the daemon."""
    from agent.forge.refused_changes import RefusedChanges

    for repository, refusal in RefusedChanges(settings.base_dir / "limits", place.instance).all().items():
        owner, _, name = repository.rpartition("/")
        if place.covers(TaskKey(place.source, owner, name, "issue", "1", place.instance)):
            yield (
                f"{place.instance}: changes in {repository} were refused {refusal.tries} times in a row, last of "
                f"{refusal.issue}: {refusal.why}. Give the token the right to write issues; the daemon tries again by "
                f"itself"
            )


def _missing(settings: Settings, place: object, key: str) -> str:
    """The state of the finding about an instance that cannot be read: only a warning if it is a tracker that is not
    configured, because the user may not want a tracker, and `solve` needs none."""
    return WARN if getattr(place, "source", "") == "local" and settings.origins.get(key) == "default" else FAIL


def repositories(repos: Mapping[str, str], state: str = FAIL) -> Iterator[Check]:
    """Check the repositories with an address in the configuration of a source, by reading them as a task does."""
    from agent.config.environment import network_environment
    from agent.work.remote import Remote

    for name, address in repos.items():
        part = f"repository {name}"
        try:
            listing = Remote(address, env=network_environment()).list()
        except MakimonoError as error:
            yield Check(
                part,
                state,
                f"{address}: {error}",
                "set its address in config.yaml (local.repos, for a tracker) to where it is",
            )
            continue
        yield Check(part, OK, f"{address} can be read, {len(listing.branches())} branch(es)")
