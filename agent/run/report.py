"""What came of a delivery, as the pull request, the comments and the row tell it.

Made by `run/delivery.py` alone; judged by `run/gate.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agent.forge.base import PullRef
    from agent.work.changes import DiffStat
    from agent.work.verify import Verdict


@dataclass(frozen=True, slots=True)
class Report:
    """What came of a delivery, for the pull request, the comment and the row.

    `first`: the branch is pushed and is the first of a repository that was empty, so that there is nothing onto which a
    pull request could go.  `landed`: all of the change has come onto the base by another way, and nothing is left.
    `left_behind`: files that tools wrote and no commit has; that fails nothing, and the model hears of it once.
    `unrun`: why every command that the model asked for was refused; "" when one ran, or none was asked for.
    `before`: what a red check says of the base commit, None where it was not asked or there is none."""

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

    @property
    def problem(self) -> tuple[str, str]:
        """(code, sentence) of what keeps it from being ready; ("", "") for nothing."""
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
        """Whether the check is red, and was on the base commit in the same way: no failure of this change."""
        return self.verdict is not None and self.before is not None and self.verdict.is_red_as(self.before)

    def _red(self) -> str:
        if self.before is None:
            return str(self.verdict)
        if self.before.ok:
            return f"{self.verdict}; on the base, without the change, it passes"
        if self.before.is_red:
            return f"{self.verdict}; on the base, without the change, it fails in another way"
        return f"{self.verdict}; on the base, without the change, it says nothing either: {self.before}"
