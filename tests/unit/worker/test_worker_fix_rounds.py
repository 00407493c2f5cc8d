"""Finished work that is not ready goes back to the model, a few times, and never twice with the same word."""

import subprocess
from contextlib import suppress

import pytest
from first_commit import bare
from llm_servers import Reply, Script, call, says
from run_home import UUID

from agent import clock
from agent.config import load
from agent.context import MessageStore
from agent.errors import DiskError, ForgeError, RequestRefused
from agent.forge import TaskFactory
from agent.values import End, Status
from agent.wiring.wiring import Wiring
from agent.worker.handler import TaskHandler

TOKEN = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
IDS = iter(range(1, 10_000))


def does(name, **arguments):
    return says("openai", "", [call(name, arguments, f"call_{next(IDS)}")])


def write(path, content="x\n"):
    return does("write_file", path=path, content=content)


def finish():
    return does("finish", title="Done", summary="It is done.")


class Work:
    """Issue 1 with a model that says `replies`, one after the other; each `handle` is a process of its own."""

    def __init__(self, here, replies, config):
        self.here = here
        self.script = Script(*replies)
        path = here.folder / "config.yaml"
        before = path.read_text().replace("http://127.0.0.1:9", self.script.url)
        if "sandbox:" in config:
            before = before.replace("sandbox: {kind: none}\n", "")
        path.write_text(before + config)
        here.settings = load(path, environ={})
        here.wiring = Wiring(here.settings, events=here.events)
        self.repository = bare(here.folder / "repo.git")
        here.issue(1, label="coding agent processing")

    def handle(self):
        here = self.here
        claim = here.ledger.claim(UUID % 1, here.wiring.owner, 60) if here.ledger.get(UUID % 1) else here.claim(1)
        task = TaskFactory.from_dict({**here.key(1), "uuid": claim.uuid, "user": "alice"}, here.wiring.forges)
        return TaskHandler(here.wiring, attempt=claim.attempt).handle(task)

    def again(self, *replies):
        """What a new process finds: the row is free, the model says these from now on."""
        self.script.replies = list(replies)
        self.here.ledger.offer(UUID % 1)
        return self.handle()

    @property
    def row(self):
        return self.here.ledger.get(UUID % 1)

    @property
    def folder(self):
        return next(self.here.settings.base_dir.glob(f"*/{UUID % 1}"))

    def fixes(self):
        store = MessageStore(self.folder, self.here.settings)
        try:
            return [one["content"] for one in store.records() if one.get("kind") == "fix"]
        finally:
            store.close()

    def git(self, *args):
        return subprocess.run(
            ["git", f"--git-dir={self.repository}", *args], capture_output=True, text=True, check=True
        ).stdout

    def pulls(self):
        return [path.read_text() for path in sorted((self.here.folder / "tracker" / "pulls").glob("*.md"))]

    def said(self):
        return (self.here.folder / "tracker" / "issues" / "1.comments.jsonl").read_text()


@pytest.fixture
def work(place):
    made = []

    def start(*replies, verify="", more=""):
        config = f"verify: {{command: '{verify}'}}\n" if verify else ""
        made.append(Work(place(), replies, config + more))
        return made[-1]

    yield start
    for one in made:
        one.script.close()


NEEDS_B = "test ! -e a.txt || test -e b.txt || { echo b.txt is missing; exit 1; }"


def test_a_red_check_goes_back_to_the_model_and_what_it_mends_is_ready(work):
    one = work(write("a.txt"), finish(), write("b.txt"), finish(), verify=NEEDS_B)
    assert one.handle().end is End.FINISHED
    assert one.row.status is Status.COMPLETED
    (said,) = one.fixes()
    assert "(1 of 2 tries to put it right)" in said
    assert "failed with exit code 1" in said
    assert "On the base commit, without your change, it passes." in said
    assert "UNTRUSTED" in said
    assert "b.txt is missing" in said
    (pull,) = one.pulls()
    assert "draft: false" in pull
    assert one.here.named("sent_back") == [{"round": 1, "rounds": 2, "why": "verify_failed"}]
    assert [fields["same"] for fields in one.here.named("base_checked")] == [False]


def test_a_file_that_no_commit_has_is_said_once_and_fails_nothing(work):
    one = work(write(".gitignore", "lib/\n"), write("lib/util.py"), finish(), write("a.txt"), finish())
    assert one.handle().end is End.FINISHED
    assert one.row.status is Status.COMPLETED
    (said,) = one.fixes()
    assert "- lib/util.py was written and is not in the commit: git ignores it (.gitignore, line 1" in said
    assert one.here.named("sent_back") == [{"round": 1, "rounds": 2, "why": "left_behind"}]
    (pull,) = one.pulls()
    assert "draft: false" in pull


