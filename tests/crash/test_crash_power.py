"""Power loss at any moment from the claim to the end: from every state of the disk a fresh daemon goes on to the end.

One run is written down, every process of it, with all data (`operations.py`).  What the disk may hold after each of
its operations, under the four models of `disk_models.py`, is put in place of the folder, once for equal states, and
fresh daemons run until nothing is open.  The tracker and the remote repository are another machine's: they lose nothing,
and a push that had begun there is done.  The long form walks every state, the short one some kinds.
"""

import os
import re
import shutil
from dataclasses import dataclass

import pytest
from crash_home import RAN, CrashHome
from disk_models import MODELS, Disk, digest, write
from length import AT, some, tell
from operations import OPTIONS, Operation, Reader
from system_calls import traced

OUTSIDE = ("tracker", "repos", "config.yaml")


@dataclass(frozen=True)
class State:
    """The disk after the first `count` operations, `last` being the newest, under `model`."""

    count: int
    model: str
    last: str

    def __str__(self):
        return f"{self.model} after {self.count}: {self.last}"


class Power:
    """One run, its operations, and its home as a power loss leaves it."""

    def __init__(self, folder):
        self.home = CrashHome(folder)
        reader = Reader(self.home.path)
        log = folder / "strace"
        assert traced(self.home.forks, "work", self.home.flow.config, "-o", str(log), *OPTIONS) == 0
        self.home.check()
        self.after = Disk(self.home.path, ()).files("all")
        self.operations = together(reader.operations(log), "repos/")
        log.unlink()

    def disk(self):
        self.home.fresh()
        return Disk(self.home.path, OUTSIDE)

    def states(self):
        """Each distinct state once."""
        seen, disk = {}, self.disk()
        for count, op in enumerate((*self.operations, None)):
            last = str(self.operations[count - 1]) if count else "nothing"
            for model in MODELS:
                if model != "half":
                    seen.setdefault(digest(disk.files(model)), State(count, model, last))
            if op is not None and op.call in ("write", "copy") and op.path.split("/")[0] not in OUTSIDE:
                cut = self.until(count + 1, half=True)
                seen.setdefault(digest(cut.files("half")), State(count + 1, "half", str(op)))
            if op is not None:
                disk.apply(op)
        return list(seen.values())

    def until(self, count, *, half=False):
        disk = self.disk()
        for number, op in enumerate(self.operations[:count], 1):
            disk.apply(op, half=half and number == count)
        return disk

    def lose(self, state):
        """Make the home what it is after the loss."""
        files = self.until(state.count, half=state.model == "half").files(state.model)
        shutil.rmtree(self.home.path)
        self.home.path.mkdir()
        write(files, self.home.path)


def together(operations, prefix):
    """What the other machine does at one push is one operation, at its end."""
    found, waiting = [], []
    for op in (*operations, None):
        if op is not None and op.path.startswith(prefix):
            waiting.append(op)
            continue
        if waiting:
            found.append(Operation("several", prefix + "…", parts=tuple(waiting)))
            waiting = []
        if op is not None:
            found.append(op)
    return found


@pytest.fixture(scope="module")
def power(tmp_path_factory):
    made = Power(tmp_path_factory.mktemp("power"))
    yield made
    made.home.close()


@pytest.fixture(scope="module")
def states(power):
    return power.states()


def test_the_log_holds_everything_that_the_run_did_to_the_disk(power):
    disk = power.disk()
    for op in power.operations:
        disk.apply(op)
    assert disk.files("all") == power.after
    assert len(power.operations) > 600


def test_from_every_state_of_the_disk_the_task_goes_on_to_its_end(power, states):
    chosen = some(states, 12 if AT else 6, kind=lambda state: state.model + state.last)
    assert chosen
    wrong = []
    for state in chosen:
        power.lose(state)
        wrong.append(power.home.survived(state))
    assert not any(wrong), "\n".join(filter(None, wrong))
    tell(
        f"power lost in {len(chosen)} of {len(states)} states of {len(power.operations)} operations, each task ended once"
    )


