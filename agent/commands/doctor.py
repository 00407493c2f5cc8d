"""Checks whether this machine can do the work: every part that a task needs is checked once; only `repair_rows.py`
repairs anything.

Each finding of `doctor` has an observation and advice. A broken part leads to a finding, never to an error: an
exception ends only the check that raises it, and the next one still runs. The modules `doctor_*.py` check the
larger parts.
"""

from __future__ import annotations

import platform
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

from agent import cgroups, gitcmd, session_keyring
from agent.commands import (
    doctor_base_dir,
    doctor_configuration,
    doctor_memory,
    doctor_model,
    doctor_network,
    doctor_plug_ins,
    doctor_poke,
    doctor_reviewers,
    doctor_shared_services,
    doctor_sources,
    doctor_templates,
    doctor_traces,
)
from agent.commands.doctor_check import FAIL, OK, WARN, DoctorCheck
from agent.config.url_passwords import without_passwords
from agent.error_text import named, text_of
from agent.errors import MakimonoError
from agent.observe import log
from agent.security.redact import masker_of
from agent.work import rebase

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from agent.config import Settings
    from agent.store.configured_ledger import Finding

NOT_LOOKED_AT = "not looked at: the configuration cannot be read"


OLDEST_PYTHON = (3, 11)


def examine(
    load: Callable[[bool], Settings], announce: Callable[[str], None] = lambda _name: None
) -> Iterator[DoctorCheck]:
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
    for name, found in _parts(settings):
        announce(name)
        yield from _masked(name, found, redact)


LOCAL = ("python", "git", "sqlite", "base_dir", "plug-ins", "webhooks", "disk", "sandbox", "processes")
"""The parts that `doctor` can check without a request to another machine and without reading a large file."""


def examine_locally(settings: Settings) -> Iterator[DoctorCheck]:
    """The findings of `doctor` about the parts of LOCAL."""
    for name, found in _parts(settings):
        if name in LOCAL:
            yield from _masked(name, found, masker_of(settings))


def worst(checks: Iterable[DoctorCheck]) -> int:
    """The exit code of `doctor`: 3 when a check failed, else 0."""
    return 3 if any(check.state == FAIL for check in checks) else 0


def _parts(settings: Settings | None) -> Iterator[tuple[str, Iterator[DoctorCheck]]]:
    """(name, findings) of each part of `doctor`. A part is not checked before the caller reads its findings."""
    yield "python", python()
    yield "git", git()
    yield "sqlite", sqlite()
    if settings is None:
        for name in ("base_dir", "tasks.db", "disk", "sandbox", "model", "sources"):
            yield name, iter([DoctorCheck(name, WARN, NOT_LOOKED_AT)])
        yield "processes", processes()
        return
    yield "base_dir", doctor_base_dir.base_dir(settings)
    yield "ledger", ledger(settings)
    if (address := settings.taskqueue.broker) is not None:
        yield "broker", broker(settings, address)
    if (place := settings.context_storage.replica) is not None:
        yield "replica", replica(place)
    if settings.memory.enabled:
        yield "memory", _named("memory", doctor_memory.findings(settings))
    if settings.mcp_servers:
        yield "mcp", mcp(settings)
    yield "plug-ins", _named("plug-in", doctor_plug_ins.findings(settings))
    yield "webhooks", webhooks(settings)
    if settings.observe.otlp is not None:
        yield "traces", _named("traces", doctor_traces.findings(settings))
    if settings.prompts.is_set:
        yield "prompts", _named("prompts", doctor_templates.findings(settings))
    yield "disk", doctor_base_dir.disk(settings)
    yield "sandbox", sandbox(settings)
    yield "processes", processes()
    yield "model", model(settings, "model", None, None)
    summary = settings.context_storage.summary_model
    if summary.provider is not None or summary.model is not None:
        where = summary.provider or settings.llm.provider
        yield "summary model", model(settings, "summary model", where, summary.model)
    if doctor_reviewers.are_used(settings):
        yield "reviewers", _named("reviewers", doctor_reviewers.findings(settings))
        part = "reviewer model"
        for provider, named in doctor_reviewers.other_models(settings):
            yield part, model(settings, part, provider, named)
    for source in settings.task_sources:
        yield source, doctor_sources.forge(settings, source)


def _named(name: str, found: Iterable[tuple[str, str, str]]) -> Iterator[DoctorCheck]:
    for one in found:
        yield DoctorCheck(name, *one)


def _masked(name: str, found: Iterator[DoctorCheck], redact: Callable[[str], str]) -> Iterator[DoctorCheck]:
    """The findings of one part, with secrets masked."""
    for check in _guarded(name, found):
        said, advice = (without_passwords(redact(text)) for text in (check.found, check.advice))
        yield replace(check, found=said, advice=advice)


def _guarded(name: str, found: Iterator[DoctorCheck]) -> Iterator[DoctorCheck]:
    """The findings of one part; if the check itself fails, that is one more finding, and a mistake of this program has
    its traceback in the log."""
    try:
        yield from found
    except Exception as error:  # noqa: BLE001 - a check calls plug-ins, and libraries on a broken machine
        log.mistake("doctor", name, error)
        said = str(error) if isinstance(error, MakimonoError) else named(error)
        yield DoctorCheck(name, FAIL, said)


# --- parts ---------------------------------------------------------------------------------------------------


