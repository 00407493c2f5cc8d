"""Reactions and threads on our loopback GitHub: one method for each request.

- a second reaction of one kind by one account is the first one, with status 200 (docs.github.com/en/rest/reactions)
- a reply goes to the first comment of a thread (docs.github.com/en/rest/pulls/comments, "Create a reply for a review
  comment"); a thread has no state in REST
- who has reviewed is no longer asked for a review (docs.github.com/en/rest/pulls/review-requests)
"""

from __future__ import annotations

from forges.github_errors import MAX_BODY, Refused, invalid, missing
from forges.github_shapes import make
from forges.github_state import now

CONTENTS = ("+1", "-1", "laugh", "confused", "heart", "hooray", "rocket", "eyes")


class TalkRoutes:
    """A part of `github_server.GitHubServer`."""

    def _reacted_to(self, repo, kind, number):
        """The issue, comment or review comment."""
        if kind == "issues":
            return self._find(repo, number)
        found = {"issues/comments": repo.comments, "pulls/comments": repo.review_comments}[kind].get(int(number))
        if found is None:
            raise missing()
        return found

    def _show_reaction(self, one):
        user = self.state.user(one["user"], "nullable-simple-user")
        return make("reaction", id=one["id"], content=one["content"], created_at=one["created_at"], user=user)

    def _list_reactions(self, repo, parts, query, _body, _login, path):
        found = self._reacted_to(repo, *parts).get("reactions", [])
        items, more = self._page(path, query, [one for one in found if query.get("content") in (None, one["content"])])
        return 200, [self._show_reaction(one) for one in items], more

    def _react(self, repo, parts, _query, body, login, _path):
        if body.get("content") not in CONTENTS:
            raise invalid("Reaction", "content")
        found = self._reacted_to(repo, *parts).setdefault("reactions", [])
        for one in found:
            if (one["user"], one["content"]) == (login, body["content"]):
                return 200, self._show_reaction(one), {}
        found.append({"id": next(repo.ids), "user": login, "content": body["content"], "created_at": now()})
        return 201, self._show_reaction(found[-1]), {}

    def _unreact(self, repo, parts, _query, _body, login, _path):
        found = self._reacted_to(repo, *parts[:2]).get("reactions", [])
        one = next((one for one in found if one["id"] == int(parts[2]) and one["user"] == login), None)
        if one is None:
            raise missing()
        found.remove(one)
        return 204, None, {}

    def _reply(self, repo, parts, _query, body, login, _path):
        number = self._find_pull(repo, parts[0])["number"]
        first = repo.review_comments.get(int(parts[1]))
        if first is None or first["pull"] != number or first["reply_to"]:
            raise missing()
        self._check_talk(body)
        made = repo.review_comment(number, body["body"], login, first["path"], first["line"], reply_to=first["id"])
        return 201, self.state.show_review_comment(repo, made), {}

    def _check_talk(self, body):
        if not (body.get("body") or "").strip():
            raise invalid("PullRequestReviewComment", "body", "missing_field")
        if len(body["body"]) > MAX_BODY:
            said = f"Body is too long (maximum is {MAX_BODY} characters)"
            raise invalid("PullRequestReviewComment", "data", "unprocessable", said)

    def _review_comment(self, repo, number):
        if int(number) not in repo.review_comments:
            raise missing()
        return repo.review_comments[int(number)]

    def _get_review_comment(self, repo, parts, _query, _body, _login, _path):
        return 200, self.state.show_review_comment(repo, self._review_comment(repo, parts[0])), {}

    def _edit_review_comment(self, repo, parts, _query, body, login, _path):
        one = self._review_comment(repo, parts[0])
        if one["user"] != login:
            raise Refused(403, "Must have admin rights to Repository.")
        self._check_talk(body)
        one |= {"body": body["body"], "updated_at": now()}
        return 200, self.state.show_review_comment(repo, one), {}

    def _reviewers(self, repo, parts, _query, _body, _login, _path):
        issue = self._find_pull(repo, parts[0])
        return 200, {"users": [self.state.user(one) for one in issue.get("reviewers", ())], "teams": []}, {}

    talk_routes = (
        ("GET", r"/(issues|issues/comments|pulls/comments)/(\d+)/reactions", _list_reactions),
        ("POST", r"/(issues|issues/comments|pulls/comments)/(\d+)/reactions", _react),
        ("DELETE", r"/(issues|issues/comments|pulls/comments)/(\d+)/reactions/(\d+)", _unreact),
        ("POST", r"/pulls/(\d+)/comments/(\d+)/replies", _reply),
        ("GET", r"/pulls/comments/(\d+)", _get_review_comment),
        ("PATCH", r"/pulls/comments/(\d+)", _edit_review_comment),
        ("GET", r"/pulls/(\d+)/requested_reviewers", _reviewers),
    )
