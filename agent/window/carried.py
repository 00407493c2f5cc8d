"""What every compaction carries, found by the program and never by a model.

Comments of people are chosen from the places that `context.survey` keeps and named by number; so are the model's own
sentences.  Plan, files, commands and errors are read off the calls: those in tools.jsonl, or where no tools were
recorded those in messages.jsonl.  The first compaction of a process reads them all, each later one only what is new; so
a process that takes a task up carries the same as one that lived through it.  What changed and what stands in the files
is asked of the work tree (`values.PresentWork`).  Each part has a budget (`shares.py`).  docs/window.md has the rules.
"""

from __future__ import annotations

from posixpath import normpath
from typing import TYPE_CHECKING, Any

import orjson

from agent.context.comments import question_of
from agent.context.projection import carried_over
from agent.store.jsonl import records
from agent.window.commands import Commands
from agent.window.comments import chosen
from agent.window.files import Edit, contents
from agent.window.notes import notes
from agent.window.state import fit_state

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from agent.context import MessageStore
    from agent.values import FileChange, Json, PresentWork
    from agent.window.shares import Shares

    Call = tuple[str, Json]
    Fence = Callable[[str, str], str]

MOST_FILES = 50
MOST_EDITS = 3
"""Edits of one file whose places are known, the newest."""

INSIDE = "/work/"
"""Commands see the work tree there, so a path may begin with it."""

ROUNDS = 5
"""How often more comments are asked for at most."""

READERS = frozenset(("read_file",))
WRITERS = frozenset(("edit_file", "write_file"))


class Files:
    """The newest paths, in the order of their last use, each with the offsets of the calls that used it last."""

    def __init__(self) -> None:
        self.paths: dict[str, tuple[int, ...]] = {}

    def use(self, path: str, at: int = 0) -> None:
        """The file was used again, by the call at offset `at`."""
        self.paths[path] = (at, *self.paths.pop(path, ()))[:MOST_EDITS]
        if len(self.paths) > MOST_FILES:
            del self.paths[next(iter(self.paths))]


