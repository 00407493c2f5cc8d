"""Three reviewers that see different things vote on a change, a question or a plan (docs/design/consensus.md).

A process that does not deliberate imports nothing of this room.
"""

from agent.consensus.decision import ConsensusDecision, Decision
from agent.consensus.quorum import QuorumManager, QuorumState
from agent.consensus.votes import SchemaValidator, ValidationResult, VotePayload

__all__ = [
    "ConsensusDecision",
    "Decision",
    "QuorumManager",
    "QuorumState",
    "SchemaValidator",
    "ValidationResult",
    "VotePayload",
]
