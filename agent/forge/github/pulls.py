"""The pull requests of one repository: finds one by its branch, opens at most one per branch, changes single fields.

An open pull request becomes a draft or ready for review through GraphQL: GitHub's REST API can open a draft but cannot
change this state later. If title, text or reviewer change at the same time, the change is sent in the same request
(docs.github.com/en/graphql/reference/mutations, "updatePullRequest", "requestReviews").
"""

from __future__ import annotations

import re
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal

from agent.errors import ForgeError, ForgeRefused, ForgeUnreachable
from agent.forge.base import UNTITLED, PullRef
from agent.observe import log

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent.forge.github.http import GitHubWire
    from agent.forge.github.repositories import Project

MAX_BODY = 65_536
MAX_TITLE = 256
REVIEW, UPDATE = "requestReviews", "updatePullRequest"
CUT = "\n\n… cut: GitHub takes no more. The whole text is in the task's folder."


class Pulls:
    """Finds, opens and changes the pull requests of `project`."""

    def __init__(self, wire: GitHubWire, project: Project) -> None:
        self.wire = wire
        self.project = project
        self.path = f"{project.path}/pulls"

    def find(self, head: str) -> PullRef | None:
        """The open pull request of the branch; if none is open, the newest closed or merged one, None without any."""
        query = {
            "head": f"{self.project.owner}:{head}",
            "state": "all",
            "sort": "created",
            "direction": "desc",
        }
        items = [item for item in self.wire.pages(self.path, query=query) if self._is_of(item, head)]
        for item in items:  # `update` uses these items and need not read each pull request
            self.wire.reads.put_item(f"{self.path}/{item['number']}", item)
        found = [pull_ref(item) for item in items]
        found.sort(key=lambda pull: int(pull.id), reverse=True)
        return next((pull for pull in found if pull.state == "open"), found[0] if found else None)

    def open(self, *, title: str, body: str, head: str, base: str, draft: bool) -> PullRef:
        """Open a pull request of GitHub with a POST; a draft is opened as ready if the repository does not support
        drafts. Raises ForgeRefused if GitHub refuses the POST, ForgeUnreachable if GitHub does not answer the POST.

        If the result of the POST for a new pull request is unknown, `open` searches for the pull request before the
        second attempt; if GitHub reports "already exists", `open` returns the existing pull request.
        """
        wanted = {"title": fit_title(title), "body": fit_body(body), "head": head, "base": base, "draft": draft}
        for attempt in (1, 2):
            try:
                return pull_ref(self.wire.call("POST", self.path, body=wanted).data)
            except ForgeUnreachable as error:
                if not error.maybe:
                    raise
                there = self.find(head)
                if there is not None and there.state == "open":
                    return there
                if attempt == 2:
                    raise
            except ForgeRefused as error:
                said = " ".join(error.reasons).lower()
                if error.status != 422:
                    raise
                if "already exists" in said:
                    there = self.find(head)
                    if there is not None and there.state == "open":
                        return there
                if "draft pull requests are not supported" in said and wanted["draft"]:
                    log.get("forge").warning("draft_unsupported", repository=self.project.full_name)
                    wanted["draft"] = False
                    continue
                said = f"the pull request of {head} onto {base} cannot be opened: {error}"
                raise ForgeRefused(said, status=error.status, reasons=error.reasons) from error
        raise ForgeError(f"the pull request of {head} onto {base} cannot be opened")

    def update(
        self,
        number: str,
        *,
        title: str | None,
        body: str | None,
        draft: bool | None,
        state: Literal["open", "closed"] | None,
        reviewer: Callable[[], str | None] = lambda: None,
    ) -> tuple[PullRef, bool]:
        """Update a pull request; only the fields that differ from the present ones are sent.  Returns the pull request
        after the change, and whether the change included a request for a review.

        `reviewer` returns the node id of the account to request a review from when the pull request becomes ready; if
        it returns None, the update requests no review. Raises ForgeError if `number` is not a number.
        """
        if not number.isascii() or not number.isdigit():
            raise ForgeError(f"{number!r} is not the number of a pull request")
        path = f"{self.path}/{number}"
        item = self.wire.reads.item(path) or self.wire.get(path)
        wanted: dict[str, Any] = {
            "title": None if title is None else fit_title(title),
            "body": None if body is None else fit_body(body),
            "state": None if item.get("merged_at") else state,
        }
        changes = {key: value for key, value in wanted.items() if value is not None and value != (item.get(key) or "")}
        turns = draft is not None and draft != bool(item.get("draft")) and not item.get("merged_at")
        if changes and (not turns or "state" in changes):
            item, changes = self.wire.call("PATCH", path, body=changes).data, {}
        if not turns:
            return pull_ref(item), False
        who = None if draft else reviewer()
        return pull_ref(item | self._turned(item, changes, bool(draft), who)), who is not None

    def _turned(self, item: dict[str, Any], changes: dict[str, Any], draft: bool, who: str | None) -> dict[str, Any]:
        """Change title and text of the pull request, make it a draft or ready, and ask `who` (a node id) for a review,
        with one request; returns the fields of `item` that have changed.

        If GitHub refuses the reviewer, the refusal is logged and no error is raised. If GitHub refuses title or text of
        a pull request that is ready now, the pull request becomes a draft again, since it must not be ready with the
        text of the draft; then the refusal is raised.
        """
        node = {"pullRequestId": item["node_id"]}
        name = "convertPullRequestToDraft" if draft else "markPullRequestReadyForReview"
        wanted = [(name, node, "pullRequest { isDraft }")]
        if changes:
            wanted.insert(0, (UPDATE, node | changes, "pullRequest { title body }"))
        if who is not None:
            wanted.append((REVIEW, node | {"userIds": [who], "union": True}, "clientMutationId"))
        data, refused = self.wire.mutations(wanted, may_fail=(REVIEW, UPDATE))
        if UPDATE in refused:
            if not draft:
                with suppress(ForgeRefused):
                    self.wire.mutations([("convertPullRequestToDraft", node, "pullRequest { isDraft }")])
            raise refused[UPDATE]
        if REVIEW in refused:
            log.get("forge").warning("review_not_asked", pull=str(item["number"]), who=who, why=str(refused[REVIEW]))
        shown = data[UPDATE]["pullRequest"] if changes else {}
        return shown | {"draft": data[name]["pullRequest"]["isDraft"]}

    def _is_of(self, item: dict[str, Any], head: str) -> bool:
        """Whether the pull request is from the branch `head` of the repository itself, not of a fork."""
        source = (item.get("head") or {}).get("repo") or {}
        same = str(source.get("full_name") or "").casefold() == self.project.full_name.casefold()
        return str(item["head"]["ref"]) == head and same


