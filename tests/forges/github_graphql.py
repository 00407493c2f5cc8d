"""The GraphQL requests of our loopback GitHub: title, text, draft and review of a pull request, a reaction to a review,
and the edits of a text.

A request may have several mutations: they are executed one after the other, one that is refused is null and has an error
with its name in `path`, and the others count (spec.graphql.org, "Mutation", "Handling execution errors").
"""

from __future__ import annotations

import re

from forges.github_state import now

SELECTED = {
    "updatePullRequest": "pullRequest { title body }",
    "markPullRequestReadyForReview": "pullRequest { isDraft }",
    "convertPullRequestToDraft": "pullRequest { isDraft }",
    "requestReviews": "clientMutationId",
    "addReaction": "reaction { content }",
}
"""Mutation → the fields of the answer for which this program asks."""


class Refusal(Exception):
    """A mutation is refused: the type and the message of its error."""


class GraphQL:
    """A part of `github_server.GitHubServer`."""

    def _graphql(self, body, login):
        if body["query"].startswith("query "):
            return self._edited(body)
        found = re.fullmatch(r"mutation Do\((.*?)\) \{ (.*) \}", body["query"])
        declared = dict(one.removeprefix("$").split(": ") for one in found[1].split(", ")) if found else {}
        parts = re.findall(r"(\w+)\(input: \$(\w+)\) \{ ((?:[^{}]|\{[^{}]*\})*) \}", found[2]) if found else []
        known = all(
            SELECTED.get(name) == selected and declared.get(variable) == f"{name[0].upper()}{name[1:]}Input!"
            for name, variable, selected in parts
        )
        # each variable is declared, used and given
        if not parts or not known or not {one[1] for one in parts} == declared.keys() == body["variables"].keys():
            return {"errors": [{"message": "Parse error"}]}
        data, errors = {}, []
        for name, variable, _ in parts:
            try:
                data[name] = getattr(self, f"_{name}")(body["variables"][variable], login)
            except Refusal as refusal:
                data[name] = None
                errors.append({"type": refusal.args[0], "path": [name], "message": refusal.args[1]})
        return {"data": data} | ({"errors": errors} if errors else {})

    def _pull_of(self, node):
        for repo in self.state.repos.values():
            for issue in repo.issues.values():
                if issue["pull"] and node == f"PR_{issue['id']}":
                    return repo, issue
        raise Refusal("NOT_FOUND", f"Could not resolve to a node with the global id of '{node}'")

    def _updatePullRequest(self, wanted, _login):
        _, issue = self._pull_of(wanted["pullRequestId"])
        issue.update({name: wanted[name] for name in ("title", "body") if name in wanted}, updated_at=now())
        return {"pullRequest": {"title": issue["title"], "body": issue["body"] or ""}}

    def _markPullRequestReadyForReview(self, wanted, _login):
        return self._drafted(wanted, draft=False)

    def _convertPullRequestToDraft(self, wanted, _login):
        return self._drafted(wanted, draft=True)

    def _drafted(self, wanted, *, draft):
        _, issue = self._pull_of(wanted["pullRequestId"])
        issue["pull"]["draft"] = draft
        issue["updated_at"] = now()
        return {"pullRequest": {"isDraft": draft}}

    def _requestReviews(self, wanted, _login):
        """docs.github.com/en/graphql/reference/mutations, "requestReviews": `union` adds to those who are asked."""
        repo, issue = self._pull_of(wanted["pullRequestId"])
        names = [node.removeprefix("U_") for node in wanted["userIds"]]
        if issue["user"] in names:
            raise Refusal("UNPROCESSABLE", "Review cannot be requested from pull request author.")
        if unknown := [name for name in names if name not in repo.people]:
            raise Refusal("UNPROCESSABLE", f"Reviews may only be requested from collaborators: {unknown[0]}.")
        before = issue.get("reviewers", ()) if wanted.get("union") else ()
        issue["reviewers"] = sorted({*before, *names})
        return {"clientMutationId": None}

    def _addReaction(self, wanted, login):
        """The only way to react to a review's text (docs.github.com/en/graphql/reference/mutations, "addReaction");
        its contents are the names of `ReactionContent`, in capitals."""
        if wanted["content"] != "EYES":
            raise Refusal("INVALID", "not a content that this test server knows")
        for repo in self.state.repos.values():
            for one in repo.reviews.values():
                if wanted["subjectId"] == f"PRR_{one['id']}":
                    if not any(known["user"] == login for known in one.setdefault("reactions", [])):
                        one["reactions"].append({"user": login, "content": "eyes"})
                    return {"reaction": {"content": "EYES"}}
        raise Refusal("NOT_FOUND", "Could not resolve to a node with that global id")

    def _edited(self, body):
        """Time and author of the edits of an issue's text, newest first.

        The first version is among them once the text was edited (`includesCreatedEdit`), and nothing is before:
        https://docs.github.com/en/graphql/reference/objects#usercontentedit
        """
        fields = r"\{ userContentEdits\(first: 100\) \{ nodes \{ editedAt editor \{ login type: __typename \} \} \} \}"
        found = re.fullmatch(
            r"query \w+\(\$owner: String!, \$name: String!, \$number: Int!\) \{ "
            r"repository\(owner: \$owner, name: \$name\) \{ issueOrPullRequest\(number: \$number\) \{ "
            rf"\.\.\. on Issue {fields} \.\.\. on PullRequest {fields} \}} \}} \}}",
            " ".join(body["query"].split()),
        )
        if not found:
            return {"errors": [{"message": "Parse error"}]}
        wanted = body["variables"]
        repo = self.state.repos.get(f"{wanted['owner']}/{wanted['name']}".casefold())
        issue = repo.issues.get(wanted["number"]) if repo is not None else None
        if issue is None:
            error = {"type": "NOT_FOUND", "message": "Could not resolve to an issue or pull request"}
            return {"data": {"repository": None}, "errors": [error]}
        edits = issue.get("edits") or []
        first = [(issue["created_at"], issue["user"])] if edits else []
        nodes = [{"editedAt": when, "editor": self._actor(who)} for when, who in reversed([*first, *edits])][:100]
        return {"data": {"repository": {"issueOrPullRequest": {"userContentEdits": {"nodes": nodes}}}}}

    @staticmethod
    def _actor(who):
        if who is None:
            return None
        return {"login": who.removesuffix("[bot]"), "type": "Bot" if who.endswith("[bot]") else "User"}
