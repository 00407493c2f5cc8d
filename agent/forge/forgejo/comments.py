"""Reads the comments and reviews of an issue and of its pull requests, and updates the cursor (the comments that were
read so far).

The id of a comment is Forgejo's number of the comment; the prefix `r` means a comment on a line of a pull request, the
prefix `v` the text of a review.  The cursor of the comments is a `comment_cursor.CommentCursor`.

The comments of the issue itself are read from the issue's timeline, which also names the pull requests that refer to
the issue; like the list of comments, the timeline takes one request. The timeline lets every process find the pull
request of a task.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from agent import clock
from agent.errors import ForgeError, ForgeRefused
from agent.forge.base import Comment, MarkedComment
from agent.forge.comment_cursor import CommentCursor, news_of, odd_comment
from agent.forge.forgejo.repositories import is_bot, login
from agent.forge.lines_of_comment import Side, lines_in_words, shown_hunk, suggestions_in_words
from agent.forge.markers import all_in

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from agent.forge.forgejo.http import ForgejoWire
    from agent.forge.forgejo.repositories import Project, Repositories

PER_PAGE = 50


class CommentReader:
    """Reads the comments of one issue or pull request of `project`.

    `is_ours` gets the number of a pull request that refers to the issue, and returns whether the issue's task opened
    that pull request.
    """

    def __init__(
        self,
        wire: ForgejoWire,
        places: Repositories,
        project: Project,
        number: str,
        is_ours: Callable[[int], bool] = lambda _number: False,
    ) -> None:
        self.wire = wire
        self.places = places
        self.project = project
        self.number = int(number)
        self.is_ours = is_ours

    def since(self, cursor: CommentCursor) -> tuple[tuple[Comment, ...], CommentCursor, int]:
        """The comments since a cursor: (new and edited comments of people with permission, the next cursor, the number
        of new and edited comments of people without permission)."""
        query = cursor.query()
        rows = self.wire.whole(f"{self._issue(self.number)}/timeline", query=query)
        pulls = tuple(dict.fromkeys((*cursor.pulls, *self._pulls_in(rows, cursor.pulls))))
        found = [(_comment(row, self.number), row.get("user")) for row in rows if row["type"] == "comment"]
        for number in pulls:
            new = number not in cursor.pulls or number in cursor.new
            found += self._of_pull(number, {} if new else query)
        before = cursor if pulls == cursor.pulls else replace(cursor, pulls=pulls)
        return news_of(before, found, self.places.is_ours, lambda user: self.places.may_ask(self.project, user))

    def marked(self) -> Iterator[MarkedComment]:
        """Comments of the own account with markers, in the order of their numbers."""
        items = self.wire.whole(f"{self._issue(self.number)}/comments")
        for item in sorted(items, key=lambda one: int(one["id"])):
            markers = all_in(item.get("body") or "")
            if markers and self.places.is_own(item.get("user")):
                yield MarkedComment(str(item["id"]), markers, utc(item["updated_at"]))

    def _pulls_in(self, rows: list[dict[str, Any]], known: tuple[int, ...]) -> Iterator[int]:
        """The numbers of the task's pull requests that rows of the timeline name and that are not in `known`."""
        for row in rows:
            found = row.get("ref_issue") or {}
            if row["type"] != "pull_ref" or not found.get("pull_request") or not self.places.is_own(found.get("user")):
                continue
            here = (found.get("repository") or {}).get("full_name") == self.project.full_name
            if here and found["number"] not in (self.number, *known) and self.is_ours(int(found["number"])):
                yield int(found["number"])

    def _of_pull(self, number: int, query: dict[str, str]) -> Iterator[tuple[Comment, Any]]:
        """The comments, the reviews with a text or a request for changes, and the unresolved comments on lines of a
        pull request, each with its author.

        A comment on a line may be edited without a change of its review, so the comments of all reviews are read. If
        the pull request is gone, its comments are left out and no error is raised.
        """
        try:
            if number != self.number:
                for item in self.wire.whole(f"{self._issue(number)}/comments", query=query):
                    yield _comment(item, number, heading=f"Pull request #{number}"), item.get("user")
            path = f"{self.project.path}/pulls/{number}/reviews"
            for review in self.wire.pages(path, odd=odd_comment):
                if review.get("body") or _requests_changes(review):
                    yield _review(review, number), review.get("user")
                if review.get("comments_count"):
                    for item in self.wire.get(f"{path}/{review['id']}/comments"):
                        if not item.get("resolver"):
                            yield _comment(item, number, "r", _place(item, review["id"])), item.get("user")
        except ForgeRefused as error:
            if error.status != 404:
                raise

    def _issue(self, number: int) -> str:
        return f"{self.project.path}/issues/{number}"


def utc(text: Any) -> str:
    """Convert a time in an answer to UTC, since Forgejo writes times in the zone of the server; "" if the time is
    missing."""
    return clock.parse(str(text)).strftime("%Y-%m-%dT%H:%M:%SZ") if text else ""


def number_of(comment_id: str) -> str:
    """The number in the id of an issue comment.

    Raises ForgeError for the id of a review or of a comment on a line, since the own account writes only issue
    comments.
    """
    if not re.fullmatch(r"[1-9][0-9]{0,18}", comment_id):
        raise ForgeError(f"{comment_id!r} is not a comment of an issue that can be edited")
    return comment_id


def _comment(item: dict[str, Any], number: int, kind: str = "", heading: str = "") -> Comment:
    """`number` is the number of the issue or pull request on which the comment was written."""
    return Comment(
        f"{kind}{item['id']}",
        login(item.get("user")) or "ghost",
        str(item.get("body") or ""),
        utc(item["created_at"]),
        utc(item["updated_at"]),
        is_bot(item.get("user")),
        place=heading,
        address=str(number),
        url=str(item.get("html_url") or ""),
        hunk=shown_hunk(str(item.get("diff_hunk") or "")),
    )


def _review(item: dict[str, Any], number: int) -> Comment:
    state = str(item.get("state") or "").lower().replace("_", " ")
    place = f"Review of pull request #{number}: {state}"
    times = {"created_at": item["submitted_at"], "updated_at": item.get("updated_at") or item["submitted_at"]}
    return replace(_comment(item | times, number, "v", place), requests_changes=_requests_changes(item))


def _requests_changes(review: dict[str, Any]) -> bool:
    """Whether a review requests changes; a dismissed review does not."""
    return review.get("state") == "REQUEST_CHANGES" and not review.get("dismissed")


def _place(item: dict[str, Any], review: Any) -> str:
    """The file and line of a comment; a line that the change removed has its number in the old file."""
    last = None
    if line := item.get("position"):
        last = Side(int(line))
    elif line := item.get("original_position"):
        last = Side(int(line), removed=True)
    suggested = suggestions_in_words(str(item.get("body") or ""), None, last)
    where = lines_in_words(str(item.get("path")), None, last)
    return ", ".join(filter(None, [f"On {where}", suggested, f"review {review}"]))