def test_a_tree_at_which_git_must_not_look_goes_back_to_the_model(work):
    """A named pipe called `.gitignore`: git waited ten minutes at each call and heard no stop."""
    bad, good = (does("run_command", command=line) for line in ("mkfifo .gitignore", "rm .gitignore"))
    one = work(write("a.txt"), bad, write("b.txt"), finish(), good, finish())
    assert one.handle().end is End.FINISHED
    assert one.row.status is Status.COMPLETED, one.row.error_message
    (said,) = one.fixes()
    assert ".gitignore is a named pipe" in said
    (pull,) = one.pulls()
    assert "draft: false" in pull
    assert one.here.named("push_refused")[0]["findings"][0].startswith(".gitignore is a named pipe")


def test_a_tree_at_which_git_must_not_look_ends_as_what_it_is(work):
    one = work(does("run_command", command="mkfifo .gitattributes"), finish(), finish(), finish())
    one.handle()
    assert (one.row.status, one.row.error_code) == (Status.FAILED, "policy")
    assert ".gitattributes is a named pipe" in one.row.error_message
    assert one.pulls() == []


def test_after_the_rounds_the_task_ends_with_what_is_wrong(work):
    one = work(write("a.txt"), finish(), finish(), finish(), verify=NEEDS_B)
    one.handle()
    assert (one.row.status, one.row.error_code) == (Status.FAILED, "verify_failed")
    assert len(one.fixes()) == 2
    assert "draft: true" in one.pulls()[0]
    assert len(one.script.asked) == 4


@pytest.mark.parametrize("more", ["limits: {fix_rounds: 0}\n", "limits: {turns: 2}\n"])
def test_without_a_round_or_past_a_limit_nothing_goes_back(work, more):
    one = work(write("a.txt"), finish(), verify=NEEDS_B, more=more)
    one.handle()
    assert (one.row.status, one.row.error_code) == (Status.FAILED, "verify_failed")
    assert one.fixes() == []


class SlowForge:
    """A forge whose pull requests take `seconds` of the fake clock."""

    def __init__(self, monkeypatch, seconds):
        from agent.worker.pull_request import PullRequest

        real = PullRequest.show

        def show(*args, **named):
            clock.sleep(seconds)
            return real(*args, **named)

        monkeypatch.setattr(PullRequest, "show", show)


def test_the_time_of_a_slow_forge_ends_no_finished_work_and_takes_none_from_the_model(work, monkeypatch):
    SlowForge(monkeypatch, 100)
    with clock.use(clock.FakeClock(clock.now())):
        one = work(
            write("a.txt"), finish(), write("b.txt"), finish(), verify=NEEDS_B, more="limits: {wall_seconds: 60}\n"
        )
        assert one.handle().end is End.FINISHED
    assert (one.row.status, one.row.error_code) == (Status.COMPLETED, None)
    assert len(one.fixes()) == 1, "the model had time left"
    assert "draft: false" in one.pulls()[0]


def test_finished_work_whose_repository_is_slow_at_the_next_try_is_published(work, monkeypatch):
    """Preparing takes longer than the model may work."""
    one = work(write("a.txt"), finish(), more="limits: {wall_seconds: 60}\n")
    (one.here.folder / "tracker" / "pulls").write_text("in the way")
    with pytest.raises(ForgeError):
        one.handle()
    (one.here.folder / "tracker" / "pulls").unlink()
    from agent.work.mirror import Mirror

    real = Mirror.fetch

    def fetch(*args, **named):
        clock.sleep(100)
        return real(*args, **named)

    monkeypatch.setattr(Mirror, "fetch", fetch)
    with clock.use(clock.FakeClock(clock.now())):
        assert one.again().end is End.FINISHED
    assert (one.row.status, one.row.error_code) == (Status.COMPLETED, None)
    assert len(one.script.asked) == 2


def test_what_was_red_before_is_told_once_and_is_no_failure(work):
    one = work(write("a.txt"), finish(), finish(), verify="echo broken for ever; exit 3")
    one.handle()
    assert (one.row.status, one.row.error_code) == (Status.COMPLETED, None)
    (said,) = one.fixes()
    assert "It was red on the base commit in the same way, before your change." in said
    (pull,) = one.pulls()
    assert "draft: false" in pull
    assert "The check was already red on `main`, in the same way" in pull
    assert "It was red on `main` already, in the same way" in one.said()


def test_a_bug_that_the_check_shows_on_the_base_is_tried_again_until_it_is_green(work):
    one = work(write("a.txt"), finish(), write("b.txt"), finish(), verify="test -e b.txt || { echo no b; exit 1; }")
    one.handle()
    assert one.row.status is Status.COMPLETED
    assert "exit code 0." in one.pulls()[0]


def test_a_finding_goes_back_and_leaves_the_history(work):
    one = work(write("start.sh", f"TOKEN={TOKEN}\n"), finish(), write("start.sh", "TOKEN=$1\n"), finish())
    one.handle()
    assert one.row.status is Status.COMPLETED, one.row.error_message
    (said,) = one.fixes()
    assert "start.sh" in said
    assert TOKEN not in said
    assert TOKEN not in one.git("log", "-p", "--all")


HOOK = """#!/bin/sh
while read old new name; do
  git log --format=%s "$new" --not --all | grep -qv '^JIRA-' || continue
  echo "every commit message begins with JIRA-" >&2
  exit 1
done
"""


