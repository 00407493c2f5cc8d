"""Builds the request to one reviewer, within `consensus.token_budget`.

The token budget of a request covers the whole request: system prompt, schema, texts, and the tokens of the answer. The
question, the change and the conditions that reviewers set for an earlier version of the change are never shortened; if
they do not fit, no vote is possible. Of the tokens that these parts leave of the budget, the statements of the
reviewers get at most half, or more if their votes and objections need more (their reasons are shortened before their
objections); inputs such as the issue share the rest.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

import orjson

from agent.consensus.errors import BudgetExceeded
from agent.consensus.material import DIFF, HEADINGS, WHOLE
from agent.consensus.phases import Phase
from agent.consensus.token_budget import ConsensusContext, ContextMeta, TokenBudgetManager, reduction
from agent.consensus.votes import CRITIQUE_TOOL, VOTE_TOOL
from agent.window.budgets import divide
from agent.window.head_tail import head_and_tail

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from agent.consensus.material import CleanedMaterial
    from agent.consensus.token_budget import ReductionLog, ReviewerStatement
    from agent.values import Json

OVERHEAD = 64
"""Estimated tokens for the roles, the separators and the tool choice of a request."""
FEWEST = 40
"""An input for a reviewer that would have to be cut to fewer tokens than this is left out."""
TRIES = 8


class Templates(Protocol):
    """The interface of a source of prompt templates; the package `agent.prompts` implements it."""

    def render(self, name: str, /, **values: Any) -> str:
        """The text of a prompt template, with the values inserted."""
        ...

    def version(self, name: str) -> str:
        """The version of a template."""
        ...

    def digest(self, name: str) -> str:
        """The SHA-256 of a template in hex."""
        ...


@dataclass(frozen=True, slots=True)
class Asked:
    """One request to a reviewer, ready to be sent: `tokens` is the estimate for the whole request and its answer."""

    system: str
    text: str
    tool: Json
    tokens: int
    logs: tuple[ReductionLog, ...] = ()
    left_out: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RequestBuilder:
    """Builds the requests to one persona; `budget` and `answer` are numbers of tokens, and `count` returns the tokens
    of a text."""

    persona: str
    template: str
    prepared: CleanedMaterial
    templates: Templates
    count: Callable[[str], int]
    budget: int
    answer: int
    summarise: Callable[[str], str | None] = lambda _text: None
    plain: bool = False  # whether the model has no tool calls; the schema is then in the system prompt

    def build(
        self,
        phase: Phase,
        thinking: Sequence[ReviewerStatement] = (),
        debates: Sequence[ReviewerStatement] = (),
        errors: Sequence[str] = (),
    ) -> Asked:
        """Build the request to the reviewer for one phase. Raises BudgetExceeded if the request cannot be made short
        enough."""
        tool = CRITIQUE_TOOL if phase is Phase.DEBATE else VOTE_TOOL
        schema = orjson.dumps(tool if not self.plain else tool["function"]["parameters"]).decode()
        rules = self.templates.render("reviewer_rules", schema=schema if self.plain else "")
        system = f"{self.templates.render(self.template)}\n\n{rules}"
        beside = self.count(system) + (0 if self.plain else self.count(schema)) + self.answer + OVERHEAD
        room = self.budget - beside
        fit = _Fit(self, phase, tool["function"]["name"], tuple(errors))
        shrink = 0
        for _ in range(TRIES):
            text, logs, left_out = fit.into(room - shrink, thinking, debates)
            over = self.count(text) - room
            if over <= 0:
                return Asked(system, text, tool, self.count(text) + beside, logs, left_out)
            shrink += over + 1
        raise too_long(room, over)


@dataclass(frozen=True, slots=True)
class _Fit:
    """Fits the text of one request to a reviewer into a given number of tokens."""

    builder: RequestBuilder
    phase: Phase
    tool: str
    errors: tuple[str, ...]

    def into(
        self, room: int, thinking: Sequence[ReviewerStatement], debates: Sequence[ReviewerStatement]
    ) -> tuple[str, tuple[ReductionLog, ...], tuple[str, ...]]:
        """Returns (text of the request, log of reductions, names of the parts that were left out); the text may still
        be a few tokens too long. Raises BudgetExceeded if the parts that are never shortened are too long."""
        builder, count = self.builder, self.builder.count
        seen = builder.prepared.seen_by(builder.persona)
        whole = [name for name in seen if name in WHOLE]
        inputs = [name for name in seen if name not in WHOLE]
        fixed = self._text({name: seen[name] for name in whole}, "-" if thinking else "", inputs)
        left = room - count(fixed)
        if left < 0:
            raise too_long(room, -left, count(seen.get(DIFF, "")))
        said = ""
        logs: tuple[ReductionLog, ...] = ()
        if thinking:
            result = TokenBudgetManager(count, builder.summarise).enforce_budget(
                ConsensusContext(
                    tuple(thinking),
                    tuple(debates),
                    ContextMeta(self.phase.value, self._for_statements(left, thinking, debates)),
                )
            )
            said, logs = result.context, result.logs
            left -= count(said)
        wanted = [count(self._block(name, seen[name])) for name in inputs]
        parts, left_out = {name: seen[name] for name in whole}, []
        for name, size, share in zip(inputs, wanted, divide(left, wanted), strict=True):
            text = seen[name] if size <= share else self._shortened(name, seen[name], share)
            if text:
                parts[name] = text
            else:
                left_out.append(name)
            if text != seen[name]:
                logs = (*logs, reduction(f"input {name}", self.phase.value, size, min(size, share), (name,), text))
        return self._text({name: parts[name] for name in seen if name in parts}, said, left_out), logs, tuple(left_out)

    def _for_statements(
        self, left: int, thinking: Sequence[ReviewerStatement], debates: Sequence[ReviewerStatement]
    ) -> int:
        """The maximum tokens for the statements of reviewers: half of the remaining tokens, or more if all votes and
        objections need more.
        """
        count = self.builder.count
        objections = "\n\n".join(replace(one, reason="").lines() for one in (*thinking, *debates))
        return max(0, min(left, max(left // 2, count(objections) + FEWEST)))

    def _shortened(self, name: str, text: str, share: int) -> str:
        room = share - self.builder.count(self._block(name, ""))
        return head_and_tail(text, room, self.builder.count) if room >= FEWEST else ""

    def _block(self, name: str, text: str) -> str:
        return f"## {HEADINGS[name]}\n\n{self.builder.prepared.fenced(name, text)}\n\n"

    def _text(self, parts: Mapping[str, str], said: str, left_out: Sequence[str]) -> str:
        prepared = self.builder.prepared
        return self.builder.templates.render(
            "deliberation",
            phase=self.phase.value,
            parts=[(HEADINGS[name], prepared.fenced(name, text)) for name, text in parts.items()],
            left_out=[HEADINGS[name] for name in left_out],
            said=prepared.fenced("reviewers", said) if said else "",
            tool=self.tool,
            errors=list(self.errors),
        )


def too_long(room: int, over: int, change: int = 0) -> BudgetExceeded:
    """The error for a request of which the fixed parts are too long."""
    of = f", {change} of them the change" if change else ""
    return BudgetExceeded(
        f"what a reviewer has to see whole has {room + over} tokens{of}, and consensus.token_budget leaves {room} for "
        f"it; raise consensus.token_budget, or make the change smaller"
    )
