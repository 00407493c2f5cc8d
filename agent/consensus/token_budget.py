"""Shortens the statements of reviewers to a budget of tokens: no reviewer is removed, and objections are cut last.

The text of the statements is shortened in four steps, each used only if the text is still too long: duplicates are
dropped; each reason is replaced by a summary, or by its first sentences; reasons are shortened further, down to
nothing; objections are shortened, and each reviewer first gets up to FLOOR of the budget for its own. The line with the
vote of a reviewer is never cut or left out. Each step that shortens the statements adds a ReductionLog to the result.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from agent import clock
from agent.consensus.errors import BudgetExceeded
from agent.window.budgets import divide

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from agent.values import Counter, Json

FLOOR = 0.15
"""The share of the token budget that the objections of each reviewer get first, if they need it and the votes leave
it."""
SENTENCES = 2
"""The number of sentences of a reason that the step `summary` keeps if there is no summary."""
WORTH = 300
"""A reason with fewer characters than this is not summarised by a request."""
BYTES = 3
"""Each text counts as at least one token for every BYTES bytes, since the estimate of a tokenizer may be too low."""
CUT = "…"

_SENTENCE = re.compile(r"[^.!?。！？\n]*+(?:[.!?。！？\n]+|\Z)\s*+")


@dataclass(frozen=True, slots=True)
class ReviewerStatement:
    """The vote and arguments of one reviewer in one phase.  `name` is the name under which the reader sees the reviewer
    (R1), `objections` are the reviewer's findings and then its conditions."""

    name: str
    vote: str
    reason: str = ""
    objections: tuple[str, ...] = ()

    def lines(self) -> str:
        """The statement of a reviewer as text."""
        parts = [f"{self.name}: {self.vote}", *(f"- {one}" for one in self.objections)]
        return "\n".join([*parts, self.reason] if self.reason else parts)


@dataclass(frozen=True, slots=True)
class ContextMeta:
    """`phase` is for the log; `token_budget` is the maximum number of tokens of the text."""

    phase: str
    token_budget: int


@dataclass(frozen=True, slots=True)
class ConsensusContext:
    """All statements so far: `thinking` has those of the blind phase, `debates` those of all rounds of the debate."""

    thinking: tuple[ReviewerStatement, ...]
    debates: tuple[ReviewerStatement, ...]
    metadata: ContextMeta


@dataclass(frozen=True, slots=True)
class ReductionLog:
    """One step that shortened the statements or one input: the tokens before and after, the names of the statements or
    of the input that lost text (`dropped`), and the resulting text with its hash."""

    reason: str
    before: int
    after: int
    phase: str
    dropped: tuple[str, ...] = ()
    sha256: str = ""
    timestamp: str = ""
    text: str = ""

    def to_dict(self) -> Json:
        """The reduction step as JSON, with the ratio of the tokens after and before, and without the text."""
        ratio = round(self.after / self.before, 3) if self.before else 1.0
        return {
            "phase": self.phase,
            "strategy": self.reason,
            "before": self.before,
            "after": self.after,
            "ratio": ratio,
            "dropped": list(self.dropped),
            "sha256": self.sha256,
            "timestamp": self.timestamp,
        }


@dataclass(frozen=True, slots=True)
class BudgetResult:
    """`context` is the text of all statements within the token budget, "" if there is no statement yet."""

    context: str
    reduced_tokens: int = 0
    summary_applied: bool = False
    logs: tuple[ReductionLog, ...] = ()


