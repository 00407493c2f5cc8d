"""What runs have learnt about a server and a model, kept in tasks.db: the next process starts with it.

A refused parameter, the form of ids, turns that must alternate, the longest answer and the like, as the client tells
them (`ChatClient.facts`).  What is older than LASTS is passed over and learnt anew, since servers are updated.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import orjson

from agent import clock

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agent.store.base import Database

LASTS = timedelta(days=30)


class LearntModels:
    """The table `learnt_models`.  `server` is an address without password and query, `model` a name."""

    def __init__(self, database: Database) -> None:
        self.database = database

    def get(self, server: str, model: str) -> dict[str, Any]:
        """The facts, {} for none, for old ones, and for what cannot be read."""
        rows = self.database.run("learnt_get", server=server, model=model)
        return facts_in(rows[0]["facts"], rows[0]["learnt_at"]) if rows else {}

    def put(self, server: str, model: str, facts: Mapping[str, Any]) -> None:
        """Keep these facts in the place of others; none are a reason to remove the row."""
        if not facts:
            self.forget(server, model)
            return
        text = orjson.dumps(facts, option=orjson.OPT_SORT_KEYS).decode()
        self.database.run("learnt_put", server=server, model=model, facts=text, now=clock.stamp())

    def forget_all(self) -> None:
        """Remove everything: each server is asked and tried anew."""
        self.database.run("learnt_forget_all")

    def forget(self, server: str, model: str) -> None:
        """Remove what is kept of this model on this server."""
        self.database.run("learnt_forget", server=server, model=model)


def facts_in(text: Any, learnt_at: Any) -> dict[str, Any]:
    """The facts of a row, {} for old ones and for what cannot be read."""
    try:
        if clock.now() - datetime.fromisoformat(str(learnt_at)) > LASTS:
            return {}
        facts = orjson.loads(text)
    except (ValueError, TypeError):
        return {}
    return facts if isinstance(facts, dict) else {}
