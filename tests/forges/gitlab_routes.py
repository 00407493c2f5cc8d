"""Which method answers which request to our loopback GitLab."""

from __future__ import annotations

from forges.gitlab_item_calls import ItemCalls
from forges.gitlab_note_calls import NoteCalls
from forges.gitlab_pipeline_calls import PipelineCalls
from forges.gitlab_project_calls import ProjectCalls
from forges.gitlab_talk_calls import TalkCalls


class Routed(ProjectCalls, ItemCalls, NoteCalls, PipelineCalls, TalkCalls):
    """One request of an account; its methods return (status, headers, body)."""


_P = "/projects/([^/]+)"
_KIND = "(issues|merge_requests)"
ROUTES = [
    ("GET", "/version", "version"),
    ("GET", "/user", "me"),
    ("GET", "/personal_access_tokens/self", "token"),
    ("GET", r"/users/(\d+)", "person"),
    ("GET", "/projects", "all_projects"),
    ("GET", _P, "one_project"),
    ("GET", rf"{_P}/members/all/(\d+)", "member"),
    ("GET", f"/{_KIND}", "of_all"),
    ("GET", f"/groups/([^/]+)/{_KIND}", "of_group"),
    ("GET", f"{_P}/{_KIND}", "of_project"),
    ("POST", f"{_P}/issues", "open_issue"),
    ("POST", f"{_P}/merge_requests", "open_merge"),
    ("GET", f"{_P}/issues/([^/]+)/related_merge_requests", "related"),
    ("GET", f"{_P}/{_KIND}/([^/]+)", "one"),
    ("PUT", f"{_P}/{_KIND}/([^/]+)", "change"),
    ("GET", f"{_P}/merge_requests/([^/]+)/versions", "versions"),
    ("GET", f"{_P}/{_KIND}/([^/]+)/notes", "notes"),
    ("POST", f"{_P}/{_KIND}/([^/]+)/notes", "write_note"),
    ("GET", rf"{_P}/{_KIND}/([^/]+)/notes/(\d+)", "one_note"),
    ("PUT", rf"{_P}/{_KIND}/([^/]+)/notes/(\d+)", "edit_note"),
    ("DELETE", rf"{_P}/{_KIND}/([^/]+)/notes/(\d+)", "remove_note"),
    ("GET", f"{_P}/{_KIND}/([^/]+)/discussions", "discussions"),
    ("POST", f"{_P}/{_KIND}/([^/]+)/discussions", "start_discussion"),
    ("GET", f"{_P}/{_KIND}/([^/]+)/discussions/([^/]+)", "one_discussion"),
    ("PUT", f"{_P}/{_KIND}/([^/]+)/discussions/([^/]+)", "resolve_discussion"),
    ("POST", f"{_P}/{_KIND}/([^/]+)/discussions/([^/]+)/notes", "answer_discussion"),
    ("GET", f"{_P}/{_KIND}/([^/]+)/award_emoji", "awards"),
    ("POST", f"{_P}/{_KIND}/([^/]+)/award_emoji", "award"),
    ("DELETE", rf"{_P}/{_KIND}/([^/]+)/award_emoji/(\d+)", "unaward"),
    ("GET", rf"{_P}/{_KIND}/([^/]+)/notes/(\d+)/award_emoji", "awards"),
    ("POST", rf"{_P}/{_KIND}/([^/]+)/notes/(\d+)/award_emoji", "award"),
    ("DELETE", rf"{_P}/{_KIND}/([^/]+)/notes/(\d+)/award_emoji/(\d+)", "unaward"),
    ("GET", f"{_P}/{_KIND}/([^/]+)/resource_label_events", "label_events"),
    ("GET", f"{_P}/labels", "labels"),
    ("GET", f"{_P}/repository/branches/([^/]+)", "branch"),
    ("GET", f"{_P}/protected_branches", "protected"),
    ("GET", f"{_P}/pipelines", "pipelines"),
    ("GET", f"{_P}/merge_requests/([^/]+)/pipelines", "merge_pipelines"),
    ("GET", rf"{_P}/pipelines/(\d+)", "one_pipeline"),
    ("GET", rf"{_P}/pipelines/(\d+)/jobs", "jobs"),
    ("GET", rf"{_P}/jobs/(\d+)", "one_job"),
    ("GET", rf"{_P}/jobs/(\d+)/trace", "trace"),
    ("GET", f"{_P}/repository/commits/([^/]+)/statuses", "commit_statuses"),
]
