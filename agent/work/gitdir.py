"""A task's own git directory `git/`: how it is made from the mirror, and what its configuration says.

It borrows the mirror's objects, lies outside the work tree, and is bound read-only where commands run (security facts:
section 4.4).  Its `info/attributes` stands above every `.gitattributes` of the tree: what is in the tree is what is in
the commit, byte by byte, no filter, no line-end conversion, so that a one-line edit is a one-line diff and nobody's
driver or `-diff` hides anything.  Its `info/exclude` is the ignore list, below the repository's own `.gitignore`.
Called by `Workspace`.
"""

from __future__ import annotations

import fnmatch
import os
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import orjson

from agent import disk
from agent.errors import PushRejected, WorkError
from agent.gitcmd import git
from agent.work import tree
from agent.work.mirror import open_up

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from agent.work.mirror import Mirror

ATTRIBUTES = b"* -text !eol !crlf -ident !filter !working-tree-encoding !diff !merge\n"

IGNORED = (
    "node_modules/",
    ".venv/",
    "venv/",
    "__pycache__/",
    "*.py[co]",
    ".pytest_cache/",
    ".mypy_cache/",
    ".ruff_cache/",
    ".hypothesis/",
    ".tox/",
    ".nox/",
    ".eggs/",
    "*.egg-info/",
    ".coverage",
    ".coverage.*",
    "htmlcov/",
    ".gradle/",
    ".cache/",
    ".npm/",
    "*.log",
    ".DS_Store",
    "*.swp",
    "*~",
)
"""What running tests and builds leaves behind.  A pattern that matches something the repository already has is not
used there: who commits `node_modules` means it."""

_CONFIG = """\
[core]
	repositoryformatversion = {version}
	filemode = true
	bare = false
	symlinks = true
	ignorecase = false
	precomposeunicode = false
	autocrlf = false
	safecrlf = false
	logallrefupdates = false
	sharedRepository = {mode}
	fsync = committed,reference
	checkStat = minimal
[gc]
	auto = 0
	pruneExpire = never
[maintenance]
	auto = false
{extensions}"""
# checkStat: inside the sandbox owner and change time look different, and every `git status` would read every file.
# This program itself says `core.checkStat=default` when it looks for changes.


@dataclass(frozen=True, slots=True)
class State:
    """What a workspace was made from; `git/makimono.json`.

    `start` is the commit where our branch began, `base_commit` that of the base branch (None: empty repository).
    `ready` turns true when the first checkout was complete: from then on the tree is never made anew.  `setup` says
    which set-up is in the tree, `pushed` which commit the other side had from us last, `refused` which one may not
    be published, `moving` to which commit branch and tree are on their way.  `gone`: the tree was removed once all of
    it was published.
    """

    branch: str
    base: str
    base_commit: str | None
    start: str | None
    ready: bool = False
    setup: str = ""
    pushed: str | None = None
    refused: str | None = None
    moving: str | None = None
    gone: bool = False

    def write(self, git_dir: Path) -> None:
        disk.write_file(git_dir / "makimono.json", orjson.dumps(asdict(self), option=orjson.OPT_INDENT_2) + b"\n")


def read_state(git_dir: Path) -> State | None:
    """The state, None when no git directory was finished."""
    try:
        raw = orjson.loads((git_dir / "makimono.json").read_bytes())
        return State(**raw)
    except FileNotFoundError:
        return None
    except (orjson.JSONDecodeError, TypeError) as error:
        raise WorkError(f"{git_dir / 'makimono.json'} cannot be read: {error}; remove the folder {git_dir}") from error


