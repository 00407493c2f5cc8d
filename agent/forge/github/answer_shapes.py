"""Shapes of the parts of GitHub's answers that the adapter reads (see `forge/answer_reader.py`).

The shapes follow the descriptions of GitHub's REST API, version 2022-11-28, and its GraphQL schema. In a GitHub answer
a deleted account is `null`.
"""

from __future__ import annotations

from agent.forge.answer_reader import ANY, TIME, Shapes

USER = {"login?": str, "type?": str}
LABEL = {"name": str}
PROJECT = {
    "full_name": str,
    "clone_url?": str,
    "default_branch?": str,
    "archived?": ANY,
    "has_issues?": ANY,
    "permissions?": {"push?": bool},
}
ISSUE = {
    "number": int,
    "title?": str,
    "body?": str,
    "state": str,
    "user?": USER,
    "labels?": [(str, {"name?": str})],
    "assignees?": [USER],
    "pull_request?": ANY,
    "repository_url?": str,
    "html_url?": str,
    "created_at?": TIME,
    "updated_at": TIME,
}
PLACED = ISSUE | {"repository_url": str}
COMMENT = {
    "id": int,
    "user?": USER,
    "body?": str,
    "created_at?": TIME,
    "submitted_at?": TIME,
    "updated_at?": TIME,
    "state?": str,
    "path?": str,
    "line?": int,
    "original_line?": int,
    "start_line?": int,
    "original_start_line?": int,
    "side?": str,
    "start_side?": str,
    "diff_hunk?": str,
    "in_reply_to_id?": int,
    "commit_id?": str,
    "node_id?": str,
    "html_url?": str,
}
PUSH = {"ref?": str, "before?": str, "after?": str, "timestamp": TIME}
EVENT = {
    "id": int,
    "event?": str,
    "label?": {"name?": str},
    "actor?": USER,
    "assignee?": USER,
    "assigner?": USER,
    "created_at?": TIME,
}
PULL = {
    "number": int,
    "html_url": str,
    "title": str,
    "body?": str,
    "state": str,
    "draft?": ANY,
    "merged?": ANY,
    "merged_at?": ANY,
    "node_id?": str,
    "created_at?": TIME,
    "head": {"ref": str, "sha?": str, "repo?": {"full_name?": str, "pushed_at?": TIME}},
    "base": {"ref": str},
}
MADE = {
    "sha": str,
    "verification": {"verified": bool, "reason": str, "signature?": str, "payload?": str},
}
RUN = {
    "id": int,
    "name?": str,
    "status?": str,
    "conclusion?": str,
    "app?": {"slug?": str},
    "output?": {"title?": str, "summary?": str, "text?": str},
}
STATUS = {"context": str, "state": str, "description?": str}
NOTE = {"path?": str, "start_line?": int, "message?": str}
EDIT = {"editedAt?": TIME, "editor?": USER}
GRAPH = {
    "errors?": [{"type?": ANY, "message?": ANY, "path?": ANY}],
    "data?": {
        "convertPullRequestToDraft?": {"pullRequest": {"isDraft": bool}},
        "markPullRequestReadyForReview?": {"pullRequest": {"isDraft": bool}},
        "updatePullRequest?": {"pullRequest": {"title": str, "body": str}},
        "requestReviews?": ANY,
        "addReaction?": {"reaction?": ANY},
        "repository?": {"issueOrPullRequest?": {"userContentEdits?": {"nodes?": [(EDIT, type(None))]}}},
    },
}

_REPO = r"/(?:repos/[^/]+/[^/]+|repositories/[0-9]+)"
_NUMBER = "/[0-9]+"

SHAPES = Shapes.from_rows(
    ("GET", "/user", {"login": str}),
    ("GET", "/users/[^/]+", {"login": str}),
    ("GET", "/rate_limit", ANY),
    ("GET", "/app", {"slug": str}),
    ("GET", "/(?:users|orgs)/[^/]+/installation", {"id": int}),
    ("POST", f"/app/installations{_NUMBER}/access_tokens", {"token": str, "expires_at": TIME, "permissions?": dict}),
    ("POST", ".*/graphql", GRAPH),
    ("GET", "/search/issues", [PLACED]),
    ("GET", _REPO, PROJECT),
    ("GET", f"{_REPO}/collaborators/[^/]+/permission", {"permission?": str, "role_name?": str}),
    ("GET", f"{_REPO}/issues", [ISSUE]),
    ("GET", f"{_REPO}/issues{_NUMBER}", PLACED),
    ("GET", f"{_REPO}/issues{_NUMBER}/comments", [COMMENT]),
    ("POST", f"{_REPO}/issues{_NUMBER}/comments", COMMENT),
    ("GET|PATCH", f"{_REPO}/issues/comments{_NUMBER}", COMMENT),
    ("GET|POST", f"{_REPO}/issues{_NUMBER}/labels", [LABEL]),
    ("GET", f"{_REPO}/issues{_NUMBER}/events", [EVENT]),
    ("PATCH", f"{_REPO}/labels/[^/]+", ANY),
    ("GET", f"{_REPO}/labels", [LABEL]),
    ("GET", "/user/repos", [PROJECT]),
    ("GET", "/installation/repositories", {"repositories": [PROJECT]}),
    ("GET", f"{_REPO}/pulls", [PULL]),
    ("POST", f"{_REPO}/pulls", PULL),
    ("GET|PATCH", f"{_REPO}/pulls{_NUMBER}", PULL),
    ("GET", f"{_REPO}/pulls{_NUMBER}/(?:comments|reviews)", [COMMENT]),
    ("POST", f"{_REPO}/pulls{_NUMBER}/comments{_NUMBER}/replies", COMMENT),
    ("POST", f"{_REPO}/pulls{_NUMBER}/requested_reviewers", ANY),
    ("POST", f"{_REPO}/(?:issues|issues/comments|pulls/comments){_NUMBER}/reactions", ANY),
    ("GET", f"{_REPO}/activity", [PUSH]),
    ("POST", f"{_REPO}/git/trees", {"sha": str}),
    ("POST", f"{_REPO}/git/commits", MADE),
    ("GET", f"{_REPO}/commits", ANY),
    ("GET", f"{_REPO}/commits/[^/]+/check-runs", [RUN]),
    ("GET", f"{_REPO}/commits/[^/]+/status", [STATUS]),
    ("GET", f"{_REPO}/check-runs{_NUMBER}/annotations", [NOTE]),
    ("GET", f"{_REPO}/actions/runs", [RUN]),
    ("GET", f"{_REPO}/actions/runs{_NUMBER}/jobs", [RUN]),
    ("DELETE", ".*", ANY),
)
