"""Is this machine fit for the work?  Every part that a task needs is looked at once; nothing is made or repaired.

For `doctor`.  Each finding says what was found and what to do.  A part that is broken is a finding, never an error: a
check may fail in any way a broken machine or plug-in can think of, and the next one runs all the same.
"""

from __future__ import annotations

import os
import platform
import stat
import sys
import tempfile
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import SecretStr

from agent import cgroups, clock, disk, gitcmd, keyring
from agent.config import Settings
from agent.config.kinds import size_text
from agent.errors import MakimonoError
from agent.run import doctor_hosts, doctor_model, doctor_network, holds, installed
from agent.security.redact import Redactor
from agent.work import rebase

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

OK, WARN, FAIL = "ok", "warn", "fail"

LOW = 2 << 30
"""Bytes of free disk below which there is a warning; below `scheduling.min_free` no task is started."""

SYNCS, SLOW_SYNC = 5, 0.25
"""Syncs that are timed, and the seconds of one from which there is a warning."""

FEW_FILES = 50_000
"""Free inodes below which there is a warning: a work tree may have many files."""

OLDEST_PYTHON = (3, 11)

# What broken machines, files and plug-ins raise.  Broad on purpose: a doctor that dies of the illness is of no use.
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
    """One finding.  `state` is ok, warn or fail; `advice` is "" where there is nothing to do."""

    name: str
    state: str
    found: str
    advice: str = ""


def examine(load: Callable[[bool], Settings], announce: Callable[[str], None] = lambda _name: None) -> Iterator[Check]:
    """Every finding, one after the other; `announce` hears the name of each part before it is looked at.

    `load(complete)` loads the configuration (`config.load`).  Where it is wrong that is a finding, and parts that need
    none, or can do with the defaults, are looked at all the same.
    """
    announce("configuration")
    settings, checks = _configuration(load)
    yield from checks
    redact = Redactor(settings.secrets()) if settings is not None else str
    for name, look in _parts(settings):
        announce(name)
        for check in _guarded(name, look):
            yield replace(check, found=redact(check.found), advice=redact(check.advice))


def worst(checks: Iterable[Check]) -> int:
    """The exit code: 3 when something failed, else 0."""
    return 3 if any(check.state == FAIL for check in checks) else 0


def _parts(settings: Settings | None) -> Iterator[tuple[str, Callable[[], Iterator[Check]]]]:
    yield "python", python
    yield "git", git
    yield "sqlite", sqlite
    if settings is None:
        yield "sandbox", lambda: sandbox(Settings())
        return
    yield "base_dir", lambda: base_dir(settings)
    yield "tasks.db" if settings.taskqueue.ledger == "sqlite" else "ledger", lambda: tasks_db(settings)
    if (address := settings.taskqueue.broker) is not None:
        yield "broker", lambda: broker(address)
    if (place := settings.context_storage.replica) is not None:
        yield "replica", lambda: replica(place)
    yield "disk", lambda: space(settings)
    yield "sandbox", lambda: sandbox(settings)
    yield "processes", processes
    yield "model", lambda: model(settings, None, None)
    summary = settings.context_storage.summary_model
    if summary.provider is not None or summary.model is not None:
        yield "summary model", lambda: model(settings, summary.provider or settings.llm.provider, summary.model)
    for source in settings.task_sources:
        yield source, lambda source=source: forge(settings, source)  # type: ignore[misc]


def _guarded(name: str, look: Callable[[], Iterator[Check]]) -> Iterator[Check]:
    """The findings of one part, and a failure as one more."""
    try:
        yield from look()
    except ANY as error:
        said = str(error) if isinstance(error, MakimonoError) else f"{type(error).__name__}: {error}"
        yield Check(name, FAIL, said)


# --- parts ---------------------------------------------------------------------------------------------------


def _configuration(load: Callable[[bool], Settings]) -> tuple[Settings | None, list[Check]]:
    """The settings, as far as they can be had, and what is to be said about them."""
    name = "configuration"
    try:
        settings = load(True)
    except ANY as error:
        checks = [Check(name, FAIL, str(error), "docs/configuration.md has every key; `config show` every value")]
    else:
        return settings, [_loaded(settings), *_files(settings)]
    try:
        return load(False), checks  # an unset ${NAME} is no reason to look at nothing else
    except ANY:
        return None, checks


