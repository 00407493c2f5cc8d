"""The errors of `agent/consensus/`, as a tree.

MakimonoError
└── ConsensusError
    ├── IllegalTransition    a phase that may not follow the current one
    ├── NoVote               an answer without a valid vote; has `errors`
    ├── BudgetExceeded       the part of a request that cannot be shortened exceeds `consensus.token_budget`
    ├── RetryExceeded        a reviewer gave no valid answer, and no retry is left
    └── StreamLost           the stream of an answer broke more often than `consensus.stream_retries` allows
"""

from __future__ import annotations

from agent.errors import MakimonoError


class ConsensusError(MakimonoError):
    """The base class of the errors of a deliberation."""

    code = "consensus"


class IllegalTransition(ConsensusError):
    """The code asked for a phase of a deliberation that may not follow the current one."""

    code = "consensus_transition"


class NoVote(ConsensusError):
    """An answer of a reviewer has no valid vote.

    `errors` are texts of the form `path: keyword`, without any part of the reviewer's answer.
    """

    code = "consensus_no_vote"

    def __init__(self, errors: tuple[str, ...]) -> None:
        super().__init__("; ".join(errors))
        self.errors = errors


class BudgetExceeded(ConsensusError):
    """The part of a reviewer's request that cannot be shortened exceeds `consensus.token_budget`, or the diff exceeds
    `change.MOST`."""

    code = "consensus_budget"


class RetryExceeded(ConsensusError):
    """A reviewer gave no valid answer, and no retry is left."""

    code = "CONSENSUS_SCHEMA_RETRY_EXCEEDED"


class StreamLost(ConsensusError):
    """The stream of an answer broke more often than `consensus.stream_retries` allows."""

    code = "consensus_stream_lost"