def pull_ref(item: dict[str, Any]) -> PullRef:
    """Converts a pull request from GitHub's API into a `PullRef`."""
    state: Literal["open", "closed", "merged"] = "open" if item["state"] == "open" else "closed"
    if item.get("merged_at") or item.get("merged"):
        state = "merged"
    return PullRef(
        str(item["number"]),
        str(item["html_url"]),
        str(item["title"]),
        state,
        bool(item.get("draft")),
        str(item["head"]["ref"]),
        str(item["base"]["ref"]),
        commit=str(item["head"].get("sha") or ""),
        body=str(item.get("body") or ""),
    )


def number_in(url: str | None) -> str | None:
    """The number in the address of a pull request; None if the address is not that of a pull request."""
    found = re.search(r"/pull/([0-9]+)/?$", url or "")
    return found[1] if found else None


def fit_title(text: str) -> str:
    """`text` as a title of one line and at most 256 characters."""
    line = " ".join(text.split()) or UNTITLED
    return line if len(line) <= MAX_TITLE else f"{line[: MAX_TITLE - 1]}…"


def fit_body(text: str) -> str:
    """`text` cut to the maximum length that GitHub accepts, with a note at the cut."""
    return text if len(text) <= MAX_BODY else text[: MAX_BODY - len(CUT)] + CUT
