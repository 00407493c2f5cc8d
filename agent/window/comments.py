"""Which comments of people a compaction carries, in a budget of tokens: the newest first, word for word.

The choice needs only the numbers that `context.survey` keeps; text is read of the few that are shortened.
`carried.py` asks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agent.context.comments import cut_to, question_of
from agent.window.shares import LEAST

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from agent.context.comments import Comment
    from agent.values import Json

ABOUT = 8
"""Tokens of the line above a comment or a question."""


def chosen(
    comments: Sequence[Comment],
    end_seq: int,
    budget: int,
    count: Callable[[str], int],
    read: Callable[[int], Mapping[str, Any]],
    *,
    newest: int = 0,
    known: dict[int, int] | None = None,
) -> list[Json]:
    """References (`context/comments.py`) to the comments up to message `end_seq`, oldest first, in `budget` tokens of
    `count`; with them goes the question that a comment answers, also where the answer itself stays in the view.

    All are whole where they fit together.  Else one that is more than half of the budget, or that does not fit whole,
    is shortened to half of what is left, so that a long one never takes the place of all older ones.  Only the newest
    of all is whole up to `newest` tokens: it is what the model works on.  Then half of the budget is left for others.

    `known` keeps the tokens of questions (offset → tokens) for the next call with the same conversation, so that the
    record of a question is read once.
    """
    known = {} if known is None else known
    found: list[Json] = []
    old = [one for one in comments if one.seq <= end_seq or 0 < one.question <= end_seq]
    costs = [_cost(one, end_seq, count, read, known) for one in old]
    left, older = budget, sum(costs)
    for comment, cost in zip(reversed(old), reversed(costs), strict=True):
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
    comment: Comment,
    end_seq: int,
    count: Callable[[str], int],
    read: Callable[[int], Mapping[str, Any]],
    known: dict[int, int],
) -> int:
    """Tokens of a comment with its question and the lines above them, as far as they are behind the cut."""
    cost = comment.tokens + ABOUT if comment.seq <= end_seq else 0
    if 0 < comment.question <= end_seq:
        if comment.asked_at not in known:
            question = question_of(dict(read(comment.asked_at)))
            known[comment.asked_at] = count(question) + question.count("\n") * 2
        cost += known[comment.asked_at] + 2 * ABOUT
    return cost
