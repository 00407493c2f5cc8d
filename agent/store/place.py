"""A place beyond this machine where files are kept a second time, through fsspec: a folder, S3, GCS, Azure, SFTP.

`Place` knows names and bytes, nothing of tasks; what lies there is `replica.py`'s.  fsspec and its driver are imported
only where `context_storage.replica` is set.  Whatever a driver raises becomes ReplicaAway, which may be over again.
Source: fsspec's documentation of `AbstractFileSystem` (filesystem_spec.readthedocs.io, API reference).
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlsplit, urlunsplit

from agent.config.passwords import shown
from agent.errors import ConfigError, ReplicaAway
from agent.reasons import reason

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

FLAT = frozenset({"s3", "gs", "gcs", "abfs", "az"})
"""Schemes of stores that have no folders: nothing is made before a file is written."""

OPTIONS: dict[str, dict[str, Any]] = {
    "s3": {"config_kwargs": {"connect_timeout": 10, "read_timeout": 60, "retries": {"max_attempts": 2}}},
    "sftp": {"timeout": 10},
    "ssh": {"timeout": 10},
}
"""Limits of time by scheme, where its driver takes some: a place that hangs must end in an error."""

DRIVERS = {
    "s3": "s3fs",
    "gs": "gcsfs",
    "gcs": "gcsfs",
    "abfs": "adlfs",
    "az": "adlfs",
    "sftp": "paramiko",
    "ssh": "paramiko",
}


class Place:
    """The place at `address`: a path, or `scheme://…`; its query has options of the driver
    (`s3://bucket/tasks?endpoint_url=https://minio.example&key=…&secret=…`).

    Names are relative, with `/`.  Not for several threads.  ConfigError when the driver is not installed.
    """

    def __init__(self, address: str) -> None:
        self.where = shown(address)
        parts = urlsplit(address)
        given = dict(parse_qsl(parts.query)) if parts.scheme else {}
        path = urlunsplit(parts._replace(query="", fragment="")) if parts.scheme else address
        self._flat = parts.scheme in FLAT
        try:
            from fsspec.core import url_to_fs

            self._fs, self._root = url_to_fs(
                path,
                skip_instance_cache=True,
                use_listings_cache=False,
                **({} if self._flat or parts.scheme not in ("", "file") else {"auto_mkdir": True}),
                **{**OPTIONS.get(parts.scheme, {}), **given},
            )
        except ImportError as error:
            needed = DRIVERS.get(parts.scheme, "fsspec")
            raise ConfigError(
                f"context_storage.replica: {self.where} needs the package {needed}, which is not installed "
                f"({error}); install it beside this program (`makimono[replica]` has fsspec and s3fs)"
            ) from error
        except Exception as error:
            raise ConfigError(f"context_storage.replica: {self.where} cannot be used: {reason(error)}") from error

    def put(self, name: str, data: bytes) -> None:
        """Write a file, whole, over one of that name."""
        path = self._path(name)
        with self._translated():
            try:
                self._fs.pipe_file(path, data)
            except FileNotFoundError:
                if self._flat:
                    raise
                self._fs.makedirs(path.rpartition("/")[0], exist_ok=True)
                self._fs.pipe_file(path, data)

    def get(self, name: str) -> bytes | None:
        """What a file holds, None when there is none."""
        with self._translated():
            try:
                return bytes(self._fs.cat_file(self._path(name)))
            except FileNotFoundError:
                return None

    def names(self, folder: str) -> list[str]:
        """Names of all files below a folder, sorted; [] when there is none."""
        with self._translated():
            self._fs.invalidate_cache()
            try:
                found = self._fs.find(self._path(folder))
            except FileNotFoundError:
                return []
        start = len(self._root.rstrip("/")) + 1
        return sorted(str(path)[start:] for path in found)

    def remove(self, names: Sequence[str]) -> None:
        """Remove files; one that is gone is no fault."""
        with self._translated():
            if self._flat:
                if names:
                    self._fs.rm([self._path(name) for name in names])
                return
            for name in names:
                try:
                    self._fs.rm_file(self._path(name))
                except FileNotFoundError:
                    continue

    def remove_all(self, folder: str) -> int:
        """Remove a folder with all below it; how many files that were."""
        names = self.names(folder)
        self.remove(names)
        if not self._flat:
            with self._translated():
                try:
                    self._fs.rm(self._path(folder), recursive=True)
                except FileNotFoundError:
                    pass
        return len(names)

    def _path(self, name: str) -> str:
        return f"{self._root.rstrip('/')}/{name}"

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            raise ReplicaAway(
                f"context_storage.replica: {self.where} does not answer as it should: {said(error)}"
            ) from error


def said(error: Exception) -> str:
    """What a driver says, with the class where the words alone say little."""
    words = reason(error)
    return words if len(words) > 20 else f"{type(error).__name__}: {words}"
