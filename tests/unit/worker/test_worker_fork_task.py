"""A new task that begins at a past point sees what the other one saw there, to the byte."""

import json
from datetime import timedelta

import orjson
import pytest
from run_home import UUID

from agent import clock
from agent.commands.timeline import timeline
from agent.context import TaskContextManager
from agent.context.cost_totals import Totals
from agent.errors import UsageError
from agent.wiring.folders import make_folder
from agent.work import gitdir
from agent.worker import fork_points
from agent.worker.fork_task import ForkPoint, fork_from, fork_point, read_fork_point

OLD, NEW = UUID % 1, UUID % 2


class Parent:
    """A task whose view is noted at every message that ends a group."""

    def __init__(self, here):
        self.here = here
        here.row(1)
        self.context = TaskContextManager(here.key(1), OLD, here.settings)
        self.folder = self.context.context_dir
        self.store, self.tools = self.context.get_message_store(), self.context.get_tool_store()
        self.views = {}
        self.calls = 0
        (self.folder / "git" / "objects" / "info").mkdir(parents=True)
        (self.folder / "git" / "objects" / "info" / "alternates").write_text("")
        self.say("system", "You are an agent.", kind="system", ends=False)
        self.say("user", "Mend it.", kind="task")

    def note(self):
        self.store.sync(force=True)
        self.views[self.store.last_seq] = self.store.current_path.read_bytes()

    def say(self, role, text, *, ends=True, **more):
        self.store.add_message(role, text, **more)
        if ends:
            self.note()

    def turn(self, *results):
        """An answer with calls, and their results; a long one lies in outputs/."""
        identifiers = []
        for _ in results:
            self.calls += 1
            identifiers.append(f"call_{self.calls}")
        calls = [{"id": one, "name": "read_file", "arguments": {"path": one}} for one in identifiers]
        usage = {"prompt_tokens": 1000, "completion_tokens": 50}
        self.store.add_message("assistant", "I look.", tool_calls=calls, usage=usage)
        for one, result in zip(identifiers, results, strict=True):
            output = None
            if len(result) > 1000:
                output = f"outputs/{self.calls:04}.txt"
                (self.folder / "outputs").mkdir(exist_ok=True)
                (self.folder / output).write_text(result)
                result = result[:500]  # noqa: PLW2901 - as the model gets it
            seq = self.tools.add_tool_call("read_file", {"path": one}, result, "success", 1, None, output=output)
            self.store.add_message("tool", result, "read_file", tool_call_id=one, output=output, tool_seq=seq)
        self.note()

    def compact(self, strategy, behind, **more):
        self.store.compact(strategy=strategy, end_seq=self.store.last_seq - behind, **more)
        self.note()

    def close(self):
        self.tools.sync(force=True)
        self.context.close()


@pytest.fixture
def here(place):
    return place()


@pytest.fixture
def parent(here):
    """Every kind of compaction, results of every kind, and people who say something in between."""
    made = Parent(here)
    made.turn("one " * 50)
    made.turn("two " * 400, "three " * 60)
    made.say("user", "And the tests, please.", kind="comment")
    made.turn("four " * 50)
    made.compact("mask", 2)
    made.turn("five " * 50)
    made.compact("summary", 3, summary="It looked at one to four.", carried={"plan": "the plan"})
    made.turn("six " * 50, "seven " * 50)
    made.say("user", "Go on.", kind="nudge")
    made.compact("window", 2, carried={"read": "a.txt"}, keep_summary=True)
    made.turn("eight " * 400)
    made.compact("summary", 0, summary="Everything, once more.")
    made.say("assistant", "That was it.")
    made.compact("reset", 1, carried={"plan": "anew"})
    made.turn("nine " * 50)
    made.close()
    return made


def begun(here, seq, uuid=NEW):
    """The view of a task that begins after message `seq`."""
    folder = make_folder(here.settings, uuid)
    fork_from(here.settings, ForkPoint(OLD, seq, None), folder)
    with TaskContextManager({**here.key(2), "task_id": uuid}, uuid, here.settings) as context:
        assert context.repairs == []
        assert context.get_message_store().last_seq == seq
        return context.get_message_store().current_path.read_bytes()


