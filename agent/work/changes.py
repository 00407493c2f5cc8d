"""A task's changes: numbers, paths, modes and the diff itself, read from commits of the task's git directory.

This module runs git without diff drivers and text conversion; only `of_tree` reads the work tree.  git-diff(1)
describes the formats of `--numstat -z` and `--raw -z`.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent.gitcmd import WHOLE, fields_of, git
from agent.security.guarded_paths import is_bare, may_be_bare
from agent.values import FileChange
from agent.work.untrusted_tree import leaves_tree, shown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

PLAIN = (
    "--no-ext-diff",
    "--no-textconv",
    "--no-color",
    "--ignore-submodules=none",
    "--src-prefix=a/",
    "--dst-prefix=b/",
)
CHUNK = 1 << 18
STREAM_SECONDS = 600.0
"""The maximum number of seconds of a git that writes a difference or a history."""
BATCH = 16 << 20
"""The maximum number of bytes of objects that one git reads at once; a larger object is read alone."""
LINK = 1 << 16
"""The maximum bytes of the target of a symlink; Linux allows 4095 (symlink(7))."""
NAME, ATTRIBUTES_LINE, MOST = 255, 2048, 1 << 20
WITHOUT_ATTRIBUTES = ("attr.tree=4b825dc642cb6eb9a060e54bf8d69288fbee4904",)
"""git from 2.43 on reads the attributes of files from the tree that `attr.tree` names; WITHOUT_ATTRIBUTES names the
empty tree. A tree that a repository does not have counts as empty (git-config(1))."""
WITHOUT_INDEX = {"GIT_INDEX_FILE": "/nonexistent/index"}
"""A git older than 2.43 reads the attributes of files from the index (gitattributes(5)), so this environment names an
index that does not exist."""
HOW = {"A": "new", "C": "new", "D": "deleted", "R": "renamed"}
SYMLINK, SUBMODULE, NOTHING = "120000", "160000", "000000"


@dataclass(frozen=True, slots=True)
class DiffStat:
    """The size of a change: numbers of files and lines. `lines` has one line per file, like `src/a.py +3 -1` or
    `logo.png (binary)`."""

    files: int = 0
    insertions: int = 0
    deletions: int = 0
    lines: tuple[str, ...] = ()

    def __str__(self) -> str:
        files = "1 file" if self.files == 1 else f"{self.files} files"
        return f"{files} changed, +{self.insertions} -{self.deletions}"


@dataclass(frozen=True, slots=True)
class RawChange:
    """One change of one path in one commit, from git's output `--raw`."""

    path: str
    status: str
    old_mode: str
    new_mode: str
    object: str


@lru_cache(maxsize=4)
def empty_tree(git_dir: Path) -> str:
    """The object name of the empty tree in the hash algorithm of this repository."""
    return git("hash-object", "-t", "tree", "--stdin", git_dir=git_dir, stdin=b"").output.decode().strip()


def diff_stat(git_dir: Path, old: str, new: str) -> DiffStat:
    """The number of changed files and lines between two commits or trees; a rename counts once."""
    done = git("diff-tree", "-r", "-z", "-M", "--numstat", *PLAIN, old, new, "--", git_dir=git_dir)
    fields = iter(fields_of(done.output))
    files = insertions = deletions = 0
    lines = []
    for head in fields:
        added, deleted, path = head.split("\t", 2)
        # For a rename, `--numstat -z` gives the old and the new name as the next two fields.
        path = shown(path) if path else f"{shown(next(fields))} → {shown(next(fields))}"
        files += 1
        if added == "-":
            lines.append(f"{path} (binary)")
            continue
        insertions += int(added)
        deletions += int(deleted)
        lines.append(f"{path} +{added} -{deleted}")
    return DiffStat(files, insertions, deletions, tuple(lines))


def of_tree(
    git_dir: Path, tree: Path, base: str, new: Iterable[str], *, env: Mapping[str, str], seconds: float
) -> list[FileChange]:
    """The difference between a commit or tree and the work tree, sorted by path.

    `new` are paths that git does not track yet; the difference includes them. A rename of a file counts once. The
    task's index does not change: a copy of it receives the new paths. Raises GitError if git takes more than `seconds`.
    """
    new = list(new)
    with tempfile.TemporaryDirectory(prefix=".look.", dir=git_dir) as folder:
        index = Path(folder) / "index"
        if (git_dir / "index").exists():
            shutil.copyfile(git_dir / "index", index)
        options: dict[str, Any] = {"git_dir": git_dir, "work_tree": tree, "timeout": seconds}
        options["env"] = {**env, "GIT_INDEX_FILE": str(index)}
        if new:
            listed = b"".join(os.fsencode(path) + b"\0" for path in new)
            command = ("add", "--intent-to-add", "--force", "--pathspec-from-file=-", "--pathspec-file-nul")
            git(*command, stdin=listed, **options)
        plain = [option for option in PLAIN if "submodules" not in option]
        done = git("diff", "-z", "-M", "--raw", "--numstat", "--ignore-submodules=all", *plain, base, "--", **options)
    return _of_raw(done.output)


