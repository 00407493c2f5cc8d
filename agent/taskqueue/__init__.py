"""The ledger: the rows of all tasks, their holders, and the order of the queue.

`base.py` has the contract, `transitions.py` the table of status changes.  The row alone is authoritative; a broker, if
configured, carries only pointers to rows.  `wiring` and all rooms above it call this room.  `context` has the files of
a task, `store/sql/ledger.sql` the SQL.
"""

from __future__ import annotations

from agent.store.ledgers import LEDGERS
from agent.taskqueue.base import ENDING, FREE, AtOnce, BaseLedger, Claim, LedgerEntry, Row, is_decided
from agent.taskqueue.ledger import Ledger
from agent.taskqueue.row_holder import alive_by_lock, machine, owner, place

__all__ = [
    "ENDING",
    "FREE",
    "LEDGERS",
    "AtOnce",
    "BaseLedger",
    "Claim",
    "Ledger",
    "LedgerEntry",
    "Row",
    "alive_by_lock",
    "is_decided",
    "machine",
    "owner",
    "place",
]