def test_a_refusal_of_the_repository_goes_back_in_its_own_words(work):
    second = does("finish", title="JIRA-1 Write a", summary="It is done.")
    one = work(write("a.txt"), finish(), second)
    hook = one.repository / "hooks" / "pre-receive"
    hook.write_text(HOOK)
    hook.chmod(0o755)
    one.handle()
    assert one.row.status is Status.COMPLETED, one.row.error_message
    (said,) = one.fixes()
    assert "every commit message begins with JIRA-" in said
    assert one.git("log", "--format=%s", "--branches", "--not", "main") == "JIRA-1 Write a\n"


REFUSED = Reply({"error": {"message": "Unsupported parameter"}}, 400)


@pytest.mark.parametrize("end", [REFUSED, says("openai", "I leave it as it is."), does("read_file", path="a.txt")])
def test_a_model_that_cannot_be_asked_or_does_nothing_leaves_the_first_reason(work, end):
    one = work(write("a.txt"), finish(), end, verify=NEEDS_B)
    with suppress(RequestRefused):
        one.handle()
    assert (one.row.status, one.row.error_code) == (Status.FAILED, "verify_failed")
    assert len(one.fixes()) == 1
    assert "asked to put right what was found, and did not" in one.said()


def test_what_it_changed_without_a_new_finish_is_not_ready(work):
    one = work(write("a.txt"), finish(), write("b.txt"), REFUSED, verify=NEEDS_B)
    with pytest.raises(RequestRefused):
        one.handle()
    assert (one.row.status, one.row.error_code) == (Status.FAILED, "request_refused")
    assert "draft: true" in one.pulls()[0]


class Killed(BaseException):
    """As kill -9: nothing of ours runs after it."""


@pytest.mark.parametrize("where", ["check", "word"])
def test_a_kill_before_or_after_the_word_says_it_once(work, monkeypatch, where):
    one = work(write("a.txt"), finish(), verify=NEEDS_B)
    add = MessageStore.add_message

    def dies(store, role, content, *rest, **fields):
        if fields.get("kind") == "fix":
            if where == "word":
                add(store, role, content, *rest, **fields)
            raise Killed
        return add(store, role, content, *rest, **fields)

    with monkeypatch.context() as patched:
        patched.setattr(MessageStore, "add_message", dies)
        with pytest.raises(Killed):
            one.handle()
    one.here.ledger.release(UUID % 1, one.row.attempt)
    one.again(write("b.txt"), finish())
    assert one.row.status is Status.COMPLETED
    assert len(one.fixes()) == 1
    assert "(1 of 2" in one.fixes()[0]


def test_what_waited_to_be_published_goes_back_too(work):
    one = work(write("a.txt"), finish(), verify=NEEDS_B)
    pulls = one.here.folder / "tracker" / "pulls"
    pulls.write_text("in the way")
    with pytest.raises(ForgeError):
        one.handle()
    assert (one.row.status, one.row.outcome) == (Status.QUEUED, "publishing")
    pulls.unlink()
    one.again(write("b.txt"), finish())
    assert (one.row.status, one.row.outcome) == (Status.COMPLETED, "finished")
    assert len(one.fixes()) == 1


def test_an_error_while_it_mends_is_an_error_of_its_work(work, monkeypatch):
    """The disk is full: the task pauses and goes on, it does not wait to be published."""
    one = work(write("a.txt"), finish(), does("read_file", path="a.txt"), verify=NEEDS_B)
    full = MessageStore.add_message

    def fails(store, role, content, *rest, **fields):
        if role == "assistant" and any(record.get("kind") == "fix" for record in store.records()):
            raise DiskError("no space left")
        return full(store, role, content, *rest, **fields)

    with monkeypatch.context() as patched:
        patched.setattr(MessageStore, "add_message", fails)
        with pytest.raises(DiskError):
            one.handle()
    assert (one.row.status, one.row.outcome) == (Status.PAUSED, "disk")


def test_a_check_that_changes_its_mind_about_one_commit_is_told(work, tmp_path):
    count = tmp_path / "count"
    one = work(write("a.txt"), finish(), finish(), verify=f"echo >> {count}; test $(wc -l < {count}) -ge 3")
    one.handle()
    assert one.row.status is Status.COMPLETED
    assert "the check failed on this very commit before it passed" in one.said()


EATS = (
    'python3 -c "import os, time; f = os.memfd_create(chr(120)); [os.write(f, bytes(1 << 20)) for _ in range(300)]; '
    'time.sleep(300)"'
)


def test_a_command_that_holds_too_much_memory_is_ended_and_the_model_goes_on(work):
    """Memory without a page in any process: a memfd."""
    one = work(does("run_command", command=EATS), finish(), more="sandbox: {kind: none, limits: {memory: 100M}}\n")
    one.handle()
    assert one.row.status is Status.COMPLETED
    store = MessageStore(one.folder, one.here.settings)
    try:
        (said,) = [record["content"] for record in store.records() if "limits.memory" in (record["content"] or "")]
    finally:
        store.close()
    assert "ended because it held" in said
    assert "`sandbox.limits.memory` is 100M" in said
