"""Pipelines, jobs, traces and commit statuses of our loopback GitLab (`gitlab_pipelines.py`)."""

from __future__ import annotations

from urllib.parse import parse_qsl

from forges.gitlab_call import Call
from forges.gitlab_errors import Refused, forbidden, missing
from forges.gitlab_state import REPORTER


class PipelineCalls(Call):
    """A part of `gitlab_routes.Routed`."""

    def ci_project(self, name):
        """The project; 403 where its CI is off or the account may not see pipelines (docs.gitlab.com/user/permissions)."""
        project = self.find_project(name)
        if not project.get("builds_on", True) or project["members"].get(self.who["id"], 0) < REPORTER:
            raise forbidden()
        return project

    def pipeline_shape(self, one, *, whole=False):
        project = one["project"]
        status = self.server.pipeline_status(one)
        shown = {
            "id": one["id"],
            "iid": one["iid"],
            "project_id": project["id"],
            "sha": one["sha"],
            "ref": one["ref"],
            "status": status,
            "source": one["source"],
            "created_at": one["created_at"],
            "updated_at": one["updated_at"],
            "web_url": f"{self.server.url}/{project['path']}/-/pipelines/{one['id']}",
            "name": None,
        }
        if not whole:
            return shown
        over = status in ("success", "failed", "canceled", "skipped")
        return shown | {
            "before_sha": "0" * 40,
            "tag": False,
            "yaml_errors": None,
            "user": self.basic(self.who),
            "started_at": one["created_at"],
            "finished_at": one["updated_at"] if over else None,
            "committed_at": None,
            "duration": 1 if over else None,
            "queued_duration": 0,
            "coverage": None,
            "archived": False,
            "detailed_status": {"icon": f"status_{status}", "text": status, "label": status, "group": status},
        }

    def job_shape(self, pipeline, job):
        project = pipeline["project"]
        return {
            "id": job["id"],
            "status": job["status"],
            "stage": job["stage"],
            "name": job["name"],
            "ref": pipeline["ref"],
            "tag": False,
            "coverage": None,
            "allow_failure": job["allow_failure"],
            "created_at": job["created_at"],
            "started_at": job["created_at"],
            "finished_at": job["finished_at"],
            "erased_at": None,
            "duration": None,
            "queued_duration": None,
            "user": None,
            "commit": {"id": pipeline["sha"], "short_id": pipeline["sha"][:8], "title": "A change"},
            "pipeline": {"id": pipeline["id"], "project_id": project["id"], "ref": pipeline["ref"]}
            | {"sha": pipeline["sha"], "status": self.server.pipeline_status(pipeline)},
            "web_url": f"{self.server.url}/{project['path']}/-/jobs/{job['id']}",
            "artifacts": [],
            "runner": None,
            "artifacts_expire_at": None,
            "archived": False,
            "tag_list": [],
        } | ({"failure_reason": "script_failure"} if job["status"] == "failed" else {})

    def pipelines(self, name):
        """docs.gitlab.com/api/pipelines, "List project pipelines": newest first."""
        self.take("sha", "ref", "status", "source", "scope", "updated_after")
        found = [
            one
            for one in self.ci_project(name).get("pipelines", {}).values()
            if all(self.query.get(key, one[key]) == one[key] for key in ("sha", "ref", "source"))
            and self.query.get("status", self.server.pipeline_status(one)) == self.server.pipeline_status(one)
        ]
        found.sort(key=lambda one: one["id"], reverse=self.query.get("sort", "desc") == "desc")
        return self.paged(found, self.pipeline_shape)

    def merge_pipelines(self, name, number):
        """docs.gitlab.com/api/merge_requests, "List merge request pipelines": of each commit that was its head."""
        item = self.find_item(name, "merge_requests", number)
        self.ci_project(name)
        self.take()
        heads = {one["head_commit_sha"] for one in item["versions"]}
        refs = (item["source_branch"], f"refs/merge-requests/{item['iid']}/head")
        found = [
            one for one in item["project"].get("pipelines", {}).values() if one["sha"] in heads and one["ref"] in refs
        ]
        return self.paged(found[::-1], self.pipeline_shape)

    def _pipeline(self, name, number):
        found = self.ci_project(name).get("pipelines", {}).get(int(number))
        if found is None:
            raise missing("Pipeline")
        return found

    def one_pipeline(self, name, number):
        return 200, {}, self.pipeline_shape(self._pipeline(name, number), whole=True)

    def jobs(self, name, number):
        """docs.gitlab.com/api/jobs, "List all jobs for a pipeline": newest first."""
        pipeline = self._pipeline(name, number)
        self.take("include_retried", "scope", "scope[]")
        scopes = [value for key, value in parse_qsl(self.record["raw_query"]) if key in ("scope", "scope[]")]
        found = [
            one
            for one in pipeline["jobs"]
            if not one["external"]
            and (not one["retried"] or self.query.get("include_retried") == "true")
            and (not scopes or one["status"] in scopes)
        ]
        return self.paged(found[::-1], lambda one: self.job_shape(pipeline, one))

    def _job(self, name, number):
        for pipeline in self.ci_project(name).get("pipelines", {}).values():
            for job in pipeline["jobs"]:
                if job["id"] == int(number) and not job["external"]:
                    return pipeline, job
        raise missing()

    def one_job(self, name, number):
        return 200, {}, self.job_shape(*self._job(name, number))

    def trace(self, name, number):
        """docs.gitlab.com/api/jobs, "Get a log file": plain text, empty for a job without one."""
        _, job = self._job(name, number)
        return 200, {"Content-Type": "text/plain; charset=utf-8"}, job["trace"].encode()

    def commit_statuses(self, name, sha):
        """docs.gitlab.com/api/commits, "List commit statuses": jobs, and what external services have set."""
        project = self.ci_project(name)
        self.take("ref", "stage", "name", "pipeline_id", "all")
        every = self.query.get("all") == "true"
        found = [
            (pipeline, job)
            for pipeline in project.get("pipelines", {}).values()
            for job in pipeline["jobs"]
            if pipeline["sha"] == sha and (every or not job["retried"])
        ]
        if not found and len(sha) != 40:
            raise Refused(404, {"message": "404 Commit Not Found"})

        def shape(entry):
            pipeline, job = entry
            return {
                "id": job["id"],
                "sha": sha,
                "ref": pipeline["ref"],
                "status": job["status"],
                "name": job["name"],
                "target_url": f"{self.server.url}/{project['path']}/-/jobs/{job['id']}",
                "description": None,
                "created_at": job["created_at"],
                "started_at": job["created_at"],
                "finished_at": job["finished_at"],
                "allow_failure": job["allow_failure"],
                "coverage": None,
                "pipeline_id": pipeline["id"],
                "author": self.basic(self.who),
            }

        return self.paged(found, shape)