def _files(settings: Settings) -> list[Check]:
    """Configuration files that others may write, or read where a secret stands in them."""
    found = []
    for name in sorted(set(settings.origins.values())):
        path = settings.root / name
        if not path.is_file():
            continue
        mode = mode_of(path)
        keys = [key for key, value, _ in settings.values() if settings.origins.get(key) == name and is_held(value)]
        if mode & 0o022:
            more = "others may write it, and it says which commands run and where tokens go"
            found.append(Check("configuration", WARN, f"{path} has mode {mode:04o}: {more}", f"chmod 600 {path}"))
        elif mode & 0o044 and keys:
            more = f"others may read {', '.join(keys[:3])} in it"
            found.append(Check("configuration", WARN, f"{path} has mode {mode:04o}: {more}", f"chmod 600 {path}"))
    return found


def is_held(value: object) -> bool:
    """Whether a value is a secret that is written out."""
    return isinstance(value, SecretStr) and bool(value.get_secret_value())


def _loaded(settings: Settings) -> Check:
    files = sorted({origin for origin in settings.origins.values() if origin.endswith((".yaml", ".yml"))})
    count = sum(1 for origin in settings.origins.values() if origin != "default")
    where = ", ".join(files) if files else "no file sets anything, the defaults"
    return Check("configuration", OK, f"{where} in {settings.root}; {count} value(s) are set")


def python() -> Iterator[Check]:
    """The interpreter."""
    found = f"Python {platform.python_version()} at {sys.executable}"
    if sys.version_info[:2] < OLDEST_PYTHON:
        yield Check("python", FAIL, found, "Python 3.11 or newer is needed; install it and run scripts/setup again")
    else:
        yield Check("python", OK, found)


def git() -> Iterator[Check]:
    """The program git."""
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
    """The SQLite library."""
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
    """The folder of everything that is kept: can be written, and by nobody else."""
    folder, name = settings.base_dir, "base_dir"
    if not folder.is_dir():
        if folder.exists() or folder.is_symlink():
            yield Check(
                name, FAIL, f"{folder} is not a folder", "move it away, or set context_storage.base_dir elsewhere"
            )
            return
        parent = existing(folder)
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
        if any(map(disk.is_locked, folder.glob("daemon*.lock"))):
            old = installed.outdated(settings)
            yield Check(
                "daemon", WARN if old else OK, old or f"a daemon works on {folder}", installed.RESTART * bool(old)
            )
        for line in holds.lines(folder):
            yield Check("starts", WARN, line, "mend what the newest of these tasks failed by (`show UUID`)")
    except OSError:
        pass  # another user's; then the folder is, too, and that was said


_WRITE = "give this user the folder (chown, chmod), or set context_storage.base_dir elsewhere"


def _modes(folder: Path) -> list[Check]:
    """Folders and files that others may look into, or that stand in the way of the sandbox."""
    found = []
    passable = disk.passable()
    modes = {
        folder: passable,
        folder / "running": passable,
        folder / "completed": 0o700,
        folder / "repos": passable & 0o710,
    }
    for path, wanted in modes.items():
        if not path.is_dir() or (path == folder and disk.is_unused(path)):
            continue  # the first use gives a folder without anything in it its mode
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
    """The permission bits."""
    return stat.S_IMODE(path.stat().st_mode)


def tasks_db(settings: Settings) -> Iterator[Check]:
    """The rows: whole, and of a schema that this version knows."""
    from agent.store import db, migrate

    path, name = settings.base_dir / "tasks.db", "tasks.db"
    ledger = settings.taskqueue.ledger
    if ledger.startswith("postgresql:"):
        yield _hosts("ledger", doctor_hosts.ledger(settings))
        return
    if ledger != "sqlite":
        yield Check("ledger", WARN, f"taskqueue.ledger is {ledger}; a plug-in is not looked at here")
        return
    if not path.exists():
        yield Check(name, OK, f"{path} is not there yet; it is made at the first use")
        return
    sqlite = db.module()
    advice = (
        f"stop the daemon and move {path} and its -wal and -shm files away: the next start makes the rows again "
        f"from the tasks' folders, all but priorities; or put a backup in its place"
    )
    try:
        with closing(sqlite.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=10)) as connection:
            said = [row[0] for row in connection.execute("PRAGMA integrity_check(5)")]
            known = [number for number, _, _ in migrate.migrations()]
            applied = _applied(connection, sqlite)
            count = connection.execute("SELECT COUNT(*) FROM tasks").fetchone()[0] if applied else 0
    except sqlite.Error as error:
        if not db.is_broken(error):  # not opened, not read, locked
            advice = f"look at owner and mode of {path} and of its folder, and at the disk; leave the file where it is"
        yield Check(name, FAIL, f"{path}: {error}", advice)
        return
    if said != ["ok"]:
        yield Check(name, FAIL, f"{path} is damaged: {'; '.join(said)}", advice)
    elif unknown := sorted(set(applied) - set(known)):
        yield Check(
            name, FAIL, f"{path} has schema {unknown[-1]}, this version knows {known[-1]}", "update the program"
        )
    elif set(known) - set(applied):
        yield Check(name, OK, f"{path} is whole, {count} task(s); its schema is brought up to date at the next use")
    else:
        yield Check(name, OK, f"{path} is whole, {count} task(s), schema {known[-1]}")
        yield from missing_sources(settings)


