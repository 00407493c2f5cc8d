"""The list of the stores of a task's folder, without the store of messages.jsonl. A new store is one line in `STORES`
(`base.py` has the contract)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.context.compaction_store import CompactionStore
from agent.context.deliberations import DeliberationStore
from agent.context.mcp import McpStore
from agent.context.outside_effects import EffectStore
from agent.context.recalled import RecalledStore
from agent.context.requests import RequestStore
from agent.context.summaries import SummaryStore
from agent.context.tools import ToolStore

if TYPE_CHECKING:
    from agent.context.base import Store

STORES: tuple[type[Store], ...] = (
    EffectStore,
    RequestStore,
    RecalledStore,
    DeliberationStore,
    McpStore,
    ToolStore,
    SummaryStore,
    CompactionStore,
)
"""All stores except the store of messages.jsonl (`messages.py`), which reads and syncs other stores."""

MESSAGES = "messages.jsonl"


def file_names() -> tuple[str, ...]:
    """The names of the files of facts, each after the files that its lines refer to: the order in which they are
    synced.

    A copy of files of facts that grow meanwhile must be made in the reverse order of syncing, so that no copied line
    refers to a missing one.
    """
    before = [kind.NAME for kind in STORES if not kind.NAMES_MESSAGES]
    behind = [kind.NAME for kind in STORES if kind.NAMES_MESSAGES]
    return (*before, MESSAGES, *behind)
