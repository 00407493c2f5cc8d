"""Makes the briefing of a task, which is the first message after the system prompt and has the texts of people.

Text from outside is cleaned by `security.sanitise` and put between random markers that only this run uses, so that it
cannot be taken for an instruction of this program (docs/security.md, "Text from outside"). The briefing is written
once; a resumed task reads it from its files. For a smaller window of the model, `choose_again` makes a shorter briefing
from the existing one. Rules and comments are shortened to their budgets (`BriefingBudget`); the title and the body of
the issue have no budget.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agent.config.repository_keys import FILE
from agent.prompts import render
from agent.security.fence import fence
from agent.security.sanitise import clean
from agent.window.budgets import LEAST, divide

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from agent.config import Settings
    from agent.forge.base import Comment, IssueText
    from agent.values import Json
    from agent.work.workspace import Workspace
    from agent.worker.earlier_task import ParentTask

RULES = ("AGENTS.md", "CLAUDE.md")
RULES_SOURCE = "repository rules: "
COMMENT_SOURCE = "comment"

ISSUE_LIMIT = 1 << 20
"""Maximum number of characters of an issue's body or a comment, which is as many as any forge accepts.

The text of a task is not shortened to fit into the window: if it does not fit, nothing is sent to the model, and the
issue gets a comment about that (docs/design/compression.md, FR-5).
"""

OF_ONE = 3
"""A comment that is not the oldest gets at most two thirds (2/OF_ONE) of the budget that is left for comments, so that
a long comment does not displace all earlier comments. The summary of an earlier task gets 1/OF_ONE of the whole budget
for comments, in addition to it."""

QUERY, QUERY_COMMENTS, QUERY_COMMENT = 9_900, 3, 1_000
"""The maxima of a query for memories: its characters, its comments, and the characters of each comment."""

FENCE = 60
"""Tokens of the two marker lines around a text from outside."""


@dataclass(frozen=True, slots=True)
class BriefingBudget:
    """Token budgets of the parts of a briefing; `count` is a function that counts the tokens of a text for the model.

    `rules` is the budget for all files of rules together, `comments` the budget for all comments together.
    `shorten(text, tokens)` returns the beginning and end of a long text, with the name of a file that has the whole
    text; `keep(text)` saves a text and returns its name for `read_output`."""

    rules: int
    comments: int
    count: Callable[[str], int]
    shorten: Callable[[str, int], str]
    keep: Callable[[str], str]


def briefing(
    settings: Settings,
    issue: IssueText,
    comments: Sequence[Comment],
    workspace: Workspace,
    marker: str,
    *,
    budget: BriefingBudget,
    commands: bool,
    parent: ParentTask | None = None,
    takes_up: bool = False,
    about: str = "",
    news: Sequence[Comment] = (),
    pictures: str = "",
    ci: Sequence[str] = (),
    pull_name: str = "pull request",
) -> str:
    """The briefing, which is the first user message: repository rules as data, then the task, the summary of an earlier
    task, and comments.

    `news` are the comments that were written after the end of the earlier task. `takes_up`: the work tree contains the
    unpublished work of the earlier task. `pictures`: a note for the model about the pictures in the texts. `ci`: the
    failed jobs for which the task was started, fenced. `pull_name`: the word of the forge for a pull request."""
    title = clean(issue.title, limit=500)
    body = clean(issue.body, limit=ISSUE_LIMIT)
    said = earlier_comments((*comments, *news), marker, budget)
    new = len(said) - len(news)
    earlier = budget.shorten(clean(parent.summary).text, max(LEAST, budget.comments // OF_ONE)) if parent else ""
    return render(
        "briefing",
        rules=list(repository_rules(workspace, marker, budget, pinned_file(settings))),
        title=fence(title.text, marker, source="issue title", author=issue.author),
        body=fence(body.text, marker, source="issue", author=issue.author) if body.text.strip() else "",
        truncated=body.truncated,
        comments=[text for text in said[:new] if text],
        news=[text for text in said[new:] if text],
        branch=workspace.branch,
        base=workspace.base,
        empty_repository=workspace.base_commit is None,
        verify=settings.verify.command,
        commands=commands,
        about=about,
        pictures=pictures,
        ci=list(ci),
        pull_name=pull_name,
        earlier=fence(earlier, marker, source="an earlier run's summary") if parent else "",
        goes_on=parent is not None and parent.branch == workspace.branch,
        takes_up=takes_up,
    )


def recall_query(issue: IssueText, comments: Sequence[Comment]) -> str:
    """The query for long-term memories: title, body and the newest comments."""
    said = [comment.body[:QUERY_COMMENT] for comment in comments[-QUERY_COMMENTS:]]
    body = issue.body[: max(0, QUERY - len(issue.title) - sum(map(len, said)))]
    return "\n\n".join([issue.title, body, *said])


def pinned_file(settings: Settings) -> str | None:
    """The path of a further file of rules that each task of the repository gets (`memory.pinned`), None if none is
    configured or `memory.enabled` is false."""
    return settings.memory.pinned if settings.memory.enabled else None


def repository_rules(
    workspace: Workspace, marker: str, budget: BriefingBudget, pinned: str | None = None
) -> Iterable[str]:
    """The files of rules, fenced: AGENTS.md, CLAUDE.md and the `pinned` file as they are in the base commit, and the
    instructions in `.makimono.yaml`, together within `budget.rules`; a shortened file has a note on how to read the
    rest.
    Files of rules are not read from the work tree, because anybody may have written them there (a command, an earlier
    task, the author of a pull request). A file of rules that has the same text as an earlier one is left out."""
    found: dict[str, str] = {}
    for name in dict.fromkeys((*RULES, *([pinned] if pinned else []))):
        if data := workspace.read_at_base(name):
            text = clean(data.decode("utf-8", "replace"), limit=ISSUE_LIMIT).text
            if text not in found.values():
                found[name] = text
    if workspace.instructions:
        found[FILE] = clean(workspace.instructions, limit=ISSUE_LIMIT).text
    parts = divide(budget.rules, [budget.count(text) for text in found.values()])
    for (name, text), part in zip(found.items(), parts, strict=True):
        yield fence(cut_rules(text, name, part, budget.count), marker, source=f"{RULES_SOURCE}{name}")


def cut_rules(text: str, name: str, tokens: int, count: Callable[[str], int]) -> str:
    """The beginning of a file of rules, with a note on how to read the rest: as many whole lines as fit into `tokens`,
    or a part of the first line if that line does not fit."""
    if count(text) <= tokens:
        return text
    lines = text.split("\n")

    def shown(number: int) -> str:
        rest = f"[cut here; read_file {name} with offset={number + 1} shows the rest]"
        return "\n".join([*lines[:number], rest])

    low = _most(len(lines), lambda number: count(shown(number)) <= tokens)
    if low:
        return shown(low)
    rest = f"\n[cut here; read_file {name} shows the rest]"
    return text[: _most(len(text), lambda size: count(text[:size] + rest) <= tokens)] + rest


def _most(high: int, fits: Callable[[int], bool]) -> int:
    """The largest number up to `high` for which `fits` returns true; 0 if there is none."""
    low = 0
    while low < high:
        middle = (low + high + 1) // 2
        if fits(middle):
            low = middle
        else:
            high = middle - 1
    return low


def task_text(comment: Comment) -> str:
    """The cleaned text of a comment, after the id by which the model can answer it, the file and line or the review to
    which it belongs, and the quoted lines of a review comment."""
    about = ", ".join(filter(None, ["" if comment.id.startswith("text") else f"comment {comment.id}", comment.place]))
    hunk = "\n".join(f"    {line}" for line in comment.hunk.splitlines())
    body = "\n\n".join(filter(None, [f"[{about}]" if about else "", hunk, comment.body]))
    return clean(body, limit=ISSUE_LIMIT).text


def comment_text(comment: Comment, marker: str, text: str | None = None) -> str:
    """One comment as fenced data with its author; `text` replaces the full text."""
    return fence(task_text(comment) if text is None else text, marker, source=COMMENT_SOURCE, author=comment.author)


def identity(comment: Comment) -> Json:
    """The values that identify a version of a comment: its `id` and the time of its last change."""
    return {"id": comment.id, "at": comment.updated_at or comment.created_at}


def fence_comments(
    comments: Sequence[Comment], marker: str, tokens: int, budget: BriefingBudget
) -> list[tuple[Comment | None, str]]:
    """Comments that arrived together, each with its fenced text, in about `tokens` tokens.

    Short comments are shown whole; of longer ones the beginning and end are shown, with the name of a file that has the
    whole text. If the comments are too many for `tokens`, the oldest are saved together in a file; the first item of
    the result is then (None, a line that names the file)."""
    texts: list[str] = []
    needed = 0
    for comment in reversed(comments):
        text = task_text(comment)
        needed += FENCE + min(LEAST, budget.count(text))
        if texts and needed > tokens:
            break
        texts.insert(0, text)
    old, new = comments[: len(comments) - len(texts)], comments[len(comments) - len(texts) :]
    parts = divide(tokens - FENCE * len(texts), [budget.count(text) for text in texts])
    shown = [budget.shorten(text, max(LEAST, part)) for text, part in zip(texts, parts, strict=True)]
    said: list[tuple[Comment | None, str]] = [(None, _save_hidden_comments(old, marker, budget))] if old else []
    return [*said, *((one, comment_text(one, marker, text)) for one, text in zip(new, shown, strict=True))]


def _save_hidden_comments(comments: Sequence[Comment], marker: str, budget: BriefingBudget) -> str:
    """Save the comments that the model does not see in a file; returns a line that names the file."""
    text = "\n\n".join(comment_text(comment, marker) for comment in comments)
    return _not_shown(len(comments), budget.keep(text))


def _not_shown(number: int, name: str) -> str:
    many = f"{number} older comments are" if number > 1 else "An older comment is"
    return f'[{many} not shown; read_output("{name}") shows them]'


def earlier_comments(comments: Sequence[Comment], marker: str, budget: BriefingBudget) -> list[str]:
    """The comments for the briefing, oldest first, as fenced texts within `budget.comments`.

    A comment is shown whole if it fits into its part of the budget (OF_ONE), which is larger for newer comments; of a
    longer one the beginning and end are shown, with the name of a file that has the whole text. When the budget for
    comments is used up, the oldest comments are saved together in a file; the first item of the result names the file,
    and the items of the other saved comments are "".
    """
    shown: list[str] = []
    left = budget.comments
    for number, comment in enumerate(reversed(comments)):
        oldest = number == len(comments) - 1
        part = (left if oldest else left * 2 // OF_ONE) - FENCE
        if part < LEAST:
            break
        shown.append(comment_text(comment, marker, budget.shorten(task_text(comment), part)))
        left -= budget.count(shown[-1])
    rest = comments[: len(comments) - len(shown)]
    if not rest:
        return shown[::-1]
    return [_save_hidden_comments(rest, marker, budget), *[""] * (len(rest) - 1), *shown[::-1]]


def choose_again(text: str, marker: str, budget: BriefingBudget) -> str | None:
    """Shorten a briefing that was written for a larger window of the model; returns None if rules and comments fit into
    `budget`.

    The fences (random markers) of the run mark the parts of the briefing: no other text can contain such a fence,
    because its author would have to know the marker."""
    ours = re.escape(marker)
    opening, closing = rf'<<<UNTRUSTED {ours} source="([^"]*)"[^\n]*>>>\n', rf"\n<<<END UNTRUSTED {ours}>>>"
    found = list(re.finditer(f"({opening})(.*?)({closing})", text, re.DOTALL))
    rules = [one for one in found if one[2].startswith(RULES_SOURCE)]
    said = [one for one in found if one[2] == COMMENT_SOURCE]
    count = budget.count
    if sum(count(one[3]) for one in rules) <= budget.rules and sum(count(one[0]) for one in said) <= budget.comments:
        return None
    shown: dict[int, str] = {}  # offset of a fence → the text that replaces it
    for one, part in zip(rules, divide(budget.rules, [count(one[3]) for one in rules]), strict=True):
        shown[one.start()] = one[1] + cut_rules(one[3], one[2].removeprefix(RULES_SOURCE), part, count) + one[4]
    most = max(1, budget.comments // (LEAST + FENCE))
    old, new = said[:-most], said[-most:]
    for one, part in zip(new, divide(budget.comments - FENCE * len(new), [count(one[3]) for one in new]), strict=True):
        shown[one.start()] = one[1] + budget.shorten(one[3], max(LEAST, part)) + one[4]
    if old:
        shown |= dict.fromkeys((one.start() for one in old), "")
        shown[old[0].start()] = _not_shown(len(old), budget.keep("\n\n".join(one[0] for one in old)))
    made, at = [], 0
    for one in found:
        made += [text[at : one.start()], shown.get(one.start(), one[0])]
        at = one.end()
    return "".join([*made, text[at:]])
