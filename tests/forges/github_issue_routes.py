"""Issues, their labels and comments on our loopback GitHub: one method for each request.

A method takes (repo, path parts, query, body, login, path) and returns (status, data, headers).
"""

from __future__ import annotations

import re

from forges.github_errors import MAX_BODY, MAX_LABEL, Refused, check_label, invalid, missing
from forges.github_state import now


class IssueRoutes:
    """A part of `github_server.GitHubServer`."""

    def _list_issues(self, repo, _parts, query, _body, _login, path):
        if not repo.has_issues:
            raise Refused(410, "Issues has been disabled in this repository.")
        wanted = [one.casefold() for one in query.get("labels", "").split(",") if one]
        found = [
            issue
            for issue in repo.issues.values()
            if query.get("state", "open") in (issue["state"], "all")
            and set(wanted) <= {one.casefold() for one in issue["labels"]}
            and query.get("assignee") in [None, *issue["assignees"]]
            and issue["updated_at"] >= query.get("since", "")
        ]
        order = "updated_at" if query.get("sort") == "updated" else "number"
        found.sort(key=lambda issue: (issue[order], issue["number"]), reverse=query.get("direction", "desc") == "desc")
        items, more = self._page(path, query, found)
        return 200, [self.state.show_issue(repo, issue) for issue in items], more

    def _open_issue(self, repo, _parts, _query, body, login, _path):
        if not repo.has_issues:
            raise Refused(410, "Issues has been disabled in this repository.")
        if not body.get("title"):
            raise invalid("Issue", "title", "missing_field")
        may_label = repo.people.get(login) in ("admin", "maintain", "write", "triage")  # labels of others are dropped
        labels = body.get("labels", ()) if may_label else ()
        return 201, self.state.show_issue(repo, repo.issue(body["title"], body.get("body"), login, labels)), {}

    def _get_issue(self, repo, parts, _query, _body, _login, _path):
        return 200, self.state.show_issue(repo, self._find(repo, parts[0])), {}

    def _list_labels(self, repo, parts, _query, _body, _login, _path):
        return 200, [self.state.show_label(repo, name) for name in self._find(repo, parts[0])["labels"]], {}

    def _add_labels(self, repo, parts, _query, body, login, _path):
        issue = self._find(repo, parts[0], "POST", "/labels")
        for name in body["labels"]:
            if len(name) > MAX_LABEL:
                raise invalid("Label", "name")
            repo.put_label(issue, name, login)
        return 200, [self.state.show_label(repo, name) for name in issue["labels"]], {}

    def _drop_label(self, repo, parts, _query, _body, login, _path):
        issue = self._find(repo, parts[0], "DELETE", f"/labels/{parts[1]}")
        if not repo.drop_label(issue, parts[1], login):
            raise Refused(404, "Label does not exist")
        return 200, [self.state.show_label(repo, name) for name in issue["labels"]], {}

    def _get_label(self, repo, parts, _query, _body, _login, _path):
        if parts[0].casefold() not in repo.labels:
            raise missing()
        return 200, self.state.show_label(repo, parts[0]), {}

    def _all_labels(self, repo, _parts, query, _body, _login, path):
        names = sorted(label["name"] for label in repo.labels.values())
        items, more = self._page(path, query, names)
        return 200, [self.state.show_label(repo, name) for name in items], more

    def _edit_label(self, repo, parts, _query, body, _login, _path):
        """https://docs.github.com/en/rest/issues/labels#update-a-label"""
        if parts[0].casefold() not in repo.labels:
            raise missing()
        check_label(body)
        repo.labels[parts[0].casefold()] |= {name: body[name] for name in ("color", "description") if name in body}
        return 200, self.state.show_label(repo, parts[0]), {}

    def _make_label(self, repo, _parts, _query, body, _login, _path):
        check_label(body)
        if body["name"].casefold() in repo.labels:
            raise invalid("Label", "name", "already_exists")
        if not re.fullmatch(r"[0-9a-f]{6}", body.get("color", "ededed")):
            raise invalid("Label", "color")
        repo.label(body["name"], body.get("color", "ededed"), body.get("description"))
        return 201, self.state.show_label(repo, body["name"]), {}

    def _list_events(self, repo, parts, query, _body, _login, path):
        items, more = self._page(path, query, self._find(repo, parts[0])["events"])
        return 200, [self.state.show_event(repo, one) for one in items], more

    def _list_comments(self, repo, parts, query, _body, _login, path):
        number = self._find(repo, parts[0])["number"]
        found = [one for one in repo.comments.values() if one["issue"] == number]
        found = [one for one in found if one["updated_at"] >= query.get("since", "")]
        items, more = self._page(path, query, found)
        return 200, [self.state.show_comment(repo, one) for one in items], more

    def _add_comment(self, repo, parts, _query, body, login, _path):
        number = self._find(repo, parts[0], "POST", "/comments")["number"]
        self._check_body(body)
        return 201, self.state.show_comment(repo, repo.comment(number, body["body"], login)), {}

    def _check_body(self, body):
        if not (body.get("body") or "").strip():
            raise invalid("IssueComment", "body", "missing_field")
        if len(body["body"]) > MAX_BODY:
            said = f"Body is too long (maximum is {MAX_BODY} characters)"
            raise invalid("IssueComment", "data", "unprocessable", said)

    def _get_comment(self, repo, parts, _query, _body, _login, _path):
        if int(parts[0]) not in repo.comments:
            raise missing()
        return 200, self.state.show_comment(repo, repo.comments[int(parts[0])]), {}

    def _edit_comment(self, repo, parts, _query, body, _login, _path):
        if int(parts[0]) not in repo.comments:
            raise missing()
        self._check_body(body)
        repo.comments[int(parts[0])] |= {"body": body["body"], "updated_at": now()}
        return 200, self.state.show_comment(repo, repo.comments[int(parts[0])]), {}

    def _remove_comment(self, repo, parts, _query, _body, login, _path):
        comment = repo.comments.get(int(parts[0]))
        if comment is None:
            raise missing()
        if comment["user"] != login and repo.people.get(login) not in ("admin", "maintain", "write"):
            raise Refused(403, "Must have admin rights to Repository.")
        del repo.comments[int(parts[0])]
        return 204, None, {}

    issue_routes = (
        ("GET", "/issues", _list_issues),
        ("POST", "/issues", _open_issue),
        ("GET", r"/issues/(\d+)", _get_issue),
        ("GET", r"/issues/(\d+)/labels", _list_labels),
        ("POST", r"/issues/(\d+)/labels", _add_labels),
        ("DELETE", r"/issues/(\d+)/labels/([^/]+)", _drop_label),
        ("GET", r"/issues/(\d+)/events", _list_events),
        ("GET", r"/issues/(\d+)/comments", _list_comments),
        ("POST", r"/issues/(\d+)/comments", _add_comment),
        ("GET", r"/issues/comments/(\d+)", _get_comment),
        ("PATCH", r"/issues/comments/(\d+)", _edit_comment),
        ("DELETE", r"/issues/comments/(\d+)", _remove_comment),
        ("GET", r"/labels/([^/]+)", _get_label),
        ("GET", "/labels", _all_labels),
        ("POST", "/labels", _make_label),
        ("PATCH", r"/labels/([^/]+)", _edit_label),
    )
