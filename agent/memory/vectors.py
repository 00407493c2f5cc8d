"""Vectors of records, computed by a plug-in (`memory.embeddings`), as a second score besides that of the terms.

A plug-in is a class that is called without arguments; its object has a `name` (of the model, with its version) and
turns texts into vectors:

    name: str
    __call__(texts: Sequence[str]) -> Sequence[Sequence[float]]      one vector for each text, all of one length

The vectors of records are computed in a process of low priority, for example after a task, and stored.  A retrieval
computes only the vector of the query.  The plug-in is imported at its first use, and never when `memory.embeddings` is
`none`.
"""

from __future__ import annotations

import math
from array import array
from functools import cached_property
from operator import mul
from typing import TYPE_CHECKING, Any

from agent.error_text import named
from agent.errors import ConfigError, MemoryUnavailable
from agent.memory.full_text_search import as_json
from agent.registry import Registry

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from agent.memory.database import MemoryDatabase
    from agent.registry import Guard

EMBEDDINGS = Registry("embeddings of long-term memory", {})
NONE = "none"
TOGETHER = 64
"""Maximum number of texts in one call of the plug-in."""
LONGEST = 4000
"""Maximum number of characters of a record's text that the plug-in gets."""


class Vectors:
    """The stored vectors of the records in one memory.db. An error of the plug-in is raised as MemoryUnavailable."""

    def __init__(self, database: MemoryDatabase, plugin: str, guard: Guard | None) -> None:
        self.database = database
        self.plugin = plugin
        self.guard = guard

    @property
    def are_on(self) -> bool:
        """Whether a plug-in for vectors is configured (`memory.embeddings`)."""
        return self.plugin != NONE

    @cached_property
    def _model(self) -> Any:
        try:
            return EMBEDDINGS.load(self.plugin, self.guard)()
        except ConfigError as error:
            raise MemoryUnavailable(f"memory.embeddings: {error}") from error
        except Exception as error:
            raise self._broken(error) from error

    @cached_property
    def _name(self) -> str:
        try:
            return str(self._model.name)
        except AttributeError as error:
            raise self._broken(error) from error

    def _broken(self, error: Exception) -> MemoryUnavailable:
        return MemoryUnavailable(f"memory.embeddings {self.plugin}: {named(error)}")

    def _make_vectors(self, texts: Sequence[str]) -> list[array[float]]:
        """The vectors of the texts, each normalised to length 1; a vector of length 0 or of no finite length becomes an
        empty one."""
        try:
            found = [_unit(one) for one in self._model([text[:LONGEST] for text in texts])]
        except MemoryUnavailable:
            raise
        except Exception as error:
            raise self._broken(error) from error
        if len(found) != len(texts):
            raise MemoryUnavailable(f"memory.embeddings {self.plugin}: {len(found)} vectors for {len(texts)} texts")
        return found

    def fill(self) -> int:
        """Compute the vectors of the present plug-in that active records lack, and remove the vectors of records that
        are no longer active; return the number of new vectors. Without a plug-in nothing is done."""
        if not self.are_on:
            return 0
        made = 0
        self.prune()
        while rows := self.database.run("vectors_missing", model=self._name, limit=TOGETHER):
            vectors = self._make_vectors([f"{row['title']}\n{row['text']}" for row in rows])
            with self.database.transaction():
                for row, vector in zip(rows, vectors, strict=True):
                    self.database.run("vector_put", key=row["key"], model=self._name, vector=vector.tobytes())
            made += len(rows)
        return made

    def prune(self) -> None:
        """Remove the vectors of records that are not active any more."""
        self.database.run("vectors_prune")

    def of_query(self, query: str) -> array[float] | None:
        """The vector of a query; None if no plug-in is configured. A caller must call `of_query` before its first
        SQL statement: a plug-in may never return, and an open read transaction would prevent the truncation of the
        write-ahead log."""
        if not self.are_on:
            return None
        [found] = self._make_vectors([query])
        return found

    def cosines(self, asked: array[float] | None, keys: Iterable[int]) -> dict[int, float]:
        """Key of a record → cosine of its vector and `asked`, 0 if it is negative or the lengths differ; records
        without a vector are left out, and all are if `asked` is None."""
        if asked is None:
            return {}
        rows = self.database.run("vectors_of", model=self._name, keys=as_json(keys))
        return {row["key"]: _cosine(asked, array("f", row["vector"])) for row in rows}


def _unit(vector: Sequence[float]) -> array[float]:
    length = math.sqrt(sum(float(one) ** 2 for one in vector))
    return array("f", (float(one) / length for one in vector) if length and math.isfinite(length) else ())


def _cosine(one: array[float], other: array[float]) -> float:
    return max(0.0, min(1.0, sum(map(mul, one, other)))) if len(one) == len(other) else 0.0