def make(git_dir: Path, mirror: Mirror, state: State) -> None:
    """Make the git directory beside its place and rename it, so that it is there whole or not at all.

    The caller holds the mirror's lock.  PushRejected where no branch of this name can ever be pushed.
    """
    if (other := in_the_way(mirror.branches(), state.branch)) is not None:
        raise PushRejected(
            f"the repository has a branch {other!r}, so that git can make no {state.branch!r} beside it. Rename or "
            f"remove that branch, or set `branch.prefix` to another beginning, then set the label again",
            code="branch_taken",
        )
    temporary = git_dir.with_name(f".{git_dir.name}.tmp")
    tree.remove(temporary)
    source = str(mirror.path)
    git(
        *(
            "clone",
            "--quiet",
            "--bare",
            "--shared",
            "--template=",
            "--upload-pack",
            "git -c safe.directory=* upload-pack",
        ),
        *("--", source, str(temporary)),
        config=("safe.directory=*",),
        timeout=600,
    )
    sha256 = "sha256" in (temporary / "config").read_text("utf-8", "replace")
    readable = os.geteuid() == 0
    config = _CONFIG.format(
        version=1 if sha256 else 0,
        mode="0644" if readable else "0600",
        extensions="[extensions]\n\tobjectformat = sha256\n" if sha256 else "",
    )
    disk.write_file(temporary / "config", config.encode(), 0o644, sync=False)
    disk.make_dir(temporary / "info", 0o755)
    disk.write_file(temporary / "info" / "attributes", ATTRIBUTES, 0o644, sync=False)
    if state.start is not None:
        git("update-ref", f"refs/heads/{state.branch}", state.start, git_dir=temporary)
    git("symbolic-ref", "HEAD", f"refs/heads/{state.branch}", git_dir=temporary)
    write_ignored(temporary)
    open_up(temporary, readable=readable)
    state.write(temporary)
    disk.sync_tree(temporary)
    tree.remove(git_dir)  # one without a state was never finished
    disk.move_dir(temporary, git_dir)


def in_the_way(branches: Iterable[str], name: str) -> str | None:
    """A branch that needs a file where `name` needs a folder, or the other way round (git-check-ref-format(1))."""
    return next((other for other in branches if name.startswith(f"{other}/") or other.startswith(f"{name}/")), None)


def borrow(git_dir: Path, mirror: Path) -> None:
    """Name the mirror's present place as the lender (the base_dir may have been moved)."""
    path = git_dir / "objects" / "info" / "alternates"
    wanted = f"{mirror / 'objects'}\n".encode()
    if path.exists() and path.read_bytes() != wanted:
        disk.write_file(path, wanted, 0o644 if os.geteuid() == 0 else 0o600)


def write_ignored(git_dir: Path, more: Iterable[str] = ()) -> None:
    """Write `info/exclude`: the patterns of IGNORED that match nothing in HEAD, and `more`."""
    done = git("ls-tree", "-r", "-z", "--name-only", "HEAD", git_dir=git_dir, check=False)
    folders: set[str] = set()
    names: set[str] = set()
    for path in done.output.decode("utf-8", "surrogateescape").split("\0"):
        *parents, name = path.split("/")
        folders.update(parents)
        names.add(name)
    kept = []
    for pattern in IGNORED:
        plain = pattern.rstrip("/")
        candidates = folders if pattern.endswith("/") else names
        if not any(fnmatch.fnmatchcase(name, plain) for name in candidates):
            kept.append(pattern)
    lines = "".join(f"{pattern}\n" for pattern in (*kept, *more))
    disk.write_file(git_dir / "info" / "exclude", lines.encode("utf-8", "surrogateescape"), 0o644, sync=False)


def exclude_line(path: str) -> str:
    """The pattern that matches exactly `path`, from the top."""
    escaped = "".join(f"\\{sign}" if sign in "\\*?[]!#" else sign for sign in path)
    if escaped.endswith(" "):
        escaped = f"{escaped[:-1]}\\ "
    return f"/{escaped}"


def remove_locks(git_dir: Path) -> None:
    """Remove lock files that a killed git left.  Only the task's process, which holds the folder's lock, works here."""
    for pattern in ("*.lock", "refs/**/*.lock"):
        for stale in git_dir.glob(pattern):
            stale.unlink(missing_ok=True)  # ours
