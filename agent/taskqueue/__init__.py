"""The ledger stores the rows of all tasks, the processes that hold them, and the order of the queue.

`base.py` has the contract, `transitions.py` the table of status changes.  Only the row of a task decides about the
task; a broker, if configured, transports only the uuids of rows.  The files of a task are in the package `context`, the
SQL of the ledger is in `store/sql/ledger.sql`.
"""

from __future__ import annotations

from agent.store.configured_ledger import LEDGERS
from agent.taskqueue.base import ENDING, FREE, PUBLISHING, AtOnce, BaseLedger, Claim, LedgerEntry, Row, is_decided
from agent.taskqueue.ledger import Ledger
from agent.taskqueue.row_holder import alive_by_lock, machine, owner, place

__all__ = [
    "ENDING",
    "FREE",
    "LEDGERS",
    "PUBLISHING",
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
