"""Requests to index the history of a repository, as files in base_dir: a task writes one request before its briefing,
and a process of low priority, which the daemon starts, executes the request.

The file of a request remains until the request was executed; a file that is not a valid request is removed.  A lost
request does no harm, since the history is also indexed after each task.
"""

from __future__ import annotations

import hashlib
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import orjson

from agent import durable_files

if TYPE_CHECKING:
    from pathlib import Path

FOLDER = "memory_index"


@dataclass(frozen=True, slots=True)
class IndexRequest:
    """A request to index the history of `branch` in `mirror` (a path below base_dir) for `actor`."""

    actor: str
    mirror: str
    branch: str

    def path(self, base_dir: Path) -> Path:
        """The path of the file of this request; each combination of actor, mirror and branch has one file."""
        name = hashlib.sha256(f"{self.actor}\n{self.mirror}\n{self.branch}".encode()).hexdigest()[:32]
        return base_dir / FOLDER / f"{name}.json"

    def put(self, base_dir: Path) -> None:
        """Write the request into its file. Raises DiskError if the request cannot be written."""
        path = self.path(base_dir)
        durable_files.make_dir(path.parent)
        durable_files.write_file(path, orjson.dumps(asdict(self)), sync=False)

    def remove(self, base_dir: Path) -> None:
        """Remove the file of the request, if it exists."""
        with suppress(OSError):
            self.path(base_dir).unlink()

    def is_open(self, base_dir: Path) -> bool:
        """Whether the request still has to be executed."""
        return self.path(base_dir).exists()


def first_request(base_dir: Path) -> IndexRequest | None:
    """Read one request that was not executed yet; None if no such request exists.  A file that is not a valid request
    is removed."""
    try:
        paths = sorted((base_dir / FOLDER).glob("*.json"))
    except OSError:
        return None
    for path in paths:
        try:
            return IndexRequest(**orjson.loads(path.read_bytes()))
        except (OSError, orjson.JSONDecodeError, TypeError):
            with suppress(OSError):
                path.unlink()
    return None
