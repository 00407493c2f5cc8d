"""Check runs, logs and commit statuses on our loopback GitHub: one method for each request (`github_checks.py`).

A method takes (repo, path parts, query, body, login, path) and returns (status, data, headers).
"""

from __future__ import annotations

import re

from forges.github_checks import ACTIONS, RUN_OFFSET
from forges.github_errors import Refused, invalid, missing
from forges.github_shapes import make

FAR_OFF = "Resource not accessible by personal access token"


class CheckRoutes:
    """A part of `github_server.GitHubServer`; `withheld` are the permissions that its tokens lack."""

    def _permit(self, name):
        if name in self.withheld:
            raise Refused(403, FAR_OFF)

    def _commit(self, repo, ref):
        """The commit of a ref: a hash, a branch, `heads/…` (docs.github.com/en/rest/checks/runs)."""
        if re.fullmatch(r"[0-9a-f]{40}", ref):
            if repo.git is None or repo.has_commit(ref):
                return ref
        elif repo.has_branch(ref.removeprefix("heads/")):
            return repo.commit_of(ref.removeprefix("heads/"))
        raise Refused(422, f"No commit found for SHA: {ref}", [])

    def _list_runs(self, repo, parts, query, _body, _login, path):
        self._permit("checks")
        kind = query.get("filter", "latest")
        if kind not in ("latest", "all"):
            raise invalid("CheckRun", "filter")
        found = [
            one
            for one in repo.checks.runs_of(self._commit(repo, parts[0]), kind)
            if query.get("check_name", one["name"]) == one["name"]
            and query.get("status", "completed" if one["conclusion"] else "in_progress")
            == ("completed" if one["conclusion"] else "in_progress")
        ]
        items, more = self._page(path, query, found)
        return 200, {"total_count": len(found), "check_runs": [repo.checks.show_run(one) for one in items]}, more

    def _find_run(self, repo, number):
        if int(number) not in repo.checks.runs:
            raise missing()
        return repo.checks.runs[int(number)]

    def _get_run(self, repo, parts, _query, _body, _login, _path):
        self._permit("checks")
        return 200, repo.checks.show_run(self._find_run(repo, parts[0])), {}

    def _list_annotations(self, repo, parts, query, _body, _login, path):
        self._permit("checks")
        run = self._find_run(repo, parts[0])
        items, more = self._page(path, query, run["annotations"])
        return 200, [repo.checks.show_annotation(run, one) for one in items], more

    def _job_log(self, repo, parts, _query, _body, _login, _path):
        self._permit("actions")
        number = int(parts[0])
        if number not in repo.checks.logs:
            raise missing()
        if repo.checks.logs[number] is None:  # logs are removed after 90 days
            raise Refused(410, "Server Error")
        return 302, None, {"Location": self.blobs.address(repo.checks.logs[number])}

    def _combined(self, repo, parts, query, _body, _login, path):
        self._permit("statuses")
        sha = self._commit(repo, parts[0])
        found = repo.checks.statuses_of(sha)
        items, more = self._page(path, query, found)
        shown = make(
            "combined-commit-status",
            state=repo.checks.combined(sha),
            sha=sha,
            total_count=len(found),
            statuses=[repo.checks.show_status(one) for one in items],
            repository=self.state.show_repo(repo, "minimal-repository"),
            commit_url=f"{repo.url}/commits/{sha}",
            url=f"{repo.url}/commits/{sha}/status",
        )
        return 200, shown, more

    def _list_statuses(self, repo, parts, query, _body, _login, path):
        self._permit("statuses")
        sha = self._commit(repo, parts[0])
        found = [one for one in reversed(repo.checks.statuses) if one["sha"] == sha]
        items, more = self._page(path, query, found)
        return 200, [repo.checks.show_status(one, self.state.user(one["user"])) for one in items], more

    def _list_workflow_runs(self, repo, _parts, query, _body, _login, path):
        """docs.github.com/en/rest/actions/workflow-runs, "List workflow runs for a repository": with the permission
        Actions.  On this server each check run of Actions is the only job of a run of its own."""
        self._permit("actions")
        if unknown := set(query) - {"head_sha", "per_page", "page", "status", "branch", "event"}:
            raise Refused(422, f"{sorted(unknown)} is not known to this test server", [])
        runs = [one for one in repo.checks.runs.values() if one["app"] == ACTIONS]
        found = [one for one in reversed(runs) if query.get("head_sha", one["sha"]) == one["sha"]]
        items, more = self._page(path, query, found)
        shown = [repo.checks.show_workflow_run(one) for one in items]
        return 200, {"total_count": len(found), "workflow_runs": shown}, more

    def _list_jobs(self, repo, parts, query, _body, _login, path):
        """docs.github.com/en/rest/actions/workflow-jobs, "List jobs for a workflow run"."""
        self._permit("actions")
        run = self._find_run(repo, int(parts[0]) - RUN_OFFSET)
        items, more = self._page(path, query, [run])
        return 200, {"total_count": 1, "jobs": [repo.checks.show_job(one) for one in items]}, more

    check_routes = (
        ("GET", r"/commits/(.+)/check-runs", _list_runs),
        ("GET", r"/commits/(.+)/status", _combined),
        ("GET", r"/commits/(.+)/statuses", _list_statuses),
        ("GET", r"/check-runs/(\d+)", _get_run),
        ("GET", r"/check-runs/(\d+)/annotations", _list_annotations),
        ("GET", "/actions/runs", _list_workflow_runs),
        ("GET", r"/actions/runs/(\d+)/jobs", _list_jobs),
        ("GET", r"/actions/jobs/(\d+)/logs", _job_log),
    )
