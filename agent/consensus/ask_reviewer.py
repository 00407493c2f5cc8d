"""Asks one reviewer for an answer that fits the schema; after an invalid answer the reviewer is asked again, at most
`consensus.schema_retries` times.

Each repeated request to a reviewer lists the errors of the previous answer as `path: keyword`; the previous answer
itself is not shown again, since it may contain any text. Retries after errors of the connection are counted by the
model client, not by `ask_reviewer.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from agent.consensus.errors import NoVote, RetryExceeded
from agent.consensus.phases import Phase
from agent.consensus.reviewers import designated_text
from agent.consensus.votes import SchemaValidator
from agent.context.deliberations import REDUCTION, REFUSED, REQUEST
from agent.errors import RequestRefused

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from agent.consensus.record import DeliberationRecord
    from agent.consensus.request import Asked, RequestBuilder
    from agent.consensus.reviewers import Reviewer
    from agent.consensus.streaming import PersonaStream, StreamingEmitter
    from agent.consensus.token_budget import ReviewerStatement
    from agent.values import Answer, Json

VALIDATOR = SchemaValidator()


@dataclass(frozen=True, slots=True)
class Question:
    """One question to one reviewer, with all that is needed to send it: `ask_until_valid` sends it up to `tries` times,
    until an answer is valid. `thinking` and `debates` are the statements of the earlier phases, as this reviewer sees
    them. `reduced` is called for each step that shortened a text, with `ReductionLog.to_dict()` and the name of the
    persona.

    `may_retry` takes one of the retries that all reviewers of the deliberation share, and returns False if there is
    none.
    """

    reviewer: Reviewer
    phase: Phase
    round: int
    thinking: Sequence[ReviewerStatement]
    debates: Sequence[ReviewerStatement]
    builder: Callable[[Reviewer], RequestBuilder]
    emitter: StreamingEmitter
    record: DeliberationRecord | None
    tries: int
    may_retry: Callable[[], bool]
    reduced: Callable[[Json], None]
    log_reductions: bool = False

    def ask_until_valid(self) -> Json:
        """Ask the reviewer until an answer is valid or no try is left; returns the vote or critique as JSON that fits
        the schema.

        Raises RetryExceeded, BudgetExceeded, an error of the model client, or Interrupted.
        """
        errors: tuple[str, ...] = ()
        with self.emitter.stream(self.reviewer.name, self.phase.value, self.round) as stream:
            for number in range(self.tries):
                if number and not self.may_retry():
                    break
                try:
                    return self._send_once(stream, errors)
                except NoVote as no_vote:
                    errors = no_vote.errors
                    stream.retry("schema")
                    self._record_line(REFUSED, errors=list(errors))
            said = "gave no vote by the schema, also when it was asked again"
            raise RetryExceeded(f"{self.reviewer.model} {said}; the last errors: {errors}")

    def _send_once(self, stream: PersonaStream, errors: Sequence[str]) -> Json:
        """Send one request and read its answer. If the server refuses a request with a tool, the request is sent once
        more without it, and the vote or critique is read from the text of the answer. After the server has refused a
        tool, no later request to this reviewer has a tool."""
        asked = self._build(errors)
        try:
            answer = self.reviewer.ask(asked, stream, output=self.builder(self.reviewer).answer)
        except RequestRefused:
            if self.reviewer.plain:
                raise
            self.reviewer.plain = True
            stream.retry("tools")
            asked = self._build(errors)
            answer = self.reviewer.ask(asked, stream, output=self.builder(self.reviewer).answer)
        self._record_line(
            REQUEST,
            system=asked.system,
            text=asked.text,
            tokens=asked.tokens,
            left_out=list(asked.left_out),
            request=answer.request,
            finish_reason=answer.finish_reason,
        )
        return self._read(answer, asked)

    def _build(self, errors: Sequence[str]) -> Asked:
        asked = self.builder(self.reviewer).build(self.phase, self.thinking, self.debates, errors)
        for line in asked.logs:
            self.reduced({"persona": self.reviewer.name, **line.to_dict()})
            text = {"text": line.text} if self.log_reductions else {}
            self._record_line(REDUCTION, **line.to_dict(), **text)
        return asked

    def _read(self, answer: Answer, asked: Asked) -> Json:
        text = designated_text(answer, asked.tool["function"]["name"])
        found = VALIDATOR.read_critique(text) if self.phase is Phase.DEBATE else VALIDATOR.read_vote(text)
        return found.to_dict()

    def _record_line(self, kind: str, **fields: Any) -> None:
        if self.record is not None:
            about = {"persona": self.reviewer.name, "phase": self.phase.value, "round": self.round}
            self.record.add(kind, **{**about, "model": self.reviewer.model, **fields})
