"""Accesses a storage for a second copy of files: a folder (perhaps of another machine), or S3, GCS, Azure and SFTP by
the library fsspec.

The class `RemoteFolder` writes and reads bytes under names and does not interpret them; `replica.py` defines the
content. A storage that is a folder needs no additional package (`folder_storage.py`). fsspec and a driver are imported
only if the setting `context_storage.replica` is a URL of another scheme than `file`. Every error of a driver in a call
of `RemoteFolder` is raised as ReplicaAway, since its cause may be temporary.

The interface of fsspec is described in its documentation of `AbstractFileSystem` (filesystem_spec.readthedocs.io, API
reference).
"""

from __future__ import annotations

import sys
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlsplit, urlunsplit

from agent.config.url_passwords import hide_password
from agent.error_text import reason
from agent.errors import ConfigError, ReplicaAway
from agent.store.folder_storage import Folder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from urllib.parse import SplitResult

FLAT = frozenset({"s3", "gs", "gcs", "abfs", "az"})
"""URL schemes of storages without folders, in which no folder has to be created before a file is written."""

OPTIONS: dict[str, dict[str, Any]] = {
    "s3": {"config_kwargs": {"connect_timeout": 10, "read_timeout": 60, "retries": {"max_attempts": 2}}},
}
"""URL scheme → options of its driver that set time-outs, so that a call to a storage that hangs ends with an error; a
driver without such options has no entry."""

SFTP = frozenset({"sftp", "ssh"})
"""URL schemes of storages that are used over one connection, which is opened at the first call, and at the first call
after an error."""

DRIVERS = {
    "s3": "s3fs",
    "gs": "gcsfs",
    "gcs": "gcsfs",
    "abfs": "adlfs",
    "az": "adlfs",
    "sftp": "paramiko",
    "ssh": "paramiko",
}
"""URL scheme → the package that it needs in addition to fsspec."""


class RemoteFolder:
    """The storage at `address`: a path, or `scheme://…`; the query of the URL contains options of the driver
    (`s3://bucket/tasks?endpoint_url=https://minio.example&key=…&secret=…`).

    The name of a file is its path relative to the address, with `/`.  Not thread-safe.  The constructor raises
    ConfigError when the driver is not installed or rejects the address.
    """

    def __init__(self, address: str) -> None:
        self.where = hide_password(address)
        parts = urlsplit(address)
        self._store: Folder | Driven | None = None
        self._reconnect: Callable[[], Driven] | None = None
        if not parts.scheme:
            self._store = Folder(Path(address))
        elif parts.scheme == "file":
            self._store = Folder(Path(parts.path))
        elif parts.scheme in SFTP:
            require_driver(address)
            self._reconnect = _sftp(address, parts)
        else:
            require_driver(address)
            self._store = _driven(address, parts)

    def put(self, name: str, data: bytes) -> None:
        """Write a whole file to the storage; an existing file is replaced."""
        with self._translated() as store:
            store.put(name, data)

    def get(self, name: str) -> bytes | None:
        """The content of a file of the storage, None when the file does not exist."""
        with self._translated() as store:
            return store.get(name)

    def names(self, folder: str) -> list[str]:
        """Names of all files below a folder of the storage, sorted; [] if the folder does not exist."""
        with self._translated() as store:
            return sorted(store.names(folder))

    def remove(self, names: Sequence[str]) -> None:
        """Remove files from the storage; names of missing files are ignored."""
        with self._translated() as store:
            store.remove(names)

    def remove_all(self, folder: str) -> int:
        """Remove a folder of the storage with everything below it; returns the number of files."""
        names = self.names(folder)
        self.remove(names)
        with self._translated() as store:
            store.remove_folder(folder)
        return len(names)

    def close(self) -> None:
        """Close the connection to an SFTP server, if one is open; the next call opens a new connection."""
        if self._reconnect is not None and isinstance(self._store, Driven):
            self._store.close()
            self._store = None

    @contextmanager
    def _translated(self) -> Iterator[Folder | Driven]:
        try:
            if self._store is None:
                assert self._reconnect is not None, "each other storage is made at once"
                self._store = self._reconnect()
            yield self._store
        except Exception as error:
            self.close()
            raise ReplicaAway(
                f"context_storage.replica: {self.where} does not answer as it should: {error_words(error)}"
            ) from error


