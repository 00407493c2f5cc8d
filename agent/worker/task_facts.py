"""Records facts about a task that long-term memory needs after the end of the task, as receipts in effects.jsonl.

The receipt ORIGIN is written with the briefing: the actor (the owner of the memories), the path of the repository's
mirror, the base, and facts about the issue, such as whether its author may request work.  The receipt DELIVERY is
written after the delivery; it has the commit, the files and the result of the check.  The work tree, the result of the
check and the text of the issue may be gone or changed when memories are extracted from the task
(`extraction/task_record.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.errors import MakimonoError
from agent.forge.base import ForgeReports
from agent.gitcmd import git

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from agent.forge.base import IssueText
    from agent.values import Json
    from agent.work.workspace import Workspace
    from agent.worker.delivery_report import Report
    from agent.worker.task_run import TaskRun

ORIGIN, DELIVERY = "origin", "delivery"

MOST_FILES = 500
MOST_BLOBS = 50
"""The hashes of the delivered files are recorded only if there are at most this many files, since a larger change tells
little about one file."""


def _blobs(git_dir: Path, report: Report) -> Mapping[str, str]:
    """path → blob hash of each delivered file; {} if there is no commit, if there are too many files, or if git
    fails."""
    if report.commit is None or not 0 < len(report.paths) <= MOST_BLOBS:
        return {}
    try:
        listed = git("ls-tree", "-z", "--full-tree", report.commit, "--", *report.paths, git_dir=git_dir).output
    except MakimonoError:
        return {}
    entries = [entry.decode("utf-8", "replace").partition("\t") for entry in listed.split(b"\0") if entry]
    return {path: about.split()[2] for about, _, path in entries if about.split()[1] == "blob"}


def may_author_ask(run: TaskRun, issue: IssueText) -> bool:
    """Whether the author of the issue may request work, for `record_origin`. The result is False, without a request to
    the forge, if nothing will be recorded; it is also False if the request to the forge fails."""
    if not (run.publishing and run.settings.remembers) or run.effects.receipt(ORIGIN) is not None:
        return False
    try:
        return ForgeReports(run.forge).author_may_ask(issue.key)
    except MakimonoError:
        return False


def record_origin(run: TaskRun, issue: IssueText, workspace: Workspace, *, may_ask: bool) -> None:
    """Write the receipt ORIGIN, unless the task has it already; `may_ask`: whether the author of the issue may request
    work."""
    if run.effects.receipt(ORIGIN) is not None:
        return
    from agent.wiring.memory import actor_of_task  # imported here, since it is not needed while memory is off

    mirror = workspace.mirror
    run.effects.done(
        ORIGIN,
        {
            "actor": actor_of_task(run.settings, run.key, confidential=issue.confidential),
            "author": issue.author,
            "author_may_ask": may_ask,
            "comments_may_ask": ForgeReports(run.forge).commenters_may_ask(),
            "confidential": issue.confidential,
            "mirror": mirror.path.relative_to(mirror.base_dir).as_posix(),
            "base": workspace.base,
            "base_commit": workspace.base_commit,
        },
    )


def record_delivery(run: TaskRun, report: Report | None) -> None:
    """Write the receipt DELIVERY about the delivered work, if long-term memory is on and the task publishes; it is not
    written again for a later delivery with the same facts."""
    if report is None or not run.publishing or not run.settings.remembers:
        return
    effects, git_dir = run.effects, run.workspace.git_dir if run.workspace is not None else None
    verdict = report.verdict
    check: Json | None = None
    if verdict is not None:
        check = {
            "command": verdict.command,
            "exit_code": verdict.exit_code,
            "ok": verdict.ok,
            "was_red": report.was_red,
        }
    found: Json = {
        "branch": report.branch,
        "commit": report.commit,
        "files": list(report.paths[:MOST_FILES]),
        "check": check,
        "pull": {"id": report.pull.id, "url": report.pull.url} if report.pull is not None else None,
        "blobs": _blobs(git_dir, report) if git_dir is not None else {},
        "problem": report.problem[1],
    }
    if effects.receipt(DELIVERY) != found:
        effects.done(DELIVERY, found)
