"""Runs one deliberation, from the blind votes to the decision (`engine.py` starts it)."""

from __future__ import annotations

import hashlib
import random
import threading
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from agent import deadline
from agent.consensus.ask_reviewer import VALIDATOR, Question
from agent.consensus.citations import CheckedVote, Citable, check_citations
from agent.consensus.decision import EXIT_CODES, ConsensusDecision, Decision, decide, final_vote
from agent.consensus.errors import BudgetExceeded, ConsensusError, NoVote, StreamLost
from agent.consensus.material import prepare
from agent.consensus.phases import Phase, advance
from agent.consensus.quorum import QuorumManager
from agent.consensus.request import RequestBuilder
from agent.consensus.reviewers import LOST
from agent.consensus.summaries import DeliberationSummaries
from agent.consensus.token_budget import ReviewerStatement, conservative
from agent.consensus.votes import Critique, VotePayload
from agent.context.deliberations import DECISION, FAILED, STATEMENT, masked
from agent.errors import ModelError
from agent.llm.base import Interrupted
from agent.security.sanitise import output
from agent.tokens import counter_for

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agent.config.reviewer_section import Consensus
    from agent.consensus.material import CleanedMaterial, Material
    from agent.consensus.record import DeliberationRecord
    from agent.consensus.request import Templates
    from agent.consensus.reviewers import Reviewer
    from agent.consensus.streaming import StreamingEmitter
    from agent.observe.events import EventSink
    from agent.values import Json, Redact

YOU = "You"
Said = dict[str, Any]
"""The VotePayload or Critique of each persona that answered in one phase; findings at places that do not exist are
removed."""


class _FailedSafe(Exception):
    """Ends a deliberation that cannot reach a decision; the message gives the reason."""


