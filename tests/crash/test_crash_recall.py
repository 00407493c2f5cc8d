"""kill -9 at each step of recall: at the briefing, at a comment, after a compaction, after the first index of the history.

The task is that of `crash_home`, with a memory.  While it works, the model's server does what others do meanwhile: a
person writes a comment, another task leaves a record, the daemon indexes the history.  After any kill a fresh daemon
goes on; then each memory is in the conversation once, and recalled.jsonl names the message of each retrieval.
"""

import re
import shutil
from contextlib import closing
from types import SimpleNamespace

import pytest
from crash_home import CrashHome, author, lines
from length import either, spread, tell
from system_calls import killed, points

from agent.config import load
from agent.extraction.task_record import read_task
from agent.memory.index_requests import first_request
from agent.values import TaskKey
from agent.wiring.memory import actor_of_task, open_memory

LESSON = "Keep the notes of the work in the folder notes."
ANSWER = "The ink of the scroll is black, and never blue."
LATER = "Please keep notes of the work short: ten lines for a librarian."
COMMENT = "Which ink does the scroll take?"
PURPOSES = ("briefing", "comment", "compaction", "history")


class RecallHome(CrashHome):
    """The home, whose memory has two records at the beginning."""

    def __init__(self, folder):
        super().__init__(folder, self.answer)
        self.flow.commit("default", {"notes/keep.md": "Notes.\n"}, message="Keep notes of the work")
        self.settings = load(self.flow.config, environ={})
        key = TaskKey("local", "", "default", "issue", "1", str(self.flow.folder / "tracker"))
        self.actor = actor_of_task(self.settings, key)
        with closing(open_memory(self.settings, "a test")) as memory:
            for text in (LESSON, ANSWER):
                memory.create_memory_record(f"/facts/{self.actor}/", text, strategy="facts", trust=2)
        for work in self.path.glob("work-*"):
            shutil.rmtree(work)
        shutil.rmtree(self.saved)
        shutil.copytree(self.path, self.saved)

    def answer(self, request):
        """The model's answer, and before it what others have done by then."""
        newest = max((int(found) for found in re.findall(r"step-(\d)", str(request.json["messages"]))), default=0)
        if newest >= 1 and not any(one["body"] == COMMENT for one in self.flow.comments(1)):
            self.flow.comment(1, COMMENT)
        if newest >= 2 and (asked := first_request(self.settings.base_dir)) is not None:
            with closing(open_memory(self.settings, "a daemon")) as memory:
                memory.index_commits(self.settings.base_dir / asked.mirror, asked.actor, branch=asked.branch)
            asked.remove(self.settings.base_dir)
        if newest >= 2:  # before any compaction
            with closing(open_memory(self.settings, "another task")) as memory:
                memory.create_memory_record(f"/facts/{self.actor}/", LATER, strategy="facts", trust=2)
        messages = list(request.json["messages"])
        while len(messages) > 2 and messages[-1]["role"] == "user":  # the author looks at the newest result
            messages.pop()
        return author(SimpleNamespace(json={**request.json, "messages": messages}))

    def check_files(self, folder):
        super().check_files(folder)
        recalled = lines(folder / "recalled.jsonl")
        said = [one for one in lines(folder / "messages.jsonl") if one.get("kind") in ("task", "memory")]
        for text in (LESSON, ANSWER):
            assert sum(one["content"].count(text) for one in said) == 1, text
        assert any(LATER in one["content"] for one in said)
        assert (folder / "current.jsonl").read_text().count(LATER) <= 1, "a later compaction may recall it again"
        named = [one["memory"]["recalled"] for one in said]
        assert named == [one["seq"] for one in recalled if one["text"]], "each retrieval with a text has its message"
        for one in said:
            assert one["content"].startswith(recalled[one["memory"]["recalled"] - 1]["text"])
            assert one["memory"]["count"] == len(recalled[one["memory"]["recalled"] - 1]["hits"])
        assert {one["purpose"] for one in recalled} == set(PURPOSES)
        versions = [one.version for one in read_task(folder).statements if one.source == "comment"]
        assert len(versions) == 1, "a comment that was appended twice is one event of memory"
        assert "@" in versions[0], "the conversation names the comment and the time of its last change"


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    made = RecallHome(tmp_path_factory.mktemp("recall"))
    yield made
    made.close()


@pytest.fixture(scope="module")
def known(home, tmp_path_factory):
    """The calls of a run from each retrieval to the message behind it."""
    home.fresh()
    found = points(home.forks, "work", home.flow.config, home.path, tmp_path_factory.mktemp("log") / "strace")
    near, after = [], 0
    for point in found:
        if "recalled.jsonl" in point.about:
            after = 12
        if after and any(
            name in point.about for name in ("recalled", "messages", "effects", "current", "memory_index")
        ):
            near.append(point)
        after = max(0, after - 1)
    return near


def test_a_run_recalls_for_each_of_the_purposes(home, known):
    home.check()
    assert sum("recalled.jsonl" in str(point) for point in known) >= len(PURPOSES)


def test_killed_at_any_step_of_recall_each_memory_is_in_the_conversation_once(home, known):
    recalls = [point for point in known if "recalled.jsonl" in str(point)]
    others = [point for point in known if point not in recalls]
    chosen = [*spread(recalls, either(len(PURPOSES), len(recalls))), *spread(others, either(2, len(others)))]
    wrong, hit = [], 0
    for point in chosen:
        home.fresh()
        hit += killed(home.forks, "work", home.flow.config, point)
        wrong.append(home.survived(point))
    assert not any(wrong), "\n".join(filter(None, wrong))
    assert hit >= 0.8 * len(chosen)
    tell(f"killed at {hit} of {len(known)} steps of recall, each memory recalled once")
