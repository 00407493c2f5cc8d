"""Reads the comments and reviews of an issue and of its pull requests since a cursor, and returns the next cursor.

The id of a comment is GitHub's number of the comment; the prefix `r` means a comment on a line of a pull request, the
prefix `v` the text of a review.  The cursor of the comments is a `comment_cursor.CommentCursor`.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from agent.errors import ForgeError
from agent.forge.base import Comment, MarkedComment
from agent.forge.comment_cursor import CommentCursor, news_of, odd_comment
from agent.forge.github.repositories import is_bot, login
from agent.forge.lines_of_comment import Side, lines_in_words, shown_hunk, suggestions_in_words
from agent.forge.markers import all_in

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agent.forge.github.http import GitHubWire
    from agent.forge.github.repositories import Project, Repositories


class CommentReader:
    """Reads the comments of one issue or pull request of `project`."""

    def __init__(self, wire: GitHubWire, places: Repositories, project: Project, number: str) -> None:
        self.wire = wire
        self.places = places
        self.project = project
        self.number = int(number)

    def since(self, cursor: CommentCursor) -> tuple[tuple[Comment, ...], CommentCursor, int]:
        """The comments since a cursor: (new and edited comments of people with permission, the next cursor, the number
        of new and edited comments of people without permission)."""
        found = self._changed_comments(cursor)
        return news_of(cursor, found, self.places.is_ours, lambda user: self.places.may_ask(self.project, user))

    def marked(self) -> Iterator[MarkedComment]:
        """Comments of the own account with markers, in GitHub's order, which is by number."""
        for item in self.wire.pages(f"{self.project.path}/issues/{self.number}/comments"):
            markers = all_in(item.get("body") or "")
            if markers and self.places.is_own(item.get("user")):
                yield MarkedComment(str(item["id"]), markers, str(item.get("updated_at") or ""))

    def _changed_comments(self, cursor: CommentCursor) -> Iterator[tuple[Comment, Any]]:
        """Every comment that has changed since the cursor, with its author.

        Comments of the cursor's pull requests are included, all of them if the pull request was never read. All reviews
        with a text or a request for changes are included, since GitHub cannot list reviews by time.
        """
        path, pulls, query = self.project.path, cursor.pulls, cursor.query()
        queries = {number: {} if number in cursor.new else query for number in (self.number, *pulls)}
        for number, asked in queries.items():
            for item in self.wire.pages(f"{path}/issues/{number}/comments", query=asked, odd=odd_comment):
                where = "" if number == self.number else f"Pull request #{number}"
                yield _comment(item, "", str(number), where), item.get("user")
        for number in pulls:
            for item in self.wire.pages(f"{path}/pulls/{number}/comments", query=queries[number], odd=odd_comment):
                thread = item.get("in_reply_to_id") or item["id"]
                yield _comment(item, "r", f"{number}/{thread}", _place(item)), item.get("user")
            for item in self.wire.pages(f"{path}/pulls/{number}/reviews", odd=odd_comment):
                asks = item.get("state") == "CHANGES_REQUESTED"
                if item.get("body") or asks:
                    state = str(item.get("state") or "").lower().replace("_", " ")
                    where = f"Review of pull request #{number}: {state}"
                    review = _comment(item, "v", f"{number}/{item.get('node_id') or ''}", where)
                    yield replace(review, requests_changes=asks), item.get("user")


def number_of(comment_id: str) -> str:
    """The number in the id of an issue comment.

    Raises ForgeError for the id of a review or of a comment on a line, since the own account writes only issue
    comments.
    """
    if not re.fullmatch(r"[1-9][0-9]{0,18}", comment_id):
        raise ForgeError(f"{comment_id!r} is not a comment of an issue that can be edited")
    return comment_id


def _comment(item: dict[str, Any], kind: str, address: str, heading: str = "") -> Comment:
    """Make a `Comment` from GitHub's answer; `address` (which a reaction to the comment needs) is the number of the
    issue or pull request, followed by the id of the thread's first comment or by the node of the review."""
    created = str(item.get("created_at") or item.get("submitted_at") or "")
    return Comment(
        f"{kind}{item['id']}",
        login(item.get("user")) or "ghost",
        str(item.get("body") or ""),
        created,
        str(item.get("updated_at") or created),
        is_bot(item.get("user")),
        place=heading,
        address=address,
        has_thread=kind == "r",
        url=str(item.get("html_url") or ""),
        hunk=shown_hunk(str(item.get("diff_hunk") or "")),
    )


def _place(item: dict[str, Any]) -> str:
    """The file and lines, the suggested change, and the thread of a review comment, in words.

    In GitHub's answer `line` is null once a later push has changed that line, and `side` LEFT means the file before the
    change: https://docs.github.com/en/rest/pulls/comments.
    """
    outdated = "" if item.get("line") or not item.get("original_line") else "original_"
    first, last = _side(item, f"{outdated}start_line", "start_side"), _side(item, f"{outdated}line", "side")
    where = f"On {lines_in_words(str(item.get('path')), first, last)}{' (outdated)' if outdated else ''}"
    suggested = suggestions_in_words(str(item.get("body") or ""), first, last)
    thread = item.get("in_reply_to_id") or item["id"]
    return ", ".join(filter(None, [where, suggested, f"review thread {thread}"]))


def _side(item: dict[str, Any], line: str, side: str) -> Side | None:
    if not item.get(line):
        return None
    return Side(int(item[line]), removed=(item.get(side) or item.get("side")) == "LEFT")
