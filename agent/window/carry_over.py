"""Collects the state that a compaction carries over from the messages that it removes; the program does this without a
model.

Comments of people and the model's own sentences are found by their positions in `context.index`, and referenced by the
number of their message. The plan, the files, the commands and the errors are read from the calls in tools.jsonl, or in
messages.jsonl if no tool calls were recorded. The first compaction of a process reads all recorded tool calls, a later
one only the new calls; therefore a process that resumes a task carries over the same state as the process that began
the task. The work tree (`values.PresentWork`) provides the changed files and their content. Each part of the carry-over
has a token budget (`budgets.py`). docs/window.md has the rules.
"""

from __future__ import annotations

from posixpath import normpath
from typing import TYPE_CHECKING, Any

import orjson

from agent.context.comments import question_of
from agent.context.projection import carried_over
from agent.errors import MakimonoError
from agent.store.jsonl import record_at, records
from agent.window.command_history import CommandHistory
from agent.window.comments import choose_comments
from agent.window.model_notes import notes
from agent.window.recent_files import EditedFile, render_files
from agent.window.work_state import fit_state

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from agent.context import MessageStore
    from agent.values import FileChange, Json, PresentWork
    from agent.window.budgets import Shares

    Call = tuple[str, Json]
    Fence = Callable[[str, str], str]

MOST_FILES = 50
MOST_EDITS = 3
"""The maximum number of edits that are remembered for each file: the newest ones."""

INSIDE = "/work/"
"""The path of the work tree as commands see it; paths in tool calls may begin with this path."""

ROUNDS = 5
"""The maximum number of rounds in which more comments are selected for the carry-over."""

READERS = frozenset(("read_file",))
WRITERS = frozenset(("edit_file", "write_file"))


class RecentPaths:
    """The MOST_FILES most recently used paths, in the order of their last use, each with the offsets of its newest
    calls in tools.jsonl."""

    def __init__(self) -> None:
        self.paths: dict[str, tuple[int, ...]] = {}

    def use(self, path: str, at: int = 0) -> None:
        """Record that the tool call at offset `at` of tools.jsonl used the file."""
        self.paths[path] = (at, *self.paths.pop(path, ()))[:MOST_EDITS]
        if len(self.paths) > MOST_FILES:
            del self.paths[next(iter(self.paths))]