def test_the_view_is_that_of_the_parent_at_every_point(here, parent):
    allowed = [record["seq"] for record, ends in fork_points.messages(parent.folder) if ends]
    copies = [record["seq"] for record, _ in fork_points.messages(parent.folder) if record.get("kind") == "summary"]
    assert len(copies) == 2
    assert sorted([*allowed, *copies]) == sorted(parent.views)
    for number, (seq, view) in enumerate(sorted(parent.views.items())):
        uuid = UUID.replace("4000-8000", f"{4100 + number:04}-8000") % 2
        assert begun(here, seq, uuid) == view, f"at {seq}"


def test_only_what_the_past_knew_is_taken_along(here, parent):
    first = min(seq for seq in parent.views if seq > 2)
    begun(here, first)
    folder = here.settings.base_dir / "running" / NEW
    assert {path.name for path in folder.iterdir()} >= {"from.json", "messages.jsonl", "tools.jsonl"}
    assert not any((folder / name).read_bytes() for name in ("summaries.jsonl", "compactions.jsonl"))
    assert not (folder / "outputs").exists()
    assert len((folder / "tools.jsonl").read_bytes().splitlines()) == 1
    assert read_fork_point(folder) == ForkPoint(OLD, first, None)
    ours, theirs = (orjson.loads((at / "metadata.json").read_bytes()) for at in (folder, parent.folder))
    assert ours["fence"] == theirs["fence"], "of the texts that are copied"
    assert (ours["uuid"], theirs["uuid"]) == (NEW, OLD)


def test_what_was_recalled_by_then_comes_along(here, parent):
    lines = [json.loads(line) for line in (parent.folder / "messages.jsonl").read_text().splitlines()]
    seq = sorted(parent.views)[1]
    past = next(one["timestamp"] for one in lines if one["seq"] == seq)
    recalled = [
        {"seq": number, "query": "x", "timestamp": at} for number, at in ((1, past), (2, lines[-1]["timestamp"]))
    ]
    (parent.folder / "recalled.jsonl").write_text("".join(json.dumps(one) + "\n" for one in recalled))
    folder = make_folder(here.settings, NEW)
    fork_from(here.settings, ForkPoint(OLD, seq, None), folder)
    assert [json.loads(line)["seq"] for line in (folder / "recalled.jsonl").read_text().splitlines()] == [1]


def test_kept_outputs_come_along_and_nothing_that_a_link_leads_to(here, parent, tmp_path):
    (tmp_path / "secret").write_text("secret")
    (long, *_) = sorted((parent.folder / "outputs").iterdir())
    text = long.read_text()
    last = max(parent.views)
    begun(here, last)
    copied = here.settings.base_dir / "running" / NEW / "outputs"
    assert (copied / long.name).read_text() == text
    long.unlink()
    long.symlink_to(tmp_path / "secret")
    begun(here, last, UUID % 3)
    assert not (here.settings.base_dir / "running" / (UUID % 3) / "outputs" / long.name).exists()


def test_what_the_parent_had_used_is_not_counted_again(here, parent):
    """Or its turns and its money would be held against the new task, and against the repository's day."""
    for number, seq in enumerate(sorted(parent.views)):
        uuid = UUID.replace("4000-8000", f"{4100 + number:04}-8000") % 2
        begun(here, seq, uuid)
        with TaskContextManager({**here.key(2), "task_id": uuid}, uuid, here.settings) as context:
            assert context.totals() == Totals(0, 0, 0, 0, 0), f"at {seq}"
            store, tools = context.get_message_store(), context.get_tool_store()
            usage = {"prompt_tokens": 100, "completion_tokens": 10, "cached_tokens": 40}
            calls = [{"id": "own", "name": "read_file", "arguments": {}}]
            store.add_message("assistant", "I look again.", tool_calls=calls, usage=usage)
            tools.add_tool_call("read_file", {}, "here", "success", 1)
            store.add_message("tool", "here", "read_file")
            store.compact(strategy="mask", end_seq=store.last_seq)
            assert context.totals() == Totals(1, 100, 10, 40, 1, 1), f"at {seq}"
            assert context.counters()["last_seq"] == store.last_seq


def found(here, seq):
    return fork_point(here.settings, here.ledger, OLD, seq)[1]


