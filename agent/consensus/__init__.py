"""Three reviewers that see different things vote on a change, a question or a plan (docs/consensus.md).

A process in which no reviewers deliberate does not import the package `agent/consensus`.
"""

from agent.consensus.decision import ConsensusDecision, Decision
from agent.consensus.engine import ConsensusEngine, ConsensusRequest
from agent.consensus.quorum import QuorumManager, QuorumState
from agent.consensus.streaming import StreamingEmitter
from agent.consensus.token_budget import BudgetResult, ConsensusContext, ReductionLog, TokenBudgetManager
from agent.consensus.votes import SchemaValidator, ValidationResult, VotePayload

__all__ = [
    "BudgetResult",
    "ConsensusContext",
    "ConsensusDecision",
    "ConsensusEngine",
    "ConsensusRequest",
    "Decision",
    "QuorumManager",
    "QuorumState",
    "ReductionLog",
    "SchemaValidator",
    "StreamingEmitter",
    "TokenBudgetManager",
    "ValidationResult",
    "VotePayload",
]
