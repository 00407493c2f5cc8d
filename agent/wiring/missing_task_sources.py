"""Checks whether the task sources of all open tasks in a ledger are configured.

If the folder of a local tracker was moved, its tasks are assigned to the new folder.  Open tasks of which the source is
no longer configured are reported.  The daemon checks the task sources before the first poll.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.errors import ConfigError
from agent.forge.base import FORGES, ForgeReports
from agent.wiring import private_tracker

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from agent.config import Settings
    from agent.forge.base import Forge
    from agent.wiring.wiring import Wiring

Place = tuple[str, str]


def move_instances(wiring: Wiring) -> None:
    """Update the rows of tasks of local trackers that were moved, and record the new path in each tracker.  Raises
    LedgerError."""
    for forge in wiring.forges:
        reports = ForgeReports(forge)
        was = reports.was_at()
        if was is not None and (moved := wiring.ledger.move_instance(forge.source, was, forge.instance)):
            fields = {"source": forge.source, "was": was, "instance": forge.instance}
            wiring.events.emit("source_moved", **fields, tasks=len(moved))
        reports.remember()


def tell_missing(wiring: Wiring) -> None:
    """Emit an event for each task source that has open tasks and is not configured, with the number of these tasks."""
    found = missing(wiring.settings, wiring.forges, wiring.ledger.open_instances())
    for (source, instance), count in found.items():
        wiring.events.emit("source_missing", source=source, instance=instance, tasks=count)


def missing(settings: Settings, forges: Iterable[Forge], places: Mapping[Place, int]) -> dict[Place, int]:
    """Maps (source, instance) to the number of open tasks, for the sources that have open tasks but no adapter; private
    trackers are left out."""
    known = {(forge.source, forge.instance) for forge in forges}
    return {
        place: count
        for place, count in places.items()
        if place not in known and not private_tracker.is_private(settings, place[1])
    }


def without_source(settings: Settings, places: Mapping[Place, int]) -> list[str]:
    """One sentence for each task source (source, instance) that has open tasks and is not configured, except private
    trackers; none if an adapter cannot be built, since that is reported as another error."""
    try:
        forges = [
            one
            for source in settings.task_sources
            for one in FORGES.load(source, settings.plugin_guard).from_settings(settings)
        ]
    except ConfigError:
        return []
    return [sentence(place, count) for place, count in missing(settings, forges, places).items()]


def sentence(place: Place, count: int) -> str:
    """The sentence about one missing task source (source, instance), with advice for the operator."""
    return (
        f"{count} open task{'' if count == 1 else 's'} of {place[0]} {place[1] or '(no instance)'}, which is not "
        f"configured: nobody works on {'it' if count == 1 else 'them'}. Add it to task_sources (a tracker: "
        f"local.tracker), or stop {'it' if count == 1 else 'them'} with `stop`"
    )
