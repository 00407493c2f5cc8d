"""Counts the reviewers that can still vote; `deliberation.py` asks after each failure of a reviewer whether enough are
left.

If fewer reviewers than the quorum are left, a decision is impossible: `deliberation.py` cancels the other requests and
decides FAILED_SAFE.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class QuorumState:
    """`alive`: the number of reviewers that have not failed. `quorum`: the number of reviewers that must vote.
    `partial_results` is True if a reviewer has answered in this phase and another has failed in this phase or before.
    `retries_left`: the number of requests that all reviewers together may still repeat after an invalid answer."""

    alive: int
    quorum: int
    partial_results: bool
    retries_left: int


class QuorumManager:
    """Records which reviewers of one deliberation answered or failed, and how many retries are left. Thread-safe."""

    def __init__(self, retries: int = 0) -> None:
        self._lock = threading.Lock()
        self._total = 0
        self._quorum = 0
        self._retries = retries
        self._failed: list[str] = []
        self._answered: set[str] = set()

    def register_agents(self, total: int, quorum: int) -> None:
        """Begin a deliberation with `total` reviewers, of which `quorum` must vote. Raises ValueError unless 1 ≤ quorum
        ≤ total."""
        if not 1 <= quorum <= total:
            raise ValueError(f"quorum is {quorum}; allowed are 1 to {total}, the number of reviewers")
        with self._lock:
            self._total, self._quorum = total, quorum
            self._failed.clear()
            self._answered.clear()

    def begin_phase(self) -> None:
        """Begin a phase, in which each reviewer that has not failed answers again."""
        with self._lock:
            self._answered.clear()

    def note_success(self, persona: str) -> None:
        """Note that a reviewer has answered in this phase; a reviewer that failed before stays excluded."""
        with self._lock:
            if persona not in self._failed:
                self._answered.add(persona)

    def note_failure(self, persona: str) -> None:
        """Exclude a reviewer from the deliberation; a second call for the same reviewer changes nothing."""
        with self._lock:
            if persona not in self._failed:
                self._failed.append(persona)
                self._answered.discard(persona)

    def note_retry(self) -> bool:
        """Take one of the retries that all reviewers share; False if none is left."""
        with self._lock:
            if self._retries <= 0:
                return False
            self._retries -= 1
            return True

    def can_continue(self) -> bool:
        """Whether enough reviewers are left for the quorum."""
        with self._lock:
            return self._total - len(self._failed) >= self._quorum

    def excluded(self) -> tuple[str, ...]:
        """The reviewers that failed and so are excluded, in the order of their failures."""
        with self._lock:
            return tuple(self._failed)

    def current_state(self) -> QuorumState:
        """The present number of remaining reviewers and retries, as a QuorumState."""
        with self._lock:
            partial = bool(self._failed and self._answered)
            return QuorumState(self._total - len(self._failed), self._quorum, partial, self._retries)
