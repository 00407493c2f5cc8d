"""Ranks the files that a change described by the query probably touches.

Two rankings are merged: one by the similar commits and episodes, each of which votes for the files that it touched, and
one by the similarity of the query to the terms of each file.  On 1,056 commits of five repositories, the five files
with the highest ranks had 58.9 % of the changed files if ranked by the votes alone, 44.4 % by the terms alone, and 62.5
% by both (docs/memory.md, "Files that such changes touched")."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import orjson

from agent.memory.base import FileHit, RetrievalConfig
from agent.memory.full_text_index import match_of
from agent.memory.full_text_search import as_json, rare
from agent.memory.namespaces import of_actor

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from agent.memory.base import MemoryHit
    from agent.memory.database import MemoryDatabase
    from agent.memory.terms import Terms

COMMITS = 50
"""Number of commits that vote for files: the commits that are most similar to the query."""
EPISODES = 10
"""Number of episodes that vote for files: the episodes that are most similar to the query."""
FILES = 100
"""Number of files of each ranking that enter the merged ranking."""
RANK = 10
"""The damping constant of the merged ranking: the file at rank r (0, 1, …) of one ranking gets RANK / (RANK + r) / 2
points."""
MOST_TERMS = 24
"""Maximum number of terms of a query that are searched for: the rarest ones."""
_HOUSEKEEPING = re.compile(
    r"(?:change-?log|changes|history|news|release-?notes|releases|authors|contributors)(?:\.\w+)?"
    r"|[\w.-]*\.lock|package-lock\.json|npm-shrinkwrap\.json|pnpm-lock\.yaml|go\.sum",
    re.IGNORECASE,
)
"""Names of change logs, lists of authors and lock files.  Files with these names are left out of the ranking, because
changes of every kind touch them."""
SHOWN = 3
"""Maximum number of commits, and also of tasks, that the result names as a reason for a file."""
NAMED = 0.2
"""Minimum relevance of an episode for the result to name its task as a reason for a file."""


class LikelyFiles:
    """The search for files that a change probably touches; `__call__` returns at most `top_k` files, best first."""

    def __init__(self, database: MemoryDatabase, terms: Terms) -> None:
        self.database = database
        self.terms = terms

    @staticmethod
    def episodes_of(actor_id: str) -> tuple[str, RetrievalConfig]:
        """The namespace of the episodes that vote for files, and the limits by which these episodes are retrieved."""
        return of_actor("episodes", actor_id), RetrievalConfig(EPISODES, 0.0)

    def __call__(self, query: str, actor_id: str, top_k: int, episodes: Sequence[MemoryHit]) -> list[FileHit]:
        terms = self.terms.of_query(query)
        votes, commits = self._votes(terms, actor_id, episodes)
        sessions = _sessions(episodes)
        ranked = sorted(votes, key=lambda path: (-votes[path], path))[:FILES]
        similar = self._similar_files(terms, actor_id)
        scores: defaultdict[str, float] = defaultdict(float)
        for ranking in (ranked, similar):
            for rank, path in enumerate(ranking):
                if not _HOUSEKEEPING.fullmatch(path.rpartition("/")[2]):
                    scores[path] += RANK / (RANK + rank) / 2
        best = sorted(scores, key=lambda path: (-scores[path], path))[:top_k]
        return [
            FileHit(path, scores[path], tuple(commits.get(path, ())[:SHOWN]), tuple(sessions.get(path, ())[:SHOWN]))
            for path in best
        ]

    def _votes(
        self, terms: Sequence[str], actor_id: str, episodes: Sequence[MemoryHit]
    ) -> tuple[Mapping[str, float], Mapping[str, list[str]]]:
        """Returns (path → sum of the votes of the commits and episodes that touched it, path → hashes of these
        commits)."""
        votes: defaultdict[str, float] = defaultdict(float)
        commits: defaultdict[str, list[str]] = defaultdict(list)
        rows = self._matching("commit", terms, actor_id, COMMITS)
        best = max((row["score"] for row in rows), default=0.0)
        found = {row["key"]: row for row in rows}
        touched = self.database.run("touched_by", keys=as_json(found))
        for row in sorted(touched, key=lambda row: -found[row["key"]]["score"]):
            commit = found[row["key"]]
            votes[row["path"]] += commit["score"] / best / _share(row["files"])
            commits[row["path"]].append(commit["sha"])
        every = self._known_paths(actor_id, {path for hit in episodes for path in hit.record.files})
        for hit in episodes:
            known = every.intersection(hit.record.files)
            for path in known:
                votes[path] += hit.score / _share(len(known))
        return votes, commits

    def _known_paths(self, actor_id: str, paths: Collection[str]) -> set[str]:
        asked = orjson.dumps(list(paths)).decode()
        return {row["path"] for row in self.database.run("path_is_known", actor_id=actor_id, paths=asked)}

    def _similar_files(self, terms: Sequence[str], actor_id: str) -> list[str]:
        return [row["path"] for row in self._matching("file", terms, actor_id, FILES)]

    def _matching(self, kind: str, terms: Sequence[str], actor_id: str, most: int) -> list[dict[str, Any]]:
        rows = self.database.run(f"{kind}_counts", terms=orjson.dumps(list(terms)).decode())
        counts = {row["term"]: row["doc"] for row in rows}
        known = rare(sorted(counts, key=lambda term: (counts[term], term))[:MOST_TERMS], counts)
        if not known:
            return []
        match = match_of(known)
        return self.database.run(f"{kind}_candidates", match=match, actor_id=actor_id, most=most)


def _share(files: int) -> float:
    """The divisor of the vote of a commit or an episode that touched `files` files: the more files it touched, the less
    its vote counts for each of them."""
    return 1 + math.log(files)


def _sessions(episodes: Sequence[MemoryHit]) -> Mapping[str, list[str]]:
    """Path of a file → sessions of the episodes that touched the file, for the episodes with a relevance of at least
    NAMED."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    for hit in episodes:
        if hit.score >= NAMED:
            for path in hit.record.files:
                found[path].append(hit.record.session_id)
    return found
