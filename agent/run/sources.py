"""Where the open tasks of a ledger come from: a tracker that was moved keeps its tasks, and of a source that is not
configured any more it is said that its tasks wait.

Called by `run/daemon.py` before anything is polled, by `doctor` and `tasks`.
"""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from agent.errors import ConfigError
from agent.forge.base import FORGES
from agent.run import solo
from agent.store import db

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from agent.config import Settings
    from agent.forge.base import Forge
    from agent.run.wiring import Wiring

Place = tuple[str, str]


def follow(wiring: Wiring) -> None:
    """Let the rows of a place that was moved follow it; then the place remembers where it is.  LedgerError."""
    for forge in wiring.forges:
        was = getattr(forge, "was_at", lambda: None)()
        if was is not None and (moved := wiring.ledger.follow(forge.source, was, forge.instance)):
            fields = {"source": forge.source, "was": was, "instance": forge.instance}
            wiring.events.emit("source_moved", **fields, tasks=len(moved))
        getattr(forge, "remember", lambda: None)()


def tell_missing(wiring: Wiring) -> None:
    """Say how many open tasks name a source that is not configured."""
    found = missing(wiring.settings, wiring.forges, wiring.ledger.open_instances())
    for (source, instance), count in found.items():
        wiring.events.emit("source_missing", source=source, instance=instance, tasks=count)


def missing(settings: Settings, forges: Iterable[Forge], places: Mapping[Place, int]) -> dict[Place, int]:
    """Of the places of open tasks those that no adapter is of, with the number of their tasks."""
    known = {(forge.source, forge.instance) for forge in forges}
    return {
        place: count
        for place, count in places.items()
        if place not in known and not solo.is_private(settings, place[1])
    }


def of_file(settings: Settings) -> list[str]:
    """Sentences about `tasks.db` as it is, which is only read; none where it, or a source, cannot be read: that is
    said elsewhere, and so is what another ledger holds."""
    path = settings.base_dir / "tasks.db"
    if settings.taskqueue.ledger != "sqlite" or not path.is_file():
        return []
    sqlite = db.module()
    open_rows = "FROM tasks WHERE status IN ('queued', 'running', 'paused')"
    asked = f"SELECT task_source, instance, COUNT(*) {open_rows} GROUP BY task_source, instance"
    try:
        forges = [one for source in settings.task_sources for one in FORGES.load(source).all(settings)]
        with closing(sqlite.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=10)) as connection:
            places = {(str(source), str(instance)): count for source, instance, count in connection.execute(asked)}
    except (ConfigError, sqlite.Error):
        return []
    return [sentence(place, count) for place, count in missing(settings, forges, places).items()]


def sentence(place: Place, count: int) -> str:
    """It in words, with what to do."""
    return (
        f"{count} open task{'' if count == 1 else 's'} of {place[0]} {place[1] or '(no instance)'}, which is not "
        f"configured: nobody works on {'it' if count == 1 else 'them'}. Add it to task_sources (a tracker: "
        f"local.tracker), or stop {'it' if count == 1 else 'them'} with `stop`"
    )
