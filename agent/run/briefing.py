"""The first two messages of a task: the system prompt, ours alone, and the briefing, which holds what others wrote.

Everything from outside passes `security.sanitise` and stands between the run's random markers, so that nothing in it
can pass for an instruction of this program (design: sections 5 and 10).  Written once; a resumed task finds them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.prompts import render
from agent.security.fence import fence
from agent.security.sanitise import clean

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from agent.config import Settings
    from agent.forge.base import Comment, IssueText
    from agent.run.parent import Parent
    from agent.work.workspace import Workspace

RULES = ("AGENTS.md", "CLAUDE.md")
RULES_SHARE = 8
"""Repository rules take at most one eighth of the window."""

ISSUE_LIMIT = 1 << 20
"""Characters of a body or a comment, as many as any forge takes.  A task is never cut to fit: what does not fit
is told on the issue and not sent (seed 001, FR-5; design: section 5)."""


def briefing(
    settings: Settings,
    issue: IssueText,
    comments: Sequence[Comment],
    workspace: Workspace,
    marker: str,
    *,
    window: int,
    commands: bool,
    parent: Parent | None = None,
    about: str = "",
    news: Sequence[Comment] = (),
    pictures: str = "",
) -> str:
    """The first user message: repository rules as data, then the task, what an earlier one left, and `news`, which was
    written since that one's end.  `pictures`: what the model reads about those of the texts."""
    title = clean(issue.title, limit=500)
    body = clean(issue.body, limit=ISSUE_LIMIT)
    return render(
        "briefing",
        rules=list(rules(workspace, marker, limit=max(500, window * 2 // RULES_SHARE))),
        title=fence(title.text, marker, source="issue title", author=issue.author),
        body=fence(body.text, marker, source="issue", author=issue.author) if body.text.strip() else "",
        truncated=body.truncated,
        comments=[comment_text(comment, marker) for comment in comments],
        news=[comment_text(comment, marker) for comment in news],
        branch=workspace.branch,
        base=workspace.base,
        empty_repository=workspace.base_commit is None,
        verify=settings.verify.command,
        commands=commands,
        about=about,
        pictures=pictures,
        earlier=fence(clean(parent.summary).text, marker, source="an earlier run's summary") if parent else "",
        goes_on=parent is not None and parent.branch == workspace.branch,
    )


def rules(workspace: Workspace, marker: str, *, limit: int) -> Iterable[str]:
    """AGENTS.md and CLAUDE.md of the *base* commit, never of the tree, cut with a pointer to the rest."""
    for name in RULES:
        found = workspace.read_at_base(name)
        if not found:
            continue
        cleaned = clean(found.decode("utf-8", "replace"), limit=limit)
        rest = f"\n[cut here; read_file {name} shows the rest]" if cleaned.truncated else ""
        yield fence(cleaned.text + rest, marker, source=f"repository rules: {name}")


def comment_text(comment: Comment, marker: str) -> str:
    """One comment as fenced data with its author, and where it was said."""
    body = f"[{comment.place}]\n\n{comment.body}" if comment.place else comment.body
    return fence(clean(body, limit=ISSUE_LIMIT).text, marker, source="comment", author=comment.author)
