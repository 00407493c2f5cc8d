"""The checks of one commit on GitHub: check runs, commit statuses, and logs of the jobs of Actions.

A fine-grained token cannot have the permission Checks (github.com/orgs/community/discussions/179545).  When GitHub
refuses to list the check runs, the workflow runs and jobs of Actions are read instead, which need the permission
Actions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urljoin

import requests

from agent.errors import ForgeAccessRefused, ForgeError, ForgeRefused, ForgeUnreachable
from agent.forge import http
from agent.forge.checks import Check, Checks, CheckState, end_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agent.forge.github.http import GitHubWire
    from agent.forge.github.repositories import Project

FAILED = ("failure", "timed_out", "startup_failure")
ACTIONS = "github-actions"
MOST_RUNS = 20
"""Maximum number of failed workflow runs of which the jobs are listed."""
MOST_ANNOTATIONS = 30
TIMEOUT = (10, 30)
_JOB, _RUN = "job:", "run:"


class CheckReader:
    """Reads the checks of commits of `project`."""

    def __init__(self, wire: GitHubWire, project: Project) -> None:
        self.wire = wire
        self.project = project

    def read(self, commit: str) -> Checks:
        """The check runs and commit statuses of a commit; none if GitHub does not know the commit. If the token may not
        read check runs, or commit statuses, `unread` of the result says so. Raises ForgeError for every failure of a
        request except a missing permission."""
        unread = []
        path = f"{self.project.path}/commits/{quote(commit, safe='')}"
        try:
            items = list(self._runs(path, commit))
        except ForgeAccessRefused:
            items = []
            unread.append(
                f"the token may not see check runs of {self.project.full_name}, so red CI is not noticed there: give "
                f"it Actions, Read (an App: Checks and Actions, Read)"
            )
        try:
            items += self._statuses(path)
        except ForgeAccessRefused:
            unread.append(
                f"the token may not see commit statuses of {self.project.full_name}, so red CI is not noticed there: "
                f"give it Commit statuses, Read"
            )
        return Checks(tuple(items), tuple(unread))

    def _runs(self, path: str, commit: str) -> Iterator[Check]:
        try:
            for run in self.wire.pages(f"{path}/check-runs", query={"filter": "latest"}, part="check_runs"):
                output = run.get("output") or {}
                said = "\n\n".join(str(output[name]) for name in ("title", "summary", "text") if output.get(name))
                of_actions = (run.get("app") or {}).get("slug") == ACTIONS
                log = f"{_JOB if of_actions else _RUN}{run['id']}"
                yield Check(str(run["name"]), _state(run), said, log)
        except ForgeRefused as error:
            if error.status not in (404, 422):
                raise
        except ForgeAccessRefused:
            yield from self._jobs(commit)

    def _jobs(self, commit: str) -> Iterator[Check]:
        """The workflow runs of Actions as checks; in place of a failed workflow run, its failed jobs."""
        path = f"{self.project.path}/actions/runs"
        failed = 0
        for run in self.wire.pages(path, query={"head_sha": commit}, part="workflow_runs"):
            state = _state(run)
            failed += state == "failed"
            jobs = self._failed_jobs(f"{path}/{run['id']}/jobs") if state == "failed" and failed <= MOST_RUNS else []
            yield from jobs or [Check(str(run.get("name") or run["id"]), state)]

    def _failed_jobs(self, path: str) -> list[Check]:
        jobs = self.wire.pages(path, query={"filter": "latest"}, part="jobs")
        found = [Check(str(job["name"]), _state(job), "", f"{_JOB}{job['id']}") for job in jobs]
        return [one for one in found if one.state == "failed"]

    def _statuses(self, path: str) -> list[Check]:
        try:
            found = list(self.wire.pages(f"{path}/status", part="statuses"))
        except ForgeRefused as error:
            if error.status not in (404, 422):
                raise
            return []
        states: dict[str, CheckState] = {"success": "passed", "pending": "pending"}
        return [
            Check(str(one["context"]), states.get(str(one["state"]), "failed"), str(one.get("description") or ""))
            for one in found
        ]

    # --- logs ---------------------------------------------------------------------------------------------------

    def log(self, check: Check) -> str:
        """The end of the log of a check that is a job of Actions; for another check run, or if the log is gone or may
        not be read, the annotations of the check run. "" for a commit status or a workflow run, and if the annotations
        may not be read either. Raises ForgeError."""
        number = check.log.removeprefix(_JOB).removeprefix(_RUN)
        if not number.isdigit():
            return ""
        if check.log.startswith(_JOB) and (text := self._job_log(number)):
            return end_of(text)
        try:
            return "\n".join(self._annotations(number))
        except (ForgeRefused, ForgeAccessRefused):
            return ""

    def _annotations(self, number: str) -> Iterator[str]:
        path = f"{self.project.path}/check-runs/{number}/annotations"
        for one in self.wire.get(path, query={"per_page": MOST_ANNOTATIONS}):
            yield f"{one.get('path')}:{one.get('start_line')}: {one.get('message') or ''}"

    def _job_log(self, number: str) -> str:
        """The log of a job, from the host to which GitHub redirects; that host gets no token. `_job_log` returns "" for
        every status but 200, for example if the log is gone or may not be read."""
        wire, path = self.wire, f"{self.project.path}/actions/jobs/{number}/logs"
        what = f"{wire.host}: GET {path}"
        headers = {"Authorization": f"Bearer {wire.tokens.current()}"}
        try:
            answer = _fetch(wire, f"{wire.base_url}{path}", headers)
            if answer.is_redirect:
                address = urljoin(answer.url, answer.headers["location"])
                if http.origin_of(address, what)[0] != "https" and wire.base_url.startswith("https:"):
                    raise ForgeUnreachable(f"{what}: it redirects to an address without TLS")
                answer = _fetch(wire, address, {})
        except requests.exceptions.RequestException as error:
            raise ForgeUnreachable(f"{what}: {http.failure_text(error)}") from error
        return answer.content.decode("utf-8", "replace") if answer.status_code == 200 else ""


class _Unfollowed(http.OneHost):
    """An HTTP session that follows no redirect; `_job_log` follows the redirect itself, without the token."""

    def rebuild_auth(self, prepared_request: requests.PreparedRequest, response: requests.Response) -> None:
        """Does nothing: `requests` calls this method to prepare the next request of a redirect, also if that request is
        not sent."""


def _fetch(wire: GitHubWire, address: str, headers: dict[str, str]) -> requests.Response:
    with _Unfollowed(address) as session:
        ca_file = wire.ca_file()
        return session.get(
            address,
            headers={"User-Agent": "makimono", **headers},
            timeout=TIMEOUT,
            allow_redirects=False,
            verify=str(ca_file) if ca_file else True,
        )


def _state(run: dict[str, Any]) -> CheckState:
    """The state of a check run, a workflow run or a job; in GitHub's answer each has a status, and after its end a
    conclusion."""
    if run.get("status") != "completed":
        return "pending"
    conclusion = run.get("conclusion")
    if conclusion in FAILED:
        return "failed"
    return "passed" if conclusion == "success" else "neutral"


def unread_of(reader: CheckReader, branch: str) -> tuple[str, ...]:
    """Sentences about the checks of a branch that the token may not read, for `doctor`; none if GitHub answers another
    error."""
    try:
        return reader.read(branch).unread
    except ForgeError:
        return ()  # `doctor` omits an error of GitHub, since the polls report it