class Driven:
    """The files below `root` in a storage that the driver `fs` of fsspec accesses; Driven has the methods of `Folder`,
    but they raise the driver's errors.

    `flat`: the storage has no folders, only names of files. `on_close(fs)` closes the driver's connection.
    """

    def __init__(self, fs: Any, root: str, *, flat: bool, on_close: Callable[[Any], None] = lambda _fs: None) -> None:
        self._fs, self._root, self._flat, self._on_close = fs, root.rstrip("/"), flat, on_close

    def close(self) -> None:
        """Close the connection of the driver."""
        self._on_close(self._fs)

    def put(self, name: str, data: bytes) -> None:
        """Write a file to the storage; an existing file is replaced."""
        path = self._path(name)
        try:
            self._fs.pipe_file(path, data)
        except FileNotFoundError:
            if self._flat:
                raise
            self._fs.makedirs(path.rpartition("/")[0], exist_ok=True)
            self._fs.pipe_file(path, data)

    def get(self, name: str) -> bytes | None:
        """The content of a file of the storage, None when the file does not exist."""
        try:
            return bytes(self._fs.cat_file(self._path(name)))
        except FileNotFoundError:
            return None

    def names(self, folder: str) -> list[str]:
        """Names of all files below a folder of the storage, in no order; [] if the folder does not exist."""
        self._fs.invalidate_cache()
        try:
            found = self._fs.find(self._path(folder))
        except FileNotFoundError:
            return []
        return [str(path)[len(self._root) + 1 :] for path in found]

    def remove(self, names: Sequence[str]) -> None:
        """Remove files from the storage; names of missing files are ignored."""
        if self._flat:
            if names:
                self._fs.rm([self._path(name) for name in names])
            return
        for name in names:
            with suppress(FileNotFoundError):
                self._fs.rm_file(self._path(name))

    def remove_folder(self, folder: str) -> None:
        """Remove a folder with everything below it; nothing happens in a storage without folders, where no folder is
        left after `remove`."""
        if not self._flat:
            with suppress(FileNotFoundError):
                self._fs.rm(self._path(folder), recursive=True)

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"


def require_driver(address: str | None) -> None:
    """Raise ConfigError when a package that the address needs is not installed, with the command that installs it into
    the environment of this program.  `require_driver` imports no driver and opens no connection."""
    scheme = urlsplit(address).scheme if address is not None else ""
    if address is None or scheme in ("", "file"):
        return
    packages = ["fsspec", *([DRIVERS[scheme]] if scheme in DRIVERS else [])]
    if missing := [name for name in packages if find_spec(name) is None]:
        todo = f"{sys.executable} -m pip install {' '.join(packages)}"
        raise ConfigError(
            f"context_storage.replica: {hide_password(address)} needs {' and '.join(missing)}, not installed in the "
            f"environment of this program: call `{todo}` on each host, or set a folder"
        )


def _driven(address: str, parts: SplitResult) -> Driven:
    """Make the driver object of fsspec for an address, with the options of the address.

    Raises ConfigError when the driver cannot be imported, or rejects the options of the address.
    """
    options = {**OPTIONS.get(parts.scheme, {}), **dict(parse_qsl(parts.query))}
    flat = parts.scheme in FLAT
    try:
        from fsspec.core import url_to_fs

        fs, root = url_to_fs(
            urlunsplit(parts._replace(query="", fragment="")),
            skip_instance_cache=True,
            use_listings_cache=False,
            **options,
        )
    except ImportError as error:
        raise ConfigError(
            f"context_storage.replica: {hide_password(address)} needs a package that is not installed "
            f"({reason(error)}); "
            f"drivers are known for {', '.join(DRIVERS)}"
        ) from error
    except Exception as error:
        raise ConfigError(
            f"context_storage.replica: {hide_password(address)} cannot be used: {reason(error)}"
        ) from error
    return Driven(fs, str(root), flat=flat)


def _sftp(address: str, parts: SplitResult) -> Callable[[], Driven]:
    """Returns a function that connects to the SFTP server of an address.  Raises ConfigError when the driver cannot be
    imported, or for wrong options."""
    try:
        from agent.store import sftp
    except ImportError as error:
        raise ConfigError(
            f"context_storage.replica: {hide_password(address)} needs a package that is not installed ({reason(error)})"
        ) from error
    options = sftp.check_options(address, parts)
    return lambda: Driven(sftp.connect(options), parts.path, flat=False, on_close=sftp.close)


def error_words(error: Exception) -> str:
    """The message of a driver's error for people; before a message of at most 20 characters, the error's class name."""
    words = reason(error)
    return words if len(words) > 20 else f"{type(error).__name__}: {words}"