class CarryOver:
    """Collects the content of the carry-over; each call of `collect` first reads the new tool calls.

    `calls` and `seq` are the numbers of the last processed lines of tools.jsonl and messages.jsonl. `fence(text,
    source)` marks text from outside as data; `harmless(text)` changes a text so that nothing in it looks like the
    marker of a fence. `work` is the work tree of the task, None if there is none.
    """

    def __init__(
        self,
        store: MessageStore,
        *,
        fence: Fence = lambda text, _source: text,
        harmless: Callable[[str], str] = lambda text: text,
        work: PresentWork | None = None,
    ) -> None:
        self.store = store
        self.fence = fence
        self.harmless = harmless
        self.work = work
        self.plan: Any = None
        self.read = RecentPaths()
        self.changed = RecentPaths()
        self.commands = CommandHistory()
        self.calls = 0
        self.seq = 0
        self._behind = 0  # offset in tools.jsonl of the newest tool call that was read
        # offset in messages.jsonl of the message in which the model asked a person → tokens of the question as shown
        self._questions: dict[int, int] = {}
        self._found: tuple[Any, Json] = (None, {})  # arguments and result of the newest call of `_derive`, as a cache
        # cache: (number of the newest message when git was asked, its result)
        self._changes: tuple[int, Sequence[FileChange] | None] = (-1, None)

    def collect(self, shares: Shares, *, end_seq: int, ratio: float = 1.0, room: int = 0) -> Json:
        """The carry-over of a compaction that removes messages up to `end_seq`, in the form in which compactions.jsonl
        records it; new tool calls are read before.

        `shares` are budgets in tokens of the model; one token by the store's counter corresponds to `ratio` tokens of
        the model. `room` is the maximum number of tokens, by the store's counter, for the content of files.
        """
        path = self._tools_path()
        asked_for = (self.store.last_seq, path.stat().st_size if path.exists() else 0, shares, end_seq, ratio, room)
        if self._found[0] != asked_for:
            self._found = asked_for, self._derive(shares, end_seq, ratio, room)
        return dict(self._found[1])

    def _derive(self, shares: Shares, end_seq: int, ratio: float, room: int) -> Json:
        self._read_calls()
        store, survey, count = self.store, self.store.index, self.store.plain.count

        def budget(share: int) -> int:
            return int(share / ratio)

        question = ""
        if survey.asked is not None and survey.asked[0] <= end_seq:
            question = question_of(store.at(survey.asked[1]))
        changed, read = self._paths()
        # The model's sentences and the paths are shown outside of a fence, and the model knows the marker of the run:
        # so text in them that looks like a fence is changed.
        state = fit_state(self.plan, question, changed, read, budget(shares.state), count)
        said = notes(survey.notes, end_seq, budget(shares.notes), count, store.at)
        carried: Json = {
            "comments": self._comments(end_seq, budget(shares.comments), budget(shares.comments_now)),
            **each_text(state, self.harmless),
            "failures": self._fenced(self._failures, budget(shares.failures), "commands and tools"),
            "notes": each_text(said, self.harmless),
            "files": self._fenced(self._contents, min(room, budget(shares.files)), "files of the work tree"),
        }
        return {key: value for key, value in carried.items() if value or key == "comments"}

    def text(self, carried: Json, end_seq: int) -> str:
        """The text of the carry-over for the model, made from `carried`."""
        return carried_over(self.store.messages_path, carried, self.store.index, end_seq)

    def names(self, carried: Json) -> tuple[str, ...]:
        """Names by which a summary of the same messages is checked: changed paths, newest first, and kinds of failing
        commands.

        `names` returns only names that are in `carried`, of which the size is limited by budgets.
        """
        self._read_calls()
        text = self.text(carried, self.store.last_seq)
        return tuple(
            name for name in (*reversed(self.changed.paths), *reversed(self.commands.failing())) if name in text
        )

    # --- parts ------------------------------------------------------------------------------------------------

    def _comments(self, end_seq: int, room: int, newest: int) -> list[Json]:
        """References to the comments that the compaction carries over.

        Comments of one person share a fence, so together they need fewer tokens than the sum of their single counts. As
        long as tokens are left, the comments are chosen again with a larger budget, at most ROUNDS times in all; a
        choice that needs more than `room` is dropped.
        """
        store, comments = self.store, self.store.index.comments
        total = sum(one.seq <= end_seq for one in comments)
        found: list[Json] = []
        asked = room
        for _ in range(ROUNDS):
            more = choose_comments(
                comments, end_seq, asked, store.plain.count, store.at, newest=newest, known=self._questions
            )
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
        """Returns (changed files, files that were only read) as lines, the most recently used last.

        git also reports changes by commands such as `sed -i` or a formatter, with the numbers of lines. If git is
        unavailable, only the files that tools wrote are listed. A file that a tool wrote but git does not list (it
        equals its version in the base commit, or git ignores it) is listed with a note.
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
        """The differences between the work tree and its base commit, None if unknown; git runs again only after a new
        message."""
        if self.work is not None and self._changes[0] != self.store.last_seq:
            try:
                found: Sequence[FileChange] | None = list(self.work.changes())
            except (MakimonoError, OSError):  # the changes are unknown: only the files that tools wrote are listed
                found = None
            self._changes = self.store.last_seq, found
        return self._changes[1]

    def _fenced(self, made: Callable[[int], str], room: int, source: str) -> str:
        """Make a text with `made(tokens)` and put it inside a fence, both together in at most `room` tokens; "" if
        nothing fits."""
        marks = self.store.plain.count(self.fence("", source))
        text = made(room - marks) if room > marks else ""
        return self.fence(text, source) if text else ""

    def _failures(self, room: int) -> str:
        return self.commands.render(room, self.store.plain.count, self._call_at, self.store.context_dir)

    def _contents(self, room: int) -> str:
        if self.work is None:
            return ""
        edits = (EditedFile(path, tuple(self._texts(places))) for path, places in reversed(self.changed.paths.items()))
        text, _ = render_files(edits, room, self.store.plain.count, self._content)
        return text

    def _content(self, path: str) -> str | None:
        try:
            return self.work.text(path) if self.work is not None else None
        except (MakimonoError, OSError):  # the file cannot be read: its content is left out of the carry-over
            return None

    def _texts(self, places: Iterable[int]) -> Iterator[str]:
        """The texts that edits (`new_text` of a call) wrote into a file; `places` are the offsets of the calls in
        tools.jsonl."""
        for at in places:
            arguments = self._call_at(at).get("args")
            text = arguments.get("new_text") if isinstance(arguments, dict) else None
            if isinstance(text, str):
                yield text

    # --- reading ----------------------------------------------------------------------------------------------

    def _tools_path(self) -> Path:
        return self.store.context_dir / "tools.jsonl"

    def _call_at(self, at: int) -> Json:
        return record_at(self._tools_path(), at) or {}

    def _read_calls(self) -> None:
        path = self._tools_path()
        if path.exists() and path.stat().st_size:
            for at, record in self._new_calls(path):
                self.commands.add(record, at)
                for name, arguments in recorded([record]):
                    self.add_call(name, arguments, at)
            return
        for record in self.store.records(self.seq + 1):
            for name, arguments in asked([record]):
                self.add_call(name, arguments)
            self.seq = record["seq"]

    def _new_calls(self, path: Path) -> Iterator[tuple[int, Json]]:
        """(offset, record) of the tool calls in tools.jsonl that were not read before.

        If another program has made tools.jsonl shorter, the file is read again from its beginning.
        """
        if self.calls and path.stat().st_size < self._behind:
            self._behind = 0
        for offset, record in records(path, self._behind):
            self._behind = offset
            if record["seq"] > self.calls:
                self.calls = record["seq"]
                yield offset, record

    def add_call(self, name: str, arguments: Json, at: int = 0) -> None:
        """Record the plan that a tool call sets, or the file that it reads or changes; any other call is ignored. The
        record of the call begins at offset `at` of tools.jsonl."""
        path = arguments.get("path")
        if name == "update_plan":
            self.plan = arguments.get("items") or self.plan
        elif isinstance(path, str) and path and name in READERS | WRITERS:
            path = normpath(path).removeprefix(INSIDE)
            shown = "".join(sign if sign.isprintable() else "?" for sign in path)
            (self.read if name in READERS else self.changed).use(shown, at)


def each_text(value: Any, change: Callable[[str], str]) -> Any:
    """Apply `change` to each text in a JSON value; keys stay unchanged."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, list):
        return [each_text(one, change) for one in value]
    return {key: each_text(one, change) for key, one in value.items()} if isinstance(value, dict) else value


def recorded(tools: Iterable[Json]) -> Iterator[Call]:
    """Name and arguments of each successful tool call in records of tools.jsonl."""
    for record in tools:
        arguments = record.get("args")
        if record.get("status") == "success" and isinstance(arguments, dict):
            yield str(record.get("tool")), arguments


def asked(messages: Iterable[Json]) -> Iterator[Call]:
    """Name and arguments of each tool call in records of messages.jsonl, with any result or none."""
    for record in messages:
        for call in record.get("tool_calls") or ():
            function = call.get("function") or {}
            yield str(function.get("name")), _arguments(function.get("arguments"))


def _arguments(text: Any) -> Json:
    """The parsed arguments of a tool call; {} if they are not a JSON object."""
    try:
        found = orjson.loads(text or "{}")
    except (orjson.JSONDecodeError, TypeError):
        return {}
    return found if isinstance(found, dict) else {}
