"""Creates and configures a task's own git directory `git/`, which borrows the objects of the mirror.

The git directory of a task borrows the mirror's objects, lies outside the work tree, and is mounted read-only for
commands (docs/security.md, "Git beside a work tree"). The file `info/attributes` of the git directory overrides every
`.gitattributes` of the tree: a file in the tree equals the file in the commit byte by byte, without filter or line-end
conversion, unless `lfs.py` converts it. Since no `.gitattributes` of the tree affects a diff, an edit of one line is a
diff of one line, and no diff driver or `-diff` hides a change. The file `info/exclude` of the git directory is the
program's ignore list, with a lower priority than the repository's own `.gitignore`.
"""

from __future__ import annotations

import fnmatch
import os
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

import orjson

from agent import durable_files
from agent.errors import PushRejected, WorkError
from agent.gitcmd import fields_of, git
from agent.work import refs, untrusted_tree
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
"""Ignore patterns for files that test runs and builds create.

An ignore pattern that matches a file of the repository is not used in that repository: if the repository commits
`node_modules`, that is intended.
"""

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
# The git setting `core.checkStat=minimal` is needed because inside the sandbox, owner and change time of files look
# different, so that without it every `git status` would read every file. This program itself sets
# `core.checkStat=default` when it looks for changes.


@dataclass(frozen=True, slots=True)
class WorkspaceState:
    """The branches and commits of a workspace, and how far check-out, set-up, merge and push have got; stored as
    `git/makimono.json`.

    - `start`: the commit at which the task's branch started.
    - `base_commit`: the commit of the base branch on which the task's work is based (None for an empty repository).
    - `ready`: whether the first checkout was complete; a tree that is ready is recreated only after its removal
      (`gone`).
    - `setup`: the key of the set-up that is in the tree.
    - `pushed`: the commit that this program last pushed.
    - `refused`: the commit that must not be published.
    - `moving`: the commit to which branch and tree are being moved.
    - `gone`: whether the tree was removed because all of its content was published.
    - `merging`: the commit of the base branch that the next commit merges; its conflicts are in the tree.
    - `laying`: the tree with conflict marks that is being put into the work tree.
    - `unresolved`: the paths that had conflicts in the merge.
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
    merging: str | None = None
    laying: str | None = None
    unresolved: tuple[str, ...] = ()

    def write(self, git_dir: Path) -> None:
        durable_files.write_file(
            git_dir / "makimono.json", orjson.dumps(asdict(self), option=orjson.OPT_INDENT_2) + b"\n"
        )


def read_state(git_dir: Path) -> WorkspaceState | None:
    """The stored state of a git directory; None if its creation was never completed. Raises WorkError if the stored
    state is damaged."""
    try:
        raw = orjson.loads((git_dir / "makimono.json").read_bytes())
        state = WorkspaceState(**raw)
        return replace(state, unresolved=tuple(state.unresolved))  # JSON has no tuples, so the list is converted
    except FileNotFoundError:
        return None
    except (orjson.JSONDecodeError, TypeError) as error:
        raise WorkError(f"{git_dir / 'makimono.json'} cannot be read: {error}; remove the folder {git_dir}") from error


def create_git_dir(git_dir: Path, mirror: Mirror, state: WorkspaceState) -> None:
    """Create the git directory under a temporary name and rename it, so that it is either complete or missing.

    The caller of `create_git_dir` must hold the mirror's lock. Raises PushRejected if another branch of the repository
    makes a branch of this name impossible (`in_the_way`)."""
    if (other := in_the_way(mirror.branches(), state.branch)) is not None:
        raise PushRejected(
            f"the repository has a branch {other!r}, so that git can make no {state.branch!r} beside it. Rename or "
            f"remove that branch, or set `branch.prefix` to another beginning, then ask for it again",
            code="branch_taken",
        )
    temporary = git_dir.with_name(f".{git_dir.name}.tmp")
    untrusted_tree.remove(temporary)
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
    durable_files.write_file(temporary / "config", config.encode(), 0o644, sync=False)
    durable_files.make_dir(temporary / "info", 0o755)
    durable_files.write_file(temporary / "info" / "attributes", ATTRIBUTES, 0o644, sync=False)
    if state.start is not None:
        refs.set_ref(temporary, f"refs/heads/{state.branch}", state.start)
    git("symbolic-ref", "HEAD", f"refs/heads/{state.branch}", git_dir=temporary)
    write_ignored(temporary)
    open_up(temporary, readable=readable)
    state.write(temporary)
    durable_files.sync_tree(temporary)
    untrusted_tree.remove(git_dir)  # a git directory without a state was never completed
    durable_files.move_dir(temporary, git_dir)


def in_the_way(branches: Iterable[str], name: str) -> str | None:
    """The branch that needs a file where the branch `name` needs a folder, or the reverse (git-check-ref-format(1));
    None if there is none."""
    return next((other for other in branches if name.startswith(f"{other}/") or other.startswith(f"{name}/")), None)


def borrow(git_dir: Path, mirror: Path) -> None:
    """Set the present path of the mirror as the source of borrowed objects (base_dir may have been moved)."""
    path = git_dir / "objects" / "info" / "alternates"
    wanted = f"{mirror / 'objects'}\n".encode()
    if path.exists() and path.read_bytes() != wanted:
        durable_files.write_file(path, wanted, 0o644 if os.geteuid() == 0 else 0o600)


def write_ignored(git_dir: Path, more: Iterable[str] = ()) -> None:
    """Write `info/exclude`: the patterns of IGNORED that match nothing in HEAD, and `more`."""
    done = git("ls-tree", "-r", "-z", "--name-only", "HEAD", git_dir=git_dir, check=False)
    folders: set[str] = set()
    names: set[str] = set()
    for path in fields_of(done.output):
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
    durable_files.write_file(git_dir / "info" / "exclude", lines.encode("utf-8", "surrogateescape"), 0o644, sync=False)


def exclude_line(path: str) -> str:
    """The ignore pattern that matches only `path`, which is relative to the top of the tree."""
    escaped = "".join(f"\\{sign}" if sign in "\\*?[]!#" else sign for sign in path)
    if escaped.endswith(" "):
        escaped = f"{escaped[:-1]}\\ "
    return f"/{escaped}"


def remove_locks(git_dir: Path) -> None:
    """Remove lock files that a killed git process left in the git directory.

    The removal of lock files is safe, since only the task's process, which holds the lock of the task's folder, runs
    git in this git directory.
    """
    for pattern in ("*.lock", "refs/**/*.lock"):
        for stale in git_dir.glob(pattern):
            stale.unlink(missing_ok=True)  # ours
