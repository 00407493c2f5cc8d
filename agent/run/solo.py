"""`solve`: one issue without a forge, on a private tracker.

The Markdown file becomes the only issue of a tracker below `base_dir/solve/`, so that the task takes the same way as
any other: same forge, same ledger, same files.  What the tracker needs to be opened again, by a daemon that finds the
task after a crash, lies in it as `solve.json`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import orjson

from agent import disk
from agent.errors import UsageError

if TYPE_CHECKING:
    from agent.config import Settings

FOLDER = "solve"
MANIFEST = "solve.json"
LARGEST = 64 << 20


def settings_of_tracker(settings: Settings, instance: str) -> Settings | None:
    """The settings under which a private tracker is opened; None when `instance` is none of ours."""
    tracker = Path(instance)
    if tracker.parent != settings.base_dir / FOLDER:
        return None
    try:
        repository = orjson.loads((tracker / MANIFEST).read_bytes())["repository"]
    except (OSError, ValueError, KeyError):
        return None
    return on_tracker(settings, tracker, {"default": repository})


def on_tracker(settings: Settings, tracker: Path, repos: dict[str, str]) -> Settings:
    """`settings` with this tracker as the only source of tasks."""
    local = settings.local.model_copy(update={"tracker": tracker, "repos": repos})
    return settings.model_copy(update={"task_sources": ("local",), "local": local})


def make_tracker(settings: Settings, issue: Path, repository: Path) -> Path:
    """A private tracker with the text of `issue` as issue 1; returns its folder.

    UsageError when the file cannot be read or is larger than 64 MiB.  A file without front matter gets one: its first
    heading, else its name, is the title.
    """
    try:
        if issue.stat().st_size > LARGEST:
            raise UsageError(f"{issue} is larger than {LARGEST >> 20} MiB; an issue is a text that a person wrote")
        text = issue.read_bytes()
    except OSError as error:
        raise UsageError(
            f"{issue} cannot be read: {error.strerror}; give a Markdown file or an issue's address"
        ) from error
    tracker = settings.base_dir / FOLDER / uuid4().hex[:12]
    disk.make_dir(disk.make_dir(settings.base_dir, disk.passable()) / FOLDER)
    disk.make_dir(tracker)
    disk.make_dir(tracker / "issues")
    disk.write_file(tracker / MANIFEST, orjson.dumps({"repository": str(repository), "issue": str(issue.absolute())}))
    disk.write_file(tracker / "issues" / "1.md", with_front_matter(text, issue, settings.local.bot_label))
    return tracker


def with_front_matter(text: bytes, issue: Path, label: str) -> bytes:
    """The file as an issue of the tracker: what it says of itself stays, what is missing is filled in."""
    if text.lstrip(b"\xef\xbb\xbf").startswith(b"---"):
        return text
    heading = next((line[1:].strip(b"# \t\r") for line in text.split(b"\n") if line.startswith(b"#")), b"")
    title = heading.decode("utf-8", "replace")[:200] or issue.stem
    head = {"title": title, "labels": [label], "author": "solve", "state": "open"}
    lines = [b"%s: %s" % (key.encode(), orjson.dumps(value)) for key, value in head.items()]
    return b"\n".join([b"---", *lines, b"---", text])
