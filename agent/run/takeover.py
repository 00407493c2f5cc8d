"""A task that another host has worked on: its newest state is fetched from the replica before anything else is done.

Called by `run/worker.py` once the row is claimed, with the folder's lock held.  Where the folder here is the one in
which the last attempt worked nothing is asked.  Else the newest manifest decides whether what lies here is older; then
it is put into quarantine and what was fetched, each segment checked, takes its place.  `replica.json` is removed first
and written last: an attempt that is cut off in between is done again by the next.

A replica that does not answer is waited for, PATIENCE_SECONDS at most; after that, and where it has nothing that is
whole, the task goes on with what lies here, or from its issue, and says so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent import clock, disk, filetree, step
from agent.errors import ConfigError, ContextError, ReplicaAway
from agent.run.folders import QUARANTINE
from agent.run.lease import Lease
from agent.store.jsonl import last_record
from agent.store.place import Place
from agent.store.replica import STATE, fetch, manifests, read_state, write_state

if TYPE_CHECKING:
    from pathlib import Path

    from agent.run.wiring import Wiring
    from agent.store.replica import Manifest
    from agent.taskqueue import Claim

PATIENCE_SECONDS = 3600.0
FETCH_SECONDS = 1800.0
"""How long a task's files may take to come."""
SINCE = "replica.since"
"""In a task's folder: since when its replica is waited for."""
FETCHED = ".replica.tmp"
STAYS = ("lock", "worker.log", "request.json", SINCE, FETCHED)


def take_over(wiring: Wiring, claim: Claim, folder: Path) -> None:
    """Bring the folder to the newest state that the replica has.  ReplicaAway: try again later.  DiskError, Fenced."""
    address = wiring.settings.context_storage.replica
    if address is None or not wiring.settings.context_storage.enabled:
        return
    here = read_state(folder)[1] == claim.attempt - 1 and _newest_here(folder) > 0
    if claim.attempt > 1 and not here and _was_begun(wiring, claim):
        with Lease(wiring.ledger, claim.uuid, claim.attempt, wiring.events):
            try:
                _look(wiring, claim, folder, address)
            except Exception as error:
                wiring.events.emit(
                    "replica_away", uuid=claim.uuid, error=str(error) or type(error).__name__, seconds=60
                )
                raise
    write_state(folder, claim.attempt)
    (folder / SINCE).unlink(missing_ok=True)  # ours


def _was_begun(wiring: Wiring, claim: Claim) -> bool:
    """Whether a turn was taken anywhere: else there is nothing to fetch, and nothing to wait for."""
    row = wiring.ledger.get(claim.uuid)
    return row is not None and row.llm_call_count > 0


def _look(wiring: Wiring, claim: Claim, folder: Path, address: str) -> None:
    try:
        _fetch_newest(wiring, claim, folder, Place(address))
    except (ReplicaAway, ConfigError) as error:
        if _waited(folder) < PATIENCE_SECONDS:
            raise ReplicaAway(str(error)) from error
        wiring.events.emit("replica_unused", uuid=claim.uuid, why=str(error))


def _waited(folder: Path) -> float:
    """Seconds since the first try on this host."""
    path = folder / SINCE
    now = clock.now()
    try:
        return (now - clock.parse(path.read_text("ascii"))).total_seconds()
    except (OSError, ValueError):
        disk.write_file(path, clock.stamp(now).encode())
        return 0.0


def _fetch_newest(wiring: Wiring, claim: Claim, folder: Path, place: Place) -> None:
    why = "it has nothing of this task that can be read"
    for manifest in manifests(place, claim.uuid):
        if not _is_newer(manifest, folder):
            return
        target = folder / FETCHED
        if target.exists():
            filetree.remove(target)
        disk.make_dir(target)
        try:
            with step.within("replica", FETCH_SECONDS):
                size = fetch(place, manifest, claim.uuid, target)
        except ContextError as error:
            why = str(error)
            continue
        aside = _replace(wiring.settings.base_dir, folder, claim)
        wiring.events.emit(
            "replica_fetched",
            uuid=claim.uuid,
            host=str(manifest.facts.get("host")),
            attempt=manifest.attempt,
            last_seq=manifest.facts.get("last_seq"),
            bytes=size,
            aside=aside,
        )
        return
    if _newest_here(folder) == 0:
        wiring.events.emit("replica_unused", uuid=claim.uuid, why=why)


def _is_newer(manifest: Manifest, folder: Path) -> bool:
    """Whether the replica goes on from what lies here."""
    here = _newest_here(folder)
    generation, attempt = read_state(folder)
    if here == 0:
        return True
    if generation in ("", manifest.generation):  # from before there was a replica, or the disk was set back
        return int(manifest.facts.get("last_seq") or 0) > here
    return manifest.generation != generation and manifest.attempt > attempt


def _newest_here(folder: Path) -> int:
    """The number of the newest message in the folder, 0 for none."""
    newest = last_record(folder / "messages.jsonl")
    return int(newest["seq"]) if newest else 0


def _messages_last(path: Path) -> tuple[bool, str]:
    """The order in which files are moved: by messages.jsonl a folder is known to have something."""
    return path.name == "messages.jsonl", path.name


def _replace(base_dir: Path, folder: Path, claim: Claim) -> str:
    """Put aside what lies here, and what was fetched in its place; where the old lies now, "" for nothing."""
    (folder / STATE).unlink(missing_ok=True)  # ours
    old = [path for path in sorted(folder.iterdir(), key=_messages_last) if path.name not in STAYS]
    aside = ""
    if _newest_here(folder) > 0:
        target = base_dir / QUARANTINE / f"{claim.uuid}.{claim.attempt}"
        disk.make_dir(disk.make_dir(target.parent) / target.name)
        with disk.writing(target):
            for path in old:
                path.rename(target / path.name)
        aside = str(target)
    else:
        with disk.writing(folder):
            for path in old:
                filetree.remove(path)
    fetched = folder / FETCHED
    with disk.writing(folder):
        for path in sorted(fetched.iterdir(), key=_messages_last):
            path.rename(folder / path.name)
        fetched.rmdir()  # ours
    disk.sync_dir(folder)
    return aside
