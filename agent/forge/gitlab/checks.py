"""The checks of one commit on GitLab: its newest pipeline, or the failed jobs of that pipeline if it has failed.

For the newest commit of a merge request the pipeline is the merge request's `head_pipeline`, which may have run on the
result of the merge.  Commit statuses that other services have set are parts of a pipeline.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agent.errors import ForgeAccessRefused, ForgeRefused
from agent.forge.checks import Check, Checks, CheckState, end_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agent.forge.gitlab.http import GitLabWire
    from agent.forge.gitlab.projects import Project

STATES: dict[str, CheckState] = {
    "success": "passed",
    "failed": "failed",
    **dict.fromkeys(("canceled", "skipped", "manual"), "neutral"),
}
"""GitLab's state of a pipeline that has ended, or waits for a person → state of a check; a pipeline in any other state
counts as pending."""


class CheckReader:
    """Reads the checks of commits of `project`."""

    def __init__(self, wire: GitLabWire, project: Project) -> None:
        self.wire = wire
        self.project = project

    def read(self, commit: str, merge_request: str | None) -> Checks:
        """The CI checks of a commit; with `merge_request` (a number), the commit has to be the newest one of that merge
        request.

        The result has no checks if GitLab reports no pipeline for the commit, or if the merge request has a newer
        commit. If GitLab denies access to pipelines (role of the account, CI/CD switched off), `unread` of the result
        says so. Raises ForgeError for every failure except denied access to pipelines.
        """
        try:
            pipeline = self._newest(commit) if merge_request is None else self._of_head(commit, merge_request)
            if pipeline is None:
                return Checks()
            state = STATES.get(str(pipeline["status"]), "pending")
            if state != "failed":
                return Checks((Check(f"pipeline {pipeline['id']}", state),))
            return Checks(tuple(self._failed(pipeline)) or (Check("pipeline", state),))
        except ForgeAccessRefused:
            said = (
                f"the account may not see pipelines of {self.project.full_name}, so red CI is not noticed there: make "
                f"it Developer, or switch CI/CD on"
            )
            return Checks(unread=(said,))

    def log(self, check: Check) -> str:
        """The end of the log of a job; "" for a check without a log (a pipeline, a status of another service), or if
        GitLab refuses the log. Raises ForgeUnreachable if GitLab does not answer."""
        if not check.log.isdigit():
            return ""
        try:
            answer = self.wire.call("GET", f"{self.project.path}/jobs/{check.log}/trace", plain=True)
        except (ForgeRefused, ForgeAccessRefused):
            return ""
        return end_of(str(answer.data))

    def _of_head(self, commit: str, merge_request: str) -> dict[str, Any] | None:
        item = self.wire.get(f"{self.project.path}/merge_requests/{merge_request}")
        found: dict[str, Any] | None = item.get("head_pipeline") if item.get("sha") == commit else None
        return found

    def _newest(self, commit: str) -> dict[str, Any] | None:
        query = {"sha": commit, "per_page": 1}
        try:
            found: list[dict[str, Any]] = self.wire.get(f"{self.project.path}/pipelines", query=query)
        except ForgeRefused as error:
            if error.status != 404:
                raise
            return None
        return found[0] if found else None

    def _failed(self, pipeline: dict[str, Any]) -> Iterator[Check]:
        """The failed jobs of a pipeline; if it has none, the failed statuses that other services have set for its
        commit. Jobs and statuses that are allowed to fail are left out."""
        jobs = f"{self.project.path}/pipelines/{pipeline['id']}/jobs"
        found = [
            Check(str(job["name"]), "failed", str(job.get("failure_reason") or ""), str(job["id"]))
            for job in self.wire.pages(jobs, query={"scope": "failed"})
            if not job.get("allow_failure")
        ]
        yield from found
        if not found:
            statuses = f"{self.project.path}/repository/commits/{pipeline['sha']}/statuses"
            for one in self.wire.pages(statuses):
                if one["status"] == "failed" and not one.get("allow_failure"):
                    yield Check(str(one["name"]), "failed", str(one.get("description") or ""))