def conservative(counter: Counter) -> Callable[[str], int]:
    """Returns a function that counts tokens like `counter`, but at least one for every BYTES bytes, since the estimate
    for code may be too low."""

    def count(text: str) -> int:
        return max(counter.count(text), -(-len(text.encode("utf-8", "surrogatepass")) // BYTES))

    return count


class TokenBudgetManager:
    """Reduces the statements of reviewers to a token budget; `count` counts the tokens of a text.

    `summarise` returns a summary of a reason, or None; the first sentences of the reason are then used instead.
    """

    def __init__(
        self, count: Callable[[str], int], summarise: Callable[[str], str | None] = lambda _text: None
    ) -> None:
        self.count = count
        self.summarise = summarise
        self._written: set[str] = set()  # the summaries that a model wrote

    def enforce_budget(self, context: ConsensusContext) -> BudgetResult:
        """The text of all statements, within the token budget of `context`.

        Raises BudgetExceeded if not even the lines with the votes fit into the budget.
        """
        meta = context.metadata
        said = (*context.thinking, *context.debates)
        first = before = self.count(_text(said))
        logs: list[ReductionLog] = []
        summarised = False
        for name, step in (
            ("duplicates", _without_duplicates),
            ("summary", self._summaries),
            ("reasons", self._shorter_reasons),
            ("objections", self._shorter_objections),
        ):
            if before <= meta.token_budget:
                break
            shorter = step(said, meta.token_budget)
            after = self.count(_text(shorter))
            if after < before:
                summarised = summarised or name == "summary"
                known = "key_sentences" if name == "summary" and not self._is_by_model(shorter) else name
                logs.append(_log(known, meta.phase, before, after, said, shorter))
                said, before = shorter, after
        if before > meta.token_budget:
            raise BudgetExceeded(
                f"the votes of the reviewers alone have {before} tokens, and {meta.token_budget} are left for them; "
                f"raise consensus.token_budget"
            )
        return BudgetResult(_text(said), first - before, summarised, tuple(logs))

    def _is_by_model(self, said: Sequence[ReviewerStatement]) -> bool:
        return any(one.reason in self._written for one in said)

    def _summaries(self, said: Sequence[ReviewerStatement], _budget: int) -> tuple[ReviewerStatement, ...]:
        """Replace each reason by its summary, or by its first sentences if there is no summary."""
        found = []
        for one in said:
            short = self.summarise(one.reason) if len(one.reason) >= WORTH else None
            if short is not None:
                self._written.add(short)
            found.append(replace(one, reason=short if short is not None else _key_sentences(one.reason)))
        return tuple(found)

    def _shorter_reasons(self, said: Sequence[ReviewerStatement], budget: int) -> tuple[ReviewerStatement, ...]:
        """Cut the reasons so that they fit into the tokens which the votes and objections leave."""
        bare = tuple(replace(one, reason="") for one in said)
        parts = divide(budget - self.count(_text(bare)), [self.count(one.reason) for one in said])
        while True:
            shorter = tuple(
                replace(one, reason=self._cut(one.reason, part)) for one, part in zip(said, parts, strict=True)
            )
            # the whole text may have more tokens than the sum of its parts
            if self.count(_text(shorter)) <= budget or not any(parts):
                return shorter
            parts = [part * 3 // 4 for part in parts]

    def _shorter_objections(self, said: Sequence[ReviewerStatement], budget: int) -> tuple[ReviewerStatement, ...]:
        """Drop the reasons, and cut the objections so that they fit into the tokens which the votes leave.

        First the objections of each reviewer get up to FLOOR of the budget; then the remaining tokens are divided.
        """
        heads = tuple(replace(one, reason="", objections=()) for one in said)
        room = budget - self.count(_text(heads))
        names = list(dict.fromkeys(one.name for one in said))
        wanted = {name: sum(self._size(one) for one in said if one.name == name) for name in names}
        floor = {name: min(wanted[name], int(budget * FLOOR), max(0, room) // len(names)) for name in names}
        more = divide(room - sum(floor.values()), [wanted[name] - floor[name] for name in names])
        extra = dict(zip(names, more, strict=True))
        while True:
            shorter = tuple(self._within(one, floor[one.name] + extra[one.name], wanted[one.name]) for one in said)
            if self.count(_text(shorter)) <= budget or not any((*extra.values(), *floor.values())):
                return shorter
            # the whole text may have more tokens than the sum of its parts, so the parts are cut further; the tokens
            # that each reviewer has up to FLOOR are cut last
            if any(extra.values()):
                extra = {name: part * 3 // 4 for name, part in extra.items()}
            else:
                floor = {name: part * 3 // 4 for name, part in floor.items()}

    def _size(self, statement: ReviewerStatement) -> int:
        return sum(self.count(f"- {one}\n") for one in statement.objections)

    def _within(self, statement: ReviewerStatement, share: int, wanted: int) -> ReviewerStatement:
        """Cut the objections of one statement to its part of the tokens that the reviewer has; the first objections
        stay whole."""
        left = share * self._size(statement) // max(1, wanted)
        kept: list[str] = []
        for objection in statement.objections:
            whole = self.count(f"- {objection}\n") <= left
            shorter = objection if whole else self._cut(objection, left - self.count("- \n"))
            if shorter:
                kept.append(shorter)
                left -= self.count(f"- {shorter}\n")
            if not whole:
                break
        return replace(statement, reason="", objections=tuple(kept))

    def _cut(self, text: str, most: int) -> str:
        """The beginning of a text in at most `most` tokens, cut at a space or line end if one is in its second half; ""
        if nothing fits."""
        tokens = self.count(text)
        if tokens <= most:
            return text
        size = len(text) * max(0, most) // max(1, tokens)
        while size > 0:
            head = text[:size]
            at = max(head.rfind(" "), head.rfind("\n"))
            head = (head[:at] if at > size // 2 else head).rstrip()
            if self.count(head + CUT) <= most:
                return head + CUT if head else ""
            size = size * 7 // 8
        return ""


def _text(said: Sequence[ReviewerStatement]) -> str:
    return "\n\n".join(one.lines() for one in said)


def _without_duplicates(said: Sequence[ReviewerStatement], _budget: int) -> tuple[ReviewerStatement, ...]:
    """Remove objections and reasons that the same reviewer repeats from an earlier statement; the votes stay."""
    seen: set[tuple[str, str]] = set()
    found = []
    for one in said:
        objections = tuple(text for text in dict.fromkeys(one.objections) if (one.name, text) not in seen)
        reason = "" if (one.name, one.reason) in seen else one.reason
        seen |= {(one.name, text) for text in (*objections, one.reason)}
        found.append(replace(one, objections=objections, reason=reason))
    return tuple(found)


def _key_sentences(reason: str) -> str:
    """The first sentences of a reason, since a reviewer states its result first."""
    return "".join(_SENTENCE.findall(reason)[:SENTENCES]).rstrip()


def _log(
    name: str, phase: str, before: int, after: int, old: Sequence[ReviewerStatement], new: Sequence[ReviewerStatement]
) -> ReductionLog:
    pairs = enumerate(zip(old, new, strict=True))
    changed = tuple(f"{one.name}.{number}" for number, (one, other) in pairs if one != other)
    return reduction(name, phase, before, after, changed, _text(new))


def reduction(name: str, phase: str, before: int, after: int, dropped: tuple[str, ...], text: str) -> ReductionLog:
    """Make the log entry of one reduction step, with the hash of the resulting text."""
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    return ReductionLog(name, before, after, phase, dropped, digest, clock.stamp(), text)
