"""kill -9 at system calls of a task's own writes: whatever was cut off, the next opening is legal and whole.

Each point is one run of this file as a program under `strace`, which kills it at the n-th call of a kind.  Every point
of a step can be walked with a larger `when`; the ones here are those between which an order matters.
"""

import shutil
import subprocess
import sys
from pathlib import Path

import orjson
import pytest

UUID = "u-1"
KEY = {"task_source": "github", "owner": "o", "repo": "r", "task_type": "issue", "task_id": "27"}


class One:
    """One token a text."""

    name = "one"
    exact = True

    def count(self, text):
        return 1


def open_task(base):
    from agent.context import TaskContextManager

    config = {
        "context_storage": {"base_dir": str(base)},
        "llm": {"provider": "openai", "openai": {"model": "m", "api_key": "k", "context_length": 1000}},
    }
    return TaskContextManager(KEY, UUID, config, counter=One())


def prepare(task):
    store = task.get_message_store()
    store.add_message("system", "rules")
    store.add_message("user", "task")
    for _ in range(4):
        store.add_message("assistant", None, tool_calls=[{"id": "c", "name": "f", "arguments": {}}])
        store.add_message("tool", "x" * 300, "f", output="outputs/0001.txt")
    store.sync()


def turn(task):
    store = task.get_message_store()
    store.add_message("assistant", None, tool_calls=[{"id": "d", "name": "f", "arguments": {}}])
    task.get_tool_store().add_tool_call("f", {}, "r", "success", 1)
    store.add_message("tool", "r" * 9000, "f")
    store.sync()
    task.heartbeat()


def compact(task):
    task.get_message_store().compact(strategy="summary", end_seq=6, summary="SUM", carried={"plan": ["go on"]})


def complete(task):
    task.get_message_store().add_message("assistant", "It is done.")
    task.complete("finished")


STEPS = {"prepare": prepare, "turn": turn, "compact": compact, "complete": complete}


def legal(view):
    waiting = set()
    for line in view:
        if line["role"] == "tool":
            assert line["tool_call_id"] in waiting
            waiting.remove(line["tool_call_id"])
        else:
            assert not waiting
            waiting = {call["id"] for call in line.get("tool_calls", ())}
    assert not waiting


@pytest.fixture
def base(tmp_path):
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed")
    base = tmp_path / "contexts"
    with open_task(base) as task:
        prepare(task)
    return base


def killed_at(base, step, call, when):
    """Whether the step was killed (False: it ended before)."""
    strace = [
        "strace",
        "-f",
        "-qq",
        "-o",
        "/dev/null",
        "-e",
        f"trace={call}",
        "-e",
        f"inject={call}:signal=KILL:when={when}",
    ]
    done = subprocess.run(
        [*strace, sys.executable, __file__, str(base), step], capture_output=True, text=True, check=False
    )
    if "ptrace" in done.stderr and "permitted" in done.stderr:
        pytest.skip("strace may not trace here")
    assert done.returncode in (0, -9, 137), done.stderr
    return done.returncode != 0


@pytest.mark.parametrize(
    ("step", "call", "when"),
    [
        ("turn", "write", 2),  # the answer: in messages.jsonl, not yet in the view
        ("turn", "fdatasync", 2),
        ("compact", "write", 2),  # the summary, not its copy
        ("compact", "fdatasync", 1),  # the copy, not yet durable
        ("compact", "fdatasync", 3),  # the commit
        ("compact", "rename", 1),  # the new view, not in its place
        ("complete", "rename", 1),  # the row is closed, the folder has not moved
        ("complete", "fsync", 2),
    ],
)
def test_a_task_killed_at_any_point_opens_whole(base, step, call, when):
    from agent.context import projection
    from agent.store.db import open_tasks

    assert killed_at(base, step, call, when), "the step has fewer calls than it had; choose another point"
    database = open_tasks(base)
    status = database.run("task_get", uuid=UUID)[0]["status"]
    database.close()
    running, completed = base / "running" / UUID, base / "completed" / UUID
    assert running.exists() != completed.exists()
    if status == "running":
        assert running.exists(), "a folder moved before its row was closed"
        open_task(base).close()
    folder = running if running.exists() else completed
    seqs = [orjson.loads(line)["seq"] for line in (folder / "messages.jsonl").read_bytes().splitlines()]
    assert seqs == list(range(1, len(seqs) + 1))
    assert len(seqs) >= 10
    view = (folder / "current.jsonl").read_bytes()
    assert view == b"".join(data for data, _ in projection.lines(folder))
    legal([orjson.loads(line) for line in view.splitlines()])
    assert not list(folder.glob(".*.tmp"))


def calls_of(base, step):
    """The writes, syncs and renames of a step, as (call, file name)."""
    log = base.parent / "strace.log"
    strace = ["strace", "-f", "-y", "-qq", "-s", "60", "-o", str(log), "-e", "trace=write,fdatasync,fsync,rename"]
    done = subprocess.run(
        [*strace, sys.executable, __file__, str(base), step], capture_output=True, text=True, check=False
    )
    if done.returncode:
        assert "ptrace" in done.stderr.lower(), done.stderr  # else it is the script that is wrong
        pytest.skip("strace may not trace here")
    found = []
    for line in log.read_text().splitlines():
        call = line.split(" ", 1)[1].strip().split("(")[0]
        names = [
            part.rsplit("/", 1)[-1].strip('<>"')
            for part in line.replace('"', "<").replace(">", "<").split("<")
            if "/" in part
        ]
        if names:
            found.append((call, names[-1] if call == "rename" else names[0]))
    return found


def test_a_compaction_is_written_in_the_order_that_makes_its_line_the_commit(base):
    calls = [(call, name) for call, name in calls_of(base, "compact") if name.endswith((".jsonl", ".tmp"))]
    temporary = next(name for _, name in calls if name.endswith(".tmp"))
    wanted = [
        ("write", "summaries.jsonl"),
        ("write", "messages.jsonl"),
        ("fdatasync", "messages.jsonl"),
        ("write", "compactions.jsonl"),
        ("fdatasync", "compactions.jsonl"),
        ("write", temporary),
        ("fsync", temporary),
        ("rename", "current.jsonl"),
    ]
    places = [calls.index(call) for call in wanted]
    assert places == sorted(places)
    assert calls.index(("fdatasync", "summaries.jsonl")) < calls.index(("write", "compactions.jsonl"))


def test_an_end_is_written_last_line_first_then_the_row_then_the_folder(base):
    calls = calls_of(base, "complete")
    moved = calls.index(("rename", UUID))
    before = [name for call, name in calls[:moved] if call in ("fdatasync", "fsync")]
    end = next(name for name in before if name.startswith(".end.json."))
    if before[-1] == "contexts":  # the name of a new completed/
        before.pop()
    assert before[-5:] == ["messages.jsonl", "current.jsonl", end, UUID, "tasks.db-wal"], "lines, end, commit, move"
    after = [name for call, name in calls[moved:] if call == "fsync"]
    assert {"completed", "running"} <= set(after)


if __name__ == "__main__":
    with open_task(Path(sys.argv[1])) as opened:
        STEPS[sys.argv[2]](opened)
