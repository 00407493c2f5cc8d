"""The ledger: which tasks there are, who works on them, and what comes next.

The contract is in `base.py`, the table of moves in `moves.py`.  The row is the only truth; a broker, where there is
one, carries pointers to it.  Called by `run` and `cli`.  Not here: what a task keeps (`context`), the SQL itself
(`store/sql/ledger.sql`).
"""

from __future__ import annotations

from agent.taskqueue.base import ENDING, FREE, LEDGERS, AtOnce, BaseLedger, Claim, Row, is_decided
from agent.taskqueue.identity import alive_by_lock, machine, owner, place
from agent.taskqueue.ledger import Ledger

__all__ = [
    "ENDING",
    "FREE",
    "LEDGERS",
    "AtOnce",
    "BaseLedger",
    "Claim",
    "Ledger",
    "Row",
    "alive_by_lock",
    "is_decided",
    "machine",
    "owner",
    "place",
]
