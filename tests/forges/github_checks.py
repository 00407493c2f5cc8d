"""Check runs, their logs and commit statuses of a repository on our loopback GitHub: what Actions, Apps and other
services write, and how GitHub shows it.

- a check run belongs to a commit; a run of the same name by the same App replaces the one before in the list `latest`
  (docs.github.com/en/rest/checks/runs, "List check runs for a Git reference")
- the combined status is of the newest status of each context: failure before pending before success, pending if there
  is none (docs.github.com/en/rest/commits/statuses, "Get the combined status for a specific reference"); its statuses
  come by pages, with a Link header as for a list (GetCombinedStatus in pkg/github/client.go of kubernetes-sigs/prow
  follows it)
- the log of a job is at another host, for one minute, by an address that needs no token; it is there once the job has
  ended (docs.github.com/en/rest/actions/workflow-jobs, "Download job logs for a workflow run").  The check run of a job
  of Actions has the job's number
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from agent import clock
from forges.github_shapes import make

ACTIONS = "github-actions"
RUN_OFFSET = 500_000
BAD = ("failure", "timed_out", "cancelled", "action_required", "startup_failure")


def stamp():
    return clock.now().strftime("%Y-%m-%dT%H:%M:%SZ")


@dataclass
class Checks:
    """The checks of `repo`."""

    repo: Any
    runs: dict = field(default_factory=dict)  # id → check run
    statuses: list = field(default_factory=list)  # oldest first
    logs: dict = field(default_factory=dict)  # id of a job → its log

    # --- what services do -------------------------------------------------------------------------------------

    def run(self, sha, name, conclusion=None, *, log="", annotations=(), app=ACTIONS, title=None, summary=None):
        """A check run of a commit; without a `conclusion` it is in progress."""
        number = next(self.repo.ids)
        self.runs[number] = {
            "id": number,
            "sha": sha,
            "name": name,
            "app": app,
            "started_at": stamp(),
            "conclusion": None,
            "completed_at": None,
            "annotations": [],
            "title": title,
            "summary": summary,
        }
        if conclusion is not None:
            self.finish(number, conclusion, log=log, annotations=annotations)
        return number

    def finish(self, number, conclusion, *, log="", annotations=()):
        """The check run ends.  `annotations` are (path, line, message)."""
        run = self.runs[number]
        run.update(conclusion=conclusion, completed_at=stamp(), annotations=list(annotations))
        if run["app"] == ACTIONS:
            self.logs[number] = log
        self.repo.checks_changed(run["sha"])

    def status(self, sha, context, state, *, user="ci-service", description=None, target_url=None):
        """A service writes a commit status: error, failure, pending or success."""
        made = {"id": next(self.repo.ids), "sha": sha, "context": context, "state": state, "user": user}
        made |= {"description": description, "target_url": target_url, "created_at": stamp()}
        self.statuses.append(made)
        self.repo.checks_changed(sha)
        return made

    # --- what they add up to ----------------------------------------------------------------------------------

    def runs_of(self, sha, filter_="latest"):
        """The check runs of a commit, newest first."""
        found, seen = [], set()
        for run in sorted(self.runs.values(), key=lambda one: one["id"], reverse=True):
            if run["sha"] == sha and (filter_ == "all" or (run["app"], run["name"]) not in seen):
                seen.add((run["app"], run["name"]))
                found.append(run)
        return found

    def statuses_of(self, sha):
        """The newest status of each context."""
        return list({one["context"]: one for one in self.statuses if one["sha"] == sha}.values())

    def combined(self, sha):
        states = {one["state"] for one in self.statuses_of(sha)}
        if states & {"error", "failure"}:
            return "failure"
        return "pending" if "pending" in states or not states else "success"

    def result(self, sha):
        """ "" without any check; red, pending, green for all of a commit's checks together."""
        runs, statuses = self.runs_of(sha), self.statuses_of(sha)
        if not runs and not statuses:
            return ""
        states = {one["state"] for one in statuses}
        if states & {"error", "failure"} or any(one["conclusion"] in BAD for one in runs):
            return "red"
        return "pending" if "pending" in states or any(one["conclusion"] is None for one in runs) else "green"

    # --- how they are shown -----------------------------------------------------------------------------------

    def show_run(self, run):
        repo, number = self.repo, run["id"]
        page = f"{repo.base}/{repo.full_name}"
        details = f"{page}/actions/runs/{number + RUN_OFFSET}/job/{number}" if run["app"] == ACTIONS else f"{page}/ci"
        url = f"{repo.url}/check-runs/{number}"
        app = make("integration", id=15368, slug=run["app"], name=run["app"], node_id="A_1")
        return make(
            "check-run",
            id=number,
            node_id=f"CR_{number}",
            head_sha=run["sha"],
            name=run["name"],
            external_id="x",
            url=url,
            html_url=f"{page}/runs/{number}",
            details_url=details,
            status="completed" if run["conclusion"] else "in_progress",
            conclusion=run["conclusion"],
            started_at=run["started_at"],
            completed_at=run["completed_at"],
            check_suite={"id": number + 900_000},
            app=app,
            pull_requests=[],
            output={
                "title": run["title"],
                "summary": run["summary"],
                "text": None,
                "annotations_count": len(run["annotations"]),
                "annotations_url": f"{url}/annotations",
            },
        )

    def show_workflow_run(self, run):
        return self.show_job(run) | {
            "id": run["id"] + RUN_OFFSET,
            "name": f"workflow of {run['name']}",
            "event": "push",
            "path": ".github/workflows/ci.yml",
        }

    def show_job(self, run):
        return {
            "id": run["id"],
            "run_id": run["id"] + RUN_OFFSET,
            "head_sha": run["sha"],
            "name": run["name"],
            "status": "completed" if run["conclusion"] else "in_progress",
            "conclusion": run["conclusion"],
            "started_at": run["started_at"],
            "completed_at": run["completed_at"],
        }

    def show_annotation(self, run, place):
        path, line, message = place
        return {
            "path": path,
            "blob_href": f"{self.repo.url}/contents/{path}?ref={run['sha']}",
            "start_line": line,
            "end_line": line,
            "start_column": None,
            "end_column": None,
            "annotation_level": "failure",
            "title": None,
            "message": message,
            "raw_details": None,
        }

    def show_status(self, one, user=None):
        schema = "simple-commit-status" if user is None else "status"
        more = {} if user is None else {"creator": user}
        url = f"{self.repo.url}/statuses/{one['sha']}"
        names = ("id", "context", "state", "description", "target_url", "created_at")
        shown = {name: one[name] for name in names}
        return make(schema, **shown, updated_at=one["created_at"], url=url, avatar_url=None, **more)
