"""From a changed tree to a pull request, with real git and a real tracker."""

import subprocess

import pytest
from run_home import UUID

from agent.context import TaskContextManager
from agent.errors import PushRejected
from agent.run.task_run import TaskRun
from agent.values import End, Outcome

DONE = Outcome(End.FINISHED, summary="It is done.", title="Mend it")


def git(folder, *args):
    identity = ["-c", "user.name=a", "-c", "user.email=a@localhost"]
    done = subprocess.run(["git", *identity, *args], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout


@pytest.fixture
def run(place):
    opened = []

    def start(extra="", **more):
        here = place(extra)
        here.issue(1, title="Mend the sum")
        git(here.folder, "init", "-q", "--bare", "-b", "main", "repo.git")
        git(here.folder, "clone", "-q", "repo.git", "seed")
        (here.folder / "seed" / "a.txt").write_text("a\n")
        git(here.folder / "seed", "add", "a.txt")
        git(here.folder / "seed", "commit", "-q", "-m", "First")
        git(here.folder / "seed", "push", "-q", "origin", "HEAD:main")
        context = TaskContextManager(here.key(1), UUID % 1, here.settings, user="alice", database=here.wiring.db)
        opened.append(context)
        one = TaskRun(here.wiring, context, **more)
        one.place = here
        one.prepare()
        return one

    yield start
    for context in opened:
        context.close()


def branches(one):
    return git(one.place.folder / "repo.git", "for-each-ref", "--format=%(refname:short)", "refs/heads").split()


def pulls(one):
    folder = one.place.folder / "tracker" / "pulls"
    return [path.read_text() for path in sorted(folder.glob("*.md"))] if folder.is_dir() else []


def test_nothing_changed_is_nothing_to_deliver(run):
    one = run()
    report = one.delivery.deliver(DONE)
    assert (report.changed, report.pull, report.problem) == (False, None, ("", ""))
    assert branches(one) == ["main"]
    assert pulls(one) == []


def test_a_checkpoint_is_a_draft_and_the_end_makes_it_ready(run):
    one = run("verify: {command: 'test -e b.txt'}\n")
    (one.workspace.tree / "b.txt").write_text("b\n")
    early = one.delivery.checkpoint("First step")
    assert early.pull.draft
    assert "draft: true" in pulls(one)[0]
    assert "**Check**: not run yet." in pulls(one)[0]
    (one.workspace.tree / "c.txt").write_text("c\n")
    report = one.delivery.deliver(DONE)
    assert report.ready
    assert report.pull.id == early.pull.id
    (pull,) = pulls(one)
    assert "draft: false" in pull
    assert "title: Mend it" in pull
    assert "exit code 0." in pull
    subjects = git(one.place.folder / "repo.git", "log", "--format=%s", f"main..{one.workspace.branch}").splitlines()
    assert subjects == ["Mend it", "First step"]


def test_delivering_twice_is_delivering_once(run):
    one = run()
    (one.workspace.tree / "b.txt").write_text("b\n")
    first, second = one.delivery.deliver(DONE), one.delivery.deliver(DONE)
    assert first.commit == second.commit
    assert first.pull == second.pull
    assert len(pulls(one)) == 1


@pytest.mark.parametrize("end", [End.LIMIT, End.REPEATING, End.FAILED])
def test_an_end_that_is_not_done_leaves_a_draft_and_checks_nothing(run, end):
    one = run("verify: {command: 'false'}\n")
    (one.workspace.tree / "b.txt").write_text("b\n")
    report = one.delivery.deliver(Outcome(end, summary="So far."))
    assert report.verdict is None
    assert "draft: true" in pulls(one)[0]


def test_a_red_check_is_a_problem_and_tests_that_were_changed_are_named(run):
    one = run("verify: {command: 'echo three failed; exit 3'}\n")
    (one.workspace.tree / "test_sum.py").write_text("assert True\n")
    report = one.delivery.deliver(DONE)
    assert report.problem[0] == "verify_failed"
    assert not report.ready
    (pull,) = pulls(one)
    assert "draft: true" in pull
    assert "exit code 3, **not passed**" in pull
    assert "three failed" in pull
    assert "`test_sum.py`" in pull


def test_what_may_not_go_out_is_held_back_until_it_is_put_right(run):
    one = run()
    leak = one.workspace.tree / "leak.txt"
    leak.write_text("key-of-the-test\n")
    report = one.delivery.checkpoint("Step")
    assert report.problem[0] == "policy"
    assert "leak.txt" in report.findings[0]
    assert "key-of-the-test" not in str(report)
    assert branches(one) == ["main"]
    leak.write_text("nothing\n")
    report = one.delivery.deliver(DONE)
    assert report.ready
    history = git(one.place.folder / "repo.git", "log", "-p", one.workspace.branch)
    assert "key-of-the-test" not in history


def test_a_secret_in_the_words_of_the_model_is_masked(run):
    one = run()
    (one.workspace.tree / "b.txt").write_text("b\n")
    one.delivery.deliver(Outcome(End.FINISHED, title="Use key-of-the-test", summary="It is key-of-the-test."))
    assert "key-of-the-test" not in pulls(one)[0]


def test_a_secret_in_the_title_does_not_reach_the_history(run):
    one = run()
    (one.workspace.tree / "b.txt").write_text("b\n")
    one.delivery.deliver(Outcome(End.FINISHED, title="Use key-of-the-test", summary="x"))
    assert "key-of-the-test" not in git(one.place.folder / "repo.git", "log", "--all", "--format=%B")


def test_a_pull_request_that_a_person_removed_is_not_made_again(run):
    one = run()
    (one.workspace.tree / "b.txt").write_text("b\n")
    one.delivery.checkpoint("Step")
    (one.place.folder / "tracker" / "pulls" / "1.md").unlink()
    with pytest.raises(PushRejected, match="is gone"):
        one.delivery.deliver(DONE)
    assert pulls(one) == []


def test_without_publishing_it_commits_and_checks_and_nothing_leaves(run):
    one = run("verify: {command: 'true'}\n", publishing=False)
    (one.workspace.tree / "b.txt").write_text("b\n")
    report = one.delivery.deliver(DONE)
    assert report.changed
    assert report.verdict.ok
    assert report.pull is None
    assert branches(one) == ["main"]
    assert pulls(one) == []
