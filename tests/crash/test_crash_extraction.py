"""kill -9 at points of an extraction job: it stays due, and done again it is as if it had been done once.

The job runs in a forked process that kills itself at the n-th call of a function of memory or extraction, Python's or
C's.  The short form takes points at equal distances, the long one many more.
"""

import json
import shutil
from contextlib import closing, nullcontext
from datetime import timedelta

import pytest
from ended_task import call, command, end_task
from function_calls import killed_at
from length import either
from llm_servers import Script, says
from llm_servers import call as calls
from run_home import Place

from agent import clock
from agent.config import load
from agent.extraction import job
from agent.observe.events import Events
from agent.wiring.memory import open_memory
from agent.wiring.wiring import Wiring

POINTS = either(15, 600)
WATCHED = ("/agent/extraction/", "/agent/memory/", "/agent/taskqueue/", "/agent/store/")
FACT = {"text": "total() rounds the sum once.", "event": 4, "quote": "now it rounds the sum once."}
LESSON = {"text": "The sum is rounded once, not each price.", "event": 4, "quote": "rounded each price; now it rounds"}


class Home:
    """A base_dir with a task that has ended, restored before each kill."""

    def __init__(self, folder):
        answer = {"facts": [FACT], "preferences": [], "reflections": [LESSON]}
        self.server = Script(says("openai", "", [calls("remember", answer, "call_1")]))
        place = Place(folder)
        config = folder / "config.yaml"
        variables = {
            "AGENT__LLM__OPENAI__BASE_URL": f"{self.server.url}/v1",
            "AGENT__MEMORY__EXTRACTION__ENABLED": "true",
        }
        self.settings = place.settings = load(config, environ=variables)
        place.wiring.close()
        place.wiring = Wiring(self.settings, events=place.events)
        steps = [command("pytest -q", 1, "E  assert 3 == 4"), call("edit_file", path="calc.py"), command("pytest -q")]
        self.uuid = end_task(place, calls=steps)
        place.close()
        self.saved = folder / "saved"
        shutil.copytree(self.settings.base_dir, self.saved)

    def fresh(self):
        shutil.rmtree(self.settings.base_dir)
        shutil.copytree(self.saved, self.settings.base_dir)

    def run_job(self, ahead=0.0):
        """Whether the job was done, `ahead` seconds later."""
        later = clock.FakeClock(clock.now() + timedelta(seconds=ahead))
        with clock.use(later), closing(Wiring(self.settings, events=Events([]))) as wiring:
            return job.run(wiring, self.uuid)

    def killed_at(self, number):
        """Run the job in a process that is killed at its `number`-th call; returns the number of calls it got to."""

        def work(_):
            assert self.run_job()

        return killed_at(number, WATCHED, nullcontext, work)

    def state(self):
        """What is in memory, without ids and times."""
        with closing(open_memory(self.settings, "a test")) as memory:
            records = memory.list_memory_records("/", status=None, limit=1000)
            database = memory._open.database
            events = database.execute("SELECT client_token, source, trust, text FROM memory_events")
            assert [row["integrity_check"] for row in database.execute("PRAGMA integrity_check")] == ["ok"]
            done = [(one["id"], one["status"]) for one in memory.list_memory_extraction_jobs()]
        said = sorted((one.strategy, one.status, one.trust, one.text, one.files) for one in records)
        return said, sorted(tuple(row.values()) for row in events), done

    def row(self):
        with closing(Wiring(self.settings)) as wiring:
            return wiring.ledger.get(self.uuid)

    def requests(self):
        path = self.settings.base_dir / "completed" / self.uuid / "requests.jsonl"
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        return [line for line in lines if line["purpose"] == "memory"]


@pytest.fixture
def home(tmp_path):
    made = Home(tmp_path)
    yield made
    made.server.close()


def test_a_job_that_is_killed_anywhere_is_done_again_as_if_it_had_been_done_once(home):
    home.killed_at(1 << 60)  # the first run imports modules
    home.fresh()
    total = home.killed_at(1 << 60)
    expected = home.state()
    assert [one[0] for one in expected[0]] == ["episodes", "facts", "reflections", "summaries"]
    assert len(home.requests()) == home.row().memory_requests == 1
    wrong, points = [], 0
    for point in range(POINTS):
        number = 1 + point * total // POINTS
        home.fresh()
        if home.killed_at(number) != number:
            continue  # not every run makes the same calls: it had ended before
        points += 1
        tries = 0
        while home.row().remember_at is not None:  # None: it was killed behind its last write
            tries += 1
            assert tries < 4, f"the job is not done after a kill at call {number}"
            home.run_job(ahead=tries * (job.LEASE_SECONDS + 1))
        row, requests = home.row(), home.requests()
        cost = row.total_tokens - sum(sum(one["usage"][name] for name in TOKENS) for one in requests)
        if home.state() != expected:
            wrong.append((number, home.state()))
        if (len(requests) > 2, row.memory_requests, cost) != (False, len(requests), BEFORE):
            wrong.append((number, len(requests), row.memory_requests, cost))
    assert wrong == []
    assert points > POINTS * 0.9


TOKENS = ("prompt_tokens", "completion_tokens")
BEFORE = 120
"""Tokens of the task itself."""