class Carrying:
    """What is carried, kept up.  `calls` and `seq` are how far tools.jsonl and messages.jsonl are in it.

    `fence(text, source)` marks text from outside as data; `work` is the work tree, None where there is none.
    """

    def __init__(
        self, store: MessageStore, *, fence: Fence = lambda text, _source: text, work: PresentWork | None = None
    ) -> None:
        self.store = store
        self.fence = fence
        self.work = work
        self.plan: Any = None
        self.read = Files()
        self.changed = Files()
        self.commands = Commands()
        self.calls = 0
        self.seq = 0
        self._behind = 0  # offset of the newest call that was read
        self._questions: dict[int, int] = {}  # offset of a question → its tokens
        self._found: tuple[Any, Json] = (None, {})  # what was asked for last, and the answer
        self._changes: tuple[int, Sequence[FileChange] | None] = (-1, None)  # after that message, and what git said

    def look(self, shares: Shares, *, end_seq: int, ratio: float = 1.0, room: int = 0) -> Json:
        """Take in what is new; what a compaction of messages up to `end_seq` carries then, as compactions.jsonl records
        it.  `shares` are in tokens of the model; `ratio` of those go to one of the store's plain counter.  `room` is
        how many plain tokens the content of files may take at most."""
        path = self._tools_path()
        asked_for = (self.store.last_seq, path.stat().st_size if path.exists() else 0, shares, end_seq, ratio, room)
        if self._found[0] != asked_for:
            self._found = asked_for, self._look(shares, end_seq, ratio, room)
        return dict(self._found[1])

    def _look(self, shares: Shares, end_seq: int, ratio: float, room: int) -> Json:
        self._read_calls()
        store, survey, count = self.store, self.store.survey, self.store.plain.count

        def budget(share: int) -> int:
            return int(share / ratio)

        question = ""
        if survey.asked is not None and survey.asked[0] <= end_seq:
            question = question_of(store.at(survey.asked[1]))
        changed, read = self._paths()
        carried: Json = {
            "comments": self._comments(end_seq, budget(shares.comments), budget(shares.comments_now)),
            **fit_state(self.plan, question, changed, read, budget(shares.state), count),
            "failures": self._fenced(self._failures, budget(shares.failures), "commands and tools"),
            "notes": notes(survey.notes, end_seq, budget(shares.notes), count, store.at),
            "files": self._fenced(self._contents, min(room, budget(shares.files)), "files of the work tree"),
        }
        return {key: value for key, value in carried.items() if value or key == "comments"}

    def text(self, carried: Json, end_seq: int) -> str:
        """`carried` as the model gets it."""
        return carried_over(self.store.messages_path, carried, self.store.survey, end_seq)

    def named(self, carried: Json) -> tuple[str, ...]:
        """Names that a summary of the same messages can be judged by: paths that were changed, newest first, and kinds
        of commands that fail.  They are in `carried` as far as its budgets go."""
        self._read_calls()
        text = self.text(carried, self.store.last_seq)
        return tuple(
            name for name in (*reversed(self.changed.paths), *reversed(self.commands.failing())) if name in text
        )

    # --- parts ------------------------------------------------------------------------------------------------

    def _comments(self, end_seq: int, room: int, newest: int) -> list[Json]:
        """The references.  Comments of one person share a fence, so they need less than each alone: while there is
        room, more are asked for."""
        store, comments = self.store, self.store.survey.comments
        total = sum(one.seq <= end_seq for one in comments)
        found: list[Json] = []
        asked = room
        for _ in range(ROUNDS):
            more = chosen(comments, end_seq, asked, store.plain.count, store.at, newest=newest, known=self._questions)
            used = store.plain.count(self.text({"comments": more}, end_seq))
            if found and used > room:
                break
            found = more
            whole = sum("head" not in one for one in more)
            if whole >= total or used >= room:
                break
            asked += room - used
        return found

    def _paths(self) -> tuple[list[str], list[str]]:
        """(files that changed, files that were only read), as lines, the newest last.

        git knows what `sed -i` or a formatter changed, with numbers; where it cannot be asked, what tools wrote.  A
        file that a tool wrote and that git does not name is as it was at the base, or ignored.
        """
        written = self.changed.paths
        if (found := self._changes_now()) is None:
            changed = list(written)
        else:
            named = {change.path for change in found}
            order = {path: number for number, path in enumerate(written)}
            rest = [f"{path} (written; no difference that git sees)" for path in written if path not in named]
            newest = sorted(found, key=lambda change: order.get(change.path, -1))
            changed = [*rest, *map(str, newest)]
        seen = {*written, *(change.path for change in found or ())}
        return changed, [path for path in self.read.paths if path not in seen]

    def _changes_now(self) -> Sequence[FileChange] | None:
        """What differs from the base, None where it is not known; asked once between two messages."""
        if self.work is not None and self._changes[0] != self.store.last_seq:
            try:
                found: Sequence[FileChange] | None = list(self.work.changes())
            except Exception:  # noqa: BLE001 - git and the work tree are foreign; without them a compaction goes on
                found = None
            self._changes = self.store.last_seq, found
        return self._changes[1]

    def _fenced(self, made: Callable[[int], str], room: int, source: str) -> str:
        """What `made(tokens)` gives, between the marks of data, in `room` tokens together; "" when none has room."""
        marks = self.store.plain.count(self.fence("", source))
        text = made(room - marks) if room > marks else ""
        return self.fence(text, source) if text else ""

    def _failures(self, room: int) -> str:
        return self.commands.show(room, self.store.plain.count, self._call_at, self.store.context_dir)

    def _contents(self, room: int) -> str:
        if self.work is None:
            return ""
        edits = (Edit(path, tuple(self._texts(places))) for path, places in reversed(self.changed.paths.items()))
        text, _ = contents(edits, room, self.store.plain.count, self._content)
        return text

    def _content(self, path: str) -> str | None:
        try:
            return self.work.text(path) if self.work is not None else None
        except Exception:  # noqa: BLE001 - the work tree is foreign, as above
            return None

    def _texts(self, places: Iterable[int]) -> Iterator[str]:
        """The texts that the calls at these offsets put into a file."""
        for at in places:
            arguments = self._call_at(at).get("args")
            text = arguments.get("new_text") if isinstance(arguments, dict) else None
            if isinstance(text, str):
                yield text

    # --- reading ----------------------------------------------------------------------------------------------

    def _tools_path(self) -> Path:
        return self.store.context_dir / "tools.jsonl"

    def _call_at(self, at: int) -> Json:
        return next((record for _, record in records(self._tools_path(), at)), {})

    def _read_calls(self) -> None:
        path = self._tools_path()
        if path.exists() and path.stat().st_size:
            for at, record in self._new_calls(path):
                self.commands.take(record, at)
                for name, arguments in recorded([record]):
                    self.take(name, arguments, at)
            return
        for record in self.store.records(self.seq + 1):
            for name, arguments in asked([record]):
                self.take(name, arguments)
            self.seq = record["seq"]

    def _new_calls(self, path: Path) -> Iterator[tuple[int, Json]]:
        """(offset, record) of the calls behind those that were read; all are looked at again when another program has
        written the file anew."""
        if self.calls and path.stat().st_size < self._behind:
            self._behind = 0
        for offset, record in records(path, self._behind):
            self._behind = offset
            if record["seq"] > self.calls:
                self.calls = record["seq"]
                yield offset, record

    def take(self, name: str, arguments: Json, at: int = 0) -> None:
        """Take one call in, whose record begins at offset `at`."""
        path = arguments.get("path")
        if name == "update_plan":
            self.plan = arguments.get("items") or self.plan
        elif isinstance(path, str) and path and name in READERS | WRITERS:
            path = normpath(path).removeprefix(INSIDE)
            shown = "".join(sign if sign.isprintable() else "?" for sign in path)
            (self.read if name in READERS else self.changed).use(shown, at)


def recorded(tools: Iterable[Json]) -> Iterator[Call]:
    """The calls in tools.jsonl that succeeded."""
    for record in tools:
        arguments = record.get("args")
        if record.get("status") == "success" and isinstance(arguments, dict):
            yield str(record.get("tool")), arguments


def asked(messages: Iterable[Json]) -> Iterator[Call]:
    """The calls in messages.jsonl, whatever came of them."""
    for record in messages:
        for call in record.get("tool_calls") or ():
            function = call.get("function") or {}
            yield str(function.get("name")), _arguments(function.get("arguments"))


def _arguments(text: Any) -> Json:
    """The arguments of a call, {} for anything that is no object."""
    try:
        found = orjson.loads(text or "{}")
    except (orjson.JSONDecodeError, TypeError):
        return {}
    return found if isinstance(found, dict) else {}
