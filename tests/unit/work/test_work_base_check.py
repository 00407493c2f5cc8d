"""What the check says of the base: run once, kept for every task of it, and never when it says nothing."""

import threading
from types import SimpleNamespace

import pytest

from agent import proc
from agent.config.sections import Setup
from agent.values import Finished
from agent.work.base_check import base_verdict
from agent.work.verify import Verdict, verdict_of


def settings(command="exit 3", setup=None, timeout=60, network=()):
    return SimpleNamespace(
        verify=SimpleNamespace(command=command, timeout=timeout),
        workspace=SimpleNamespace(setup=setup),
        sandbox=SimpleNamespace(network=network),
    )


class Runs:
    def __init__(self, exit_code=3):
        self.commits = []
        self.exit_code = exit_code

    def __call__(self, commit):
        self.commits.append(commit)
        return verdict_of("x", Finished(self.exit_code, b"FAIL: a (b)\n", 0.1))


def ask(workspace, runs, given=None, sandbox="none", **more):
    return base_verdict(given or settings(), workspace, runs, sandbox=sandbox, **more)


def test_it_is_run_once_and_shared_by_tasks(source, make_workspace):
    one, two, runs = make_workspace(source), make_workspace(source, uuid="second"), Runs()
    first, second = ask(one, runs), ask(two, runs)
    assert runs.commits == [one.base_commit]
    assert (first, first.outline) == (second, second.outline)
    assert second.is_red_as(first)


@pytest.mark.parametrize(
    "other",
    [
        {"given": settings("exit 4")},
        {"given": settings(timeout=61)},
        {"given": settings(setup=Setup(command="true"))},
        {"sandbox": "bubblewrap"},
        {"given": settings(network=("pypi.org",))},
    ],
)
def test_what_it_depends_on_makes_it_run_again(source, make_workspace, other):
    workspace, runs = make_workspace(source), Runs()
    ask(workspace, runs)
    ask(workspace, runs, **other)
    assert len(runs.commits) == 2


def test_another_base_commit_is_another_verdict(source, make_workspace):
    runs = Runs()
    ask(make_workspace(source), runs)
    source.write("more.txt", "x\n")
    source.commit("more")
    ask(make_workspace(source, uuid="second"), runs)
    assert len(set(runs.commits)) == 2


def test_a_verdict_that_says_nothing_is_not_kept_and_a_broken_file_is_made_again(source, make_workspace):
    workspace = make_workspace(source)
    unable = Verdict("x", None, ok=False, duration=0.0, tail="no sandbox")
    assert ask(workspace, lambda _commit: unable) is unable
    runs = Runs()
    ask(workspace, runs)
    (kept,) = (workspace.mirror.base_dir / "checks").glob("*.json")
    kept.write_bytes(b"{half")
    ask(workspace, runs)
    assert len(runs.commits) == 2


def test_one_task_waits_for_the_other_and_can_be_stopped_meanwhile(source, make_workspace):
    one, two = make_workspace(source), make_workspace(source, uuid="second")
    begun, go_on, runs = threading.Event(), threading.Event(), Runs()

    def slow(commit):
        begun.set()
        go_on.wait(30)
        return runs(commit)

    thread = threading.Thread(target=ask, args=(one, slow))
    thread.start()
    begun.wait(30)

    def stop():
        raise InterruptedError

    with pytest.raises(InterruptedError):
        ask(two, runs, waiting=stop)
    assert ask(two, runs, waiting=go_on.set).exit_code == 3
    thread.join()
    assert len(runs.commits) == 1


@pytest.mark.parametrize(("after", "before", "same"), [(1, 1, True), (1, 2, False), (127, 127, False), (126, 126, False), (0, 1, False)])  # fmt: skip
def test_red_in_the_same_way_needs_two_checks_that_ran(after, before, same):
    def of(code):
        command = f"exit {code}"
        return verdict_of(command, proc.run(["/bin/sh", "-c", command], env={}, timeout=9))

    assert of(after).is_red_as(of(before)) is same
    late = verdict_of("x", Finished(1, b"", 600.0, timed_out=True))
    assert not late.is_red_as(late)
