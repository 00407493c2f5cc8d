"""Long-term memory on each forge: what people do with the first task's pull request, and what the second task gets."""

import re
from contextlib import closing

import pytest
from flow_home import do, finish, until, write
from forge_home import HOMES, TASK

from agent.config import load
from agent.memory.namespaces import actor_in
from agent.wiring.memory import open_memory

CHECK = "verify: {command: 'grep -q round calc.py'}\nscheduling: {interval: 1, idle_interval: 1}\n"
ASKS = f"{CHECK}memory: {{extraction: {{enabled: true}}}}\n"
CALC = write("calc.py", "def total(prices):\n    return round(sum(prices))\n")
WORK = [
    do("update_plan", items=[{"text": "Round the sum once", "status": "done"}]),
    CALC,
    finish("Round late", "total() now rounds the sum of the prices once."),
]
AGAIN = "Round the sum of the discounts and not the prices"
TESTED = "Use a test for discounts"
NEXT = [write("discount.py", "def discount(prices):\n    return round(sum(prices))\n"), finish("Round discounts")]
WISH = "Please use unittest, not pytest, for every test in this repository."
KINDS = ["github", "gitlab", "github-emulate"]


class Shop:
    """A forge's home with a daemon, and the memory."""

    def __init__(self, home):
        self.home = home
        self.process = home.flow.start("run")
        self.settings = load(home.flow.config, environ={})

    def __getattr__(self, name):
        return getattr(self.home, name)

    def done(self, key, runs=1):
        """Wait until the task has ended and is in memory; its row."""
        label = "coding agent done"
        until(lambda: len(self.own(key, "final")) == runs and label in self.labels(key), "the task")
        until(lambda: self.is_in_memory(key), "the memory")
        return self.row(key)

    def is_in_memory(self, key):
        row = self.row(key)
        if not row.get("completed_at") or row["remember_at"] is not None:
            return False
        return any(one.session_id == row["uuid"] for one in self.records("episodes"))

    def row(self, key):
        return self.flow.row(int(key.task_id))

    def records(self, strategy, status="active"):
        with closing(open_memory(self.settings, "a test")) as memory:
            return memory.list_memory_records(f"/{strategy}/", status=status)

    def remember(self, text):
        """A fact of an earlier task, in the memory of the repository."""
        (episode, *_) = self.records("episodes")
        with closing(open_memory(self.settings, "a test")) as memory:
            return memory.create_memory_record(f"/facts/{actor_in(episode.namespace)}/", text, strategy="facts")

    def judged(self, record):
        with closing(open_memory(self.settings, "a test")) as memory:
            now = memory.get_memory_record(record.id)
        return now.helped, now.hurt, now.uses

    def briefing(self, title):
        """The briefing of the newest task with this title, as the model got it."""
        asked = [one.json["messages"] for one in self.flow.server.asked if len(one.json["messages"]) > 1]
        return next(one[1]["content"] for one in reversed(asked) if f"\n{title}\n" in one[1]["content"])

    def stop(self):
        self.process.terminate()
        assert self.process.wait(60) == 0


@pytest.fixture
def shop(tmp_path):
    made = []

    def make(kind, plays, config=CHECK):
        made.append(HOMES[kind](tmp_path, plays, config=config))
        return Shop(made[-1])

    yield make
    for one in made:
        one.close()


def episode_of(shop, row):
    return next(one for one in shop.records("episodes") if one.session_id == row["uuid"])


@pytest.mark.parametrize("kind", KINDS)
def test_the_task_after_a_merge_is_told_what_was_done_and_where(shop, kind):
    shop = shop(kind, {AGAIN: NEXT, TASK: WORK})
    key = shop.issue()
    row = shop.done(key)
    (pull,) = shop.pulls()
    shop.merge(pull)
    until(lambda: "was merged" in episode_of(shop, row).text, "the merge in the episode")
    episode = episode_of(shop, row)
    assert episode.text.count("Afterwards: The pull request was merged.") == 1
    assert episode.files == ("calc.py",)
    second = shop.place.issue(AGAIN, "Please, as for the sum.\n", ("coding agent",), "alice")
    shop.done(second)
    memory = shop.briefing(AGAIN).partition("<<<END UNTRUSTED")[0]
    assert memory.splitlines()[0].endswith(' source="memory">>>')
    assert "Afterwards: The pull request was merged." in memory
    assert re.search(rf"^- calc\.py \(task {row['uuid'][:8]}, relevance \d\.\d\d\)$", memory, re.MULTILINE)
    uses = {one.session_id: one.uses for one in shop.records("episodes")}
    assert uses[row["uuid"]] == 1
    shop.stop()


@pytest.mark.parametrize("kind", KINDS)
def test_a_pull_request_that_is_closed_unmerged_is_in_the_episode_and_counts_against_what_was_recalled(shop, kind):
    shop = shop(kind, {AGAIN: NEXT, TASK: WORK})
    first = shop.done(shop.issue())
    fact = shop.remember("The sum of the discounts is rounded like the prices.")
    key = shop.place.issue(AGAIN, "Please, as for the sum.\n", ("coding agent",), "alice")
    row = shop.done(key)
    assert fact.text in shop.briefing(AGAIN)
    assert shop.judged(fact) == (0, 0, 1)
    shop.close_pull(next(one for one in shop.pulls() if one.head == row["branch"]))
    until(lambda: "closed without a merge" in episode_of(shop, row).text, "the end in the episode")
    assert shop.judged(fact) == (0, 1, 1)
    assert "closed without" not in episode_of(shop, first).text
    shop.stop()


def prefers(request):
    """What a model makes of the task: the wish, if a person has one."""
    prompt = request.json["messages"][0]["content"]
    lists = {"facts": [], "preferences": [], "reflections": []}
    events = re.split(r"^(?=Event \d+, )", prompt, flags=re.MULTILINE)
    for one in events:
        if WISH in one:
            number = int(re.match(r"Event (\d+)", one)[1])
            quote = "use unittest, not pytest, for every test"
            lists["preferences"] = [{"text": "Use unittest, not pytest.", "event": number, "quote": quote}]
    return do("remember", **lists)


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_reviewer_corrects_becomes_a_preference_of_the_next_task(shop, kind):
    tests = [write("test_calc.py", "import unittest\n"), finish("Round late, tested", "And a test with unittest.")]
    plays = {"notebook": [prefers], TESTED: NEXT, TASK: WORK}
    shop = shop(kind, plays, config=ASKS)
    key = shop.issue()
    first = shop.done(key)
    assert shop.records("preferences") == []
    plays[TASK] = tests
    shop.place.comment(key, f"@makimono {WISH}")
    shop.done(key, runs=2)
    until(lambda: shop.records("preferences"), "the preference")
    (preference,) = shop.records("preferences")
    assert (preference.text, preference.trust) == ("Use unittest, not pytest.", 1)
    assert "A person then asked for more: “" in episode_of(shop, first).text
    second = shop.place.issue(TESTED, "With unittest or pytest?\n", ("coding agent",), "alice")
    shop.done(second)
    assert "Use unittest, not pytest. (source: preferences, task " in shop.briefing(TESTED)
    shop.stop()
