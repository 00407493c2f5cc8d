"""The index of a repository's history: the commits of a branch, the files they touched, and the files at its tip.

`likely_files.py` uses the index to find files that similar changes have touched; the index needs no earlier tasks. The
index is made from git and not from the memory log, since it can be made from the repository again at any time.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, TypeVar

import orjson

from agent.memory.commit_reader import CommitReader
from agent.memory.namespaces import check_name
from agent.security.terminal import mark_terminal_controls
from agent.store.storable_text import replace_surrogates

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from agent.memory.base import Selector
    from agent.memory.commit_reader import HistoryCommit, TreeFile
    from agent.memory.database import MemoryDatabase
    from agent.memory.terms import Terms

T = TypeVar("T")

TOGETHER = 500
"""Maximum number of commits or files in one transaction.  A transaction with more commits or files would block other
writers for too long.
"""
MESSAGE = 4000
"""Maximum number of characters of a commit message that are stored in the index."""
SUBJECT = 300
MOST_TERMS = 4000
"""Maximum number of terms of the path and the content of a file that are indexed."""
_PROSE = (".md", ".markdown", ".rst", ".adoc", ".txt", ".org", ".tex", ".po", ".svg", ".csv", ".tsv", ".ipynb")
"""Suffixes of files with a content that is not indexed.  A query is mostly prose, so files of prose would match too
many queries; only the paths of such files are indexed."""
_TRAILER = re.compile(r"^[A-Z][A-Za-z-]+-(?:by|id|on|to): .*$|^\(cherry picked from .*\)$", re.MULTILINE)


class CommitIndex:
    """The indexed history of all repositories of one memory.db."""

    def __init__(self, database: MemoryDatabase, terms: Terms, mask: Callable[[str], str]) -> None:
        self.database = database
        self.terms = terms
        self.mask = mask

    def index(self, repository: Path, actor_id: str, branch: str, limit: int) -> int:
        """Index the newest commits of the branch that are not indexed yet, at most `limit`, and the files at its tip
        that have changed; return the number of newly indexed commits. If there are more new commits than `limit`, the
        oldest of them are never indexed.

        If a call of `index` is interrupted, the commits of its finished transactions stay indexed, and the next call
        does not count them again.
        """
        check_name(actor_id, "actor")
        reader = CommitReader(repository)
        name = str(repository)
        tip = reader.tip(branch)
        known = next((row["tip"] for row in self._run("history_tip", actor_id, name)), "")
        if tip == known:
            return 0
        found = 0
        for page in _pages(reader.commits(reader.new_commits(tip, known, limit))):
            with self.database.transaction():
                found += sum(self._add_commit(actor_id, name, commit) for commit in page)
        self._index_tree(reader, actor_id, name, tip)
        self.database.run("history_put", actor_id=actor_id, repository=name, tip=tip)
        return found

    def _run(self, query: str, actor_id: str, repository: str) -> list[dict[str, str]]:
        return self.database.run(query, actor_id=actor_id, repository=repository)

    def _add_commit(self, actor_id: str, repository: str, commit: HistoryCommit) -> bool:
        message = _TRAILER.sub("", mark_terminal_controls(replace_surrogates(self.mask(commit.message))))[:MESSAGE]
        subject = message.partition("\n")[0][:SUBJECT]
        rows = self.database.run(
            "commit_insert",
            actor_id=actor_id,
            repository=repository,
            sha=commit.sha,
            subject=subject,
            files=len(commit.paths),
        )
        if not rows:
            return False
        key = rows[0]["key"]
        terms = [*self.terms(message), *self.terms(" ".join(commit.paths))]
        self.database.run("commit_terms_add", key=key, terms=" ".join(terms))
        self.database.run("touched_insert", key=key, paths=orjson.dumps(commit.paths).decode())
        return True

    def _index_tree(self, reader: CommitReader, actor_id: str, repository: str, tip: str) -> None:
        known = {row["path"]: row for row in self._run("files_of_tree", actor_id, repository)}
        there = list(reader.files(tip))
        changed = [file for file in there if file.path not in known or known[file.path]["blob"] != file.blob]
        paths = {file.path for file in there}
        with self.database.transaction():
            self._remove_files(row["key"] for path, row in known.items() if path not in paths)
        for page in _pages(reader.contents(changed)):
            with self.database.transaction():
                for file, text in page:
                    self._put_file(actor_id, repository, file, text)

    def _put_file(self, actor_id: str, repository: str, file: TreeFile, text: str) -> None:
        (row,) = self.database.run(
            "tree_file_put", actor_id=actor_id, repository=repository, path=file.path, blob=file.blob
        )
        content = "" if file.path.lower().endswith(_PROSE) else self.mask(text)
        terms = [*self.terms(file.path), *self.terms(content)][:MOST_TERMS]
        self.database.run("file_terms_remove", key=row["key"])
        self.database.run("file_terms_add", key=row["key"], terms=" ".join(terms))

    def _remove_files(self, keys: Iterable[object]) -> None:
        for key in keys:
            self.database.run("file_terms_remove", key=key)
            self.database.run("tree_file_delete", key=key)

    def forget(self, selector: Selector) -> tuple[int, list[str]]:
        """Forget the history of `selector.actor`, and the commits with `selector.match` in their subject; return
        (the number of commits, the hashes of those with `selector.match`). The caller must have begun a transaction."""
        count, shas = 0, []
        for row, matches in self._selected(selector):
            self._remove_commit(row["key"])
            count += 1
            if matches:
                shas.append(row["sha"])
        if selector.actor is not None:
            self._remove_files(row["key"] for row in self.database.run("files_of_actor", actor_id=selector.actor))
            self.database.run("history_delete", actor_id=selector.actor)
        return count, shas

    def count(self, selector: Selector) -> int:
        """The number of commits that `forget` would remove."""
        return sum(1 for _ in self._selected(selector))

    def _selected(self, selector: Selector) -> Iterator[tuple[dict[str, Any], bool]]:
        """The commits of `selector.actor` or with `selector.match` in their subject: (row, whether its subject
        matches)."""
        after = 0
        while rows := self.database.run("commits_page", after=after, limit=TOGETHER):
            after = rows[-1]["key"]
            for row in rows:
                matches = bool(selector.match) and str(selector.match).casefold() in row["subject"].casefold()
                if matches or selector.actor == row["actor_id"]:
                    yield row, matches

    def forget_commits(self, shas: Sequence[str]) -> None:
        """Forget commits that another host has forgotten; the caller must have begun a transaction."""
        for row in self.database.run("commits_of_sha", shas=orjson.dumps(list(shas)).decode()):
            self._remove_commit(row["key"])

    def _remove_commit(self, key: object) -> None:
        for name in ("commit_terms_remove", "touched_delete", "commit_delete"):
            self.database.run(name, key=key)

    def optimize(self) -> None:
        """Merge the segments of the indexes, which removes deleted terms from the file."""
        self.database.run("commit_terms_optimize")
        self.database.run("file_terms_optimize")


def _pages(items: Iterable[T]) -> Iterator[list[T]]:
    page: list[T] = []
    for item in items:
        page.append(item)
        if len(page) == TOGETHER:
            yield page
            page = []
    if page:
        yield page
