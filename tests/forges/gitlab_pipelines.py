"""Pipelines and jobs of our loopback GitLab: what runners and services do, and how they add up.

- a job that failed with `allow_failure` does not make its pipeline fail (docs.gitlab.com/ci/yaml/#allow_failure)
- a retried job stays in its pipeline, and is in no list without `include_retried` (docs.gitlab.com/api/jobs)
- a status that an external service sets is a part of a pipeline, and no job of it
  (docs.gitlab.com/api/commits/#commit-status)
- the newest pipeline of the head is the `head_pipeline` of a merge request (docs.gitlab.com/api/merge_requests)
"""

from __future__ import annotations

ENDED = ("success", "failed", "canceled", "skipped", "manual")


class Pipelines:
    """A part of `gitlab_state.State`."""

    def pipeline(self, project, sha, ref, *, source="push"):
        """A pipeline for a commit, without jobs."""
        with self.lock:
            number, now = self._id(), self.now()
            made = {"id": number, "sha": sha, "ref": ref, "source": source, "jobs": [], "created_at": now}
            made |= {"iid": len(project.setdefault("pipelines", {})) + 1, "updated_at": now, "project": project}
            project["pipelines"][number] = made
            return made

    def job(self, pipeline, name, status="running", *, trace="", stage="test", allow_failure=False, external=False):
        """A job of a pipeline; one of the same name is retried by it.  `external`: the status of a service."""
        with self.lock:
            for one in pipeline["jobs"]:
                one["retried"] = one["retried"] or one["name"] == name
            made = {"id": self._id(), "name": name, "stage": stage, "retried": False, "external": external}
            made |= {"allow_failure": allow_failure, "created_at": self.now(), "trace": "", "status": "created"}
            pipeline["jobs"].append(made)
            self.end_job(pipeline, made, status, trace=trace)
            return made

    def end_job(self, pipeline, job, status, *, trace=""):
        """A job changes to `status`."""
        with self.lock:
            job.update(status=status, trace=trace, finished_at=self.now() if status in ENDED else None)
            pipeline["updated_at"] = self.now()
            self.pipeline_changed(pipeline)

    def pipeline_status(self, pipeline):
        """The status of a pipeline from those of its jobs."""
        jobs = [one for one in pipeline["jobs"] if not one["retried"]]
        states = {one["status"] for one in jobs if not (one["allow_failure"] and one["status"] == "failed")}
        if not jobs:
            return "created"
        for state in ("running", "pending", "created"):
            if state in states:
                return "running" if state != "created" or states & set(ENDED) else state
        for state in ("failed", "canceled", "manual"):
            if state in states:
                return state
        return "skipped" if states == {"skipped"} else "success"

    def head_pipeline(self, item):
        """The newest pipeline of the head of a merge request; None without one."""
        found = [one for one in item["project"].get("pipelines", {}).values() if one["sha"] == item["sha"]]
        return found[-1] if found else None
