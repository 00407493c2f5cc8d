"""Stores the facts that runs have learnt about a server and a model; later processes read them from the database of the
tasks.

Examples of facts are a refused parameter, the required form of ids, turns that must alternate, the maximum length of an
answer; the model client provides the facts (`ChatClient.facts`). Stored facts older than LASTS are ignored and learnt
again, since servers are updated.
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
    """Reads and writes the table `learnt_models`.  `server` is the address of a server without password and query,
    `model` the name of a model."""

    def __init__(self, database: Database) -> None:
        self.database = database

    def get(self, server: str, model: str) -> dict[str, Any]:
        """The stored facts about a model on a server; {} if there are none, or if they are older than LASTS or
        unreadable."""
        rows = self.database.run("learnt_get", server=server, model=model)
        return facts_in(rows[0]["facts"], rows[0]["learnt_at"]) if rows else {}

    def put(self, server: str, model: str, facts: Mapping[str, Any]) -> None:
        """Replace the stored facts about a model on a server by `facts`; empty facts remove the row."""
        if not facts:
            self.forget(server, model)
            return
        text = orjson.dumps(facts, option=orjson.OPT_SORT_KEYS).decode()
        self.database.run("learnt_put", server=server, model=model, facts=text, now=clock.stamp())

    def forget_all(self) -> None:
        """Remove the facts about all model servers, so that they are learnt again."""
        self.database.run("learnt_forget_all")

    def forget(self, server: str, model: str) -> None:
        """Remove the facts about this model on this server."""
        self.database.run("learnt_forget", server=server, model=model)


def facts_in(text: Any, learnt_at: Any) -> dict[str, Any]:
    """The facts in a row of the table `learnt_models`; {} if they are older than LASTS or unreadable."""
    try:
        if clock.now() - datetime.fromisoformat(str(learnt_at)) > LASTS:
            return {}
        facts = orjson.loads(text)
    except (ValueError, TypeError):
        return {}
    return facts if isinstance(facts, dict) else {}
