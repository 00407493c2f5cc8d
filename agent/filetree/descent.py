"""Traverses a tree of folders by the descriptors of its folders, and yields every entry.

No function of `descent` is recursive and no paths are joined; `agent/filetree/__init__.py` gives the reasons.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from itertools import islice
from types import GeneratorType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    Order = Callable[[list[str], int], list[str]]
    OnError = Callable[["WalkedEntry", OSError], None]

Identity = tuple[int, int]
"""Device and inode of a file.  No two files that exist at the same time have the same two numbers; the file system may
give the numbers of a removed file to a new one."""

HELD = 64
"""A walk has the descriptors of at most this many folders of its path open at once, at any depth."""

LISTED = 10_000
"""Maximum number of names of one folder that a walk loads at once, unless LARGE folders above it have more names.

The listing of a folder with more than LISTED names stays open, with its own descriptor. At most LARGE nested folders
are read lazily, name by name; in folders below them all names of a folder are loaded.
"""
LARGE = 64

FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
PINNED = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_SWAPPED = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)
"""Errors of an entry that is gone or no longer a folder, because a process changes the tree during the walk; the walk
then treats the entry as an empty folder."""


class WalkedEntry:
    """One entry of a tree that is walked.

    `folder` is the descriptor of the parent folder, valid until the walk continues. `status` is the status of the entry
    itself, not of a link's target. `left` is True if the walk yields a folder again, after the content of the folder.
    If the caller sets `enter` of an entry to False, the walk does not enter the folder and does not yield it again.
    """

    __slots__ = ("_parents", "enter", "folder", "left", "name", "status")

    def __init__(self, folder: int, name: str, status: os.stat_result, parents: list[str]) -> None:
        self.folder = folder
        self.name = name
        self.status = status
        self.left = False
        self.enter = True
        self._parents = parents

    @property
    def depth(self) -> int:
        """Number of folders between the top of the tree and this entry; valid until the walk continues."""
        return len(self._parents)

    @property
    def path(self) -> str:
        """The path of the entry below the top of the tree, valid until the walk continues.

        The path of an entry is for display and comparison only, not for opening the file.
        """
        return "/".join((*self._parents, self.name))

    @property
    def is_folder(self) -> bool:
        return stat.S_ISDIR(self.status.st_mode)

    @property
    def is_file(self) -> bool:
        return stat.S_ISREG(self.status.st_mode)

    @property
    def is_link(self) -> bool:
        return stat.S_ISLNK(self.status.st_mode)


class Descent:
    """A position in a tree: the descriptor of the current folder and the path back to the top.

    At most HELD folders stay open: the top and those nearest to the position. A folder that was closed is opened again
    as `..` and must have the same device and inode as before; otherwise a process has moved a part of the tree, and
    OSError ESTALE is raised.
    """

    def __init__(self, top: int) -> None:
        self.names: list[str] = []
        self._open = [top]
        self._known = [identity_of(top)]

    @property
    def here(self) -> int:
        """The descriptor of the folder at the position in the tree."""
        return self._open[-1]

    def enter(self, name: str, *, repair: bool = False) -> None:
        """Move the position down into the folder `name`. Raises OSError if the entry `name` is not a folder or cannot
        be opened; the position is then unchanged."""
        self._push(open_folder(name, self.here, repair=repair), name)

    def _push(self, descriptor: int, name: str) -> None:
        self.names.append(name)
        self._open.append(descriptor)
        self._known.append(identity_of(descriptor))
        far = len(self._open) - HELD
        if far > 0 and self._open[far] >= 0:
            os.close(self._open[far])
            self._open[far] = -1

    def leave(self) -> None:
        """Move the position up to the parent folder."""
        child = self._open.pop()
        self._known.pop()
        self.names.pop()
        try:
            if self._open[-1] < 0:
                self._open[-1] = self._open_parent(child)
        finally:
            os.close(child)

    def _open_parent(self, child: int) -> int:
        found = os.open("..", FOLDER, dir_fd=child)
        if identity_of(found) != self._known[-1]:
            os.close(found)
            raise OSError(errno.ESTALE, "a folder was moved while its tree was walked", self.names[-1])
        return found

    def find_back(self) -> None:
        """Continue, after an OSError of `leave`, at the deepest folder of the path that is still in place, at the
        latest at the top."""
        here = self._open[0]
        for depth, name in enumerate(self.names, 1):
            try:
                below = os.open(name, FOLDER, dir_fd=here)
            except OSError:
                break
            if identity_of(below) != self._known[depth]:
                os.close(below)
                break
            if self._open[depth] >= 0:
                os.close(self._open[depth])
            self._open[depth] = below
            if depth > 1:
                os.close(here)
                self._open[depth - 1] = -1
            here = below
        else:
            return
        for descriptor in self._open[depth:]:
            if descriptor >= 0:
                os.close(descriptor)
        del self._open[depth:], self._known[depth:], self.names[depth - 1 :]

    def close(self) -> None:
        """Close the descriptors of all open folders of the path, including that of the top."""
        for descriptor in self._open:
            if descriptor >= 0:
                os.close(descriptor)
        self._open = []


def kind_of(mode: int) -> str:
    """The file type in a mode, as a word for people."""
    kinds = (
        (stat.S_ISREG, "file"),
        (stat.S_ISDIR, "folder"),
        (stat.S_ISLNK, "symbolic link"),
        (stat.S_ISFIFO, "named pipe"),
        (stat.S_ISSOCK, "socket"),
    )
    return next((name for test, name in kinds if test(mode)), "device")


def printable(path: str) -> str:
    """The path with control characters and invalid UTF-8 escaped."""
    text = path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    return "".join(sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in text)


def identity_of(descriptor: int) -> Identity:
    """(device number, inode number) of an open file or folder."""
    status = os.fstat(descriptor)
    return status.st_dev, status.st_ino


def open_folder(name: str | os.PathLike[str], within: int | None = None, *, repair: bool = False) -> int:
    """Open the folder `name` and return its file descriptor. Raises OSError if `name` is not a folder or cannot be
    opened, or if its last part is a symbolic link.

    With `repair` the owner of the folder gets the permissions to read, write and enter it that its mode lacks.
    """
    if not repair:
        return os.open(name, FOLDER, dir_fd=within)
    try:
        descriptor = os.open(name, FOLDER, dir_fd=within)
    except PermissionError:
        grant(name, within, 0o700, folder=True)
        return os.open(name, FOLDER, dir_fd=within)
    mode = os.fstat(descriptor).st_mode
    if mode & 0o700 != 0o700:
        with suppress(OSError):  # the operation that needs the missing permission reports its own error
            os.fchmod(descriptor, stat.S_IMODE(mode) | 0o700)
    return descriptor


def grant(
    name: str | os.PathLike[str],
    within: int | None,
    bits: int,
    *,
    only: bool = False,
    folder: bool = False,
    seen: os.stat_result | None = None,
) -> None:
    """Add `bits` to the mode of an entry, or with `only` replace the mode; a symbolic link is not changed or followed.

    With `folder` an OSError is raised for an entry that is not a folder. If the entry is no longer the file with the
    status `seen`, it is left unchanged, since a process that writes to the tree may have replaced the entry by a hard
    link to a file of the host. Raises OSError if the mode of the entry cannot be changed."""
    pinned = os.open(name, PINNED | (os.O_DIRECTORY if folder else 0), dir_fd=within)
    try:
        status = os.fstat(pinned)
        if seen is not None and not os.path.samestat(status, seen):
            return
        if not stat.S_ISLNK(status.st_mode):
            kept = 0 if only else stat.S_IMODE(status.st_mode)
            os.chmod(f"/proc/self/fd/{pinned}", kept | bits)  # noqa: PTH101 - this path in /proc names the checked inode
    finally:
        os.close(pinned)


def pass_over(_entry: WalkedEntry, _error: OSError) -> None:
    """An `on_error` function for `walk` that ignores the error, so a folder that cannot be opened counts as empty."""


def walk(
    top: str | os.PathLike[str],
    *,
    within: int | None = None,
    repair: bool = False,
    order: Order | None = None,
    only: frozenset[str] | None = None,
    on_error: OnError | None = None,
) -> Iterator[WalkedEntry]:
    """Yield every entry below `top`; each folder before its content and again after it (`WalkedEntry.left`).

    `within` is the file descriptor of the folder that `top` is relative to. `order(names, depth)` sorts the names of
    one folder, or the first LISTED names of a folder that is read lazily. With `only` the walk yields all folders, and
    the other entries that have a name in `only`; the remaining entries are not read with stat, so a walk with `only` is
    many times faster. A folder that cannot be opened, or that has entries which may not be read with stat (all entries,
    if it may be listed but not entered), is passed to `on_error` once, and is yielded a second time
    (`WalkedEntry.left`) like any other folder; its other entries are yielded. A folder that was moved during the walk
    is passed to `on_error` too; the walk then continues in the nearest folder above it that was not moved. Without
    `on_error`, such a folder raises OSError. An entry directly in `top` that may not be read with stat always raises
    OSError. Entries of the tree that disappear during the walk are skipped. Raises OSError if `top` is not a folder.

    A walk holds at most LISTED names of each folder on its path in memory; of a folder below LARGE folders with more
    names than that, it holds all names.
    """
    way = Descent(open_folder(top, within, repair=repair))
    listings: list[Iterator[str]] = []
    large: list[int] = []  # positions in `listings` of large folders with names that are still being read
    above: list[WalkedEntry] = []
    denied: dict[int, OSError] = {}  # depth of a folder on the path → why an entry of it cannot be read
    try:
        listings.append(_listing(way, order, only, lazily=True))
        while True:
            name = next(listings[-1], None)
            if name is None:
                listings.pop()
                refused = denied.pop(len(listings), None)
                if not above:
                    return
                try:
                    way.leave()
                except OSError as error:
                    if on_error is None:
                        raise
                    on_error(above[-1], error)
                    way.find_back()
                    _close(listings[len(way.names) + 1 :])
                    del listings[len(way.names) + 1 :]
                    denied = {depth: reason for depth, reason in denied.items() if depth < len(listings)}
                else:
                    if refused is not None and on_error is not None:
                        above[-1].folder = way.here
                        on_error(above[-1], refused)
                while large and large[-1] >= len(listings):
                    large.pop()
                while len(above) > len(way.names):
                    yield _second_visit(above.pop(), way)
                continue
            try:
                status = os.stat(name, dir_fd=way.here, follow_symlinks=False)
            except FileNotFoundError:
                continue
            except PermissionError as error:  # for example, the folder may be listed, but not entered
                if on_error is None or not above:
                    raise
                denied.setdefault(len(listings) - 1, error)
                continue
            entry = WalkedEntry(way.here, name, status, way.names)
            yield entry
            if not (entry.enter and stat.S_ISDIR(status.st_mode)):
                continue
            try:
                way.enter(name, repair=repair)
                try:
                    listing = _listing(way, order, only, lazily=len(large) < LARGE)
                except OSError:
                    way.leave()
                    raise
            except OSError as error:
                if error.errno not in _SWAPPED:
                    if on_error is None:
                        raise
                    on_error(entry, error)
                yield _second_visit(entry, way)
                continue
            if isinstance(listing, GeneratorType):
                large.append(len(listings))
            listings.append(listing)
            above.append(entry)
    finally:
        _close(listings)
        way.close()


def _close(listings: list[Iterator[str]]) -> None:
    for listing in listings:
        if isinstance(listing, GeneratorType):
            listing.close()


def _listing(way: Descent, order: Order | None, only: frozenset[str] | None, *, lazily: bool) -> Iterator[str]:
    """The names in the current folder; with `lazily`, the first LISTED names are sorted, and the other names are read
    one by one later."""
    found = os.scandir(way.here)
    names = [
        one.name
        for one in islice(found, LISTED if lazily else None)
        if only is None or one.name in only or _is_folder(one)
    ]
    if order is not None:
        names = order(names, len(way.names))
    rest = _rest(found, only)
    first = next(rest, None)
    return iter(names) if first is None else _chained(names, first, rest)


def _rest(found: Any, only: frozenset[str] | None) -> Generator[str]:
    with found:
        for one in found:
            if only is None or one.name in only or _is_folder(one):
                yield one.name


def _chained(names: list[str], first: str, rest: Generator[str]) -> Generator[str]:
    try:
        yield from names
        yield first
        yield from rest
    finally:
        rest.close()


def _is_folder(one: os.DirEntry[str]) -> bool:
    return one.is_dir(follow_symlinks=False)


def _second_visit(entry: WalkedEntry, way: Descent) -> WalkedEntry:
    entry.left, entry.folder = True, way.here
    return entry
