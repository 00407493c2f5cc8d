"""Checks the ignore, attribute, module and mailmap files of a work tree before git reads them.

Git loads `.gitignore` and `.gitattributes` of every folder, and `.gitmodules` and `.mailmap` of the top folder (the
rules files), into memory as a whole, and those of all parent folders are in memory at the same time. A named pipe with
the name of a rules file blocks git for ever; three sparse rules files of 900 MB took 2.7 GiB of memory. Therefore a
work tree is refused if a rules file is neither a regular file nor a folder nor a link that git skips, or is larger than
LARGEST, or if all rules files together are larger than TOGETHER. A rules file that is a symbolic link is skipped if git
skips it too (gitignore(5), gitattributes(5), since 2.32), and refused if git follows it (`.gitmodules`). Git reads more
files in a folder that could be a nested repository; `nested_repositories` checks those files. A pattern with more than
STARS stars is refused, because git before 2.41 matches such a pattern in exponential time.

A work tree is checked again only after a command of the task ran, or after a call of `forget_checks`: this program
calls it when it has itself written a rules file, with content from the model or from a commit.
"""

from __future__ import annotations

import os
import re
import stat
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from agent import durable_files, filetree, nested_repositories, proc
from agent.errors import RulesRefused, StopHeard

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

RULES = frozenset((".gitignore", ".gitattributes", ".gitmodules", ".mailmap"))
FOLLOWED = frozenset((".gitmodules",))
LOOKED_AT = RULES | {nested_repositories.NAME}
PATTERNS = frozenset((".gitignore", ".gitattributes"))
STARS = 8
LARGEST = 1 << 20
TOGETHER = 8 << 20
NAMED = 5
MIB = 1 << 20

_MANY_STARS = re.compile(rb"^(?!#)(?:[^*\n]*+\*++){%d}" % (STARS + 1), re.MULTILINE)

# Maps a work tree to the value of `proc.commands()` at the last check of the tree.
_judged: dict[Path, int] = {}


class RuleFile(NamedTuple):
    """A rules file; `wrong` describes its fault and is "" if there is none; if `status` is None, `wrong` is the fault
    of a nested repository."""

    path: str
    status: os.stat_result | None = None
    wrong: str = ""


def check_tree(tree: Path, *, paths: Iterable[str] | None = None, stop: Callable[[], bool] | None = None) -> None:
    """Raise RulesRefused if git must not read `tree`, StopHeard if `stop` returns True meanwhile.

    With `paths` only the rules files in the folders above these paths are checked, since git reads no others for a
    command that names these paths. A folder that cannot be opened is skipped in the check, as git skips it; for a
    missing work tree nothing is checked.
    """
    ran = proc.commands()
    if ran is not None and _judged.get(tree) == ran:
        return
    with suppress(FileNotFoundError, NotADirectoryError):
        top = filetree.open_folder(tree)
        try:
            halt = _halting(stop)
            refused = list(
                _refused(_in_all(tree, top, halt) if paths is None else _rules_files_above(top, paths, halt))
            )
        finally:
            os.close(top)
        if refused:
            more = [f"and {len(refused) - NAMED} more"] if len(refused) > NAMED else []
            raise RulesRefused((*refused[:NAMED], *more))
    if ran is not None and paths is None:
        _judged[tree] = ran


def forget_checks() -> None:
    """Check every work tree again at the next `check_tree`, because this program has written files into one."""
    _judged.clear()


def _halting(stop: Callable[[], bool] | None) -> Callable[[], None]:
    """Returns a function that the check of a work tree calls for each folder or file; every 64th call of this function
    checks `stop`."""
    count = 0

    def halt() -> None:
        nonlocal count
        if stop is not None and count % 64 == 0 and stop():
            raise StopHeard("the task was told to stop while its work tree was looked at")
        count += 1

    return halt


def _in_all(tree: Path, top: int, halt: Callable[[], None]) -> Iterator[RuleFile]:
    for entry in filetree.walk(tree, only=LOOKED_AT, on_error=filetree.pass_over):
        if entry.name == nested_repositories.NAME:
            entry.enter = False
            if entry.depth:
                above = entry.path.rpartition("/")[0]
                yield from map(_wrong, nested_repositories.findings(top, entry.folder, above, halt))
        elif entry.is_folder:
            halt()
        else:
            yield RuleFile(entry.path, entry.status, _pattern(entry.folder, entry.name, entry.path, entry.status))


def _wrong(why: str) -> RuleFile:
    return RuleFile("", None, why)


def _pattern(folder: int, name: str, path: str, status: os.stat_result) -> str:
    """A description of the fault in the patterns of a rules file; "" if there is none, or if the file is too large or
    cannot be read."""
    if name not in PATTERNS or not stat.S_ISREG(status.st_mode) or not 0 < status.st_size <= LARGEST:
        return ""
    try:
        opened = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    except OSError:
        return ""  # git cannot read this rules file either, so it does no harm
    try:
        match = _MANY_STARS.search(os.read(opened, status.st_size))
    except OSError:
        return ""
    finally:
        os.close(opened)
    if match is None:
        return ""
    line = match.string.count(b"\n", 0, match.start()) + 1
    return (
        f"line {line} of {filetree.printable(path)} has more than {STARS} stars, and git may match it for ever: use "
        "fewer or remove it"
    )


def _rules_files_above(top: int, paths: Iterable[str], halt: Callable[[], None]) -> Iterator[RuleFile]:
    folders = {""}
    for path in paths:
        while path := path.rpartition("/")[0]:
            folders.add(path)
    for folder in sorted(folders):
        with suppress(OSError):  # the folder is missing, or is a symbolic link, which git does not follow either
            descriptor = durable_files.open_beneath(top, folder, os.O_RDONLY | os.O_DIRECTORY)
            try:
                for name in RULES:
                    with suppress(OSError):
                        status = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
                        path = f"{folder}/{name}".lstrip("/")
                        yield RuleFile(path, status, _pattern(descriptor, name, path, status))
                if folder:
                    yield from map(_wrong, nested_repositories.findings(top, descriptor, folder, halt))
            finally:
                os.close(descriptor)


def _refused(found: Iterable[RuleFile]) -> Iterator[str]:
    """A line for each fault of the rules files in `found`."""
    total = 0
    for path, status, wrong in found:
        if wrong:
            yield wrong
        if status is None:
            continue
        shown = filetree.printable(path)
        kind = filetree.kind_of(status.st_mode)
        if kind == "folder" or (kind == "symbolic link" and path not in FOLLOWED):
            continue
        if kind != "file":
            yield f"{shown} is a {kind}; git reads it as rules and would hang or read elsewhere: remove it"
        elif status.st_size > LARGEST:
            yield (
                f"{shown} has {status.st_size / MIB:,.1f} MiB; git reads it whole as rules, at most {LARGEST / MIB:g} "
                f"MiB are taken: make it shorter or remove it"
            )
        else:
            total += status.st_size
    if total > TOGETHER:
        yield (
            f"the files {', '.join(sorted(RULES))} have {total / MIB:,.1f} MiB together, at most {TOGETHER / MIB:g} "
            f"MiB are taken: make them shorter or remove some"
        )
