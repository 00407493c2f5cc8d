"""The merge requests of one project: finds one by its branch, opens at most one per branch, changes single fields, and
finds the numbers of the merge requests that this program opened for a task.

Peculiarities of GitLab: a draft is marked in the title; a branch may be unknown to the API for some seconds after its
push; GitLab answers 409 to the opening of a second merge request while one with the same branch and target is open.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import quote

from agent import clock
from agent.errors import ForgeAccessRefused, ForgeError, ForgeRefused, ForgeUnreachable
from agent.forge.base import PullRef
from agent.forge.gitlab import outgoing_text
from agent.forge.gitlab.http import is_missing
from agent.forge.gitlab.notes import ACTIVITY
from agent.forge.gitlab.task_items import is_merge
from agent.forge.post_once import post_once
from agent.observe import log

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from agent.forge.gitlab.http import GitLabWire
    from agent.forge.gitlab.projects import Project
    from agent.forge.gitlab.task_items import TaskItems
    from agent.values import TaskKey

BRANCH_WAITS = (1.0, 2.0, 4.0, 8.0, 15.0)
"""Seconds between the attempts to open a merge request while GitLab's API does not know the branch after its push."""

LOOK_UP_WAIT = 2.0
"""Seconds to wait after a POST without an answer before the module searches for the merge request or note that the POST
may have created, since GitLab may still be executing the POST."""

_STATES: dict[str, Literal["open", "closed", "merged"]] = {
    "opened": "open",
    "locked": "open",  # GitLab's state of a merge request that is being merged
    "closed": "closed",
    "merged": "merged",
}


class BranchUnknown(ForgeError):
    """The error that GitLab's API does not know the source branch, perhaps because GitLab is still processing the push
    in the background."""


