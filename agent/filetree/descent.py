"""The way through a tree: folders by their descriptors, down and up again, and every entry on it.

No function calls itself and no path is joined; `agent/filetree/__init__.py` says why.
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
    OnError = Callable[["Entry", OSError], None]

Identity = tuple[int, int]
"""Device and inode: what tells a file from another one of the same name."""

HELD = 64
"""Descriptors that a walk holds at once, whatever the depth."""

LISTED = 10_000
"""Names of one folder that a walk holds at once.  The listing of a larger one stays open, with a descriptor of its own;
so do those of LARGE folders that lie in each other, below which names are held whole."""
LARGE = 64

FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
PINNED = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_SWAPPED = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)
"""An entry is gone, or is no folder any more: somebody changes the tree during the walk."""


class Entry:
    """One entry of a tree.

    `folder` is the descriptor of the folder that holds it, valid until the walk goes on; `status` is its own, no
    link's target.  `left` is True when a folder comes again after everything in it.  Set `enter` to False, and the walk
    does not go into the folder; nor does it come again.
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
        """Number of folders between the top and this entry; valid until the walk goes on."""
        return len(self._parents)

    @property
    def path(self) -> str:
        """The path below the top; valid until the walk goes on.  To show or to compare, never to open."""
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
    """A way down into a tree: the descriptor of the current folder, and the way back up.

    Only the nearest HELD folders stay open.  One further up is opened again as `..`, and must be the folder that it was
    (device and inode), else OSError ESTALE: somebody moved a part of the tree.
    """

    def __init__(self, top: int) -> None:
        self.names: list[str] = []
        self._open = [top]
        self._known = [identity_of(top)]

    @property
    def here(self) -> int:
        """The descriptor of the current folder."""
        return self._open[-1]

    def enter(self, name: str, *, repair: bool = False) -> None:
        """Go into the folder `name`.  OSError, and nothing has changed, when it is none."""
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
        """Go up to the folder above."""
        child = self._open.pop()
        self._known.pop()
        self.names.pop()
        try:
            if self._open[-1] < 0:
                self._open[-1] = self._above(child)
        finally:
            os.close(child)

    def _above(self, child: int) -> int:
        found = os.open("..", FOLDER, dir_fd=child)
        if identity_of(found) != self._known[-1]:
            os.close(found)
            raise OSError(errno.ESTALE, "a folder was moved while its tree was walked", self.names[-1])
        return found

    def find_back(self) -> None:
        """After OSError of `leave`: go on from the lowest folder on the way up that still lies where it was, at the
        latest from the top."""
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
        """Close every descriptor, that of the top too."""
        for descriptor in self._open:
            if descriptor >= 0:
                os.close(descriptor)
        self._open = []


def kind_of(mode: int) -> str:
    """What a file mode says, for people."""
    kinds = (
        (stat.S_ISREG, "file"),
        (stat.S_ISDIR, "folder"),
        (stat.S_ISLNK, "symbolic link"),
        (stat.S_ISFIFO, "named pipe"),
        (stat.S_ISSOCK, "socket"),
    )
    return next((name for test, name in kinds if test(mode)), "device")


def printable(path: str) -> str:
    """A path as it can be printed: control signs and what is not UTF-8 escaped."""
    text = path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    return "".join(sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in text)


def identity_of(descriptor: int) -> Identity:
    """The identity of an open file or folder."""
    status = os.fstat(descriptor)
    return status.st_dev, status.st_ino


def open_folder(name: str | os.PathLike[str], within: int | None = None, *, repair: bool = False) -> int:
    """A descriptor of a folder, which is not reached by a link in the last place; OSError for anything else.

    `repair` gives its owner all rights to it, where its mode took them away.
    """
    if not repair:
        return os.open(name, FOLDER, dir_fd=within)
    try:
        descriptor = os.open(name, FOLDER, dir_fd=within)
    except PermissionError:
        grant(name, within, 0o700)
        return os.open(name, FOLDER, dir_fd=within)
    mode = os.fstat(descriptor).st_mode
    if mode & 0o700 != 0o700:
        with suppress(OSError):  # what needs it says so itself
            os.fchmod(descriptor, stat.S_IMODE(mode) | 0o700)
    return descriptor


def grant(name: str | os.PathLike[str], within: int | None, bits: int, *, only: bool = False) -> None:
    """Add `bits` to the mode of an entry, or with `only` make them its mode; never that of what a link names.
    OSError."""
    pinned = os.open(name, PINNED, dir_fd=within)
    try:
        mode = os.fstat(pinned).st_mode
        if not stat.S_ISLNK(mode):
            kept = 0 if only else stat.S_IMODE(mode)
            os.chmod(f"/proc/self/fd/{pinned}", kept | bits)  # noqa: PTH101 - that very inode
    finally:
        os.close(pinned)


def pass_over(_entry: Entry, _error: OSError) -> None:
    """For `on_error`: a folder that cannot be opened is taken as if nothing were in it."""


def walk(
    top: str | os.PathLike[str],
    *,
    within: int | None = None,
    repair: bool = False,
    order: Order | None = None,
    only: frozenset[str] | None = None,
    on_error: OnError | None = None,
) -> Iterator[Entry]:
    """Every entry below `top`, each folder before what is in it and again after (`Entry.left`).

    `within` is the descriptor of the folder that holds `top`.  `order(names, depth)` sorts the names of one folder.
    With `only` the entries are folders and what has one of these names; the others are not looked at, which is many
    times faster.
    A folder that cannot be opened goes to `on_error` and comes again as any other; so does one whose tree was moved
    while the walk was in it, and the walk goes on above.  Without `on_error` OSError is raised.  What disappears
    during the walk is passed over.  OSError when `top` is no folder.

    Memory is bounded by LISTED names for each level, whatever the folders hold, down to the LARGE-th large one.
    """
    way = Descent(open_folder(top, within, repair=repair))
    listings: list[Iterator[str]] = []
    large: list[int] = []  # depths of listings that are still open
    above: list[Entry] = []
    try:
        listings.append(_listing(way, order, only, lazily=True))
        while True:
            name = next(listings[-1], None)
            if name is None:
                listings.pop()
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
                while large and large[-1] >= len(listings):
                    large.pop()
                while len(above) > len(way.names):
                    yield _again(above.pop(), way)
                continue
            try:
                status = os.stat(name, dir_fd=way.here, follow_symlinks=False)
            except FileNotFoundError:
                continue
            entry = Entry(way.here, name, status, way.names)
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
                yield _again(entry, way)
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
    """The names in the current folder; of a very large one as they are asked for, the first LISTED in order."""
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


def _again(entry: Entry, way: Descent) -> Entry:
    entry.left, entry.folder = True, way.here
    return entry
