"""Files that git converts on commit, and that must never be committed without the conversion: those of Git LFS,
git-crypt and transcrypt.

The attributes that this program sets disable every filter, so git would commit an unconverted file as it is: raw
content in the history, which another user's git-lfs treats as a broken pointer, or a secret in plain text.  To find the
filters of a file, `git_filters.py` reads the repository's own attributes through a git directory without this program's
attributes.  A file that is not in its converted form is not committed as it is: content of Git LFS becomes a pointer if
it can be uploaded (`work/lfs.py`). Other filters (nbstripout, line ends) only normalise, so files with other filters
are committed as they are.

Sources: git-lfs/git-lfs docs/spec.md (a pointer is below 1024 bytes and begins with its version); AGWA/git-crypt and
elasticdog/transcrypt (the first bytes of an encrypted file).
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from agent import durable_files, filetree
from agent.gitcmd import git

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

LARGEST = 1024
LFS = (
    "its content belongs into Git LFS (`filter=lfs` in .gitattributes), to which nothing can be uploaded from here, "
    "and raw content would break the repository; keep the file as it was, or let a person add it"
)
BROKEN = (
    "it begins like a pointer of Git LFS and is none: its content is not here; write the whole new content into it, or "
    "keep the file as it was"
)
CRYPT = (
    "the repository encrypts it (`filter` in .gitattributes) with a key that is not here, and its plain text must not "
    "be published; keep the file as it was, or let a person change it"
)
FILTERS: tuple[tuple[re.Pattern[str], re.Pattern[bytes], str], ...] = (
    (
        re.compile("lfs"),
        re.compile(
            rb"version https://(?:git-lfs\.github\.com|hawser\.github\.com)/spec/v1\n"
            rb"(?:ext-[0-9]-[^\n]*\n)*oid sha256:[0-9a-f]{64}\nsize [0-9]+\n?"
        ),
        LFS,
    ),
    (re.compile(r"git-crypt(-.*)?"), re.compile(rb"\0GITCRYPT\0.*", re.DOTALL), CRYPT),
    (re.compile(r"crypt|transcrypt"), re.compile(rb"U2FsdGVkX1.*", re.DOTALL), CRYPT),
)
"""A row for each filter: (name of the filter, pattern of the first bytes of a converted file, reason for leaving out a
file that is not converted)."""


_POINTER_LIKE = re.compile(rb"version https://git-lfs\.github\.com/spec/.*", re.DOTALL)


def filters_of(git_dir: Path, tree: Path, paths: Iterable[str], env: Mapping[str, str]) -> dict[str, str]:
    """Path → name of its filter, for those of `paths` to which the tree's .gitattributes assign one."""
    paths = list(paths)
    asked = b"".join(os.fsencode(path) + b"\0" for path in paths)
    if not asked:
        return {}
    done = git(
        *("check-attr", "-z", "--stdin", "filter"),
        git_dir=git_dir_without_attributes(git_dir),
        work_tree=tree,
        stdin=asked,
        env=env,
        check=False,
        timeout=600,
        paths=paths,
    )
    fields = done.output.decode("utf-8", "surrogateescape").split("\0")
    found = zip(fields[::3], fields[2::3], strict=False)
    return {path: value for path, value in found if value not in ("unspecified", "unset", "set")}


def why_not_raw(
    git_dir: Path, tree: Path, paths: Iterable[str], env: Mapping[str, str], *, lfs: bool = False
) -> dict[str, str]:
    """Path → reason why the file must not be committed as it is in the tree.

    `lfs`: whether content of Git LFS can be converted to pointers (`work/lfs.py`).
    """
    refused = {}
    for path, name in filters_of(git_dir, tree, paths, env).items():
        if lfs and name == "lfs":
            if not is_converted(tree, path, name) and _looks_like(tree, path, _POINTER_LIKE):
                refused[path] = BROKEN
            continue
        for names, converted, why in FILTERS:
            if names.fullmatch(name) and not _looks_like(tree, path, converted):
                refused[path] = why
    return refused


def is_converted(tree: Path, path: str, name: str) -> bool:
    """Whether the file is in the form in which the filter `name` commits it, or cannot be read; True for a filter that
    FILTERS does not name."""
    return all(_looks_like(tree, path, converted) for names, converted, _ in FILTERS if names.fullmatch(name))


def git_dir_without_attributes(git_dir: Path, name: str = "plain.git", attributes: bytes = b"") -> Path:
    """A git directory that contains only the configuration of `git_dir`, and so lacks this program's `info/attributes`.
    `attributes` is the content of the `info/attributes` that this git directory gets instead."""
    place = git_dir / name
    # if this process is root, commands run as another user, and that user must be able to read the git directory
    root = os.geteuid() == 0
    if not (place / "HEAD").exists():
        for folder in (place, place / "objects", place / "refs", place / "info"):
            durable_files.make_dir(folder, 0o755 if root else 0o700)
        config = (git_dir / "config").read_bytes()
        durable_files.write_file(place / "config", config, 0o644 if root else 0o600, sync=False)
        durable_files.write_file(place / "HEAD", b"ref: refs/heads/none\n", 0o644 if root else 0o600, sync=False)
    if attributes:
        durable_files.write_file(place / "info" / "attributes", attributes, 0o644 if root else 0o600, sync=False)
    return place


def _looks_like(tree: Path, path: str, converted: re.Pattern[bytes]) -> bool:
    """Whether the file has the form into which its filter converts it.

    The result is True for a symlink and for a missing file, since git applies no filter to them, and for an empty or
    unreadable file.
    """
    root = filetree.open_folder(tree)
    try:
        descriptor = durable_files.open_beneath(root, path)
    except OSError:
        return True
    finally:
        os.close(root)
    try:
        if not durable_files.is_regular(descriptor):
            return True
        begin = os.read(descriptor, LARGEST)
        return not begin or converted.fullmatch(begin) is not None  # an empty file counts as converted
    finally:
        os.close(descriptor)
