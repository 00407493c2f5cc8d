"""Reads `.makimono.yaml` from the default branch of a repository, once for each task.

`.makimono.yaml` is read from the commit that is the newest of the default branch when the task begins: never from the
branch of a pull request, a base that the issue names, or the work tree. The commit from which `.makimono.yaml` was read
is recorded in the task's folder, so that a later attempt reads the same text. A `.makimono.yaml` with an error is
ignored as a whole, and the reports of the task describe the error. A task that continues another one does not report
again an error that the earlier task has reported.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import orjson

from agent import durable_files
from agent.config.repository_keys import FILE, MOST_BYTES, RepositoryKeys, parse_file, with_file
from agent.errors import ConfigError
from agent.gitcmd import git
from agent.work import gitdir

if TYPE_CHECKING:
    from pathlib import Path

    from agent.values import Json
    from agent.work.mirror import Mirror
    from agent.worker.task_run import TaskRun

NAME = "repository_file.json"


@dataclass(frozen=True, slots=True)
class RepositorySettings:
    """The settings in `.makimono.yaml`, and a sentence about its errors, "" if it has none or the earlier task has
    reported them."""

    keys: RepositoryKeys
    problem: str = ""


NOTHING = RepositorySettings(RepositoryKeys())


def apply_repository_file(run: TaskRun, mirror: Mirror) -> RepositorySettings:
    """Read `.makimono.yaml` from the mirror, into which the caller has fetched, and apply its keys to the settings of
    the run."""
    found = _read(run, mirror)
    run.settings = with_file(run.settings, found.keys)
    return found


def _read(run: TaskRun, mirror: Mirror) -> RepositorySettings:
    allow = run.settings.repository_file.allow
    if not allow:
        return NOTHING
    commit = _commit(run.context.context_dir, mirror)
    if commit is None:
        return NOTHING
    state = gitdir.read_state(run.context.context_dir / "git")

    def is_branch(name: str) -> bool:
        # a task that has begun keeps its base branch, also after somebody has removed that branch
        return (state is not None and state.base == name) or mirror.commit_of(name) is not None

    try:
        data = read_blob(mirror.path, commit)
        keys = RepositoryKeys() if data is None else parse_file(data, allow, is_branch)
    except ConfigError as error:
        said = "; ".join(str(error).splitlines())  # the text of the error has one line for each fault of the file
        known = _stored(run.settings.base_dir / "completed" / str(run.context.row.get("parent_uuid")))
        _store(run.context.context_dir, commit, said)
        told = known.get("problem") == said  # True if the earlier task has reported the same faults
        return RepositorySettings(RepositoryKeys(), "" if told else f"{said}. The task goes on without {FILE}")
    if data is not None:
        run.events.emit("repository_file", commit=commit, keys=sorted(keys.model_fields_set))
    return RepositorySettings(keys)


def _commit(folder: Path, mirror: Mirror) -> str | None:
    """The commit of the default branch when the task began, or the newest one if that commit is gone from the mirror;
    None for an empty repository."""
    known = str(_stored(folder).get("commit") or "")
    if known and git("cat-file", "-e", f"{known}^{{commit}}", git_dir=mirror.path, check=False).returncode == 0:
        return known
    branch = mirror.default_branch()
    commit = mirror.commit_of(branch) if branch is not None else None
    if commit is not None:
        _store(folder, commit)
    return commit


def _store(folder: Path, commit: str, problem: str = "") -> None:
    """Record in the task's folder the commit from which `.makimono.yaml` was read, and the faults of that file."""
    facts = {"commit": commit} | ({"problem": problem} if problem else {})
    durable_files.write_file(folder / NAME, orjson.dumps(facts))


def _stored(folder: Path) -> Json:
    """What `_store` recorded in the folder of a task; {} if nothing can be read."""
    try:
        found = orjson.loads((folder / NAME).read_bytes())
    except (OSError, orjson.JSONDecodeError):
        return {}
    return found if isinstance(found, dict) else {}


def read_blob(git_dir: Path, commit: str) -> bytes | None:
    """The content of `.makimono.yaml` in a commit, None if the commit does not contain it.

    Raises ConfigError if `.makimono.yaml` is not a regular file or is too large.
    """
    listed = git("ls-tree", "-z", "-l", commit, "--", FILE, git_dir=git_dir).output
    if not listed:
        return None
    mode, _, name, size = listed.partition(b"\t")[0].split()
    if mode not in (b"100644", b"100755"):
        raise ConfigError(f"{FILE}: found a link or a folder; it must be a file")
    if int(size) > MOST_BYTES:
        raise ConfigError(f"{FILE}: the file has {int(size)} bytes; allowed are {MOST_BYTES}")
    return git("cat-file", "blob", name.decode(), git_dir=git_dir).output
