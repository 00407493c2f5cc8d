"""Shapes of the parts of Forgejo's answers that the adapter reads (see `forge/answer_reader.py`).

The shapes follow Forgejo's API document (`/swagger.v1.json` of a server); the API document of Gitea is similar.  A
Forgejo server sends every documented field of an object, with null for a value that is absent.
"""

from __future__ import annotations

from agent.forge.answer_reader import ANY, TIME, Shapes

USER = {"id": int, "login": str}
LABEL = {"id": int, "name": str}
PROJECT = {
    "full_name": str,
    "default_branch?": str,
    "archived?": ANY,
    "has_issues?": ANY,
    "has_pull_requests?": ANY,
    "permissions?": {"push?": bool, "admin?": bool},
}
ISSUE = {
    "number": int,
    "title": str,
    "body?": str,
    "state": str,
    "user?": USER,
    "labels?": [LABEL],
    "assignees?": [USER],
    "pull_request?": dict,
    "repository?": {"full_name": str},
    "html_url?": str,
    "created_at?": TIME,
    "updated_at": TIME,
}
FOUND = ISSUE | {"repository": {"full_name": str}}
COMMENT = {"id": int, "user?": USER, "body?": str, "html_url?": str, "created_at": TIME, "updated_at": TIME}
EVENT = COMMENT | {
    "type": str,
    "label?": LABEL,
    "assignee?": USER,
    "removed_assignee?": bool,
    "old_title?": str,
    "ref_issue?": {"number": int, "user?": USER, "pull_request?": dict, "repository?": {"full_name": str}},
}
LINE = COMMENT | {"diff_hunk?": str, "path?": str, "position?": int, "original_position?": int, "resolver?": USER}
REVIEW = {
    "id": int,
    "user?": USER,
    "body?": str,
    "html_url?": str,
    "state?": str,
    "commit_id?": str,
    "comments_count?": int,
    "submitted_at": TIME,
    "updated_at?": TIME,
}
SIDE = {"label": str, "sha?": str, "repo_id?": int, "repo?": {"full_name?": str}}
PULL = {
    "number": int,
    "html_url": str,
    "title": str,
    "body?": str,
    "state": str,
    "draft?": bool,
    "merged?": bool,
    "user?": USER,
    "created_at?": TIME,
    "head": SIDE,
    "base": SIDE,
}
STATUS = {"context": str, "status": str, "description?": str, "target_url?": str}
TEAM = {"permission?": str, "units_map?": dict}

_REPO = "/repos/[^/]+/[^/]+"
_NUMBER = "/[0-9]+"

SHAPES = Shapes.from_rows(
    ("GET", "/user", USER),
    ("GET", "/version", {"version": str}),
    ("GET", "/user/repos", [PROJECT]),
    ("GET", "/repos/issues/search", [FOUND]),
    ("GET", _REPO, PROJECT),
    ("GET", f"{_REPO}/assignees", [USER]),
    ("GET", f"{_REPO}/teams", [TEAM]),
    ("GET", f"{_REPO}/collaborators/[^/]+/permission", {"permission": str}),
    ("GET|POST", f"{_REPO}/issues{_NUMBER}/labels", [LABEL]),
    ("GET", f"{_REPO}/labels", [LABEL]),
    ("POST", f"{_REPO}/labels", LABEL),
    ("GET", f"{_REPO}/issues", [ISSUE]),
    ("GET", f"{_REPO}/issues{_NUMBER}", ISSUE),
    ("GET", f"{_REPO}/issues{_NUMBER}/comments", [COMMENT]),
    ("POST", f"{_REPO}/issues{_NUMBER}/comments", COMMENT),
    ("GET", f"{_REPO}/issues{_NUMBER}/timeline", [EVENT]),
    ("GET|PATCH", f"{_REPO}/issues/comments{_NUMBER}", COMMENT),
    ("GET", f"{_REPO}/pulls", [PULL]),
    ("POST", f"{_REPO}/pulls", PULL),
    ("GET|PATCH", f"{_REPO}/pulls{_NUMBER}", PULL),
    ("GET", f"{_REPO}/pulls{_NUMBER}/reviews", [REVIEW]),
    ("GET", f"{_REPO}/pulls{_NUMBER}/reviews{_NUMBER}/comments", [LINE]),
    ("POST", f"{_REPO}/pulls{_NUMBER}/requested_reviewers", ANY),
    ("POST", f"{_REPO}/issues(?:/comments)?{_NUMBER}/reactions", ANY),
    ("GET", f"{_REPO}/commits/[^/]+/status", {"statuses?": [STATUS]}),
    ("DELETE", ".*", ANY),
)
