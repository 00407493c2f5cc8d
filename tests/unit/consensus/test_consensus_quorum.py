"""The quorum is judged at each failure."""

import threading

import pytest

from agent.consensus import QuorumManager, QuorumState


def test_a_deliberation_goes_on_while_the_quorum_is_there():
    quorum = QuorumManager(retries=2)
    quorum.register_agents(3, 2)
    quorum.note_success("safety")
    assert quorum.current_state() == QuorumState(3, 2, partial_results=False, retries_left=2)
    quorum.note_failure("upkeep")
    assert quorum.can_continue()
    assert quorum.current_state() == QuorumState(2, 2, partial_results=True, retries_left=2)
    quorum.note_failure("upkeep")
    assert quorum.can_continue(), "one reviewer fails once"
    quorum.note_failure("correctness")
    assert not quorum.can_continue()
    assert quorum.excluded() == ("upkeep", "correctness")


def test_two_of_two_needs_both():
    quorum = QuorumManager()
    quorum.register_agents(2, 2)
    quorum.note_failure("safety")
    assert not quorum.can_continue()


def test_a_late_answer_of_an_excluded_reviewer_does_not_count():
    quorum = QuorumManager()
    quorum.register_agents(3, 2)
    quorum.note_failure("safety")
    quorum.note_success("safety")
    assert quorum.current_state() == QuorumState(2, 2, partial_results=False, retries_left=0)


def test_a_new_phase_forgets_answers_and_keeps_exclusions():
    quorum = QuorumManager()
    quorum.register_agents(3, 1)
    quorum.note_success("upkeep")
    quorum.note_failure("safety")
    quorum.begin_phase()
    assert quorum.current_state() == QuorumState(2, 1, partial_results=False, retries_left=0)


@pytest.mark.parametrize(("total", "quorum"), [(3, 0), (3, 4), (0, 0), (2, 3), (3, -1)])
def test_a_quorum_that_cannot_be_is_refused(total, quorum):
    with pytest.raises(ValueError, match=f"quorum is {quorum}; allowed are 1 to {total}"):
        QuorumManager().register_agents(total, quorum)


def test_retries_are_given_out_once_each():
    quorum = QuorumManager(retries=50)
    taken = []

    def take():
        while quorum.note_retry():
            taken.append(1)

    threads = [threading.Thread(target=take) for _ in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert len(taken) == 50
    assert quorum.current_state().retries_left == 0
