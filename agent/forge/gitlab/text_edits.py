"""Turns an edit of the title or text of an issue or merge request on GitLab into a comment."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agent.errors import IssueUnreadable
from agent.forge.comment_cursor import digest_of, edited
from agent.forge.gitlab.projects import username
from agent.forge.host_client import QUICK
from agent.observe import log

if TYPE_CHECKING:
    from agent.forge.base import Comment
    from agent.forge.gitlab.task_items import TaskItems
    from agent.values import TaskKey


def edit_of(items: TaskItems, key: TaskKey, seen: str, who: dict[str, Any] | None) -> tuple[tuple[Comment, ...], str]:
    """(the edit of the issue's title or text as a comment, the digest of the present title and text).

    `seen` is the digest at the last read; the first value is () if the digest is the same, or if the editor has no
    permission.  `who` is the author of GitLab's system note about the edit, None if no new note reports an edit.  If
    `who` is None, `seen` is "" or the issue is unreadable, the result is ((), `seen`)."""
    if not seen or who is None:
        return (), seen
    try:
        project, item = items.get(key, patience=QUICK)
    except IssueUnreadable:
        return (), seen
    title, body = str(item.get("title") or ""), str(item.get("description") or "")
    if (now := digest_of(title, body)) == seen:
        return (), seen
    if not items.places.may_ask(project, who, patience=QUICK):
        log.get("forge").warning("edit_left_out", issue=str(key), author=username(who))
        return (), now
    is_bot = items.places.is_machine(who, patience=QUICK)
    return (edited(title, body, now, username(who), str(item["updated_at"]), is_bot=is_bot),), now
