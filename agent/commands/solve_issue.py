"""Finds the issue for `solve`: an issue of the tracker, an issue of a forge by its address, or a text for which a
private tracker is made.

Without `--repo`, `solve` works on an issue of the tracker or of a forge in the repository of the issue, as if the issue
had the label. With `--repo` the text of the issue is copied to a private tracker, and nothing is written to the issue,
unless it is an issue of the tracker and `--repo` names the issue's own repository. A file that is no issue of the
tracker always gets a private tracker.
"""

from __future__ import annotations

import re
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from agent.errors import GitError, IssueUnreadable, MakimonoError, UsageError, WorkError
from agent.forge.local import issue_files
from agent.forge.local.forge import REPO, LocalForge
from agent.values import is_folder
from agent.wiring import private_tracker
from agent.work.remote import Remote

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agent.config import Settings
    from agent.forge import Forge, Task
    from agent.wiring.wiring import Wiring

_NUMBER = re.compile(r"#(0|[1-9][0-9]{0,17})")
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://|git@")


@dataclass(frozen=True, slots=True)
class IssueSource:
    """The text of an issue for a private tracker.

    `comments` are lines of a comments file, `origin` is where the text comes from: a path or an address.
    """

    text: bytes
    repository: str
    origin: str
    comments: bytes = b""


@contextmanager
def asked_for(settings: Settings, wiring: Wiring, issue: str, repository: str | None) -> Iterator[Task | IssueSource]:
    """Yields a `Task` if the issue is worked on in its own tracker or forge, and an `IssueSource` (a text that is
    copied into a private tracker) otherwise.

    Inside the block of this context manager, the forge of the task is open. Raises UsageError when the issue or the
    repository for `solve` does not exist.
    """
    if _ADDRESS.match(issue):
        with on_a_forge(wiring, issue) as task:
            yield task if repository is None else of_a_forge(settings, task, issue, repository)
        return
    known = on_the_tracker(settings, issue) if repository is None else of_that_repository(settings, issue, repository)
    yield known if known is not None else of_a_file(settings, issue, repository)


@contextmanager
def on_a_forge(wiring: Wiring, address: str, text: str = "a Markdown file") -> Iterator[Task]:
    """The task of the issue, pull request or merge request at an address; `text` names for the error message what the
    command accepts instead of an address. Raises UsageError for an address that belongs to no configured project."""
    forges = [forge for forge in wiring.forges if not is_folder(forge.instance)]
    try:
        task = _at(forges, address)
        if task is None:
            known = ", ".join(f"{forge.source} {forge.instance}" for forge in forges) or "none"
            raise UsageError(
                f"{address} is no issue, pull or merge request of a project that is configured (hosts in task_sources: "
                f"{known}). Add its host to task_sources and its project to projects; or give {text}, or an "
                f"issue of the local tracker by its number (#3) or its file"
            )
        yield task
    finally:
        for forge in forges:
            forge.close()


def _at(forges: list[Forge], address: str) -> Task | None:
    try:
        return next((task for forge in forges if (task := forge.task_at(address)) is not None), None)
    except IssueUnreadable as error:
        raise UsageError(str(error)) from error


def of_a_forge(settings: Settings, task: Task, address: str, repository: str) -> IssueSource:
    """The text of an issue on a forge, with its comments, to be solved in the user's own repository."""
    assert task.forge is not None, "a forge gave it"
    where = repository_of(settings, repository, None, Path(address))
    read = task.forge.read_issue(task.get_task_key())
    title = " ".join(read.title.split()) or address
    written = issue_files.IssueFile(title, read.author, read.body, read.base or "")
    said = issue_files.comment_lines(replace(one, id=str(number)) for number, one in enumerate(read.comments, 1))
    return IssueSource(written.rendered(settings.local.bot_label), where, address, said)


def of_a_file(settings: Settings, issue: str, repository: str | None) -> IssueSource:
    """The text of an issue from a Markdown file."""
    path = path_of(settings, issue)
    text, named = private_tracker.as_issue(private_tracker.read_issue(path), path, settings.local.bot_label)
    return IssueSource(
        text, repository_of(settings, repository, named, path), str(path.absolute()), issue_files.read_comments(path)
    )


def on_the_tracker(settings: Settings, issue: str) -> Task | None:
    """The task of an issue of the configured tracker, given by `#3` or by its file; None for any other file, and for
    every file if `task_sources` has no `local`. Raises UsageError for `#3` without a tracker in `task_sources`, and for
    an issue that is not open or cannot be read."""
    tracker = settings.local.tracker
    if number := _NUMBER.fullmatch(issue.strip()):
        if LocalForge.source not in settings.task_sources:
            raise UsageError(f"{issue} is a number of the local tracker, but task_sources has no `local`")
        name = number[1]
    else:
        path = Path(issue)
        with suppress(OSError, RuntimeError):
            path = path.resolve()
        found_name = issue_files.number_at((settings.root / tracker).resolve(), path)
        if LocalForge.source not in settings.task_sources or found_name is None:
            return None
        name = found_name
    try:
        found = LocalForge(settings).task(int(name)) if name.isdecimal() else None
    except IssueUnreadable as error:
        raise UsageError(str(error)) from error
    if found is None:
        raise UsageError(f"{issue}: {settings.root / tracker}/issues has no open issue {name}")
    return found


def of_that_repository(settings: Settings, issue: str, repository: str) -> Task | None:
    """The task of an issue of the configured tracker if `repository` is the issue's own repository; None for another
    repository, and if the issue cannot be found."""
    try:
        task = on_the_tracker(settings, issue)
        forge = LocalForge(settings)
        own = None if task is None else forge.address(task.get_task_key().repo, issue)
    except MakimonoError:
        return None  # the caller then treats `issue` as the path of a file, and raises UsageError if there is none
    return task if own == str(Path(repository).resolve()) else None


def path_of(settings: Settings, issue: str) -> Path:
    """The path of the Markdown file of an issue; `#3` together with another repository means the file of that issue."""
    if number := _NUMBER.fullmatch(issue.strip()):
        return issue_files.issue_path(settings.root / settings.local.tracker, number[1])
    return Path(issue)


def repository_of(settings: Settings, given: str | None, named: str | None, issue: Path) -> str:
    """The repository for `solve`: the one given by `--repo`, else the one of `local.repos` that the issue names, else
    the entry `default`. Raises UsageError if the repository is unknown or no git repository."""
    if given is None:
        name = named or REPO
        if name not in settings.local.repos:
            known = ", ".join(sorted(settings.local.repos)) or "none"
            raise UsageError(f"{issue}: repository {name!r} is not in local.repos; known: {known}. Or give --repo DIR")
        given = str(settings.root / settings.local.repos[name])
        where = f"local.repos.{name}"
    else:
        where = "--repo"
    if not Path(given).is_dir():
        raise UsageError(f"{where}: {given} is not a folder; give the folder of a git repository")
    address = str(Path(given).resolve())
    try:
        Remote(address).list()
    except (WorkError, GitError) as error:
        other = "" if where == "--repo" else "; --repo DIR names another repository"
        raise UsageError(f"{where}: {error}{other}") from error
    return address