@dataclass
class Deliberation:
    """The state of one deliberation.  `run` may be called only once."""

    section: Consensus
    reviewers: Mapping[str, Reviewer]
    templates: Templates
    emitter: StreamingEmitter
    record: DeliberationRecord | None
    events: EventSink | None
    redact: Redact
    material: Material
    overrides: Mapping[str, str]
    isolation: str = ""
    phase: Phase = Phase.THINKING
    excluded: dict[str, str] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    struck: dict[str, int] = field(default_factory=dict)
    reductions: list[Json] = field(default_factory=list)
    permutations: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.prepared: CleanedMaterial = prepare(self.material, self.redact)
        self.summaries = DeliberationSummaries(self.templates, self.prepared, self._as_paragraph)
        self.citable = Citable.from_diff(self.material.diff, self.material.tests)
        self.quorum = QuorumManager(self.section.schema_retries * len(self.reviewers))
        self.quorum.register_agents(len(self.reviewers), self.section.quorum)
        self.seed = hashlib.sha256(repr(sorted(self.material.parts().items())).encode("utf-8", "replace")).hexdigest()
        self.known = self.record.statements() if self.record is not None else {}
        self.slots: dict[str, threading.Semaphore] = {}
        for one in self.reviewers.values():
            if one.slots is not None:
                self.slots.setdefault(one.server, threading.Semaphore(one.slots))

    def run(self) -> ConsensusDecision:
        """Run the deliberation and record the decision."""
        if len({one.model for one in self.reviewers.values()}) == 1:
            self._emit("reviewers_alike", model=next(iter(self.reviewers.values())).model)
        try:
            decision = self._decide()
        except _FailedSafe as failed:
            self.phase = advance(self.phase, Phase.FAILED_SAFE)
            decision = self._result(Decision.FAILED_SAFE, str(failed), {}, ())
        if self.record is not None:
            self.record.add(DECISION, result=decision.to_dict())
        retries = self.section.schema_retries * len(self.reviewers) - self.quorum.current_state().retries_left
        self._emit(
            "deliberation_ended",
            decision=decision.decision.value,
            why=decision.reason,
            no_votes=retries,
            waits=sum(one.events.waits for one in self.reviewers.values()),
            tokens_before=sum(one["before"] for one in self.reductions),
            tokens_after=sum(one["after"] for one in self.reductions),
        )
        return decision

    def _decide(self) -> ConsensusDecision:
        self._check_size()
        provisional = self._ask_all(0, {}, [])
        debates: list[Said] = []
        for number in range(1, self.section.rounds + 1):
            self.phase = advance(self.phase, Phase.DEBATE)
            debates.append(self._ask_all(number, provisional, debates))
        self.phase = advance(self.phase, Phase.VOTING)
        final = self._ask_all(0, provisional, debates) if debates else provisional
        votes, kept = {}, []
        for name, vote in final.items():
            before = CheckedVote(provisional[name]) if name in provisional else None
            criticised = next((said[name].findings for said in reversed(debates) if said[name].findings), ())
            votes[name], was_kept = final_vote(before, CheckedVote(vote), criticised)
            if was_kept:
                kept.append(name)
        decision, reason, conditions = decide(votes, quorum=self.section.quorum, veto=self.section.veto)
        self.phase = advance(self.phase, Phase.FAILED_SAFE if decision is Decision.FAILED_SAFE else Phase.COMPLETED)
        counted = {} if decision is Decision.FAILED_SAFE else {name: one.vote for name, one in votes.items()}
        return self._result(decision, reason, counted, conditions, tuple(kept))

    def _result(
        self,
        decision: Decision,
        reason: str,
        votes: Mapping[str, VotePayload],
        conditions: tuple[str, ...],
        kept: tuple[str, ...] = (),
    ) -> ConsensusDecision:
        names = {name: self._template(one) for name, one in self.reviewers.items()}
        return ConsensusDecision(
            decision,
            votes,
            EXIT_CODES[decision],
            conditions,
            reason,
            dict(self.excluded),
            dict(self.struck),
            kept,
            {name: one.model for name, one in self.reviewers.items()},
            tuple(self.reductions),
            self.prepared.hits,
            {
                name: {
                    "name": template,
                    "version": self.templates.version(template),
                    "sha256": self.templates.digest(template),
                }
                for name, template in names.items()
            },
            self.isolation,
            dict(self.permutations),
            failures=dict(self.failures),
        )

    # --- one phase ----------------------------------------------------------------------------------------------

    def _ask_all(self, number: int, provisional: Said, debates: list[Said]) -> Said:
        """The statements, in the present phase, of all reviewers that have not failed. A statement that an earlier
        process recorded is used again; the other reviewers are asked, at the same time.

        Raises _FailedSafe if fewer reviewers than the quorum are left. Every error cancels the requests that still run.
        """
        self.quorum.begin_phase()
        said: Said = {}
        heard: dict[str, tuple[list[ReviewerStatement], list[ReviewerStatement]]] = {}
        left = [one for name, one in self.reviewers.items() if name not in self.excluded]
        for one in list(left):
            heard[one.name] = self._heard_by(one.name, number, provisional, debates)
            if (known := self._recorded_statement(one.name, number)) is not None:
                said[one.name] = known
                self.quorum.note_success(one.name)
                left.remove(one)
        with ThreadPoolExecutor(max(1, len(left)), thread_name_prefix="reviewer") as threads:
            pending = {threads.submit(self._ask_reviewer, one, number, *heard[one.name]): one for one in left}
            try:
                self._collect(pending, said, number)
            except BaseException:
                self._cancel()
                raise
        return {name: said[name] for name in self.reviewers if name in said}

    def _collect(self, pending: dict[Future[Json], Reviewer], said: Said, number: int) -> None:
        """Record the reviewers' answers in the order in which they arrive. If fewer reviewers than the quorum are left,
        _FailedSafe is raised, and answers that come later are ignored.
        """
        with deadline.within("the reviewers", self._longest()):
            while pending:
                done, _ = wait(pending, timeout=0.5, return_when=FIRST_COMPLETED)
                for future in done:
                    reviewer = pending.pop(future)
                    try:
                        payload = future.result()
                    except (ConsensusError, ModelError) as error:
                        self._exclude_reviewer(reviewer, error, number)
                    except Interrupted as stop:
                        if stop.outcome.code != LOST:
                            raise
                        self._exclude_reviewer(
                            reviewer, StreamLost(f"the stream of {reviewer.model} broke too often"), number
                        )
                    else:
                        said[reviewer.name] = self._accepted(reviewer, payload, number)
                        self.quorum.note_success(reviewer.name)

    def _accepted(self, reviewer: Reviewer, payload: Json, number: int) -> Any:
        """Mask secrets in an answer, remove the findings that name no existing place, and record the answer."""
        found = self._read(masked(payload, self.redact))
        checked = check_citations(found, self.citable)
        self._count_struck(reviewer.name, checked.struck)
        if self.record is not None:
            self.record.add(
                STATEMENT,
                persona=reviewer.name,
                phase=self.phase.value,
                round=number,
                payload=checked.vote.to_dict(),
                struck=checked.struck,
                model=reviewer.model,
            )
        return checked.vote

    def _recorded_statement(self, name: str, number: int) -> Any:
        """The statement of a reviewer that an earlier process recorded; None if there is none, or if the line is not a
        whole and valid statement, so that the reviewer is asked again."""
        line = self.known.get((self.phase.value, number, name))
        if line is None:
            return None
        try:
            found = VALIDATOR.of_record(line.get("payload"), is_vote=self.phase is not Phase.DEBATE)
        except NoVote:
            return None
        self._count_struck(name, int(line.get("struck") or 0))
        return found

    def _count_struck(self, name: str, struck: int) -> None:
        if struck:
            self.struck[name] = self.struck.get(name, 0) + struck

    def _exclude_reviewer(self, reviewer: Reviewer, error: ConsensusError | ModelError, number: int) -> None:
        """Exclude a reviewer that failed; raises _FailedSafe if fewer reviewers than the quorum are left."""
        self.quorum.note_failure(reviewer.name)
        self.excluded[reviewer.name] = error.code
        self.failures[reviewer.name] = self.redact(str(error))
        self._emit("reviewer_failed", persona=reviewer.name, phase=self.phase.value, code=error.code, error=str(error))
        if self.record is not None:
            state = self.quorum.current_state()
            self.record.add(
                FAILED,
                persona=reviewer.name,
                phase=self.phase.value,
                round=number,
                code=error.code,
                error=str(error),
                alive=state.alive,
                partial=state.partial_results,
            )
        if not self.quorum.can_continue():
            named = ", ".join(f"{name} ({code})" for name, code in self.excluded.items())
            raise _FailedSafe(
                f"{self.quorum.current_state().alive} of {len(self.reviewers)} reviewers are left, and "
                f"{self.section.quorum} must vote; failed: {named}"
            )

    def _ask_reviewer(
        self, reviewer: Reviewer, number: int, thinking: list[ReviewerStatement], debates: list[ReviewerStatement]
    ) -> Json:
        """Wait for a free slot of the reviewer's server, then ask the reviewer; runs in a thread of its own."""
        slot = self.slots.get(reviewer.server)
        if slot is not None:
            while not slot.acquire(timeout=0.5):
                if (outcome := reviewer.control.poll()) is not None:
                    raise Interrupted(outcome)
        try:
            return Question(
                reviewer,
                self.phase,
                number,
                thinking,
                debates,
                self._builder,
                self.emitter,
                self.record,
                1 + self.section.schema_retries,
                self.quorum.note_retry,
                self.reductions.append,
                self.section.log_reductions,
            ).ask_until_valid()
        finally:
            if slot is not None:
                slot.release()

    def _heard_by(
        self, name: str, number: int, provisional: Said, debates: list[Said]
    ) -> tuple[list[ReviewerStatement], list[ReviewerStatement]]:
        """Returns (statements of the blind phase, statements of the debate) as one persona sees them: the other
        reviewers are named R1 and R2 in a shuffled order, so that no persona is always first."""
        if not provisional:
            return [], []
        others = [other for other in self.reviewers if other != name]
        random.Random(f"{self.seed}:{name}:{self.phase}:{number}").shuffle(others)  # noqa: S311 - no secret
        self.permutations[f"{name}.{self.phase}.{number}"] = tuple(others)
        shown = {name: YOU} | {other: f"R{place}" for place, other in enumerate(others, 1)}
        order = [name, *others]
        thinking = [self._statement(shown[one], provisional[one]) for one in order if one in provisional]
        debated = [self._statement(shown[one], said[one]) for said in debates for one in order if one in said]
        return thinking, debated

    # --- details ------------------------------------------------------------------------------------------------

    def _builder(self, reviewer: Reviewer) -> RequestBuilder:
        """Make the builder of the requests to this reviewer."""
        return RequestBuilder(
            reviewer.name,
            self._template(reviewer),
            self.prepared,
            self.templates,
            conservative(counter_for(reviewer.client.model)),
            reviewer.budget,
            self.section.answer_tokens,
            partial(self.summaries.summarise, reviewer) if self.section.summaries else lambda _text: None,
            plain=reviewer.plain,
        )

    def _template(self, reviewer: Reviewer) -> str:
        return self.overrides.get(reviewer.name, reviewer.template)

    def _check_size(self) -> None:
        """Raise _FailedSafe before the first request if the change and the shortest possible statements do not fit into
        the token budget of a reviewer."""
        votes = [ReviewerStatement(name, "CONDITIONAL") for name in (YOU, "R1", "R2")]
        debates = [ReviewerStatement(one.name, "critique") for one in votes] * self.section.rounds
        for reviewer in self.reviewers.values():
            builder = self._builder(reviewer)
            try:
                builder.build(Phase.THINKING)
                if debates:
                    builder.build(Phase.VOTING, votes, debates)
            except BudgetExceeded as error:
                self.excluded[reviewer.name] = error.code
                raise _FailedSafe(str(error)) from error

    def _read(self, payload: Json) -> Any:
        return Critique.from_payload(payload) if self.phase is Phase.DEBATE else VotePayload.from_payload(payload)

    def _cancel(self) -> None:
        """Cancel the running requests of all reviewers."""
        for reviewer in self.reviewers.values():
            reviewer.control.cancelled.set()

    def _longest(self) -> float:
        """Maximum seconds of a phase: the time that the requests of all reviewers, with all retries, would take one
        after the other up to their timeouts."""
        timeouts = [one.timeout for one in self.reviewers.values()]
        return sum(timeouts) * (1 + self.section.schema_retries) * (1 + self.section.stream_retries)

    def _emit(self, name: str, **fields: object) -> None:
        if self.events is not None:
            self.events.emit(name, **fields)

    def _statement(self, name: str, said: Any) -> ReviewerStatement:
        """A reviewer's vote or critique as a ReviewerStatement, cleaned and masked like any other text from outside."""
        conditions = getattr(said, "conditions", ())
        objections = [*(str(one) for one in said.findings), *(f"condition: {one}" for one in conditions)]
        vote = said.vote.value if isinstance(said, VotePayload) else "critique"
        return ReviewerStatement(
            name, vote, self._as_paragraph(said.reason), tuple(self._as_paragraph(one) for one in objections)
        )

    def _as_paragraph(self, text: str) -> str:
        """A reviewer's text, cleaned and masked, as one line, so that no part of it can look like another reviewer's
        statement."""
        return self.redact(" ".join(output(text).split()))
