"""The comments of a local issue are in `issues/{n}.comments.jsonl`, one object per line; people and the program write
them.

The object of a comment has the fields `id` (integer), `author`, `body`, `created_at` and `updated_at`.  A person may
leave out the field `id`: then a digest of the comment is used as its id.  A line of the comments file that cannot be
read is left out and reported; the other lines are used.  The program appends its comments to the file; when it edits a
comment, it replaces the line of that comment and leaves every other byte of the file unchanged.
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
from agent.forge.base import Comment, MarkedComment
from agent.forge.markers import all_in
from agent.store.storable_text import fit_json

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agent.forge.local.files import TrackerFiles

_ID = re.compile(rb'"id"\s*:\s*"?([0-9]{1,18})')
TEXT = "text"
_SEEN = re.compile(r"(text|[0-9]+|h[0-9a-f]{12}(?:-[0-9]+)?):([0-9a-f]{12})")


class CommentUnreadable(ForgeError):
    """The error that a line of the comments file is no valid comment; its message names the fault and the expected
    form. CommentUnreadable does not leave this module: the unreadable line is left out and reported."""

    code = "comment_unreadable"


@dataclass(frozen=True, slots=True)
class LocalComments:
    """The comments of one issue, in the file `relative` (its path within the tracker's folder).  `bot` is the name of
    the own account."""

    files: TrackerFiles
    relative: str
    bot: str

    def all(self) -> tuple[list[Comment], list[str]]:
        """(every readable comment in the file's order, sentences about the lines that are left out, since they are
        unreadable or repeat an id)."""
        comments: list[Comment] = []
        problems: list[str] = []
        seen: set[str] = set()
        for number, line in enumerate(self._data().split(b"\n"), 1):
            if not line.strip():
                continue
            where = f"{self.files.root / self.relative}:{number}"
            try:
                comment = _comment(line)
            except CommentUnreadable as error:
                problems.append(f"{where}: {error}; the line is left out")
                continue
            # if two comments would have the same digest as id, the second one gets another id
            if comment.id in seen and comment.id.startswith("h"):
                same = sum(one == comment.id or one.startswith(f"{comment.id}-") for one in seen)
                comment = replace(comment, id=f"{comment.id}-{same + 1}")
            if comment.id in seen:
                problems.append(f"{where}: id {comment.id} is used twice; give this comment another one")
                continue
            seen.add(comment.id)
            comments.append(comment)
        return comments, problems

    def of_people(self) -> tuple[tuple[Comment, ...], list[str]]:
        """(the comments of all accounts except the own account, sentences about the unreadable lines)."""
        comments, problems = self.all()
        return tuple(comment for comment in comments if comment.author != self.bot), problems

    def since(self, cursor: str | None, edit: Comment | None = None) -> tuple[tuple[Comment, ...], str, list[str]]:
        """The comments since a cursor: (new and edited comments of people, the next cursor, sentences about the
        unreadable lines).

        `edit` has the present title and text of the issue; `since` returns `edit` as one more comment if the title or
        text has changed since the cursor.
        """
        comments, problems = self.of_people()
        known = _parse_cursor(cursor)
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
        """The id of the oldest comment of the own account with the marker; None if there is no such comment."""
        return next((one.id for one in self.marked() if marker in one.markers), None)

    def marked(self) -> tuple[MarkedComment, ...]:
        """Comments of the own account with markers, in the order of the file; the program appends its comments, so
        their numbers ascend."""
        own = (one for one in self.all()[0] if one.author == self.bot)
        return tuple(MarkedComment(one.id, markers, one.updated_at) for one in own if (markers := all_in(one.body)))

    def post(self, body: str) -> str:
        """Append a comment as the own account and return its id; the caller must hold the tracker's lock."""
        used = [int(match) for match in _ID.findall(self._data())]
        number = max(used, default=0) + 1
        now = clock.stamp()
        line = line_of(Comment(str(number), self.bot, body, now, now)).removesuffix(b"\n")
        self.files.append_line(self.relative, line, torn=self._is_ours_torn)
        return str(number)

    def edit(self, comment_id: str, body: str) -> None:
        """Replace the body of a comment of the own account; the caller must hold the tracker's lock. Raises ForgeError
        if there is no such comment."""

        def change(data: bytes) -> bytes:
            for start, line in _lines(data):
                found = _parse_comment(line)
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
        """Remove a comment of the own account, if it exists; raises ForgeError for a comment of another author. The
        caller must hold the tracker's lock."""

        def change(data: bytes) -> bytes:
            for start, line in _lines(data):
                found = _parse_comment(line)
                if found is not None and found.id == comment_id:
                    if found.author != self.bot:
                        where = self.files.root / self.relative
                        raise ForgeError(f"{where}: comment {comment_id} belongs to {found.author!r} and is left there")
                    return data[:start] + data[start + len(line) + 1 :]
            return data

        with suppress(FileNotFoundError):
            self.files.rewrite(self.relative, change)

    def _is_ours_torn(self, line: bytes) -> bool:
        """Whether an unfinished line of the comments file was left by a killed `post`: the line begins like a comment
        of the own account, and is not complete."""
        author = orjson.dumps(self.bot)
        try:
            _comment(line)
        except CommentUnreadable:
            return re.match(rb'\{"id":[0-9]+,"author":' + re.escape(author) + rb",", line) is not None
        return False

    def _data(self) -> bytes:
        try:
            return self.files.read(self.relative)
        except FileNotFoundError:
            return b""


def line_of(comment: Comment) -> bytes:
    """The line of the comments file for a comment; the `id` of the comment must be a number."""
    record = {
        "id": int(comment.id),
        "author": comment.author,
        "body": comment.body,
        "created_at": comment.created_at,
        "updated_at": comment.updated_at,
    }
    return orjson.dumps(record, option=orjson.OPT_APPEND_NEWLINE)


def cursor_of(comments: tuple[Comment, ...], known: dict[str, str] | None = None, text: Comment | None = None) -> str:
    """The text of a cursor of comments: id and digest of each comment, and the digest of the issue's title and text, if
    `text` is given.

    A comment of an earlier cursor (`known`) that cannot be read at present stays in the new cursor, so that it is not
    reported as new later.
    """
    seen = dict(known or {}) | {comment.id: _digest(comment) for comment in comments}
    seen |= {} if text is None else {TEXT: text.id.removeprefix(f"{TEXT}-")}
    return ",".join(f"{key}:{digest}" for key, digest in seen.items())


def _parse_cursor(cursor: str | None) -> dict[str, str]:
    parts = cursor.split(",") if cursor else []
    matches = [_SEEN.fullmatch(part) for part in parts]
    return {match[1]: match[2] for match in matches if match} if all(matches) else {}


def _digest(comment: Comment) -> str:
    return blake2b(f"{comment.updated_at}\0{comment.body}".encode(), digest_size=6).hexdigest()


def _comment(line: bytes) -> Comment:
    """Parse a line of the comments file.  Raises CommentUnreadable."""
    record = _loaded(line)
    if not isinstance(record, dict):
        raise CommentUnreadable('a comment must be an object with "id", "author" and "body"')
    number = record.get("id")
    if number is not None and (not isinstance(number, int) or isinstance(number, bool) or number < 0):
        raise CommentUnreadable(f'"id" must be a whole number, not {number!r}; it may be left out')
    if wrong := [name for name in ("author", "body") if not isinstance(record.get(name), str)]:
        raise CommentUnreadable(f'"{wrong[0]}" must be text')
    created = time_of(record.get("created_at"))
    updated = time_of(record.get("updated_at")) or created
    # the id of a comment without a number is `h` and a digest: such an id differs from every number, and does not
    # depend on the other lines
    if number is None:
        said = f"{record['author']}\0{created}\0{record['body']}".encode("utf-8", "replace")
        return Comment(
            f"h{blake2b(said, digest_size=6).hexdigest()}", record["author"], record["body"], created, updated
        )
    return Comment(str(number), record["author"], record["body"], created, updated)


def time_of(value: Any) -> str:
    """A time that a person may have written, as text; "" if the text is not a valid time, such as `yesterday`."""
    try:
        return str(value) if value and clock.parse(str(value)) else ""
    except ValueError:
        return ""


def _loaded(line: bytes) -> Any:
    """Decode a line of JSON; raises CommentUnreadable if the line is not JSON.  The module json is tried after orjson,
    because orjson refuses escaped unpaired surrogates, which other programs write."""
    try:
        return orjson.loads(line)
    except orjson.JSONDecodeError as error:
        try:
            return fit_json(json.loads(line))
        except (ValueError, RecursionError):
            raise CommentUnreadable(f"this line is not JSON ({error.msg})") from None


def _parse_comment(line: bytes) -> Comment | None:
    """The comment in a line of the comments file; None if the line is not a valid comment."""
    try:
        return _comment(line)
    except CommentUnreadable:
        return None


def _lines(data: bytes) -> Iterator[tuple[int, bytes]]:
    start = 0
    for line in data.split(b"\n"):
        yield start, line
        start += len(line) + 1