def _configuration(load: Callable[[bool], Settings]) -> tuple[Settings | None, list[DoctorCheck]]:
    """The settings, as far as they can be loaded, and the findings of `doctor` about them."""
    name = "configuration"
    try:
        settings = load(True)
    except Exception as error:  # noqa: BLE001 - a plug-in of the configuration may raise an error of its own
        said = text_of(error)
        checks = [DoctorCheck(name, FAIL, said, "docs/configuration.md has every key; `config show` every value")]
    else:
        return settings, [_loaded(settings), *_guarded(name, _named(name, doctor_configuration.findings(settings)))]
    try:
        return load(False), checks  # an unset ${NAME} must not prevent the other checks
    except Exception:  # noqa: BLE001 - the same error, or another one of the same configuration
        return None, checks


def _loaded(settings: Settings) -> DoctorCheck:
    origins = settings.origins.values()
    files = sorted({origin for origin in origins if origin.endswith((".yaml", ".yml"))})
    count = sum(1 for origin in origins if origin != "default")
    where = ", ".join(files) if files else "no file sets anything, the defaults"
    return DoctorCheck("configuration", OK, f"{where} in {settings.root}; {count} value(s) are set")


def python() -> Iterator[DoctorCheck]:
    """Check the Python interpreter."""
    found = f"Python {platform.python_version()} at {sys.executable}"
    if sys.version_info[:2] < OLDEST_PYTHON:
        yield DoctorCheck(
            "python", FAIL, found, "Python 3.11 or newer is needed; install it and run scripts/setup again"
        )
    else:
        yield DoctorCheck("python", OK, found)


def git() -> Iterator[DoctorCheck]:
    """Check the program git."""
    version = gitcmd.version()
    found = f"git {'.'.join(map(str, version))} at {gitcmd.program()}"
    if version < gitcmd.MINIMUM:
        least = ".".join(map(str, gitcmd.MINIMUM))
        yield DoctorCheck("git", FAIL, found, f"git {least} or newer is needed; install a newer one")
    elif version < rebase.NEEDS:
        least = ".".join(map(str, rebase.NEEDS))
        advice = f"install git {least} or newer to have branches rebased"
        yield DoctorCheck("git", WARN, f"{found}: a branch is not rebased onto a base that has moved on", advice)
    else:
        yield DoctorCheck("git", OK, found)


def sqlite() -> Iterator[DoctorCheck]:
    """Check the SQLite library."""
    from agent.store.db import sqlite_version

    version, module, safe = sqlite_version()
    if safe:
        yield DoctorCheck("sqlite", OK, f"SQLite {version} of {module}")
    else:
        yield DoctorCheck(
            "sqlite",
            FAIL,
            f"SQLite {version or 'none'} of {module or 'no module'} has the WAL-reset bug, which damages tasks.db",
            "pip install 'pysqlite3>=0.6.1', or run scripts/setup again",
        )


def ledger(settings: Settings) -> Iterator[DoctorCheck]:
    """Check the rows of tasks in the ledger: whether the program can read them, and whether the source of every open
    task is still configured."""
    from agent.store.configured_ledger import LedgerKind

    kind = LedgerKind.from_settings(settings)
    check = _check_of_finding(kind.title, kind.check())
    yield check
    if check.state == OK:
        yield from doctor_sources.missing_sources(settings)


def broker(settings: Settings, address: str) -> Iterator[DoctorCheck]:
    """Check the broker, which notifies the daemons of other hosts of new rows."""
    yield _check_of_finding("broker", doctor_shared_services.broker(settings, address))


def replica(address: str) -> Iterator[DoctorCheck]:
    """Check the storage of the replicas of running tasks."""
    yield _check_of_finding("replica", doctor_shared_services.replica(address))


def mcp(settings: Settings) -> Iterator[DoctorCheck]:
    """Check the MCP servers: each is started, and its tools are listed."""
    from agent.commands import doctor_mcp

    yield from _named("mcp", doctor_mcp.findings(settings))


def webhooks(settings: Settings) -> Iterator[DoctorCheck]:
    """Check the endpoint for webhooks."""
    for finding in doctor_poke.findings(settings):
        yield _check_of_finding("webhooks", finding)


def _check_of_finding(name: str, finding: Finding) -> DoctorCheck:
    fit, found, advice = finding
    return DoctorCheck(name, OK if fit else FAIL, found, advice)


def sandbox(settings: Settings) -> Iterator[DoctorCheck]:
    """Check whether commands can be isolated."""
    from agent.sandbox import make_sandbox, probe, seccomp, traits_of
    from agent.sandbox.probe import TRIAL

    verdict = probe(settings)
    if not verdict.ok:
        yield DoctorCheck("sandbox", FAIL, verdict.reason, verdict.advice)
        return
    made = make_sandbox(settings, uuid=TRIAL, base_dir=settings.base_dir)
    traits = traits_of(made)
    if traits.refuses:
        yield DoctorCheck("sandbox", FAIL, made.reason, made.advice)
        return
    user = "" if made.uid is None else f", commands run as user {made.uid}"
    yield DoctorCheck("sandbox", OK if traits.isolates else WARN, verdict.reason + user, verdict.advice)
    if traits.filters_calls:
        whole, filtered = seccomp.describe(settings)
        keys = (
            "a new one for each command"
            if session_keyring.is_supported()
            else "this kernel has none, or refuses a new one"
        )
        yield DoctorCheck("system calls", OK if whole else WARN, f"{filtered}; session keyring: {keys}")
    yield from _named("network", doctor_network.findings(settings, made))


def processes() -> Iterator[DoctorCheck]:
    """Check the means by which a task's processes are found and limited; none of them is required."""
    yield DoctorCheck("processes", OK, str(cgroups.find()))


def model(settings: Settings, name_of_part: str, provider: str | None, name: str | None) -> Iterator[DoctorCheck]:
    """Check the server of the model, the model, its effective window, and the counting of tokens."""
    for part, state, found, advice in doctor_model.findings(settings, name_of_part, provider, name):
        yield DoctorCheck(part, state, found, advice)
