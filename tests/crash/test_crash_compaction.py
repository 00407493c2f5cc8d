"""kill -9 at each step of a compaction by summary, or of a trim: after the restart the context is the old one or the
new one.

The steps are read off one run under `strace`: every write, sync, rename and removal that the compressor does, from the
five intermediate files over the summary and the line that is the commit to the new view.  MAKIMONO_LONG=1 kills at all
of them; the ordinary run at ten.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import orjson
import pytest
from length import LONG
from summaries import honest

from agent.window.summary_request import FILES
from agent.window.summary_writer import HEADER

KEY = {"task_source": "github", "owner": "o", "repo": "r", "task_type": "issue", "task_id": "27"}
TESTS = Path(__file__).resolve().parents[1]
CALLS = ("write", "fdatasync", "fsync", "rename", "unlink")


class Summariser:
    provider, model, tools, last = "openai", "m", (), None

    def loaded_window(self):
        return None

    def get_summary(self, path):
        text = path.read_text()
        assert '"name":"read_file"' in text
        return honest(text)


def open_task(base):
    from agent.context import TaskContextManager

    llm = {"model": "m", "api_key": "k", "context_length": 8192}
    storage = {"base_dir": str(base), "strategy": "summary"}
    return TaskContextManager(KEY, "u-1", {"context_storage": storage, "llm": {"provider": "openai", "openai": llm}})


def compact(base):
    from agent.config import settings_of
    from agent.window import make_window

    with open_task(base) as task:
        llm = {"model": "m", "api_key": "k", "context_length": 8192}
        settings = settings_of(
            {"context_storage": {"strategy": "summary"}, "llm": {"provider": "openai", "openai": llm}}
        )
        window = make_window(settings, task, Summariser())
        (base / "begin").rename(base / "begun")
        assert window.compressor.compress(force=True) == 1
        (base / "begun").rename(base / "begin")


def fill(base):
    with open_task(base) as task:
        store = task.get_message_store()
        store.add_message("system", "rules")
        store.add_message("user", "Fix the total.")
        for number in range(12):
            calls = [{"id": f"c{number}", "name": "read_file", "arguments": {"path": f"f{number}.py"}}]
            store.add_message("assistant", None, tool_calls=calls)
            task.get_tool_store().add_tool_call("read_file", {"path": f"f{number}.py"}, "x", "success", 1)
            store.add_message("tool", f"line {number}\n" * 60, "read_file")
            if number == 1:
                store.add_message("user", "Keep Python 3.9.", kind="comment")
                command = {"command": "make test"}
                calls = [{"id": "make", "name": "run_command", "arguments": command}]
                store.add_message("assistant", None, tool_calls=calls)
                failed = "[exit code 2]\nsum.c:7: wrong total"
                task.get_tool_store().add_tool_call("run_command", command, failed, "success", 1)
                store.add_message("tool", failed, "run_command")
        store.sync()
    (base / "begin").touch()


def trim(base):
    with open_task(base) as task:
        store = task.get_message_store()
        (base / "begin").rename(base / "begun")
        store.trim(start_seq=store.last_seq, end_seq=store.last_seq, largest=300)
        (base / "begun").rename(base / "begin")


def strace(log, base, *more, means="compact"):
    command = ["strace", "-f", "-y", "-qq", "-o", str(log), "-e", f"trace={','.join(CALLS)}", *more]
    path = os.pathsep.join([str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": path}
    return subprocess.run(
        [*command, sys.executable, __file__, str(base), means],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )


def steps_in(log):
    """(call, its number in the run, file name) of everything between the two renames."""
    steps, seen, inside = [], dict.fromkeys(CALLS, 0), False
    for line in log.read_text().splitlines():
        found = re.match(r"\d+ +(\w+)\((.*)", line)
        if not found or found[1] not in seen:
            continue
        call, rest = found.groups()
        seen[call] += 1
        if call == "rename" and '/begin"' in rest:
            inside = "begun" in rest.split(",")[1]
        elif inside and "/u-1" in rest:
            steps.append((call, seen[call], re.findall(r"u-1/?([^\"<>, ]*)", rest)[-1]))
    return steps


@pytest.fixture(scope="module")
def known(tmp_path_factory):
    """(a filled base_dir, the old view, the new view, the steps as (call, its number in the run, file name))."""
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed")
    folder = tmp_path_factory.mktemp("known")
    fill(folder / "filled")
    shutil.copytree(folder / "filled", folder / "done")
    old = (folder / "done/running/u-1/current.jsonl").read_bytes()
    done = strace(folder / "log", folder / "done")
    if done.returncode:
        assert "ptrace" in done.stderr.lower(), done.stderr  # else it is the script that is wrong
        pytest.skip(f"strace may not trace here: {done.stderr[-200:]}")
    steps = steps_in(folder / "log")
    return folder / "filled", old, (folder / "done/running/u-1/current.jsonl").read_bytes(), steps


def test_a_compaction_has_the_steps_of_the_design_in_their_order(known):
    _, old, new, steps = known
    assert old != new
    assert HEADER.encode() in new
    for carried in (b"Keep Python 3.9.", b"make test", b"sum.c:7: wrong total"):  # by the same commit
        assert carried in new
    names = [(call, name) for call, _, name in steps]
    wanted = [
        *(("write", name) for name in FILES),
        *(("unlink", name) for name in FILES),
        ("write", "summaries.jsonl"),
        ("write", "messages.jsonl"),
        ("fdatasync", "messages.jsonl"),
        ("write", "compactions.jsonl"),
        ("fdatasync", "compactions.jsonl"),
        ("rename", "current.jsonl"),
    ]
    places = [names.index(one) for one in wanted]
    assert places[5:] == sorted(places[5:])
    assert len(steps) >= 16


def chosen(steps):
    """All, or ten: around the commit, and some before."""
    if LONG:
        return steps
    commit = next(number for number, step in enumerate(steps) if step[::2] == ("write", "compactions.jsonl"))
    near = steps[max(0, commit - 4) : commit + 5]
    return [steps[0], *near] if len(near) >= 8 else steps[:3] + near


def test_killed_at_any_step_the_context_is_the_old_one_or_the_new_one(known, tmp_path):
    filled, old, new, steps = known
    views = []
    for number, (call, when, name) in enumerate(chosen(steps)):
        base = tmp_path / str(number)
        shutil.copytree(filled, base)
        done = strace(tmp_path / "log", base, "-e", f"inject={call}:signal=KILL:when={when}")
        assert done.returncode in (-9, 137), (call, when, name, done.stderr)
        folder = base / "running/u-1"
        committed = (folder / "compactions.jsonl").exists() and b'"summary"' in (
            folder / "compactions.jsonl"
        ).read_bytes()
        with open_task(base) as task:
            view = task.get_message_store().get_current_context_file().read_bytes()
            assert view == (new if committed else old), (call, when, name)
            assert not [left for left in FILES if (folder / left).exists()]
            assert not list(folder.glob(".*.tmp"))
            seqs = [orjson.loads(line)["seq"] for line in (folder / "messages.jsonl").read_bytes().splitlines()]
            assert seqs == list(range(1, len(seqs) + 1))
        views.append(committed)
        if not committed:  # it can be done again
            (base / "begin").touch()
            compact(base)
            assert (folder / "current.jsonl").read_bytes() == new
    assert len(views) >= 8
    assert set(views) == {True, False}


def test_killed_at_any_step_of_a_trim_the_newest_result_is_whole_or_short(known, tmp_path):
    filled, old, _, _ = known
    shutil.copytree(filled, tmp_path / "done")
    done = strace(tmp_path / "log", tmp_path / "done", means="trim")
    assert done.returncode == 0, done.stderr
    new = (tmp_path / "done/running/u-1/current.jsonl").read_bytes()
    assert len(new) < len(old)
    assert b"left out here to make room" in new
    steps = steps_in(tmp_path / "log")
    names = [(call, name) for call, _, name in steps]
    wanted = [("write", "compactions.jsonl"), ("fdatasync", "compactions.jsonl"), ("rename", "current.jsonl")]
    places = [names.index(one) for one in wanted]
    assert places == sorted(places), "the line is durable before the view follows from it"
    views = set()
    for number, (call, when, name) in enumerate(steps):
        base = tmp_path / str(number)
        shutil.copytree(filled, base)
        done = strace(tmp_path / "log", base, "-e", f"inject={call}:signal=KILL:when={when}", means="trim")
        assert done.returncode in (-9, 137), (call, when, name, done.stderr)
        committed = b'"trim"' in (base / "running/u-1/compactions.jsonl").read_bytes()
        with open_task(base) as task:
            view = task.get_message_store().get_current_context_file().read_bytes()
            assert view == (new if committed else old), (call, when, name)
        views.add(committed)
    assert views == {True, False}


if __name__ == "__main__":
    {"compact": compact, "trim": trim}[sys.argv[2]](Path(sys.argv[1]))
