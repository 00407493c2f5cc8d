"""Findings of `doctor` about the sources of tasks: the forges, their repositories, and open tasks of a source that was
removed from the configuration."""

from __future__ import annotations

from contextlib import closing
from itertools import chain
from typing import TYPE_CHECKING

from agent.commands.doctor_check import FAIL, OK, WARN, DoctorCheck
from agent.errors import LedgerError, MakimonoError
from agent.values import TaskKey, is_folder

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from agent.config import Settings
    from agent.forge.base import Forge


def forge(settings: Settings, source: str) -> Iterator[DoctorCheck]:
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
                yield DoctorCheck(source, _missing(settings, one, "local.tracker"), str(error))
            else:
                idle = reports.idle(idle_interval(settings))
                cost = f"; {idle}" if idle else ""
                yield DoctorCheck(source, OK, f"{one.instance} can be read, {len(waiting)} task(s) wait{cost}")
                skipped = (f"an issue is skipped: {problem}" for problem in getter.problems)
                faults = chain(reports.rights(), _refusals(settings, one), reports.label_problems(), skipped)
                account = reports.account()
                for state, said in chain([(OK, account)] if account else [], ((WARN, fault) for fault in faults)):
                    if said not in told:
                        told.add(said)
                        yield DoctorCheck(source, state, said)
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
    return WARN if is_folder(getattr(place, "instance", "")) and settings.origin(key) == "default" else FAIL


def repositories(repos: Mapping[str, str], state: str = FAIL) -> Iterator[DoctorCheck]:
    """Check the repositories with an address in the configuration of a source, by reading them as a task does."""
    from agent.config.environment import network_environment
    from agent.work.remote import Remote

    for name, address in repos.items():
        part = f"repository {name}"
        try:
            listing = Remote(address, env=network_environment()).list()
        except MakimonoError as error:
            yield DoctorCheck(
                part,
                state,
                str(error) if address in str(error) else f"{address}: {error}",
                "set its address in config.yaml (local.repos, for a tracker) if it is elsewhere",
            )
            continue
        yield DoctorCheck(part, OK, f"{address} can be read, {len(listing.branches())} branch(es)")


def missing_sources(settings: Settings) -> Iterator[DoctorCheck]:
    """Findings about open tasks of a source that is not configured any more; none if no task has such a source, or if
    the ledger does not exist yet or cannot be read."""
    from agent.store.configured_ledger import LedgerKind
    from agent.taskqueue.ledger import open_instances
    from agent.wiring import missing_task_sources

    kind = LedgerKind.from_settings(settings)
    if not kind.exists():
        return
    try:
        with closing(kind.open_for_reading()) as database:
            places = open_instances(database)
    except LedgerError:
        return  # the ledger's database cannot be read, or has an old schema without the tables
    for said in missing_task_sources.without_source(settings, places):
        yield DoctorCheck("sources", WARN, said)
