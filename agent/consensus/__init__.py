"""Three reviewers that see different things vote on a change, a question or a plan (docs/design/consensus.md).

A process that does not deliberate imports nothing of this room.
"""

from agent.consensus.decision import ConsensusDecision, Decision
from agent.consensus.quorum import QuorumManager, QuorumState
from agent.consensus.token_budget import BudgetResult, ConsensusContext, TokenBudgetManager
from agent.consensus.votes import SchemaValidator, ValidationResult, VotePayload

__all__ = [
    "BudgetResult",
    "ConsensusContext",
    "ConsensusDecision",
    "Decision",
    "QuorumManager",
    "QuorumState",
    "SchemaValidator",
    "TokenBudgetManager",
    "ValidationResult",
    "VotePayload",
]
