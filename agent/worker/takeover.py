"""Takes a task over from another host: fetches its newest state from the replica before the work begins.

A takeover happens after this process has claimed the row and taken the lock of the folder. If the last attempt worked
in this host's folder, nothing is fetched from the replica. If the last attempt worked on another host, the newest
manifest in the replica shows whether the state in this folder is older. If the state in this folder is older, the files
of the replica are fetched and each of their segments is checked; then the older state is moved to the quarantine folder
(or deleted, if it has no message), and the fetched files take its place. `replica.json` is removed first and written
last, so that the next attempt repeats a takeover that was interrupted.

If the replica cannot be reached, the task waits for the replica, at most PATIENCE_SECONDS. After PATIENCE_SECONDS the
task continues from its folder, or from its issue, and the event `replica_unused` reports that. The task also continues
if no manifest in the replica is complete; then `replica_unused` is emitted only if the task's folder has no messages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent import clock, deadline, durable_files, filetree
from agent.error_text import text_of
from agent.errors import ConfigError, ContextError, ReplicaAway
from agent.observe import log
from agent.store.jsonl import last_record
from agent.store.remote_storage import RemoteFolder
from agent.store.replica import STATE, fetch, manifests, read_state, write_state
from agent.wiring.folders import QUARANTINE
from agent.worker.lease import Lease

if TYPE_CHECKING:
    from pathlib import Path

    from agent.store.replica import Manifest
    from agent.taskqueue import Claim
    from agent.wiring.wiring import Wiring

PATIENCE_SECONDS = 3600.0
FETCH_SECONDS = 1800.0
"""Maximum seconds for fetching the files of one manifest of a task."""
SINCE = "replica.since"
"""Name of the file in a task's folder that has the time at which the task began to wait for its replica."""
FETCHED = ".replica.tmp"
STAYS = ("lock", "worker.log", "request.json", SINCE, FETCHED)


def take_over(wiring: Wiring, claim: Claim, folder: Path) -> None:
    """Replace the state in the task's folder by the newest state in the replica, if that is newer.

    Raises ReplicaAway if the storage cannot be reached or refuses a request, as long as the task has waited less than
    PATIENCE_SECONDS; the caller tries again later. `take_over` also raises DiskError and Fenced.
    """
    address = wiring.settings.context_storage.replica
    if address is None or not wiring.settings.context_storage.enabled:
        return
    here = read_state(folder)[1] == claim.attempt - 1 and _newest_here(folder) > 0
    if claim.attempt > 1 and not here and _was_begun(wiring, claim):
        with Lease(wiring.ledger, claim.uuid, claim.attempt, wiring.events):
            try:
                _fetch_or_wait(wiring, claim, folder, address)
            except Exception as error:
                wiring.events.emit(
                    "replica_away", uuid=claim.uuid, error=text_of(error) or type(error).__name__, seconds=60
                )
                raise
    write_state(folder, claim.attempt)
    (folder / SINCE).unlink(missing_ok=True)  # ours


def _was_begun(wiring: Wiring, claim: Claim) -> bool:
    """Whether the row counts a request to the model; if it counts none, no work of the task can be in the replica."""
    row = wiring.ledger.get(claim.uuid)
    return row is not None and row.llm_call_count > 0


def _fetch_or_wait(wiring: Wiring, claim: Claim, folder: Path, address: str) -> None:
    try:
        _fetch_newest(wiring, claim, folder, RemoteFolder(address))
    except (ReplicaAway, ConfigError) as error:
        if _waited(folder) < PATIENCE_SECONDS:
            raise ReplicaAway(str(error)) from error
        log.mistake("replica", claim.uuid, error)
        wiring.events.emit("replica_unused", uuid=claim.uuid, why=str(error))


def _waited(folder: Path) -> float:
    """Seconds since this host first failed to fetch the task from the replica; the first call returns 0.0 and writes
    the present time to the file SINCE."""
    path = folder / SINCE
    now = clock.now()
    try:
        return (now - clock.parse(path.read_text("ascii"))).total_seconds()
    except (OSError, ValueError):
        durable_files.write_file(path, clock.stamp(now).encode())
        return 0.0


def _fetch_newest(wiring: Wiring, claim: Claim, folder: Path, place: RemoteFolder) -> None:
    why = "it has nothing of this task that can be read"
    for manifest in manifests(place, claim.uuid):
        if not _is_newer(manifest, folder):
            return
        target = folder / FETCHED
        if target.exists():
            filetree.remove(target)
        durable_files.make_dir(target)
        try:
            with deadline.within("replica", FETCH_SECONDS):
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
    """Whether the replica has a newer state of the task than this folder."""
    here = _newest_here(folder)
    generation, attempt = read_state(folder)
    if here == 0:
        return True
    # If the replica's generation is that of the folder, or the folder has none, the state with the newer message is
    # newer.
    if generation in ("", manifest.generation):
        return int(manifest.facts.get("last_seq") or 0) > here
    return manifest.generation != generation and manifest.attempt > attempt


def _newest_here(folder: Path) -> int:
    """The number of the newest message in the folder, 0 if there is none."""
    newest = last_record(folder / "messages.jsonl")
    return int(newest["seq"]) if newest else 0


def _messages_last(path: Path) -> tuple[bool, str]:
    """Sort key for moving files: messages.jsonl is moved last, because a folder without it counts as empty."""
    return path.name == "messages.jsonl", path.name


def _replace(base_dir: Path, folder: Path, claim: Claim) -> str:
    """Move the old files of the task's folder to the quarantine folder and the fetched files into their place; returns
    the folder with the old files. If the task's folder has no message, its old files are deleted instead of kept, and
    "" is returned."""
    (folder / STATE).unlink(missing_ok=True)  # ours
    old = [path for path in sorted(folder.iterdir(), key=_messages_last) if path.name not in STAYS]
    aside = ""
    if _newest_here(folder) > 0:
        target = base_dir / QUARANTINE / f"{claim.uuid}.{claim.attempt}"
        durable_files.make_dir(durable_files.make_dir(target.parent) / target.name)
        with durable_files.writing(target):
            for path in old:
                path.rename(target / path.name)
        aside = str(target)
    else:
        with durable_files.writing(folder):
            for path in old:
                filetree.remove(path)
    fetched = folder / FETCHED
    with durable_files.writing(folder):
        for path in sorted(fetched.iterdir(), key=_messages_last):
            path.rename(folder / path.name)
        fetched.rmdir()  # ours
    durable_files.sync_dir(folder)
    return aside
