"""Comments of a local issue: `issues/{n}.comments.jsonl`, one object a line, written by people and by us.

Fields `id` (integer), `author`, `body`, `created_at`, `updated_at`.  A person need not write an `id`: the comment is
then called by a digest of its words.  A line that cannot be read is left out and named; the rest goes on.
Ours are appended; an edit replaces one line and leaves every other byte.  Called by `local.py`.
"""

from __future__ import annotations

import json
import re
from contextlib import suppress
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import orjson

from agent import clock
from agent.errors import ForgeError
from agent.forge.base import Comment, Marked
from agent.forge.marks import all_in
from agent.store.text import fit_json

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agent.forge.local_files import TrackerFiles

_ID = re.compile(rb'"id"\s*:\s*"?([0-9]{1,18})')
TEXT = "text"
_SEEN = re.compile(r"(text|[0-9]+|h[0-9a-f]{12}(?:-[0-9]+)?):([0-9a-f]{12})")


@dataclass(frozen=True, slots=True)
class LocalComments:
    """The comments of the issue whose comment file is `relative`.  `bot` is the own account's name."""

    files: TrackerFiles
    relative: str
    bot: str

    def all(self) -> tuple[list[Comment], list[str]]:
        """(every readable comment in the file's order, sentences about the lines that are not)."""
        comments: list[Comment] = []
        problems: list[str] = []
        seen: set[str] = set()
        for number, line in enumerate(self._data().split(b"\n"), 1):
            if not line.strip():
                continue
            where = f"{self.files.root / self.relative}:{number}"
            try:
                comment = _comment(line)
            except ValueError as error:
                problems.append(f"{where}: {error}; the line is left out")
                continue
            if comment.id in seen and comment.id.startswith("h"):  # the same words again
                same = sum(one == comment.id or one.startswith(f"{comment.id}-") for one in seen)
                comment = replace(comment, id=f"{comment.id}-{same + 1}")
            if comment.id in seen:
                problems.append(f"{where}: id {comment.id} is used twice; give this comment another one")
                continue
            seen.add(comment.id)
            comments.append(comment)
        return comments, problems

    def of_people(self) -> tuple[tuple[Comment, ...], list[str]]:
        """What others than the own account wrote."""
        comments, problems = self.all()
        return tuple(comment for comment in comments if comment.author != self.bot), problems

    def since(self, cursor: str | None, edit: Comment | None = None) -> tuple[tuple[Comment, ...], str, list[str]]:
        """(new and edited ones of people, the next cursor, problems).  `edit`: the issue's own text as it is now."""
        comments, problems = self.of_people()
        known = _known(cursor)
        if edit is not None and TEXT in known and known[TEXT] != edit.id.removeprefix(f"{TEXT}-"):
            return (*self._news(comments, known), edit), cursor_of(comments, known, edit), problems
        return self._news(comments, known), cursor_of(comments, known), problems

    def _news(self, comments: tuple[Comment, ...], known: dict[str, str]) -> tuple[Comment, ...]:
        return tuple(
            replace(comment, is_edit=comment.id in known)
            for comment in comments
            if known.get(comment.id) != _digest(comment)
        )

    def find(self, marker: str) -> str | None:
        """The oldest own one with the marker."""
        return next((one.id for one in self.marked() if marker in one.markers), None)

    def marked(self) -> tuple[Marked, ...]:
        """Own ones with markers, in the file's order, which is that of their numbers."""
        own = (one for one in self.all()[0] if one.author == self.bot)
        return tuple(Marked(one.id, markers, one.updated_at) for one in own if (markers := all_in(one.body)))

    def post(self, body: str) -> str:
        """Append one as the own account; called under the tracker's lock."""
        used = [int(match) for match in _ID.findall(self._data())]
        number = max(used, default=0) + 1
        now = clock.stamp()
        record = {"id": number, "author": self.bot, "body": body, "created_at": now, "updated_at": now}
        self.files.append_line(self.relative, orjson.dumps(record), torn=self._is_ours_torn)
        return str(number)

    def edit(self, comment_id: str, body: str) -> None:
        """Replace the body of an own one; called under the tracker's lock."""

        def change(data: bytes) -> bytes:
            for start, line in _lines(data):
                found = _found(line)
                if found is None or found.id != comment_id or found.author != self.bot:
                    continue
                if found.body == body:
                    return data
                record = _loaded(line) | {"body": body, "updated_at": clock.stamp()}
                end = start + len(line.rstrip(b"\r"))
                return data[:start] + orjson.dumps(record) + data[end:]
            raise ForgeError(
                f"{self.files.root / self.relative}: no comment {comment_id} of {self.bot!r} to edit; "
                f"it was removed, or belongs to somebody else"
            )

        try:
            self.files.rewrite(self.relative, change)
        except FileNotFoundError:
            change(b"")

    def remove(self, comment_id: str) -> None:
        """Take an own one out; called under the tracker's lock."""

        def change(data: bytes) -> bytes:
            for start, line in _lines(data):
                found = _found(line)
                if found is not None and found.id == comment_id:
                    if found.author != self.bot:
                        where = self.files.root / self.relative
                        raise ForgeError(f"{where}: comment {comment_id} belongs to {found.author!r} and is left there")
                    return data[:start] + data[start + len(line) + 1 :]
            return data

        with suppress(FileNotFoundError):
            self.files.rewrite(self.relative, change)

    def _is_ours_torn(self, line: bytes) -> bool:
        """Whether an unfinished line is what a killed `post` left: it begins as ours do, and is no whole comment."""
        author = orjson.dumps(self.bot)
        try:
            _comment(line)
        except ValueError:
            return re.match(rb'\{"id":[0-9]+,"author":' + re.escape(author) + rb",", line) is not None
        return False

    def _data(self) -> bytes:
        try:
            return self.files.read(self.relative)
        except FileNotFoundError:
            return b""