def _of_raw(output: bytes) -> list[FileChange]:
    """Parse git's output of `--raw --numstat -z`: first one record per file with its status, then one per file with its
    numbers."""
    fields = iter(fields_of(output))
    states: dict[str, tuple[str, str]] = {}
    found = []
    for head in fields:
        if head.startswith(":"):
            status, path = head.rpartition(" ")[2][:1], next(fields)
            source = path if status in "RC" else ""
            states[next(fields) if source else path] = status, source
            continue
        added, removed, path = head.split("\t", 2)
        if not path:
            next(fields)
            path = next(fields)
        status, source = states.get(path, ("M", ""))
        plus, minus = (None, None) if added == "-" else (int(added), int(removed))
        found.append(FileChange(path, HOW.get(status, "changed"), plus, minus, source))
    return sorted(found, key=lambda one: one.path)


def changed_paths(git_dir: Path, old: str, new: str) -> list[str]:
    """The paths that differ between two commits, with both names of a rename, sorted."""
    done = git("diff-tree", "-r", "-z", "--name-only", "--no-renames", *PLAIN, old, new, "--", git_dir=git_dir)
    return sorted(fields_of(done.output))


def diff(git_dir: Path, old: str, new: str, *, seconds: float = STREAM_SECONDS, most: int = WHOLE) -> Iterator[bytes]:
    """The difference between two commits in chunks of bytes, in constant memory. A difference of more than `most` bytes
    is cut somewhere after them, so that it does not fill the disk. Raises GitError if git takes more than `seconds`.

    Attributes of the repository are not read: a line `*.py -diff` of a `.gitattributes` would hide files from everybody
    who reads the difference.
    """
    command = ("diff-tree", "-r", "-p", "-M", *PLAIN, old, new, "--")
    yield from _streamed(git_dir, *command, config=WITHOUT_ATTRIBUTES, env=WITHOUT_INDEX, seconds=seconds, most=most)


def patch(git_dir: Path, old: str, new: str) -> Iterator[bytes]:
    """The difference between two commits as a patch that `git apply` accepts, binary files included."""
    yield from _streamed(git_dir, "diff-tree", "-r", "-p", "-M", "--binary", "--full-index", *PLAIN, old, new, "--")


def history(git_dir: Path, old: str | None, new: str) -> Iterator[bytes]:
    """Every commit after `old`: message and all added and removed bytes, binary files as text.  A push publishes the
    messages and bytes of every commit that the remote lacks.

    The net difference of all commits would not be enough: a push also publishes a secret that one commit adds and the
    next removes. A merge commit with `old` (a commit of the base branch) as a parent is compared with `old` only, since
    the content of `old` is published already.
    """
    span, ours = new if old is None else f"{old}..{new}", _merges_of(git_dir, old, new)
    look = ("-p", "--text", "--no-renames", "--unified=0", *PLAIN)
    plain = ("--no-notes", "--no-decorate", "--no-show-signature", "--encoding=UTF-8")
    merges = ("--no-merges",) if ours else ("-m",)
    yield from _streamed(git_dir, "log", "--full-history", *merges, "--root", *plain, *look, span, "--")
    for merge, parents in ours:
        yield from _streamed(git_dir, "log", "-1", "--no-patch", *plain, merge, "--")
        for parent in parents:
            yield from _streamed(git_dir, "diff", *look, parent, merge, "--")


def entries(git_dir: Path, old: str | None, new: str) -> list[RawChange]:
    """Every change of every path in every commit after `old`; for merges see `history`."""
    span, ours = new if old is None else f"{old}..{new}", _merges_of(git_dir, old, new)
    look = ("-z", "--raw", "--no-abbrev", "--no-renames", *PLAIN)
    merges = ("--no-merges",) if ours else ("-m",)
    calls: list[tuple[str, ...]] = [
        ("log", "--format=", "--full-history", *merges, "--root", "--no-notes", *look, span, "--")
    ]
    calls += [("diff", *look, parent, merge, "--") for merge, parents in ours for parent in parents]
    return [entry for call in calls for entry in raw_entries(git(*call, git_dir=git_dir).output)]