def walk(power, interesting):
    """(operation, what a power loss before it would leave, by file name) of the operations that are."""
    disk = power.disk()
    for op in power.operations:
        if interesting(op):
            files = [(os.path.basename(path), data) for path, _, data in disk.files("lost") if data is not None]
            yield op, dict(files)
        disk.apply(op)


def test_an_intent_is_durable_before_its_effect(power):
    """Comments, pushes, pull requests: `effects.jsonl` says so first."""

    def effect(op):
        if op.call == "several":
            return "push:"
        if op.path == "tracker/issues/1.comments.jsonl" and op.call == "write":
            return re.search(rb"makimono:[0-9a-f-]{36}:(progress|final)", op.data)[1].decode()
        return "pull" if op.call == "make" and op.path.startswith("tracker/pulls/.1.md") else ""

    seen = []
    for op, durable in walk(power, effect):
        name = effect(op)
        if name == "pull" and "pull" in seen:
            continue  # brought up to date
        seen.append(name)
        intents = re.findall(rb'"name":"(progress|final|pull|push:)[^"]*","state":"intent"', durable["effects.jsonl"])
        assert [one.decode() for one in intents] == seen
    assert seen == ["progress", "push:", "pull", "push:", "final"]


def test_an_answer_is_durable_before_what_it_asks_for_is_done(power):
    done = 0
    for op, durable in walk(power, lambda op: op.call == "make" and "/workspace/" in op.path and "step" in str(op)):
        name = re.search(r"step-\d", op.path)[0]
        assert f"notes/{name}.md".encode() in durable["messages.jsonl"], op
        done += 1
    assert done == 3


def test_what_a_command_wrote_is_durable_before_it_is_recorded(power):
    """Its record says that it ran, so that nobody runs it again."""
    done = 0
    for _, durable in walk(power, lambda op: op.path.endswith("/tools.jsonl") and b'"tool":"run_command"' in op.data):
        assert durable.get(RAN) == b"step-3\n"
        done += 1
    assert done == 1


def test_the_states_are_of_all_models(states):
    assert {state.model for state in states} == set(MODELS)
    assert len(states) > 800


def test_what_is_not_synced_is_lost_and_what_is_synced_is_not(tmp_path):
    (tmp_path / "kept").write_bytes(b"old")
    disk = Disk(tmp_path, ())
    for op in (
        Operation("make", "new", mode=0o600),
        Operation("write", "new", b"12345678", offset=0),
        Operation("sync", "new"),
        Operation("write", "new", b"9"),
        Operation("write", "kept", b"NEW", offset=0),
    ):
        disk.apply(op)
    found = {model: {path: data for path, _, data in disk.files(model) if data is not None} for model in MODELS[:3]}
    assert found["all"] == {"new": b"123456789", "kept": b"NEW"}
    assert found["lost"] == {"kept": b"old"}, "its name was not synced"
    assert found["nuls"] == {"new": b"12345678\0", "kept": b"old"}
    disk.apply(Operation("sync", ""))
    disk.apply(Operation("rename", "new", other="kept"))
    assert [data for _, _, data in disk.files("lost")] == [b"old", b"12345678"]
    assert [data for _, _, data in disk.files("nuls")] == [b"12345678\0"]


def test_a_move_between_folders_is_durable_on_both_sides_or_on_none(tmp_path):
    for name in ("running", "completed"):
        os.mkdir(tmp_path / name)
    (tmp_path / "running" / "u").write_bytes(b"x")
    disk = Disk(tmp_path, ())
    disk.apply(Operation("rename", "running/u", other="completed/u"))
    assert "running/u" in [path for path, _, _ in disk.files("lost")]
    disk.apply(Operation("sync", "completed"))
    assert [path for path, _, data in disk.files("lost") if data] == ["completed/u"]
