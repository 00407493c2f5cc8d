"""What is looked at in a work tree before our git looks at it: the files of the tree that git reads as rules.

Git reads `.gitignore` and `.gitattributes` of every folder, and `.gitmodules` and `.mailmap` of the top, whole and into
memory, and keeps those of all folders above the one it is in.  A named pipe of such a name makes it wait for ever;
three sparse files of 900 MB took 2.7 GiB.  So a tree is refused in which such a file is no regular file, or larger
than LARGEST, or all of them together larger than TOGETHER.  A link is passed over where git passes over it too
(gitignore(5), gitattributes(5), since 2.32), and refused where git follows it (`.gitmodules`).

A tree is judged once, until a command ran: only commands that are not ours can put such a file there.  Called by
`gitcmd.git` for each command that is given a work tree.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

from agent import disk, filetree, proc
from agent.errors import RulesRefused, StopHeard

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

RULES = frozenset((".gitignore", ".gitattributes", ".gitmodules", ".mailmap"))
FOLLOWED = frozenset((".gitmodules",))
LARGEST = 1 << 20
TOGETHER = 8 << 20
NAMED = 5
MIB = 1 << 20

_judged: dict[Path, int] = {}  # tree → how many starts and ends of commands there had been


def judge(tree: Path, *, paths: Iterable[str] | None = None, stop: Callable[[], bool] | None = None) -> None:
    """RulesRefused when git must not look at `tree`, StopHeard when `stop` turned true meanwhile.

    `paths`: git reads only the rules in the folders above these.  A folder that cannot be opened is passed over, as git
    passes over it; so is a tree that is not there.
    """
    ran = proc.commands()
    if ran is not None and _judged.get(tree) == ran:
        return
    with suppress(FileNotFoundError, NotADirectoryError):
        found = _in_all(tree, stop) if paths is None else _above(tree, paths)
        refused = list(_refused(found))
        if refused:
            more = [f"and {len(refused) - NAMED} more"] if len(refused) > NAMED else []
            raise RulesRefused((*refused[:NAMED], *more))
    if ran is not None and paths is None:
        _judged[tree] = ran


def _in_all(tree: Path, stop: Callable[[], bool] | None) -> Iterator[tuple[str, os.stat_result]]:
    for count, entry in enumerate(filetree.walk(tree, only=RULES, on_error=filetree.pass_over)):
        if entry.is_folder:
            if entry.name == ".git":
                entry.enter = False
            if stop is not None and count % 64 == 0 and stop():
                raise StopHeard("the task was told to stop while its work tree was looked at")
        else:
            yield entry.path, entry.status


def _above(tree: Path, paths: Iterable[str]) -> Iterator[tuple[str, os.stat_result]]:
    folders = {""}
    for path in paths:
        while path := path.rpartition("/")[0]:
            folders.add(path)
    top = filetree.open_folder(tree)
    try:
        for folder in sorted(folders):
            with suppress(OSError):  # not there yet, or a link: git does not look behind it either
                descriptor = disk.open_beneath(top, folder, os.O_RDONLY | os.O_DIRECTORY)
                try:
                    for name in RULES:
                        with suppress(OSError):
                            status = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
                            yield f"{folder}/{name}".lstrip("/"), status
                finally:
                    os.close(descriptor)
    finally:
        os.close(top)


def _refused(found: Iterable[tuple[str, os.stat_result]]) -> Iterator[str]:
    """What is wrong, one line each."""
    total = 0
    for path, status in found:
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