@lru_cache(maxsize=4)  # the result is cached, since it never changes for two given commits
def _merges_of(git_dir: Path, old: str | None, new: str) -> list[tuple[str, tuple[str, ...]]]:
    """(merge, the parents to compare it with) of every merge after `old`, if one of them has `old` as a parent; [] if
    none has."""
    if old is None:
        return []
    listed = git("rev-list", "--merges", "--parents", f"{old}..{new}", git_dir=git_dir).output.decode().splitlines()
    found = [(merge, tuple(parents)) for merge, *parents in (line.split() for line in listed)]
    if not any(old in parents for _, parents in found):
        return []
    return [(merge, (old,) if old in parents else parents) for merge, parents in found]


def raw_entries(output: bytes) -> list[RawChange]:
    """The changes of paths that git has written with `-z --raw`."""
    fields = iter(fields_of(output))
    found = []
    for head in fields:
        old_mode, new_mode, _, new_object, status = head.lstrip("\n:").split(" ")
        found.append(RawChange(next(fields), status[:1], old_mode, new_mode, new_object))
    return found


def small(git_dir: Path, blobs: Mapping[str, str], largest: int) -> Iterator[tuple[bytes, str]]:
    """(content, path) of those objects in `blobs` (object → path) that have at most `largest` bytes."""
    for name, data in _contents(git_dir, blobs, largest):
        yield data, blobs[name]


def _contents(git_dir: Path, objects: Iterable[str], largest: int) -> Iterator[tuple[str, bytes]]:
    """(object, content) of those `objects` that have at most `largest` bytes; one git process reads many objects."""
    part: list[str] = []
    total = 0
    for name, size in _sizes(git_dir, objects, lambda size: size <= largest).items():
        if part and total + size > BATCH:
            yield from _batch(git_dir, part)
            part, total = [], 0
        part.append(name)
        total += size
    if part:
        yield from _batch(git_dir, part)


def _batch(git_dir: Path, objects: Sequence[str]) -> Iterator[tuple[str, bytes]]:
    stdin = "".join(f"{name}\n" for name in objects).encode()
    output = git("cat-file", "--batch", "--buffer", git_dir=git_dir, stdin=stdin, timeout=600).output
    at = 0
    for name in objects:
        end = output.index(b"\n", at)
        size = int(output[at:end].rpartition(b" ")[2])
        yield name, output[end + 1 : end + 1 + size]
        at = end + size + 2


def _sizes(git_dir: Path, objects: Iterable[str], wanted: Callable[[int], bool]) -> dict[str, int]:
    """Object → size, for the objects that satisfy `wanted(size)`."""
    done = git(
        *("cat-file", "--batch-check=%(objectname) %(objectsize)"),
        git_dir=git_dir,
        stdin="".join(f"{name}\n" for name in objects).encode(),
        timeout=600,
    )
    found = {}
    for line in done.output.decode().splitlines():
        name, _, size = line.partition(" ")
        if size.isdigit() and wanted(int(size)):
            found[name] = int(size)
    return found


def mode_findings(git_dir: Path, changes: Sequence[RawChange]) -> list[str]:
    """Findings about symlinks that point out of the tree, and about submodules: neither may be published.  Each finding
    is listed once.
    """
    found: dict[str, None] = {}
    links = {change.object for change in changes if change.new_mode == SYMLINK}
    targets = dict(_contents(git_dir, links, LINK))
    for change in changes:
        if change.new_mode == SUBMODULE:
            found[f"{shown(change.path)} sets a submodule to {change.object[:12]}; submodules are not changed here"] = (
                None
            )
        elif change.new_mode == SYMLINK:
            target = targets.get(change.object, b"/").decode("utf-8", "surrogateescape")
            if leaves_tree(change.path, target):
                found[f"{shown(change.path)} is a symlink to {shown(target)}, outside the repository"] = None
    return list(found)


def unfit(git_dir: Path, changes: list[RawChange]) -> list[str]:
    """A sentence for each file that hosts with object checks refuse (git-fsck(1): gitattributesLineLength, 2048 bytes),
    or that no file system accepts (a name of more than 255 bytes)."""
    present = [change for change in changes if change.new_mode not in (SUBMODULE, NOTHING)]
    found: dict[str, None] = {}
    for path in dict.fromkeys(change.path for change in present):
        if any(len(part.encode("utf-8", "surrogateescape")) > NAME for part in path.split("/")):
            found[f"{shown(path)} has a name of more than {NAME} bytes; make it shorter"] = None
    files = {change.object: change.path for change in present if change.path.rpartition("/")[2] == ".gitattributes"}
    for data, path in small(git_dir, files, MOST):
        if any(len(line) >= ATTRIBUTES_LINE for line in data.split(b"\n")):
            found[f"{shown(path)} has a line of {ATTRIBUTES_LINE} bytes or more, which hosts refuse; part it"] = None
    return list(found)


