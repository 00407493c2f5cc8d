"""Writes and reads the files of a local tracker without the adapter `LocalForge`, for `solve`, `replay` and `demo`.

The module defines the paths of the files of issues and pull requests, and the content of an issue, its comments and a
pull request. The formats of the tracker's files are defined in `front_matter.py` and `comments.py`, which no module
outside the package forge/local imports.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from agent import durable_files
from agent.errors import IssueUnreadable
from agent.forge.local import comments, front_matter

if TYPE_CHECKING:
    from collections.abc import Iterable

    from agent.forge.base import Comment, PullRef


@dataclass(frozen=True, slots=True)
class IssueFile:
    """The parts of an issue in a Markdown file.  A part of the issue that the file does not have is an empty string."""

    title: str
    author: str
    body: str
    base: str = ""
    repo: str = ""

    def rendered(self, label: str) -> bytes:
        """The content of the Markdown file of an issue, as an open issue with the only label `label`."""
        values = {"title": self.title, "author": self.author, "state": "open"}
        values |= {key: value for key, value in (("base", self.base), ("repo", self.repo)) if value}
        head, _ = front_matter.split(front_matter.render(values).encode(), "a new issue")
        return (head.with_items("labels", (), label).text + self.body).encode()


def parse(data: bytes, name: str) -> IssueFile:
    """Parse the content of an issue's Markdown file, with or without front matter; `name` is the file's name for error
    messages.

    Raises IssueUnreadable for invalid front matter and for text that is not UTF-8.
    """
    said: dict[str, str] = {}
    start = 0
    if front_matter.is_there(data):
        head, start = front_matter.split(data, name)
        said = {key: value for key in ("title", "author", "base", "repo") if (value := head.value(key))}
    text = data[start:].removeprefix(front_matter.BOM)
    body = front_matter.decode(text, name, data.count(b"\n", 0, start) + 1)
    return IssueFile(**{"title": "", "author": "", **said}, body=body)


def issue_path(tracker: Path, number: str) -> Path:
    """The path of the file of issue `number`."""
    return tracker / "issues" / f"{number}.md"


def number_at(tracker: Path, path: Path) -> str | None:
    """The name, without `.md`, of the issue's file `path` (which is the issue's number if the file is in the tracker);
    None if the file is not in the tracker's folder `issues`. The caller passes `tracker` and `path` as absolute paths
    without symbolic links."""
    return path.name.removesuffix(".md") if path.parent == tracker / "issues" else None


def write_issue(tracker: Path, number: str, data: bytes, said: bytes = b"", mode: int = 0o600) -> None:
    """Write the file of an issue, and the file of its comments unless `said` is empty.  Raises DiskError."""
    path = issue_path(tracker, number)
    durable_files.make_dir(path.parent, 0o700 if mode == 0o600 else 0o755)
    durable_files.write_file(path, data, mode)
    if said:
        durable_files.write_file(_comments_beside(path), said, mode)


def comment_lines(said: Iterable[Comment]) -> bytes:
    """The content of a comments file with the comments `said`."""
    return b"".join(comments.line_of(comment) for comment in said)


def read_comments(path: Path) -> bytes:
    """The content of an issue's comments file; `path` is the issue's own file. `read_comments` returns b"" if there is
    no comments file, and raises IssueUnreadable if it cannot be read."""
    file = _comments_beside(path)
    try:
        return file.read_bytes()
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise IssueUnreadable(f"{file} cannot be read: {error.strerror}") from error


def add_comments(tracker: Path, number: str, said: Iterable[Comment]) -> None:
    """Append comments to an issue; the caller ensures that no other process writes to the tracker at the same time.
    Raises DiskError, and IssueUnreadable with nothing written if the comments file cannot be read."""
    path = issue_path(tracker, number)
    durable_files.write_file(_comments_beside(path), read_comments(path) + comment_lines(said))


def pull_path(tracker: Path, number: str) -> Path:
    """The path of the file of pull request `number`."""
    return tracker / "pulls" / f"{number}.md"


def pull_file(pull: PullRef) -> Path:
    """The path of the file of a pull request in a local tracker, from its `file:` URL."""
    return Path(unquote(urlsplit(pull.url).path))


def pull_of_issue(data: bytes, issue: str, name: str) -> bytes:
    """The content `data` of a pull request's file, changed so that its key `issue` names the issue `issue`.

    Raises IssueUnreadable, which gives `name` as the name of the file, if the front matter is invalid.
    """
    head, start = front_matter.split(data, name)
    return head.with_value("issue", issue).text.encode() + data[start:]


def _comments_beside(path: Path) -> Path:
    return path.with_name(f"{path.stem}.comments.jsonl")
