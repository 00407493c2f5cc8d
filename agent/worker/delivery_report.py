"""The result of a delivery, in the form that the pull request, the comments and the row use.

`worker/task_commits.py` begins a report, `worker/delivery.py` completes it, and `worker/outcome.py` evaluates it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agent.forge.base import PullRef
    from agent.values import Json
    from agent.work.changes import DiffStat
    from agent.work.verify import Verdict


@dataclass(frozen=True, slots=True)
class Report:
    """The result of a delivery of one task.

    `first`: the pushed branch is the first one of an empty repository, so there is no base for a pull request.
    `landed`: the base branch already contains the whole change from another source, so nothing is left to deliver.
    `left_behind`: files that tools wrote and that are in no commit, and files that are too large for a commit. Files
    that are in no commit do not make the task fail; the model gets the list of these files once. `unrun`: the reason
    why every command of the model was refused; "" if at least one ran, or the model tried to run none. `before`: the
    result of the verify command on the base commit after it failed on the new commit, None if it was not run on the
    base. `paths`: the paths that this task's commits change. `review`: the decision of the reviewers
    (`ConsensusDecision.to_dict`), with `met` (the conditions of earlier rounds, if it is approved) and `rounds`; None
    if the reviewers were not asked."""

    branch: str
    changed: bool = False
    commit: str | None = None
    pull: PullRef | None = None
    stat: DiffStat | None = None
    verdict: Verdict | None = None
    before: Verdict | None = None
    findings: tuple[str, ...] = ()
    rejected: str = ""
    code: str = ""
    base: str = ""
    base_gone: bool = False
    landed: bool = False
    first: bool = False
    conflicts: tuple[str, ...] = ()
    patch: str = ""
    patch_file: str = ""
    touched_tests: tuple[str, ...] = ()
    look: tuple[str, ...] = ()
    left_behind: tuple[str, ...] = ()
    unrun: str = ""
    paths: tuple[str, ...] = ()
    review: Json | None = None

    @property
    def problem(self) -> tuple[str, str]:
        """(code, sentence) with the reason why the result of the delivery is not ready for review; ("", "") if it is
        ready."""
        if self.findings:
            return "policy", f"not published: {'; '.join(self.findings[:3])}"
        if self.rejected:
            return self.code or "push_rejected", self.rejected
        if self.conflicts:
            return (
                "conflict",
                f"{self.base} has moved on, and the change conflicts with it in {', '.join(self.conflicts)}",
            )
        if self.verdict is not None and not self.verdict.ok and not self.was_red:
            return "verify_failed", self._red()
        if self.unrun:
            return "no_sandbox", f"no command that the model asked for could be run, so nothing was tried: {self.unrun}"
        return "", ""

    @property
    def was_red(self) -> bool:
        """Whether the verify command failed on the base commit too, and in the same way: then the task's change is not
        the cause."""
        return self.verdict is not None and self.before is not None and self.verdict.is_red_as(self.before)

    def _red(self) -> str:
        if self.before is None:
            return str(self.verdict)
        if self.before.ok:
            return f"{self.verdict}; on the base, without the change, it passes"
        if self.before.is_red:
            return f"{self.verdict}; on the base, without the change, it fails in another way"
        return f"{self.verdict}; on the base, without the change, it says nothing either: {self.before}"
