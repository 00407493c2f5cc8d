"""Shapes of the parts of GitLab's answers that the adapter reads (see `forge/answer_reader.py`).

The shapes follow the descriptions of GitLab's REST API v4.  Fields that older versions of GitLab do not send are
optional in the shapes.
"""

from __future__ import annotations

from agent.forge.answer_reader import ANY, TIME, Shapes

USER = {"id?": int, "username?": str, "bot?": ANY}
PROJECT = {
    "id": int,
    "path_with_namespace": str,
    "default_branch?": str,
    "archived?": ANY,
    "issues_enabled?": ANY,
    "issues_access_level?": str,
    "merge_requests_enabled?": ANY,
    "merge_requests_access_level?": str,
    "repository_access_level?": str,
    "visibility?": str,
    "namespace?": {"kind?": str},
    "permissions?": {
        "project_access?": {"access_level?": int},
        "group_access?": {"access_level?": int},
    },
}
ITEM = {
    "iid": int,
    "project_id": int,
    "title?": str,
    "description?": str,
    "state": str,
    "author?": USER,
    "labels?": [(str, {"name?": str})],
    "assignees?": [USER],
    "web_url?": str,
    "created_at?": TIME,
    "updated_at": TIME,
    "confidential?": ANY,
    "moved_to_id?": ANY,
}
MERGE = ITEM | {
    "source_branch": str,
    "target_branch": str,
    "source_project_id?": int,
    "sha?": str,
    "draft?": ANY,
    "work_in_progress?": ANY,
    "reviewers?": ANY,
    "head_pipeline?": {"id": int, "status": str, "sha": str},
}
PIPELINE = {"id": int, "status": str, "sha": str}
JOB = {"id": int, "name": str, "status": str, "failure_reason?": str, "description?": str}
NOTE = {
    "id": int,
    "author?": USER,
    "body?": str,
    "type?": str,
    "created_at": TIME,
    "updated_at?": TIME,
    "system?": ANY,
    "internal?": ANY,
    "confidential?": ANY,
    "resolved?": ANY,
    "position?": {
        "new_path?": str,
        "old_path?": str,
        "new_line?": int,
        "old_line?": int,
        "line_range?": {
            "start?": {"new_line?": int, "old_line?": int},
            "end?": {"new_line?": int, "old_line?": int},
        },
    },
}
EVENT = {"action?": str, "label?": {"name?": str}, "user?": USER, "created_at": TIME}

_NUMBER = "/[0-9]+"
_ONE = f"/projects{_NUMBER}"

SHAPES = Shapes.from_rows(
    ("GET", "/version", ANY),
    ("GET", "/user", {"id": int, "username": str}),
    ("GET", f"/users{_NUMBER}", {"bot?": ANY}),
    ("GET", "/personal_access_tokens/self", {"scopes?": [str], "expires_at?": TIME}),
    ("GET", "/projects", [PROJECT]),
    ("GET", "/projects/[^/]+", PROJECT),
    ("GET", ".*/labels", [{"name": str}]),
    ("GET", f"{_ONE}/members/all{_NUMBER}", {"access_level?": int}),
    ("GET", f"{_ONE}/repository/branches/[^/]+", ANY),
    ("GET", ".*/issues", [ITEM]),
    ("GET|PUT", f"{_ONE}/issues{_NUMBER}", ITEM),
    ("GET", ".*/(?:related_)?merge_requests", [MERGE]),
    ("POST", f"{_ONE}/merge_requests", MERGE),
    ("GET|PUT", f"{_ONE}/merge_requests{_NUMBER}", MERGE),
    ("GET", f"{_ONE}/merge_requests{_NUMBER}/versions", [{"head_commit_sha": str, "created_at": TIME}]),
    ("GET", f"{_ONE}/pipelines", [PIPELINE]),
    ("GET", f"{_ONE}/pipelines{_NUMBER}/jobs", [JOB]),
    ("GET", f"{_ONE}/repository/commits/[0-9a-f]+/statuses", [JOB]),
    ("GET", ".*/notes", [NOTE]),
    ("POST", ".*/notes", NOTE),
    ("GET|PUT", f".*/notes{_NUMBER}", NOTE),
    ("POST", ".*/award_emoji", ANY),
    ("GET", ".*/discussions", [{"id": str, "notes?": [NOTE]}]),
    ("PUT", ".*/discussions/[^/]+", ANY),
    ("GET", ".*/resource_label_events", [EVENT]),
    ("DELETE", ".*", ANY),
)