class MergeRequests:
    """Finds, opens and changes the merge requests of `project`, and asks for reviews of them."""

    def __init__(self, wire: GitLabWire, project: Project) -> None:
        self.wire = wire
        self.project = project
        self.path = f"{project.path}/merge_requests"

    def find(self, head: str) -> PullRef | None:
        """The open merge request of the branch `head`; if none is open, the newest closed or merged one; None if there
        is none at all.

        Merge requests from forks with a branch of the same name are ignored.
        """
        query = {"source_branch": head, "state": "all", "order_by": "created_at", "sort": "desc"}
        items = [
            item
            for item in self.wire.pages(self.path, query=query)
            if item.get("source_branch") == head and item.get("source_project_id") == self.project.id
        ]
        for item in items:  # `update` then reads each merge request from here without a request
            self.wire.reads.put_item(f"{self.path}/{item['iid']}", item)
        found = [pull_ref(item) for item in items]
        found.sort(key=lambda pull: int(pull.id), reverse=True)
        return next((pull for pull in found if pull.state == "open"), found[0] if found else None)

    def open(self, *, title: str, body: str, head: str, base: str, draft: bool, reviewer: int | None) -> PullRef:
        """Open a merge request of GitLab with a POST.

        If the result of the POST for a new merge request is unknown, `open` searches for the merge request before the
        second attempt; if GitLab reports "already exists", `open` returns the existing merge request.

        Raises BranchUnknown when GitLab does not know the branch (the caller then waits and tries again),
        ForgeAccessRefused or ForgeRefused when GitLab refuses for another reason, and ForgeUnreachable when it does not
        answer.
        """
        wanted: dict[str, Any] = {
            "source_branch": head,
            "target_branch": base,
            "title": outgoing_text.draft_title(title, draft=draft),
            "description": outgoing_text.truncate(body, outgoing_text.MAX_DESCRIPTION),
        }
        if reviewer is not None:
            wanted["reviewer_ids"] = [reviewer]
        unknown = False
        while True:
            try:
                return pull_ref(self.wire.call("POST", self.path, body=wanted).data)
            except ForgeUnreachable as error:
                if not error.maybe:
                    raise
                clock.sleep(LOOK_UP_WAIT)
                if (there := self._open_one(head)) is not None:
                    return there
                if unknown:
                    raise
                unknown = True
            except ForgeAccessRefused as error:
                raise ForgeAccessRefused(
                    f"the merge request of {head} onto {base} cannot be opened: {error}. Merge requests may be "
                    f"switched off in {self.project.full_name}, or the account is less than Developer there"
                ) from error
            except ForgeRefused as error:
                if error.status == 409 and (there := self._open_one(head) or self._named(error, head)) is not None:
                    return there
                said = f"the merge request of {head} onto {base} cannot be opened: {error}"
                if self._is_unknown(error, head):
                    raise BranchUnknown(said) from error
                raise ForgeRefused(said, status=error.status, reasons=error.reasons) from error

    def update(
        self,
        number: str,
        *,
        title: str | None,
        body: str | None,
        draft: bool | None,
        state: Literal["open", "closed"] | None,
        reviewer: Callable[[], int | None],
    ) -> PullRef:
        """Update a merge request; only the fields that differ from the present ones are sent to GitLab. Raises
        ForgeError if there is no merge request with this number.

        If the update makes a draft ready for review, the account with the id `reviewer()` becomes the reviewer of the
        merge request, unless the merge request has reviewers already or `reviewer()` is None.
        """
        if not number.isascii() or not number.isdigit():
            raise ForgeError(f"{number!r} is not the number of a merge request")
        path = f"{self.path}/{number}"
        try:
            item = self.wire.reads.item(path) or self.wire.get(path)
            now = pull_ref(item)
            wanted = {
                "title": outgoing_text.draft_title(
                    now.title if title is None else title, draft=now.draft if draft is None else draft
                ),
                "description": None if body is None else outgoing_text.truncate(body, outgoing_text.MAX_DESCRIPTION),
            }
            if title is None and draft in (None, now.draft):
                # this update changes neither the title nor the draft state, so the title that a person wrote is not
                # normalised
                wanted["title"] = None
            changes: dict[str, Any] = {
                name: value for name, value in wanted.items() if value is not None and value != (item.get(name) or "")
            }
            if now.draft and draft is False and not item.get("reviewers") and (who := reviewer()) is not None:
                changes["reviewer_ids"] = [who]
            if state is not None and now.state not in ("merged", state):
                changes["state_event"] = "close" if state == "closed" else "reopen"
            return pull_ref(self.wire.call("PUT", path, body=changes).data) if changes else now
        except ForgeRefused as error:
            if is_missing(error):
                raise ForgeError(f"merge request !{number} of {self.project.full_name} is gone") from error
            raise

    def ask_again(self, number: str, name: str) -> None:
        """Ask the account `name` for a review of the merge request, also if the account has reviewed it before.

        GitLab's API cannot ask the same reviewer again; the quick action `/request_review` can, in a note that GitLab
        does not store (docs.gitlab.com, "GitLab quick actions"). If `name` has a character that no username has, no
        review is requested. If GitLab refuses the note, the refusal is logged and no error is raised.
        """
        if re.fullmatch(r"[A-Za-z0-9_.-]+", name) is None:
            return
        path = f"{self.path}/{number}"
        item = self.wire.get(path)
        known = any(one.get("username") == name for one in item.get("reviewers") or ())
        body = {"body": f"/{'request_review' if known else 'assign_reviewer'} @{name}"}

        def ask() -> str:
            return str(self.wire.call("POST", f"{path}/notes", body=body, again=False, checked=False).status)

        try:
            post_once(ask, lambda: self._find_request_note(path, name, since=str(item["updated_at"])))
        except (ForgeRefused, ForgeAccessRefused) as error:
            log.get("forge").warning("review_not_asked", pull=number, who=name, why=str(error))

    def _find_request_note(self, path: str, name: str, *, since: str) -> str | None:
        """The id of the newest system note by which GitLab records, after the time `since`, that `name` was asked for a
        review; None if there is none. The note is looked for because a second request would notify the reviewer again:
        https://gitlab.com/gitlab-org/gitlab/-/blob/master/app/services/merge_requests/request_review_service.rb
        """
        clock.sleep(LOOK_UP_WAIT)
        for note in self.wire.pages(f"{path}/notes", query=ACTIVITY):
            if clock.parse(str(note["created_at"])) <= clock.parse(since):
                break
            if note.get("system") and str(note.get("body") or "").startswith(f"requested review from @{name}"):
                return str(note["id"])
        return None

    def _open_one(self, head: str) -> PullRef | None:
        there = self.find(head)
        return there if there is not None and there.state == "open" else None

    def _named(self, error: ForgeRefused, head: str) -> PullRef | None:
        """The merge request that GitLab's refusal names (`already exists …: !5`), in case the list of merge requests
        does not contain it yet; None if the refusal names no open one of the branch."""
        for reason in error.reasons:
            if match := re.search(r"!([1-9]\d*)", reason):
                pull = pull_ref(self.wire.get(f"{self.path}/{match[1]}"))
                return pull if pull.state == "open" and pull.head == head else None
        return None

    def _is_unknown(self, error: ForgeRefused, head: str) -> bool:
        """Whether GitLab refused to open a merge request because the source branch is unknown: the message of the
        refusal says so, or GitLab answers 404 to a request for the branch."""
        words = " ".join(error.reasons).lower()
        if "source" in words and "not exist" in words:
            return True
        return error.status in (400, 404, 409, 422) and not self._knows(head)

    def _knows(self, head: str) -> bool:
        """Whether GitLab's API knows the branch."""
        try:
            self.wire.get(f"{self.project.path}/repository/branches/{quote(head, safe='')}")
        except ForgeRefused as error:
            if is_missing(error):
                return False
            raise
        return True


def pull_ref(item: dict[str, Any]) -> PullRef:
    """Converts a merge request from GitLab's API into a `PullRef`; the prefix that marks a draft is removed from its
    title."""
    shown = str(item.get("title") or "")
    draft = bool(item.get("draft", item.get("work_in_progress", outgoing_text.without_draft(shown) != shown)))
    return PullRef(
        str(item["iid"]),
        str(item.get("web_url") or ""),
        outgoing_text.without_draft(shown) if draft else shown,
        _STATES.get(str(item.get("state")), "closed"),
        draft,
        str(item["source_branch"]),
        str(item["target_branch"]),
        commit=str(item.get("sha") or ""),
        body=str(item.get("description") or ""),
    )


def opened_for(
    items: TaskItems, key: TaskKey, project: Project, prefixes: Iterable[str], patience: float
) -> tuple[int, ...]:
    """The numbers of the merge requests that this program opened for the task of an issue, found by their author and
    branch name; the comments on them belong to the task. () for a task that is a merge request itself."""
    if is_merge(key):
        return ()
    path = f"{items.path(key, project)}/related_merge_requests"
    starts = tuple(f"{prefix}{key.task_id}-" for prefix in prefixes)
    found = set()
    for item in items.wire.pages(path, patience=patience):
        ours = items.places.is_own(item.get("author")) and item.get("project_id") == project.id
        if ours and str(item.get("source_branch")).startswith(starts):
            found.add(int(item["iid"]))
    return tuple(sorted(found))
