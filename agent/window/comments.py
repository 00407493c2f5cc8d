"""Selects the comments of people that a compaction carries over, within a budget of tokens: the newest first, and
unchanged if possible.

The selection uses the numbers in `context.index`; only comments that must be shortened, and questions that comments
answer, are read from disk.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agent.context.comments import cut_to, question_of
from agent.window.budgets import LEAST

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from agent.context.comments import RecordedComment
    from agent.values import Json

ABOUT = 8
"""Tokens of the line that the carry-over puts above a comment or a question."""


def choose_comments(
    comments: Sequence[RecordedComment],
    end_seq: int,
    budget: int,
    count: Callable[[str], int],
    read: Callable[[int], Mapping[str, Any]],
    *,
    newest: int = 0,
    known: dict[int, int] | None = None,
) -> list[Json]:
    """References (`context/comments.py`) to the comments in messages up to `end_seq` that fit into `budget` tokens.

    `count` counts the tokens of a text.  The newest comments are selected first; the result is ordered from the oldest
    to the newest.

    The question that a comment answers is carried over with it, even if the comment itself stays in the view. If all
    comments fit into the budget, no comment is shortened. If the comments do not all fit, a comment that takes more
    than half of the budget, or does not fit whole, is shortened to half of the tokens that are left, so that one long
    comment never displaces all older ones. The oldest comment may take all tokens that are left; a comment of which too
    little would be shown is left out. The newest comment may stay whole up to `newest` tokens, because the model works
    on it; at least half of the budget then remains for the other comments.

    Messages with conditions of the reviewers are selected too, and never shortened; the comments of people share the
    rest of the budget.

    `known` caches the tokens of questions (offset → tokens) between calls for the same conversation, so that each
    question is read only once.
    """
    known = {} if known is None else known
    found: list[Json] = []
    old = [one for one in comments if one.seq <= end_seq or 0 < one.question <= end_seq]
    costs = [_cost(one, end_seq, count, read, known) for one in old]
    must = sum(cost for one, cost in zip(old, costs, strict=True) if one.whole)
    budget = max(0, budget - must)
    left, older = budget, sum(costs) - must
    for comment, cost in zip(reversed(old), reversed(costs), strict=True):
        if comment.whole:
            found.append({"seq": comment.seq})
            continue
        older -= cost
        is_newest = comment is comments[-1]
        if (cost <= left and (cost <= budget // 2 or older <= left - cost)) or (is_newest and cost <= newest):
            found.append({"seq": comment.seq})
            left = max(left - cost, budget // 2 if is_newest else 0)
            continue
        beside = cost - comment.tokens
        room = (left if not older else left // 2) - beside
        if comment.seq > end_seq or room < LEAST // 2:
            continue
        text = str(read(comment.at).get("content") or "")
        if (cut := cut_to(text, comment.seq, room, count)) is not None:
            found.append(cut)
            left -= room + beside
    return found[::-1]


def _cost(
    comment: RecordedComment,
    end_seq: int,
    count: Callable[[str], int],
    read: Callable[[int], Mapping[str, Any]],
    known: dict[int, int],
) -> int:
    """The tokens of a comment with its question and the lines above them; only what the compaction removes from the
    view is counted."""
    cost = comment.tokens + ABOUT if comment.seq <= end_seq else 0
    if 0 < comment.question <= end_seq:
        if comment.asked_at not in known:
            question = question_of(dict(read(comment.asked_at)))
            known[comment.asked_at] = count(question) + question.count("\n") * 2
        cost += known[comment.asked_at] + 2 * ABOUT
    return cost
