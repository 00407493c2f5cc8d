"""Private trackers: an issue that lies in no tracker becomes the only issue of one of its own.

`solve` and `replay` make them below `base_dir/solve/`, so that the task takes the same way as any other: same forge,
same ledger, same files.  What the tracker needs to be opened again, by a daemon that finds the task after a crash,
lies in it as `solve.json`.  Nothing here runs a task (`solve.py` does).
"""

from __future__ import annotations

import os
import pwd
import re
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit
from uuid import uuid4

import orjson

from agent import disk, filetree
from agent.errors import IssueUnreadable, UsageError
from agent.forge import front

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agent.config import Settings
    from agent.forge.base import PullRef

FOLDER = "solve"
MANIFEST = "solve.json"
PULL = "pull.md"
LARGEST = 64 << 20


def is_private(settings: Settings, instance: str) -> bool:
    """Whether the instance of a key is a tracker of ours."""
    return bool(instance) and Path(instance).parent == (settings.base_dir / FOLDER).resolve()


def settings_of_tracker(settings: Settings, instance: str) -> Settings | None:
    """The settings under which a private tracker is opened; None when `instance` is none of ours."""
    if not is_private(settings, instance):
        return None
    try:
        repository = orjson.loads((Path(instance) / MANIFEST).read_bytes())["repository"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return on_tracker(settings, Path(instance), {"default": str(repository)})


def issue_of(settings: Settings, instance: str) -> str | None:
    """The file, or the address, that a private tracker was made of; None when `instance` is none of ours, or says
    none."""
    origin = _origin(settings, instance)
    return origin if origin is None or "://" in origin else Path(origin).name


def branch_name(settings: Settings, instance: str) -> str:
    """What stands in a branch for the issue of a private tracker, whose own number says nothing: `fix-the-sum` of
    `Fix the sum.md`, `7` of `https://…/issues/7`; "" where nothing is left of the name, and for any other tracker."""
    stem = Path(_origin(settings, instance) or "").stem
    return re.sub(r"[^a-z0-9]+", "-", stem.lower())[:40].strip("-")


def _origin(settings: Settings, instance: str) -> str | None:
    """The path or address that a private tracker was made of."""
    if not is_private(settings, instance):
        return None
    try:
        return str(orjson.loads((Path(instance) / MANIFEST).read_bytes())["issue"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def on_tracker(settings: Settings, tracker: Path, repos: Mapping[str, str]) -> Settings:
    """`settings` with this tracker as the only source of tasks."""
    local = settings.local.model_copy(update={"tracker": tracker, "repos": dict(repos)})
    return settings.model_copy(update={"task_sources": ("local",), "local": local})


def make_tracker(
    settings: Settings, text: bytes, repository: str, *, comments: bytes = b"", number: str = "1", **about: str
) -> Path:
    """A private tracker with `text`, front matter and body, as its issue `number`; returns its folder.

    `repository` is the path or address of the code, `comments` the lines of a comment file, `about` what else the
    manifest says.
    """
    top = disk.make_dir(disk.make_dir(settings.base_dir, disk.passable()) / FOLDER)
    tracker = disk.make_dir(top.resolve() / uuid4().hex[:12])
    issues = disk.make_dir(tracker / "issues")
    disk.write_file(issues / f"{number}.md", text)
    if comments:
        disk.write_file(issues / f"{number}.comments.jsonl", comments)
    disk.write_file(tracker / MANIFEST, orjson.dumps({"repository": repository, **about}))
    return tracker


def forget(settings: Settings, instance: str) -> None:
    """Remove the private tracker of a task that is removed; any other instance is left alone."""
    if is_private(settings, instance):
        with suppress(OSError):
            filetree.remove(instance)


def keep_pull(settings: Settings, instance: str, pull: PullRef | None, folder: Path) -> None:
    """Keep the pull request of a private tracker as `pull.md` in the task's folder; it names what it was made of."""
    if pull is not None and is_private(settings, instance):
        data = pull_file(pull).read_bytes()
        if (origin := _origin(settings, instance)) is not None:
            head, start = front.split(data, PULL)
            data = head.with_value("issue", origin).text.encode() + data[start:]
        disk.write_file(folder / PULL, data)


def pull_file(pull: PullRef) -> Path:
    """The file of a local pull request."""
    return Path(unquote(urlsplit(pull.url).path))


def read_issue(path: Path) -> bytes:
    """The bytes of a Markdown file.  UsageError when it cannot be read, holds nothing, or has more than 64 MiB."""
    try:
        if path.is_dir():
            raise UsageError(f"{path} is a folder; give a Markdown file or an issue's address")
        if path.stat().st_size > LARGEST:
            raise UsageError(f"{path} is larger than {LARGEST >> 20} MiB; an issue is a text that a person wrote")
        text = path.read_bytes()
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise UsageError(f"{path} cannot be read: {why}; give a Markdown file or an issue's address") from error
    if not text.strip():
        raise UsageError(f"{path} is empty; write what is to be done")
    return text


def as_issue(text: bytes, path: Path, label: str) -> tuple[bytes, str | None]:
    """(the file as an issue of a private tracker, the repository that its front matter names).

    What the front matter says of title, author and base stays; without one the first heading, else the name of the
    file, is the title.  UsageError for front matter that is none and for text that is not UTF-8.
    """
    said: dict[str, str] = {}
    start = 0
    try:
        if front.is_there(text):
            head, start = front.split(text, str(path))
            said = {key: value for key in ("title", "author", "base", "repo") if (value := head.value(key))}
        body = front.decode(text[start:].removeprefix(front.BOM), str(path), text.count(b"\n", 0, start) + 1)
    except IssueUnreadable as error:
        raise UsageError(str(error)) from error
    title = " ".join((said.get("title") or heading(body) or path.stem).split())[:200]
    values = {"title": title, "author": said.get("author") or user_name(), "state": "open"}
    if "base" in said:
        values["base"] = said["base"]
    return labelled(values, body, label), said.get("repo")


def labelled(values: Mapping[str, str], body: str, label: str) -> bytes:
    """The file of an issue with `values` as its front matter, and the label that asks for work."""
    head = front.render(dict(values)).removesuffix("---\n") + f"labels: [{orjson.dumps(label).decode()}]\n---\n"
    return (head + body).encode()


def heading(body: str) -> str:
    """The first heading outside a block of code, "" for none."""
    fence = ""
    for line in body.splitlines():
        stripped = line.strip()
        if fence:
            fence = "" if stripped.startswith(fence) else fence
        elif stripped.startswith(("```", "~~~")):
            fence = stripped[:3]
        elif stripped.startswith("#") and (text := stripped.strip("# \t")):
            return text
    return ""


def user_name() -> str:
    """Who asks: the login name."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return "solve"
