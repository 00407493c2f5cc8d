"""A place with a tracker and a ledger, and a claimed task in it: for the tests of the rooms around a run.

Imports are inside the functions, because most unit tests use none of them.
"""

import pytest


@pytest.fixture
def place(tmp_path):
    from run_home import Place

    made = []

    def make(extra=""):
        made.append(Place(tmp_path, extra))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture
def work(place):
    """(place, handler, task) of issue 1 with a model that answers `replies`; `extra` is configuration."""
    from first_commit import bare
    from llm_servers import Script

    from agent.config import load
    from agent.forge import TaskFactory
    from agent.wiring.wiring import Wiring
    from agent.worker.handler import TaskHandler

    made = []

    def start(*replies, extra=""):
        here = place(extra)
        here.script = Script(*replies)
        made.append(here.script)
        config = here.folder / "config.yaml"
        config.write_text(config.read_text().replace("http://127.0.0.1:9", here.script.url))
        here.settings = load(config, environ={})
        here.wiring = Wiring(here.settings, events=here.events)
        bare(here.folder / "repo.git")
        here.issue(1, label="coding agent processing")
        claim = here.claim(1)
        task = TaskFactory.from_dict({**here.key(1), "uuid": claim.uuid, "user": "alice"}, here.wiring.forges)
        return here, TaskHandler(here.wiring, attempt=claim.attempt), task

    yield start
    for script in made:
        script.close()