@pytest.fixture
def published(parent):
    """The parent has a work tree."""
    state = {"base_branch": "main", "base_commit": None, "branch": "b", "unresolved": []}
    known = {name: state.get(name) for name in gitdir.WorkspaceState.__dataclass_fields__}
    (parent.folder / "git" / "makimono.json").write_text(json.dumps(known))
    assert gitdir.read_state(parent.folder / "git") is not None
    return parent


def test_the_tree_is_at_the_commit_whose_push_was_noted_last_by_then(here, published):
    times = {record["seq"]: record["timestamp"] for record, _ in fork_points.messages(published.folder)}
    first, *_, last = (record["seq"] for record, ends in fork_points.messages(published.folder) if ends)

    def noted(number, name, commit, moment):
        receipt = {"seq": number, "name": f"{name}:{commit}", "state": "receipt", "receipt": {"commit": commit}}
        return json.dumps({**receipt, "timestamp": moment}) + "\n"

    lines = noted(1, "push", "a" * 40, times[first]) + noted(2, "pull", "b" * 40, times[first])
    later = clock.stamp(clock.parse(times[last]) + timedelta(microseconds=1))
    (published.folder / "effects.jsonl").write_text(lines + noted(3, "push", "c" * 40, later))
    assert found(here, first).commit == "a" * 40
    assert found(here, last).commit == "a" * 40
    (published.folder / "effects.jsonl").write_text(noted(1, "push", "a" * 40, later))
    assert found(here, last).commit is None, "where the task began"


def test_a_wrong_number_names_the_nearest_right_ones_which_show_lists(here, published):
    allowed = [record["seq"] for record, ends in fork_points.messages(published.folder) if ends]
    shown = list(timeline(here.settings, here.ledger, OLD).entries())
    listed = {one.message for one in shown} | {one.number for one in shown if one.file == "messages.jsonl"}
    assert set(allowed) <= listed
    assert 2 in allowed
    for seq in range(-1, allowed[-1] + 3):
        if seq in allowed:
            assert found(here, seq).seq == seq
            continue
        near = [max((one for one in allowed if one < seq), default=None)]
        near += [min((one for one in allowed if one > seq), default=None)]
        with pytest.raises(UsageError) as error:
            found(here, seq)
        named = [str(one) for one in near if one is not None]
        words = f"the nearest {'is' if len(named) == 1 else 'are'} {' or '.join(named)}; `show {OLD}` lists them"
        assert words in str(error.value)


def test_a_torn_line_and_a_lost_result_are_no_points_and_hide_none(here, published):
    """The parent was killed in a write, and one line of its messages cannot be read."""
    path = published.folder / "messages.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    lost = next(number for number, line in enumerate(lines) if orjson.loads(line).get("tool_call_id") == "call_3")
    lines[lost] = b"\0" * (len(lines[lost]) - 1) + b"\n"
    path.write_bytes(b"".join(lines) + b'{"seq": 99, "role": "assis')
    allowed = [record["seq"] for record, ends in fork_points.messages(published.folder) if ends]
    assert 99 not in allowed
    assert lost in allowed, "the last message before the one that is lost: the group is over, another follows"
    assert lost + 1 not in allowed
    assert max(published.views) in allowed
    copies = {record["seq"] for record, _ in fork_points.messages(published.folder) if record.get("kind") == "summary"}
    later = sorted(seq for seq in set(published.views) - copies if seq > lost + 1)
    assert set(later) <= set(allowed)
    folder = make_folder(here.settings, NEW)
    fork_from(here.settings, ForkPoint(OLD, later[-1], None), folder)
    with TaskContextManager(here.key(2), NEW, here.settings) as context:
        assert context.get_message_store().current_path.read_bytes() == published.views[later[-1]]


def test_a_torn_compaction_was_never_made(here, published):
    path = published.folder / "compactions.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:1]) + lines[1][:40])
    at = orjson.loads(lines[1])["at_seq"]
    view = begun(here, at)
    assert b"It looked at one to four." not in view
    assert b"And the tests, please." in view


def test_a_task_without_briefing_work_tree_or_folder_is_refused_with_the_reason(here, parent):
    with pytest.raises(UsageError, match="never had a work tree"):
        found(here, 2)
    here.row(3)
    with pytest.raises(UsageError, match="has no folder any more"):
        fork_point(here.settings, here.ledger, UUID % 3, 2)
    with pytest.raises(UsageError, match="no task has a uuid"):
        fork_point(here.settings, here.ledger, "fffff", 2)
