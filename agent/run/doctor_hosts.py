"""What `doctor` finds about the two services that several hosts share: the ledger's server and the broker.

Each finding is (whether it is fit, what was found, what to do); `doctor.py` shows it.  Nothing is made but the broker's
queue, which every daemon declares first.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

from agent import clock
from agent.errors import ReplicaAway

if TYPE_CHECKING:
    from agent.config import Settings

Finding = tuple[bool, str, str]

OLDEST = 120_000
"""PostgreSQL 12: the oldest that is tried."""
APART = 5.0
"""Seconds between this clock and the server's that are worth a word: leases go by the server's."""


def ledger(settings: Settings) -> Finding:
    """The PostgreSQL server: its version, our schema, the rows, the clocks."""
    from agent.store import migrate
    from agent.store.postgres import PostgresDatabase

    database = PostgresDatabase(settings.taskqueue.ledger, patience=0)
    try:
        (server,) = database.execute(
            "SELECT current_setting('server_version_num') AS number, current_setting('server_version') AS version"
        )
        if int(server["number"]) < OLDEST:
            return False, f"{database.where} is PostgreSQL {server['version']}", "use PostgreSQL 12 or newer"
        apart = abs((database.now() - clock.now()).total_seconds())
        about = f"{database.where} is PostgreSQL {server['version']}"
        if apart > APART:
            return False, f"{about}; its clock and this one are {apart:.0f} s apart", "set both clocks by NTP"
        if not database.has_table("schema_version"):
            return True, f"{about}; our tables are made at the first use", ""
        applied = {row["version"] for row in database.execute("SELECT version FROM schema_version")}
        newest = migrate.migrations()[-1][0]
        if max(applied, default=0) > newest:
            return (
                False,
                f"{about} with schema {max(applied)}; this version knows {newest}",
                "update the program on this host",
            )
        (count,) = database.execute("SELECT COUNT(*) AS count FROM tasks")
        return True, f"{about}, {count['count']} task(s), schema {max(applied, default=0)}", ""
    finally:
        database.close()


def broker(address: str) -> Finding:
    """Whether the broker answers."""
    from agent.errors import BrokerAway
    from agent.taskqueue.broker import make_broker

    made = make_broker(address)
    try:
        made.connect()
        waiting = made.depth()
    except BrokerAway as error:
        return False, str(error), "start the broker, or mend taskqueue.broker; until then the ledger is polled"
    finally:
        made.close()
    return True, f"{made.where} answers, {waiting} message(s) wait", ""


def replica(address: str) -> Finding:
    """Whether a file can be written, read, listed and removed where tasks are kept a second time."""
    from agent.store.place import Place

    place = Place(address)
    name, data = f".doctor/{secrets.token_hex(8)}", secrets.token_bytes(64)
    advice = "mend context_storage.replica, or the rights there: files are written, read, listed and removed"
    try:
        place.put(name, data)
        found, listed = place.get(name), place.names(".doctor")
        place.remove([name])
    except ReplicaAway as error:
        return False, str(error), advice
    if found != data or name not in listed:
        return False, f"{place.where} takes a file, and does not give it back as it was", advice
    return True, f"{place.where} takes files and gives them back", ""
