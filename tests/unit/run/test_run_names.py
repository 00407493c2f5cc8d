"""`agent.run`: the three names that other programs import, and where they come from."""

import subprocess
import sys

import pytest

import agent.run


@pytest.mark.parametrize(
    ("name", "module"),
    [
        ("TaskHandler", "agent.worker.handler"),
        ("fetch_and_enqueue_tasks", "agent.intake.poller"),
        ("process_task", "agent.worker.worker"),
    ],
)
def test_each_name_is_the_one_of_its_room(name, module):
    found = getattr(agent.run, name)
    assert (found.__module__, found.__name__) == (module, name)


def test_the_names_that_are_offered_are_those_that_can_be_imported():
    for name in agent.run.__all__:
        assert callable(getattr(agent.run, name))


def test_another_name_is_an_error_that_names_it():
    with pytest.raises(AttributeError, match=r"module 'agent\.run' has no attribute 'producer'"):
        agent.run.producer  # noqa: B018 - the look-up is what is tested


def test_the_package_loads_no_room_before_a_name_is_used():
    shown = "import sys, agent.run; print(*sorted(name for name in sys.modules if name.startswith('agent.')))"
    done = subprocess.run([sys.executable, "-c", shown], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["agent.run"]
