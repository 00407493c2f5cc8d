"""Reads the conditions of CONDITIONAL votes from the conversation of a task: messages of the kind `condition`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agent.context import MessageStore

KIND = "condition"
"""Kind of a message with conditions of the reviewers, and name of the receipt that has the outcome and the commit of
the newest message of this kind."""

_LINE = re.compile(r"^- (.+)$", re.MULTILINE)


def conditions_so_far(store: MessageStore) -> list[list[str]]:
    """The conditions in each message of the kind `condition`, the oldest message first."""
    return [_LINE.findall(str(one.get("content") or "")) for one in store.records() if one.get("kind") == KIND]
