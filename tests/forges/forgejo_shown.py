"""The JSON forms of our loopback Forgejo's data, with all fields of the document's types (`forgejo_document.py`)."""

from __future__ import annotations

from forges.forgejo_document import make
from forges.forgejo_state import is_draft, shown_time

GHOST = "Ghost"


class Shown:
    """`state` is a `forgejo_state.State`; `address` is the server's own idea of its address (`ROOT_URL`)."""

    def __init__(self, state, address):
        self.state = state
        self.address = address

    def user(self, login):
        """models/user: a removed account is `Ghost` with the number -1, the runner's account is -2."""
        if login is None:
            return make("User", id=-1, login=GHOST)
        number = -2 if login.endswith("-actions") else self.state.user_id(login)
        return make("User", id=number, login=login, html_url=f"{self.address}/{login}", visibility="public")

    def label(self, label):
        return make("Label", **label, url=f"{self.address}/api/v1/labels/{label['id']}")

    def labels(self, repo, issue):
        """By name, as models/issues/label.go sorts them."""
        found = sorted((repo.any_label(number) for number in issue["labels"]), key=lambda one: one["name"])
        return [self.label(one) for one in found]

    def repository(self, repo, login):
        level = repo.level(login)
        may = {
            "admin": level in ("admin", "owner"),
            "push": level in ("write", "admin", "owner"),
            "pull": level != "none",
        }
        return make(
            "Repository",
            id=repo.id,
            name=repo.name,
            full_name=repo.full_name,
            owner=self.user(repo.owner),
            private=repo.private,
            url=f"{self.address}/api/v1/repos/{repo.full_name}",
            html_url=f"{self.address}/{repo.full_name}",
            clone_url=f"{self.address}/{repo.full_name}.git",
            default_branch=repo.default_branch,
            archived=repo.archived,
            has_issues=repo.has_issues,
            has_pull_requests=repo.has_pulls,
            permissions=make("Permission", **may),
        )

    def issue(self, repo, issue):
        kind = "pulls" if issue["pull"] else "issues"
        address = f"{self.address}/{repo.full_name}/{kind}/{issue['number']}"
        meta = {"id": repo.id, "name": repo.name, "owner": repo.owner, "full_name": repo.full_name}
        people = [self.user(login) for login in issue["assignees"]]
        pull = None
        if issue["pull"]:
            merged = issue["pull"]["merged_at"]
            pull = {"merged": merged is not None, "merged_at": shown_time(merged), "html_url": address}
            pull = make("PullRequestMeta", draft=is_draft(issue["title"]), **pull)
        return make(
            "Issue",
            id=issue["id"],
            number=issue["number"],
            url=f"{self.address}/api/v1/repos/{repo.full_name}/issues/{issue['number']}",
            html_url=address,
            user=self.user(issue["user"]),
            title=issue["title"],
            body=issue["body"],
            assets=[],
            labels=self.labels(repo, issue),
            assignee=people[0] if people else None,
            assignees=people or None,
            state=issue["state"],
            is_locked=issue["is_locked"],
            comments=sum(one["type"] == "comment" for one in issue["timeline"]),
            created_at=shown_time(issue["created_at"]),
            updated_at=shown_time(issue["updated_at"]),
            pull_request=pull,
            repository=make("RepositoryMeta", **meta),
        )

    def comment(self, repo, one):
        return make(
            "Comment",
            id=one["id"],
            body=one["body"],
            user=self.user(one["user"]),
            assets=[],
            created_at=shown_time(one["created_at"]),
            updated_at=shown_time(one["updated_at"]),
            html_url=f"{self.address}/{repo.full_name}/issues/{one['issue']}#issuecomment-{one['id']}",
            issue_url=f"{self.address}/{repo.full_name}/issues/{one['issue']}",
        )

    def event(self, repo, one):
        label, assignee = one.get("label"), one.get("assignee")
        return make(
            "TimelineComment",
            id=one["id"],
            type=one["type"],
            body=one["body"],
            user=self.user(one["user"]),
            created_at=shown_time(one["created_at"]),
            updated_at=shown_time(one["updated_at"]),
            issue_url=f"{self.address}/{repo.full_name}/issues/{one['issue']}",
            label=None if label is None else self.label(label),
            assignee=None if assignee is None else self.user(assignee),
            removed_assignee=bool(one.get("removed_assignee")),
            old_title=one.get("old_title", ""),
            new_title=one.get("new_title", ""),
            review_id=one.get("review", 0),
            ref_action="none",
            ref_issue=self.issue(repo, one["ref_issue"]) if "ref_issue" in one else None,
        )

    def pull(self, repo, issue, login):
        """services/convert/pull.go: `ref` of the head is `refs/pull/N/head` once its branch is gone, `label` is always
        the branch; `repo` is null once the fork is gone."""
        pull, number = issue["pull"], issue["number"]
        source = pull["fork"] or repo
        there = not source.gone and source.has_branch(pull["head"])
        head = {"label": pull["head"], "ref": pull["head"] if there else f"refs/pull/{number}/head"}
        shown = None if source.gone else self.repository(source, login)
        base = {"label": pull["base"], "ref": pull["base"], "repo": self.repository(repo, login)}
        of_issue = self.issue(repo, issue)
        same = (
            "id",
            "number",
            "user",
            "title",
            "body",
            "labels",
            "assignee",
            "assignees",
            "state",
            "comments",
            "is_locked",
        )
        return make(
            "PullRequest",
            **{name: of_issue[name] for name in (*same, "created_at", "updated_at", "html_url")},
            url=of_issue["html_url"],
            draft=is_draft(issue["title"]),
            merged=pull["merged_at"] is not None,
            merged_at=shown_time(pull["merged_at"]),
            mergeable=True,
            head=make("PRBranchInfo", **head, sha=pull["sha"], repo_id=-1 if source.gone else source.id, repo=shown),
            base=make("PRBranchInfo", **base, sha=repo.commit_of(pull["base"]), repo_id=repo.id),
            requested_reviewers=[self.user(name) for name in pull["reviewers"]],
            requested_reviewers_teams=[],
        )

    def review(self, repo, one):
        return make(
            "PullReview",
            id=one["id"],
            body=one["body"],
            user=self.user(one["user"]),
            state=one["state"],
            commit_id=one["commit_id"],
            comments_count=len(one["lines"]),
            submitted_at=shown_time(one["created_at"]),
            updated_at=shown_time(one["updated_at"]),
            pull_request_url=f"{self.address}/{repo.full_name}/pulls/{one['pull']}",
        )

    def review_comment(self, repo, one):
        """`position` is the line in the new file, `original_position` that in the old one, 0 for the other."""
        line = one["line"]
        return make(
            "PullReviewComment",
            id=one["id"],
            body=one["body"],
            user=self.user(one["user"]),
            resolver=None if one["resolver"] is None else self.user(one["resolver"]),
            path=one["path"],
            position=max(line, 0),
            original_position=max(-line, 0),
            diff_hunk="@@ -1 +1 @@\n-a\n+b",
            pull_request_review_id=one["review"],
            created_at=shown_time(one["created_at"]),
            updated_at=shown_time(one["updated_at"]),
            pull_request_url=f"{self.address}/{repo.full_name}/pulls/{one['issue']}",
        )

    def team(self, team):
        level = min(team["units"].values())
        return make("Team", id=team["id"], name=team["name"], permission=level, units_map=team["units"])
