"""The GraphQL requests of our loopback GitHub: ready and draft, a reaction to a review, and the edits of a text."""

from __future__ import annotations

import re

from forges.github_state import now


class GraphQL:
    """A part of `github_server.GitHubServer`."""

    def _graphql(self, body, login):
        if body["query"].startswith("query "):
            return self._edited(body)
        if " addReaction(" in body["query"]:
            return self._react_to_review(body, login)
        found = re.fullmatch(
            r"mutation Do\(\$input: (\w+)Input!\) \{ (\w+)\(input: \$input\) \{ pullRequest \{ isDraft \} \} \}",
            body["query"],
        )
        drafts = {"markPullRequestReadyForReview": False, "convertPullRequestToDraft": True}
        if not found or found[2] not in drafts or found[1] != found[2][0].upper() + found[2][1:]:
            return {"errors": [{"message": "Parse error"}]}
        node = body["variables"]["input"]["pullRequestId"]
        for repo in self.state.repos.values():
            for issue in repo.issues.values():
                if issue["pull"] and node == f"PR_{issue['id']}":
                    issue["pull"]["draft"] = drafts[found[2]]
                    issue["updated_at"] = now()
                    return {"data": {found[2]: {"pullRequest": {"isDraft": issue["pull"]["draft"]}}}}
        error = {"type": "NOT_FOUND", "message": f"Could not resolve to a node with the global id of '{node}'"}
        return {"data": {found[2]: None}, "errors": [error]}

    def _react_to_review(self, body, login):
        """The only way to react to a review's text (docs.github.com/en/graphql/reference/mutations, "addReaction");
        its contents are the names of `ReactionContent`, in capitals."""
        query = "mutation Do($input: AddReactionInput!) { addReaction(input: $input) { reaction { content } } }"
        wanted = body["variables"]["input"]
        if body["query"] != query or wanted["content"] != "EYES":
            return {"errors": [{"message": "Parse error"}]}
        for repo in self.state.repos.values():
            for one in repo.reviews.values():
                if wanted["subjectId"] == f"PRR_{one['id']}":
                    if not any(known["user"] == login for known in one.setdefault("reactions", [])):
                        one["reactions"].append({"user": login, "content": "eyes"})
                    return {"data": {"addReaction": {"reaction": {"content": "EYES"}}}}
        error = {"type": "NOT_FOUND", "message": "Could not resolve to a node with that global id"}
        return {"data": {"addReaction": None}, "errors": [error]}

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