def broker(address: str) -> Iterator[Check]:
    """What wakes the workers of other hosts."""
    yield _hosts("broker", doctor_hosts.broker(address))


def replica(address: str) -> Iterator[Check]:
    """Where running tasks are kept a second time."""
    yield _hosts("replica", doctor_hosts.replica(address))


def missing_sources(settings: Settings) -> Iterator[Check]:
    """Open tasks whose source is not configured any more; nothing where all are."""
    from agent.run import sources

    for said in sources.of_file(settings):
        yield Check("sources", WARN, said)


def _hosts(name: str, finding: doctor_hosts.Finding) -> Check:
    fit, found, advice = finding
    return Check(name, OK if fit else FAIL, found, advice)


def _applied(connection: object, sqlite: object) -> list[int]:
    """The migrations that a database has, [] for a new one."""
    try:
        rows = connection.execute("SELECT version FROM schema_version ORDER BY version")  # type: ignore[attr-defined]
        return [int(row[0]) for row in rows]
    except sqlite.OperationalError:  # type: ignore[attr-defined]
        return []


def space(settings: Settings) -> Iterator[Check]:
    """Room on the disk of base_dir."""
    folder, least = settings.base_dir, settings.scheduling.min_free or 0
    place = existing(folder)
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
    """How long a sync takes: the median of a few, of a file without a name."""
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


def existing(path: Path) -> Path:
    """`path`, or the nearest folder above it that is there."""
    for folder in (path, *path.parents):
        if folder.is_dir():
            return folder
    return Path("/")


def sandbox(settings: Settings) -> Iterator[Check]:
    """Whether commands can be isolated."""
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
        whole, filtered = seccomp.described(settings)
        keys = "a new one for each command" if keyring.works() else "this kernel has none, or refuses a new one"
        yield Check("system calls", OK if whole else WARN, f"{filtered}; session keyring: {keys}")
    for state, found, advice in doctor_network.findings(settings, made):
        yield Check("network", state, found, advice)


def processes() -> Iterator[Check]:
    """By what the processes of a task are found and held; nothing here is needed."""
    yield Check("processes", OK, str(cgroups.find()))


def model(settings: Settings, provider: str | None, name: str | None) -> Iterator[Check]:
    """The model's server, the model, its true window, and how tokens are counted."""
    for part, state, found, advice in doctor_model.findings(settings, provider, name):
        yield Check(part, state, found, advice)


def forge(settings: Settings, source: str) -> Iterator[Check]:
    """The places of one source, read as a poll does."""
    from agent.forge.base import FORGES
    from agent.forge.local import LocalForge
    from agent.run.pace import settled

    for one in FORGES.load(source).all(settings):
        with closing(one):
            try:
                getter = one.getter()
                waiting = getter.get_task_list()
            except MakimonoError as error:
                yield Check(source, _missing(settings, one, "local.tracker"), str(error))
            else:
                idle = getattr(one, "idle", None)  # a folder costs nobody anything
                cost = f"; {idle(settled(settings))}" if idle is not None else ""
                yield Check(source, OK, f"{one.instance} can be read, {len(waiting)} task(s) wait{cost}")
                for fault in getattr(one, "rights", tuple)():
                    yield Check(source, WARN, fault)
                for problem in getter.problems:
                    yield Check(source, WARN, f"an issue is skipped: {problem}")
            if isinstance(one, LocalForge):
                yield from repositories(one.repos, _missing(settings, one, "local.repos"))


def _missing(settings: Settings, place: object, key: str) -> str:
    """How bad it is that a place cannot be read: nobody may want a tracker that is not configured, `solve` needs
    none."""
    return WARN if getattr(place, "source", "") == "local" and settings.origins.get(key) == "default" else FAIL


def repositories(repos: Mapping[str, str], state: str = FAIL) -> Iterator[Check]:
    """The repositories of a local tracker, read as a task does."""
    from agent.config.environment import network_environment
    from agent.work.remote import Remote

    for name, address in repos.items():
        part = f"repository {name}"
        try:
            listing = Remote(address, env=network_environment()).list()
        except MakimonoError as error:
            yield Check(part, state, f"{address}: {error}", "set local.repos in config.yaml to where the repository is")
            continue
        yield Check(part, OK, f"{address} can be read, {len(listing.branches())} branch(es)")
