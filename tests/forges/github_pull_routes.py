"""Pull requests, their reviews and review comments on our loopback GitHub: one method for each request.

A method takes (repo, path parts, query, body, login, path) and returns (status, data, headers).
"""

from __future__ import annotations

from forges import git_repository
from forges.github_errors import Refused, check_text, invalid
from forges.github_state import now


class PullRoutes:
    """A part of `github_server.GitHubServer`."""

    def _list_pulls(self, repo, _parts, query, _body, _login, path):
        found = [issue for issue in repo.issues.values() if issue["pull"]]
        if "head" in query:
            found = [
                one
                for one in found
                if f"{(one['pull']['fork'] or repo).owner}:{one['pull']['head']}".casefold() == query["head"].casefold()
            ]
        found = [one for one in found if query.get("state", "open") in (one["state"], "all")]
        found.sort(key=lambda issue: issue["number"], reverse=query.get("direction", "desc") == "desc")
        items, more = self._page(path, query, found)
        return 200, [self.state.show_pull(repo, one, "pull-request-simple") for one in items], more

    def _open_pull(self, repo, _parts, _query, body, login, _path):
        head, base = body["head"].removeprefix(f"{repo.owner}:"), body["base"]
        check_text("PullRequest", {"title": "", **body})
        for name, branch in (("base", base), ("head", head)):
            if not repo.has_branch(branch):
                raise invalid("PullRequest", name)
        if body.get("draft") and not repo.drafts:
            raise Refused(422, "Draft pull requests are not supported in this repository.", [])
        for issue in repo.issues.values():
            if issue["pull"] and issue["state"] == "open" and issue["pull"]["head"] == head:
                said = f"A pull request already exists for {repo.owner}:{head}."
                raise Refused(
                    422, "Validation Failed", [{"resource": "PullRequest", "code": "custom", "message": said}]
                )
        if repo.git is not None and git_repository.contains(repo.git, base, head):
            said = f"No commits between {base} and {head}"
            raise Refused(422, "Validation Failed", [{"resource": "PullRequest", "code": "custom", "message": said}])
        draft, sha = bool(body.get("draft")), repo.commit_of(head)
        issue = repo.pull(body["title"], body.get("body"), login, head, base, draft, sha=sha)
        return 201, self.state.show_pull(repo, issue), {}

    def _get_pull(self, repo, parts, _query, _body, _login, _path):
        return 200, self.state.show_pull(repo, self._find_pull(repo, parts[0])), {}

    def _edit_pull(self, repo, parts, _query, body, login, _path):
        issue = self._find_pull(repo, parts[0])
        check_text("PullRequest", body)
        if "state" in body and issue["pull"]["merged_at"]:
            raise invalid("PullRequest", "state")
        if body.get("state") == "open" and issue["state"] == "closed":
            if repo.git is not None and not (
                repo.has_branch(issue["pull"]["head"]) and repo.has_branch(issue["pull"]["base"])
            ):
                raise Refused(
                    422, "Validation Failed", [{"resource": "PullRequest", "code": "invalid", "field": "state"}]
                )
            repo.reopen(issue["number"], login)
        elif body.get("state") == "closed":
            repo.close(issue["number"], login)
        issue.update({key: body[key] for key in ("title", "body") if key in body}, updated_at=now())
        return 200, self.state.show_pull(repo, issue), {}

    def _list_review_comments(self, repo, parts, query, _body, _login, path):
        number = self._find_pull(repo, parts[0])["number"]
        found = [one for one in repo.review_comments.values() if one["pull"] == number]
        found = [one for one in found if one["updated_at"] >= query.get("since", "")]
        items, more = self._page(path, query, found)
        return 200, [self.state.show_review_comment(repo, one) for one in items], more

    def _list_reviews(self, repo, parts, query, _body, _login, path):
        number = self._find_pull(repo, parts[0])["number"]
        items, more = self._page(path, query, [one for one in repo.reviews.values() if one["pull"] == number])
        return 200, [self.state.show_review(repo, one) for one in items], more

    def _request_review(self, repo, parts, _query, body, _login, _path):
        issue = self._find_pull(repo, parts[0])
        for name in body["reviewers"]:
            if name == issue["user"]:
                raise Refused(422, "Review cannot be requested from pull request author.", [])
            if name not in repo.people:
                said = "Reviews may only be requested from collaborators."
                raise Refused(422, said, [])
        issue["reviewers"] = sorted({*issue.get("reviewers", ()), *body["reviewers"]})
        return 201, self.state.show_pull(repo, issue, "pull-request-simple"), {}

    pull_routes = (
        ("POST", r"/pulls/(\d+)/requested_reviewers", _request_review),
        ("GET", "/pulls", _list_pulls),
        ("POST", "/pulls", _open_pull),
        ("GET", r"/pulls/(\d+)", _get_pull),
        ("PATCH", r"/pulls/(\d+)", _edit_pull),
        ("GET", r"/pulls/(\d+)/comments", _list_review_comments),
        ("GET", r"/pulls/(\d+)/reviews", _list_reviews),
    )
