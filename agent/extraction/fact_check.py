"""Checks facts about code against the present files of the base branch.

A fact (a memory record of this kind) contains the blob of each file that its task delivered. When the base branch once
had the blob that a fact contains for a file, and now has another blob for the file, the identifiers of the fact that
were in the old version of the file are searched for in the new version. If an identifier of the fact was in the old
version and is missing in the new version, the fact becomes invalid; so it does if the file is gone and the fact names
the file or an identifier that was in it. A fact that names no identifier cannot be compared with the new version of a
file: for each new version the fact counts as `hurt` once, and so ranks lower in searches. A fact that a person has
pinned (`memory pin`) is not checked.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from agent import clock
from agent.extraction.session_events import OUTCOME, VERIFIED
from agent.gitcmd import git
from agent.memory import NewEvent
from agent.memory.commit_reader import CommitReader, TreeFile
from agent.memory.namespaces import of_actor

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from agent.memory import MemoryRecord, MemoryStore

BLOBS = "blobs"
"""Key in the metadata of a fact; its value maps a path to the file's blob at the commit that the task delivered."""
PAGE = 500
_PIECE = re.compile(
    r"`(?P<marked>[^`\n]{2,80})`"  # this alternative matches names in backticks
    r"|(?P<dotted>[\w.]++)(?P<call>\(?)"
    r"|(?<![\w-])(?P<option>--[a-z][\w-]++)"
)
_FIRST = re.compile(r"[A-Za-z_]")
LONGEST_NAME = 200
_WORD = re.compile(r"\w++")
_NAME = re.compile(r"[A-Za-z]\w*_\w+|[a-z]+[A-Z]\w*|[A-Z][a-z0-9]+[A-Z]\w*")


def identifiers(text: str) -> tuple[str, ...]:
    """Names of code in a text: anything in backticks, calls, names with `_` or camel case, and options."""
    found = (name for piece in _PIECE.finditer(text) for name in _names_in(piece))
    return tuple(dict.fromkeys(name.removesuffix("()") for name in found))


def _names_in(piece: re.Match[str]) -> Iterator[str]:
    """The names in one match of `_PIECE`: the part before the bracket of a call, else each word that is a name."""
    dotted = piece["dotted"]
    if dotted is None:
        yield piece["marked"] or piece["option"]
    elif piece["call"] and (first := _FIRST.search(dotted)) is not None:
        yield dotted[first.start() :]
    else:
        yield from (word for word in _WORD.findall(dotted) if len(word) <= LONGEST_NAME and _NAME.fullmatch(word))


class FactCheck:
    """The check of one actor's facts against the tip of a branch.  Raises GitError when git fails."""

    def __init__(self, store: MemoryStore, mirror: Path, branch: str) -> None:
        self.store = store
        self.mirror = mirror
        self.reader = CommitReader(mirror)
        self.tip = self.reader.tip(branch)

    def run(self, actor: str) -> int:
        """Check the actor's active facts that have blobs and are not pinned; returns the number of those that became
        invalid."""
        facts = [one for one in self._facts(actor) if one.metadata.get(BLOBS) and not one.pinned]
        wanted = {path for one in facts for path in one.metadata[BLOBS]}
        if not wanted:
            return 0
        now = {file.path: file.blob for file in self.reader.files(self.tip) if file.path in wanted}
        return sum(self._check(one, now) for one in facts)

    def _facts(self, actor: str) -> Iterator[MemoryRecord]:
        after = None
        while page := self.store.list_memory_records(of_actor("facts", actor), limit=PAGE, after=after):
            after = page[-1].id
            yield from page

    def _check(self, fact: MemoryRecord, now: Mapping[str, str]) -> bool:
        """Check one fact; return whether it became invalid."""
        names = identifiers(fact.text)
        doubts = []
        for path, blob in fact.metadata[BLOBS].items():
            if now.get(path) == blob or not self._was_here(path, blob):
                continue
            old, new = self._text(path, blob), self._text(path, now[path]) if path in now else ""
            known = [name for name in names if name in old]
            gone = next((name for name in known if name not in new), None)
            if path not in now and (known or path in fact.text):
                self.store.invalidate(fact.id, f"{path} is not in {self.tip[:12]} any more")
                return True
            if gone is not None:
                self.store.invalidate(fact.id, f"`{gone}` is not in {path} of {self.tip[:12]} any more")
                return True
            if not known:
                doubts.append((path, now.get(path, "")))
        if not names:
            for path, blob in doubts:
                self._doubt(fact, path, blob)
        return False

    def _was_here(self, path: str, blob: str) -> bool:
        """Whether the branch has ever had this version of the file: work that is not merged is not checked."""
        if git("cat-file", "-e", blob, git_dir=self.mirror, check=False).returncode != 0:
            return False
        found = git(
            *("log", "-1", "--format=%H", f"--find-object={blob}", self.tip, "--", path),
            git_dir=self.mirror,
        )
        return bool(found.output.strip())

    def _text(self, path: str, blob: str) -> str:
        return next((text for _, text in self.reader.contents([TreeFile(path, blob, 0)])), "")

    def _doubt(self, fact: MemoryRecord, path: str, blob: str) -> None:
        """Count a fact as `hurt` because of a new version of a file, or of its removal (`blob` ""), once for each."""
        event = NewEvent(
            fact.namespace.strip("/").split("/")[1],
            fact.session_id or "history",
            f"{path}, which a fact of this task was about, {'was changed' if blob else 'was removed'} since.",
            role="system",
            timestamp=clock.stamp(),
            source=OUTCOME,
            trust=VERIFIED,
            client_token=f"{fact.id}:{path}:{blob}",
        )
        self.store.add_outcome(event, [fact.id], helped=False)