def bare_folders(git_dir: Path, changes: Sequence[RawChange], head: str) -> list[str]:
    """Folders that contain a changed path, and that git would treat as a bare repository if they contained both their
    files at `head` and all files that `changes` put there.

    The root of the work tree is excluded, because git finds `.git` there first. Git runs programs that the config of a
    bare repository in the tree names (safe.bareRepository in git-config(1)).
    """
    present = {change.path for change in changes if change.new_mode != NOTHING}
    folders = may_be_bare(present)
    if not folders:
        return []
    there: dict[str, set[str]] = {folder: set() for folder in folders}
    for at in range(0, len(folders), 500):
        asked = [f"{folder}/" for folder in folders[at : at + 500]]
        listed = git("ls-tree", "-z", "--name-only", "--full-tree", head, "--", *asked, git_dir=git_dir, check=False)
        for path in fields_of(listed.output):
            folder, _, name = path.rpartition("/")
            if folder in there:
                there[folder].add(name)
    for path in present:
        parts = path.split("/")
        for depth in range(1, len(parts)):
            if (folder := "/".join(parts[:depth])) in there:
                there[folder].add(parts[depth])
    return [folder for folder, names in there.items() if is_bare(names)]


def files_at(git_dir: Path, commit: str) -> list[str]:
    """The paths of all files of a commit."""
    return fields_of(git("ls-tree", "-r", "-z", "--name-only", commit, git_dir=git_dir).output)


def file_at(git_dir: Path, commit: str, path: str) -> bytes | None:
    """The content of a file in a commit, following symlinks inside the repository; None if there is no such file, or if
    its name has a line break."""
    if "\n" in path:
        return None
    asked = f"{commit}:{path}\n".encode("utf-8", "surrogateescape")
    done = git("cat-file", "--batch", "--follow-symlinks", git_dir=git_dir, stdin=asked)
    head, _, rest = done.output.partition(b"\n")
    words = head.split(b" ")
    return rest[: int(words[2])] if len(words) == 3 and words[1] == b"blob" else None


def same_but_case(paths: Iterable[str], all_paths: Iterable[str]) -> list[str]:
    """A sentence for each group of paths that differ only in case, if the group contains one of `paths`: on macOS and
    Windows only one file of a group would exist."""
    names: dict[str, list[str]] = {}
    for path in all_paths:
        names.setdefault(path.casefold(), []).append(path)
    return [
        f"{' and '.join(shown(name) for name in sorted(same))} differ in case alone: on macOS and Windows one is lost"
        for same in dict.fromkeys(tuple(names.get(path.casefold(), ())) for path in paths)
        if len(same) > 1
    ]


def too_large(git_dir: Path, changes: list[RawChange], largest: int) -> list[str]:
    """A sentence for each file of more than `largest` bytes, which the host would refuse. A file content that occurs
    several times is listed once. A file that a later commit removes is listed too, because a push sends every
    commit."""
    paths: dict[str, str] = {}
    for change in changes:
        if change.new_mode not in (SUBMODULE, NOTHING):
            paths.setdefault(change.object, change.path)
    found: dict[str, None] = {}
    for name, size in _sizes(git_dir, paths, lambda size: size > largest).items():
        found[
            f"{shown(paths[name])} has {size / (1 << 20):,.1f} MiB, and the host takes files up to "
            f"{largest / (1 << 20):,.1f} MiB: leave it out, make it smaller, or let a person add it with Git LFS"
        ] = None
    return list(found)


def _streamed(
    git_dir: Path,
    *args: str,
    config: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
    seconds: float = STREAM_SECONDS,
    most: int = WHOLE,
) -> Iterator[bytes]:
    with tempfile.TemporaryDirectory(prefix="makimono-") as folder:
        spool = Path(folder, "diff")
        more: dict[str, Any] = {"timeout": seconds, "spool_cap": most, "hears": True, "config": config, "env": env}
        done = git(*args, git_dir=git_dir, spool=spool, cap=CHUNK, **more)
        if not done.dropped:
            yield done.output
            return
        with spool.open("rb") as file:
            while chunk := file.read(CHUNK):
                yield chunk