def cursor_of(comments: tuple[Comment, ...], known: dict[str, str] | None = None, text: Comment | None = None) -> str:
    """Each comment's id and a digest of it, and that of the issue's own `text`.  A comment that cannot be read just now
    stays known."""
    seen = dict(known or {}) | {comment.id: _digest(comment) for comment in comments}
    seen |= {} if text is None else {TEXT: text.id.removeprefix(f"{TEXT}-")}
    return ",".join(f"{key}:{digest}" for key, digest in seen.items())


def _known(cursor: str | None) -> dict[str, str]:
    parts = cursor.split(",") if cursor else []
    matches = [_SEEN.fullmatch(part) for part in parts]
    return {match[1]: match[2] for match in matches if match} if all(matches) else {}


def _digest(comment: Comment) -> str:
    return blake2b(f"{comment.updated_at}\0{comment.body}".encode(), digest_size=6).hexdigest()


def _comment(line: bytes) -> Comment:
    """ValueError says what is wrong and what is expected."""
    record = _loaded(line)
    if not isinstance(record, dict):
        problem = 'a comment must be an object with "id", "author" and "body"'
        raise ValueError(problem)  # noqa: TRY004 - the caller needs one class and the text
    number = record.get("id")
    if number is not None and (not isinstance(number, int) or isinstance(number, bool) or number < 0):
        raise ValueError(f'"id" must be a whole number, not {number!r}; it may be left out')
    if wrong := [name for name in ("author", "body") if not isinstance(record.get(name), str)]:
        raise ValueError(f'"{wrong[0]}" must be text')
    created = time_of(record.get("created_at"))
    updated = time_of(record.get("updated_at")) or created
    if number is None:  # no number can be this, so it clashes with none, and other lines may come and go
        said = f"{record['author']}\0{created}\0{record['body']}".encode("utf-8", "replace")
        return Comment(
            f"h{blake2b(said, digest_size=6).hexdigest()}", record["author"], record["body"], created, updated
        )
    return Comment(str(number), record["author"], record["body"], created, updated)


def time_of(value: Any) -> str:
    """A time as people write it; "" for what is none: they may have written `yesterday`."""
    try:
        return str(value) if value and clock.parse(str(value)) else ""
    except ValueError:
        return ""


def _loaded(line: bytes) -> Any:
    """The JSON of a line.  orjson takes no half of a sign in an escape, which other programs write."""
    try:
        return orjson.loads(line)
    except orjson.JSONDecodeError as error:
        try:
            return fit_json(json.loads(line))
        except (ValueError, RecursionError):
            raise ValueError(f"this line is not JSON ({error.msg})") from None


def _found(line: bytes) -> Comment | None:
    """The comment of a line, None when it cannot be read."""
    try:
        return _comment(line)
    except ValueError:
        return None


def _lines(data: bytes) -> Iterator[tuple[int, bytes]]:
    start = 0
    for line in data.split(b"\n"):
        yield start, line
        start += len(line) + 1
