"""Makes and opens private trackers: local trackers with a single issue, which comes from a file, a URL or a replay.

`solve` and `replay` make a private tracker, in the folder `solve/` of a base_dir, so that its task uses the same kind
of forge, ledger and files as any other. The file `solve.json` in the folder of a private tracker has the data that a
daemon needs to open the tracker again after a crash. `private_tracker.py` does not run the task; `commands/solve.py`
does.
"""

from __future__ import annotations

import os
import pwd
import re
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import orjson

from agent import durable_files, filetree
from agent.errors import IssueUnreadable, UsageError
from agent.forge.local import issue_files

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agent.config import Settings
    from agent.forge.base import PullRef

FOLDER = "solve"
MANIFEST = "solve.json"
PULL = "pull.md"
LARGEST = 64 << 20


def is_private(settings: Settings, instance: str) -> bool:
    """Whether the `instance` of a task key is the folder of a private tracker."""
    return bool(instance) and Path(instance).parent == (settings.base_dir / FOLDER).resolve()


def settings_of_tracker(settings: Settings, instance: str) -> Settings | None:
    """The settings with which a private tracker is opened; None if `instance` is not a private tracker, or if its
    `solve.json` cannot be read."""
    if not is_private(settings, instance):
        return None
    try:
        repository = orjson.loads((Path(instance) / MANIFEST).read_bytes())["repository"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return on_tracker(settings, Path(instance), {"default": str(repository)})


def issue_of(settings: Settings, instance: str) -> str | None:
    """The file name or URL of the issue from which a private tracker was made; None if `instance` is not a private
    tracker, or if the tracker does not record it."""
    origin = _origin(settings, instance)
    return origin if origin is None or "://" in origin else Path(origin).name


def branch_name(settings: Settings, instance: str) -> str:
    """The part of a branch name that identifies the issue of a private tracker, since the number of such an issue
    (usually 1) does not.

    The branch part is for example `fix-the-sum` for `Fix the sum.md`, and `7` for `https://…/issues/7`; "" if the name
    has no usable characters, and for any other tracker."""
    stem = Path(_origin(settings, instance) or "").stem
    return re.sub(r"[^a-z0-9]+", "-", stem.lower())[:40].strip("-")


def _origin(settings: Settings, instance: str) -> str | None:
    """The path or URL of the issue from which a private tracker was made; None if that is unknown."""
    if not is_private(settings, instance):
        return None
    try:
        return str(orjson.loads((Path(instance) / MANIFEST).read_bytes())["issue"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def on_tracker(settings: Settings, tracker: Path, repos: Mapping[str, str]) -> Settings:
    """A copy of `settings` in which `tracker` is the only source of tasks."""
    local = settings.local.model_copy(update={"tracker": tracker, "repos": dict(repos)})
    return settings.model_copy(update={"task_sources": ("local",), "local": local})


def make_tracker(
    settings: Settings, text: bytes, repository: str, *, comments: bytes = b"", number: str = "1", **about: str
) -> Path:
    """Make a private tracker with `text` as the file of its issue `number`; returns its folder.

    `repository` is the path or URL of the code, `comments` the content of the issue's comments file; `about` has
    further fields of `solve.json`.
    """
    top = durable_files.make_dir(durable_files.make_dir(settings.base_dir, durable_files.passable()) / FOLDER)
    tracker = durable_files.make_dir(top.resolve() / uuid4().hex[:12])
    issue_files.write_issue(tracker, number, text, comments)
    durable_files.write_file(tracker / MANIFEST, orjson.dumps({"repository": repository, **about}))
    return tracker


def forget(settings: Settings, instance: str) -> None:
    """Remove the private tracker `instance`, since its task was removed; do nothing if `instance` is not a private
    tracker. Files that cannot be removed stay, without an error."""
    if is_private(settings, instance):
        with suppress(OSError):
            filetree.remove(instance)


def keep_pull(settings: Settings, instance: str, pull: PullRef | None, folder: Path) -> None:
    """Copy the file of the pull request to `pull.md` in the task's folder, if `instance` is a private tracker (a local
    tracker for a single issue).  In the copied `pull.md`, the key `issue` is the path or URL of the issue from which
    the tracker was made, if that is recorded."""
    if pull is not None and is_private(settings, instance):
        data = issue_files.pull_file(pull).read_bytes()
        if (origin := _origin(settings, instance)) is not None:
            data = issue_files.pull_of_issue(data, origin, PULL)
        durable_files.write_file(folder / PULL, data)


def read_issue(path: Path) -> bytes:
    """Read the Markdown file of an issue for `solve`.

    Raises UsageError if the file of the issue cannot be read, is a folder, is empty, or is larger than 64 MiB.
    """
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
    """Convert a Markdown file into an issue of a private tracker: (the content of the issue's file, the repository that
    the front matter names, None if it names none).

    The issue gets the title, author and base of the front matter; an issue without an author gets `user_name`. For an
    issue without a title the first heading becomes the title, or else the file name. Raises UsageError for invalid
    front matter and for an issue text that is not UTF-8.
    """
    try:
        said = issue_files.parse(text, str(path))
    except IssueUnreadable as error:
        raise UsageError(str(error)) from error
    title = " ".join((said.title or heading(said.body) or path.stem).split())[:200]
    whole = replace(said, title=title, author=said.author or user_name(), repo="")
    return whole.rendered(label), said.repo or None


def heading(body: str) -> str:
    """The text of the first Markdown heading outside of code blocks; "" if there is no heading."""
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
    """The login name of the user who runs this process; "solve" if the user has none."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return "solve"
