"""Makes one decision from the votes of the reviewers. The functions of `decision.py` have no side effects; a test in
`tests/unit/consensus/` covers all combinations of votes.

The first of these rules that applies gives the decision:

1. Fewer voters than the quorum: FAILED_SAFE.
2. A vote DENY of a persona that has a veto, with a finding at a place that exists: DENIED, regardless of the other
   votes.
3. The number of DENY votes reaches the quorum: DENIED.
4. A persona that has a veto did not vote: FAILED_SAFE, since a missing vote is not a consent.
5. The number of APPROVE and CONDITIONAL votes together reaches the quorum: CONDITIONAL if one is CONDITIONAL, else
   APPROVED.
6. If no other rule of this list applies: FAILED_SAFE.

The decision FAILED_SAFE means that nothing was decided, neither approval nor denial. The votes of a deliberation that
ended as FAILED_SAFE are only in deliberations.jsonl, not in the decision.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from agent.consensus.votes import Vote

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from agent.consensus.citations import CheckedVote
    from agent.consensus.votes import Finding, VotePayload
    from agent.values import Json


class Decision(StrEnum):
    """The result of a deliberation."""

    APPROVED = "APPROVED"
    DENIED = "DENIED"
    CONDITIONAL = "CONDITIONAL"
    FAILED_SAFE = "FAILED_SAFE"


EXIT_CODES = {Decision.APPROVED: 0, Decision.DENIED: 10, Decision.CONDITIONAL: 11, Decision.FAILED_SAFE: 12}


@dataclass(frozen=True, slots=True)
class ConsensusDecision:
    """The decision with the votes that led to it, by persona; a decision FAILED_SAFE has no votes.

    `reason` is a sentence for a person: the cause of the failure, or the rule by which the decision was made.
    `excluded` and `failures`: error code and error text by persona, for the personas that failed. `struck`: the number
    of findings that were removed from the answers of each persona. `kept_denials`: personas that changed DENY to
    APPROVE without a new finding; their DENY still counts. `models`: `provider/model` of every reviewer by persona,
    also of reviewers that failed.
    `templates`: `name`, `version` and `sha256` of the prompt by persona. `isolation`: the kind of the sandbox in which
    the repository's checks ran, "" if none ran.
    """

    decision: Decision
    voting_results: Mapping[str, VotePayload] = field(default_factory=dict)
    exit_code: int = 12
    all_conditions: tuple[str, ...] = ()
    reason: str = ""
    excluded: Mapping[str, str] = field(default_factory=dict)
    failures: Mapping[str, str] = field(default_factory=dict, kw_only=True)
    struck: Mapping[str, int] = field(default_factory=dict)
    kept_denials: tuple[str, ...] = ()
    models: Mapping[str, str] = field(default_factory=dict)
    reductions: tuple[Json, ...] = ()
    rules_hit: Mapping[str, int] = field(default_factory=dict)
    templates: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    isolation: str = ""
    permutations: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def evidence(self) -> dict[str, list[str]]:
        """The places that the findings of the counted votes name, by persona: `file:line`, or the id of a test."""
        return {
            name: [one.place for one in vote.findings] for name, vote in self.voting_results.items() if vote.findings
        }

    @property
    def distinct_models(self) -> int:
        """The number of different models among all reviewers, including reviewers that failed."""
        return len(set(self.models.values()))

    def to_dict(self) -> Json:
        """The decision as JSON; it contains the votes unless it is FAILED_SAFE."""
        return {
            "decision": self.decision.value,
            "exit_code": self.exit_code,
            "reason": self.reason,
            "votes": {name: vote.to_dict() for name, vote in self.voting_results.items()},
            "conditions": list(self.all_conditions),
            "excluded": dict(self.excluded),
            "struck": dict(self.struck),
            "kept_denials": list(self.kept_denials),
            "models": dict(self.models),
            "distinct_models": self.distinct_models,
            "reductions": list(self.reductions),
            "rules_hit": dict(self.rules_hit),
            "templates": {name: dict(one) for name, one in self.templates.items()},
            "evidence": self.evidence,
            "isolation": self.isolation,
            "permutations": {name: list(order) for name, order in self.permutations.items()},
        }


def decide(
    votes: Mapping[str, CheckedVote], *, quorum: int, veto: Collection[str] = ()
) -> tuple[Decision, str, tuple[str, ...]]:
    """Returns (decision, reason, conditions) for the votes by persona.  `votes` has no entry for a persona that
    failed."""
    cast = [one.vote.vote for one in votes.values()]
    if len(votes) < quorum:
        return Decision.FAILED_SAFE, f"{len(votes)} of the {quorum} votes that are needed", ()
    for name in sorted(set(veto) & votes.keys()):
        if votes[name].vote.vote is Vote.DENY and votes[name].vote.findings:
            return Decision.DENIED, f"{name} denies it with a finding in the change, which is a veto", ()
    denied = cast.count(Vote.DENY)
    if denied >= quorum:
        return Decision.DENIED, f"{denied} of {len(cast)} deny it", ()
    if missing := sorted(set(veto) - votes.keys()):
        return Decision.FAILED_SAFE, f"{', '.join(missing)} has a veto and did not vote", ()
    favour = len(cast) - denied
    if favour < quorum:
        return Decision.FAILED_SAFE, f"no side has the {quorum} votes that are needed", ()
    conditions = tuple(dict.fromkeys(text for one in votes.values() for text in one.vote.conditions))
    if conditions:
        return Decision.CONDITIONAL, f"{favour} of {len(cast)} are for it, under conditions", conditions
    return Decision.APPROVED, f"{favour} of {len(cast)} approve it", ()


def final_vote(
    provisional: CheckedVote | None, final: CheckedVote, criticised: Sequence[Finding] = ()
) -> tuple[CheckedVote, bool]:
    """Returns (the vote that counts, True if that is the reviewer's provisional DENY and not its final vote).
    `criticised` are the findings of the reviewer's newest critique that has findings.

    An APPROVE after a provisional DENY counts only with a finding at a place that the provisional vote did not cite.
    Without a finding at a new place, the reviewer has only joined the others, so its provisional DENY counts.

    A DENY without a finding gets the findings of the provisional vote if that was a DENY with findings, else
    `criticised`: the reviewer did not repeat its evidence, and a veto depends on it.
    """
    denial = provisional if provisional is not None and provisional.vote.vote is Vote.DENY else None
    if final.vote.vote is Vote.DENY and not final.vote.findings:
        evidence = (denial.vote.findings if denial is not None else ()) or tuple(criticised)
        return replace(final, vote=replace(final.vote, findings=evidence)), False
    if denial is None or final.vote.vote is not Vote.APPROVE or final.cited - denial.cited:
        return final, False
    return denial, True
