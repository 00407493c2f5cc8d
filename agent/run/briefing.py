"""The first two messages of a task: the system prompt, ours alone, and the briefing, which holds what others wrote.

Everything from outside passes `security.sanitise` and stands between the run's random markers, so that nothing in it
can pass for an instruction of this program (design: sections 5 and 10).  Written once; a resumed task finds them, and
where the window has become smaller `chosen_again` makes a shorter one of it.  The title and the body are never cut;
rules and comments keep to their budgets (`Budget`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agent.prompts import render
from agent.security.fence import fence
from agent.security.sanitise import clean
from agent.window.shares import LEAST, divided

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from agent.config import Settings
    from agent.forge.base import Comment, IssueText
    from agent.run.parent import Parent
    from agent.work.workspace import Workspace

RULES = ("AGENTS.md", "CLAUDE.md")
RULES_SOURCE = "repository rules: "
COMMENT_SOURCE = "comment"

ISSUE_LIMIT = 1 << 20
"""Characters of a body or a comment, as many as any forge takes.  A task is never cut to fit: what does not fit
is told on the issue and not sent (seed 001, FR-5; design: section 5)."""

OF_ONE = 3
"""One comment has at most two parts in so many of what is left for comments: one long text must not push out all that
was said before it."""

FENCE = 60
"""Tokens of the two lines around a text from outside."""


@dataclass(frozen=True, slots=True)
class Budget:
    """What the parts of a briefing may have, in tokens of the model as `count` counts them: `rules` for all files of
    rules, `told` for all comments.  `shorten(text, tokens)` gives head, tail and a pointer to the whole, which it
    keeps; `keep(text)` keeps a text and gives its name for `read_output`."""

    rules: int
    told: int
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
    budget: Budget,
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
    said = told((*comments, *news), marker, budget)
    new = len(said) - len(news)
    earlier = budget.shorten(clean(parent.summary).text, max(LEAST, budget.told // OF_ONE)) if parent else ""
    return render(
        "briefing",
        rules=list(rules(workspace, marker, budget)),
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
        earlier=fence(earlier, marker, source="an earlier run's summary") if parent else "",
        goes_on=parent is not None and parent.branch == workspace.branch,
    )


def rules(workspace: Workspace, marker: str, budget: Budget) -> Iterable[str]:
    """AGENTS.md and CLAUDE.md as they are in the base commit and not as a file that was smuggled into the work tree,
    together within `budget.rules`, with a pointer to the rest.  The second is left out where it says the same."""
    found: dict[str, str] = {}
    for name in RULES:
        if data := workspace.read_at_base(name):
            text = clean(data.decode("utf-8", "replace"), limit=ISSUE_LIMIT).text
            if text not in found.values():
                found[name] = text
    parts = divided(budget.rules, [budget.count(text) for text in found.values()])
    for (name, text), part in zip(found.items(), parts, strict=True):
        yield fence(cut_rules(text, name, part, budget.count), marker, source=f"{RULES_SOURCE}{name}")


def cut_rules(text: str, name: str, tokens: int, count: Callable[[str], int]) -> str:
    """As many whole lines as have at most `tokens`, or the beginning of the first, and where to read on."""
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
    """The largest number up to `high` that fits, 0 for none."""
    low = 0
    while low < high:
        middle = (low + high + 1) // 2
        if fits(middle):
            low = middle
        else:
            high = middle - 1
    return low


def text_of(comment: Comment) -> str:
    """What a comment says, cleaned, and where it was said."""
    body = f"[{comment.place}]\n\n{comment.body}" if comment.place else comment.body
    return clean(body, limit=ISSUE_LIMIT).text


def comment_text(comment: Comment, marker: str, text: str | None = None) -> str:
    """One comment as fenced data with its author; `text` is what is shown of it."""
    return fence(text_of(comment) if text is None else text, marker, source=COMMENT_SOURCE, author=comment.author)


def together(comments: Sequence[Comment], marker: str, tokens: int, budget: Budget) -> list[tuple[Comment | None, str]]:
    """Comments that came together, each with its fenced text, in at most `tokens`: short ones whole, longer ones with
    head, tail and a pointer.  Of too many for that the oldest are kept in one place, which a first line names."""
    most = max(1, tokens // (LEAST + FENCE))
    old, new = comments[:-most], comments[-most:]
    texts = [text_of(comment) for comment in new]
    parts = divided(tokens - FENCE * len(texts), [budget.count(text) for text in texts])
    shown = [budget.shorten(text, max(LEAST, part)) for text, part in zip(texts, parts, strict=True)]
    said: list[tuple[Comment | None, str]] = [(None, _kept(old, marker, budget))] if old else []
    return [*said, *((one, comment_text(one, marker, text)) for one, text in zip(new, shown, strict=True))]


def _kept(comments: Sequence[Comment], marker: str, budget: Budget) -> str:
    """The line for comments that are not shown, which are kept together."""
    text = "\n\n".join(comment_text(comment, marker) for comment in comments)
    return _not_shown(len(comments), budget.keep(text))


def _not_shown(number: int, name: str) -> str:
    many = f"{number} older comments are" if number > 1 else "An older comment is"
    return f'[{many} not shown; read_output("{name}") shows them]'


def told(comments: Sequence[Comment], marker: str, budget: Budget) -> list[str]:
    """What was said before the task began, oldest first, within `budget.told`.

    The newest are shown word for word, longer and older ones with head, tail and a pointer.  Where nothing is left, the
    oldest are kept together in one place that the first line names; "" stands for each other of those.
    """
    shown: list[str] = []
    left = budget.told
    for number, comment in enumerate(reversed(comments)):
        oldest = number == len(comments) - 1
        part = (left if oldest else left * 2 // OF_ONE) - FENCE
        if part < LEAST:
            break
        shown.append(comment_text(comment, marker, budget.shorten(text_of(comment), part)))
        left -= budget.count(shown[-1])
    rest = comments[: len(comments) - len(shown)]
    if not rest:
        return shown[::-1]
    return [_kept(rest, marker, budget), *[""] * (len(rest) - 1), *shown[::-1]]


def chosen_again(text: str, marker: str, budget: Budget) -> str | None:
    """A briefing that was written for a larger window, with rules and comments within `budget`; None where it keeps to
    it.  The fences of this run tell the parts: nobody else can write them."""
    ours = re.escape(marker)
    opening, closing = rf'<<<UNTRUSTED {ours} source="([^"]*)"[^\n]*>>>\n', rf"\n<<<END UNTRUSTED {ours}>>>"
    found = list(re.finditer(f"({opening})(.*?)({closing})", text, re.DOTALL))
    rules = [one for one in found if one[2].startswith(RULES_SOURCE)]
    said = [one for one in found if one[2] == COMMENT_SOURCE]
    count = budget.count
    if sum(count(one[3]) for one in rules) <= budget.rules and sum(count(one[0]) for one in said) <= budget.told:
        return None
    shown: dict[int, str] = {}  # by where it stands
    for one, part in zip(rules, divided(budget.rules, [count(one[3]) for one in rules]), strict=True):
        shown[one.start()] = one[1] + cut_rules(one[3], one[2].removeprefix(RULES_SOURCE), part, count) + one[4]
    most = max(1, budget.told // (LEAST + FENCE))
    old, new = said[:-most], said[-most:]
    for one, part in zip(new, divided(budget.told - FENCE * len(new), [count(one[3]) for one in new]), strict=True):
        shown[one.start()] = one[1] + budget.shorten(one[3], max(LEAST, part)) + one[4]
    if old:
        shown |= dict.fromkeys((one.start() for one in old), "")
        shown[old[0].start()] = _not_shown(len(old), budget.keep("\n\n".join(one[0] for one in old)))
    made, at = [], 0
    for one in found:
        made += [text[at : one.start()], shown.get(one.start(), one[0])]
        at = one.end()
    return "".join([*made, text[at:]])
