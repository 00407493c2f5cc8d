"""Defines the phases of a deliberation, as one table.

A deliberation only moves forward: THINKING (provisional votes, without seeing each other), DEBATE (critique, as often
as `consensus.rounds` says), VOTING, and one of the two final phases. The phase FAILED_SAFE may follow each phase that
is not final.
"""

from __future__ import annotations

from enum import StrEnum

from agent.consensus.errors import IllegalTransition


class Phase(StrEnum):
    """A phase of a deliberation; `COMPLETED` and `FAILED_SAFE` are final."""

    THINKING = "thinking"
    DEBATE = "debate"
    VOTING = "voting"
    COMPLETED = "completed"
    FAILED_SAFE = "failed_safe"


TRANSITIONS: dict[Phase, tuple[Phase, ...]] = {
    Phase.THINKING: (Phase.DEBATE, Phase.VOTING, Phase.FAILED_SAFE),
    Phase.DEBATE: (Phase.DEBATE, Phase.VOTING, Phase.FAILED_SAFE),
    Phase.VOTING: (Phase.COMPLETED, Phase.FAILED_SAFE),
    Phase.COMPLETED: (),
    Phase.FAILED_SAFE: (),
}
"""Phase of a deliberation → the phases that may follow it. The phase DEBATE follows itself once for each further
round."""


def advance(current: Phase, following: Phase) -> Phase:
    """Return the phase `following` if it may follow `current`; raises IllegalTransition otherwise."""
    if following not in TRANSITIONS[current]:
        allowed = ", ".join(TRANSITIONS[current]) or "nothing, since it is an end"
        raise IllegalTransition(f"phase {following} cannot follow {current}; allowed is {allowed}")
    return following
