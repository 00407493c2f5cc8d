"""The main job with real processes: many issues at once, and a daemon that is told to end, or dies.

`together` is one run over issues of many kinds; each test looks at one of them.
"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from flow_home import SECONDS, FlowHome, Held, do, finish, finished, git, said, until, write

SJIS = "なまえ=山田\r\n住所=東京\r\n電話=あとで\r\n"
TOKEN = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"


# --- one run, many kinds of issues ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def together(tmp_path_factory):
    plays = {
        "Plain change": [write("a.txt", "one\n"), do("edit_file", path="calc.py", old_text="sum(round(p) for p in prices)", new_text="round(sum(prices))"), finish("Round the sum", "It rounds once.")],
        "Same repository": [write("b.txt", "two\n"), finish("Second one")],
        "Leaks a token": [write("start.sh", f"TOKEN={TOKEN}\n"), finish("Deploy"), finish("Deploy"), finish("Deploy")],
        "Leaks our key": [write("key.txt", "key: key-of-the-test\n"), finish("Key"), finish("Key"), finish("Key")],
        "Touches workflows": [write(".github/workflows/ci.yml", "on: push\n"), finish("CI"), do("delete_file", path="x"), finish("CI"), finish("CI")],
        "Only a question": [("It is done with `sorted`.", []), finish("Answered", "It is done with `sorted`.")],
        "Stops in the middle": [write("half.txt"), *[("Now let me add the second half.", [])] * 3],
        "Never begins": [("I'll start by looking at a.py", [])] * 3,
        "Nothing there yet": [write("main.py", "print('hello')\n"), finish("Begin")],
        "From a branch": [do("read_file", path="old.txt"), write("c.txt"), finish("On the old line")],
        "Trunk it is": [write("d.txt"), finish("On trunk")],
        "Old encodings": [do("read_file", path="sjis.ini"), do("edit_file", path="sjis.ini", old_text="住所=東京", new_text="住所=大阪"), finish("Moved")],
    }  # fmt: skip
    home = FlowHome(
        tmp_path_factory.mktemp("together"),
        plays,
        repos=("default", "odd"),
        config="scheduling: {max_workers: 3}\n",
    )
    try:
        home.repository("empty", {})
        home.repository("trunk", {"t.txt": "trunk\n"}, branch="trunk")
        text = home.config.read_text()
        home.config.write_text(
            text.replace("odd: repos/odd.git", "odd: repos/odd.git, empty: repos/empty.git, trunk: repos/trunk.git")
        )
        home.commit("odd", {"sjis.ini": SJIS.encode("shift_jis")})
        home.commit("default", {"old.txt": "old\n"}, branch="release/1.x")
        where = {"Nothing there yet": {"repo": "empty"}, "Trunk it is": {"repo": "trunk"}, "Old encodings": {"repo": "odd"}, "From a branch": {"base": "release/1.x"}}  # fmt: skip
        home.numbers = {}
        for number, title in enumerate(plays, 1):
            home.numbers[title] = number
            home.issue(number, title, **where.get(title, {}))
        home.code, home.text = home.run("run", "--once")
        yield home
    finally:
        home.close()


def of(home, title):
    number = home.numbers[title]
    return number, home.row(number)


def test_every_issue_has_an_end_a_folder_and_a_row(together):
    rows = together.rows()
    assert len(rows) == len(together.numbers)
    assert {row["status"] for row in rows.values()} == {"completed", "failed"}
    assert together.code == 1, together.text
    assert not list((together.contexts / "running").iterdir())
    assert {path.name for path in (together.contexts / "completed").iterdir()} == {row["uuid"] for row in rows.values()}
    assert together.workers() == {}
    for number in rows:
        assert len(together.progress(number)) == 1
        assert len(together.said(number)) == 1
    assert "Traceback" not in together.text


def test_a_change_becomes_a_branch_and_a_pull_request_that_is_ready(together):
    number, row = of(together, "Plain change")
    assert row["status"] == "completed"
    assert row["branch"] in together.branches()
    assert together.show(f"{row['branch']}:a.txt") == "one\n"
    assert "round(sum(prices))" in together.show(f"{row['branch']}:calc.py")
    (pull,) = [one for one in together.pulls() if f"head: {row['branch']}" in one]
    assert "draft: false" in pull
    assert "Commands ran without a sandbox" in pull
    assert "It rounds once." in together.said(number)[0]
    assert together.label(number) == "coding agent done"


def test_two_issues_of_one_repository_do_not_see_each_other(together):
    _, one = of(together, "Plain change")
    _, two = of(together, "Same repository")
    tree = git("ls-tree", "--name-only", two["branch"], cwd=together.repos["default"]).split()
    assert "b.txt" in tree
    assert "a.txt" not in tree
    assert one["branch"] != two["branch"]


@pytest.mark.parametrize(
    ("title", "word"),
    [("Leaks a token", "start.sh"), ("Leaks our key", "key.txt"), ("Touches workflows", ".github/workflows/ci.yml")],
)
def test_what_may_not_be_published_is_not_pushed_and_the_person_is_told(together, title, word):
    number, row = of(together, title)
    assert (row["status"], row["error_code"]) == ("failed", "policy")
    assert not [branch for branch in together.branches() if row["uuid"][:8] in branch]
    (said,) = together.said(number)
    assert "Not published" in said
    assert word in said
    assert TOKEN not in said
    assert "key-of-the-test" not in said
    assert together.label(number) == "coding agent failed"


def test_a_question_is_answered_and_nothing_is_published(together):
    number, row = of(together, "Only a question")
    assert row["status"] == "completed"
    assert row["branch"] is None
    (said,) = together.said(number)
    assert "It is done with `sorted`." in said
    assert "No file was changed." in said
    assert together.label(number) == "coding agent done"


def test_a_change_without_finish_is_a_draft_with_the_reason(together):
    number, row = of(together, "Stops in the middle")
    assert (row["status"], row["error_code"]) == ("failed", "not_finished")
    (pull,) = [one for one in together.pulls() if f"head: {row['branch']}" in one]
    assert "draft: true" in pull
    assert "**Not finished** (not_finished): the model stopped without" in pull
    (said,) = together.said(number)
    assert "stopped without saying that it is finished" in said
    assert "Draft: " in said
    assert together.label(number) == "coding agent failed"


def test_words_alone_are_not_completed(together):
    number, row = of(together, "Never begins")
    assert (row["status"], row["error_code"]) == ("failed", "no_tool_calls")
    (said,) = together.said(number)
    assert "parser of tool calls" in said
    assert "I'll start by looking at a.py" in said
    assert together.label(number) == "coding agent failed"


def test_an_empty_repository_gets_its_first_branch(together):
    number, row = of(together, "Nothing there yet")
    assert row["status"] == "completed"
    assert together.show(f"{row['branch']}:main.py", "empty") == "print('hello')\n"
    assert not [one for one in together.pulls() if row["branch"] in one]
    assert "The repository was empty" in together.said(number)[-1]


def test_the_base_of_the_issue_is_where_the_work_starts(together):
    number, row = of(together, "From a branch")
    assert row["status"] == "completed", together.said(number)
    assert together.show(f"{row['branch']}:old.txt") == "old\n"
    (pull,) = [one for one in together.pulls() if f"head: {row['branch']}" in one]
    assert "base: release/1.x" in pull


def test_a_default_branch_of_another_name_is_found(together):
    _, row = of(together, "Trunk it is")
    assert together.show(f"{row['branch']}:t.txt", "trunk") == "trunk\n"
    (pull,) = [one for one in together.pulls() if f"head: {row['branch']}" in one]
    assert "base: trunk" in pull


def test_a_file_of_another_encoding_and_line_end_changes_in_one_line(together):
    number, row = of(together, "Old encodings")
    assert row["status"] == "completed", together.said(number)
    raw = subprocess.run(["git", "show", f"{row['branch']}:sjis.ini"], cwd=together.repos["odd"], capture_output=True, check=True).stdout  # fmt: skip
    assert raw == SJIS.replace("東京", "大阪").encode("shift_jis")
    numbers = git("diff", "--numstat", "main", row["branch"], cwd=together.repos["odd"])
    assert numbers.split()[:2] == ["1", "1"]


# --- a live daemon ----------------------------------------------------------------------------------------------


def test_people_reach_running_tasks(home):
    """One daemon, five tasks: stopped by the command, stopped by the label, a comment, a question, a second daemon."""
    held = {name: Held(finish()) for name in ("Stop me", "Unlabel me", "Tell me")}
    later = Held(do("read_file", path="README.md"))
    plays = {
        "Stop me": [held["Stop me"]],
        "Unlabel me": [held["Unlabel me"]],
        "Tell me": [later, held["Tell me"]],
        "Ask me": [do("ask_user", question="Red or blue?"), lambda request: write("colour.txt", answer_in(request)), finish()],
    }  # fmt: skip
    here = home(plays, config="scheduling: {interval: 0.5, max_workers: 4}\n")
    for number, title in enumerate(plays, 1):
        here.issue(number, title)
    daemon = here.start("run")
    for one in (held["Stop me"], held["Unlabel me"], later):
        one.arrived()

    code, text = here.run("run", "--once")
    assert code == 3
    assert "another daemon works on" in text

    # labels: taken away while the model thinks
    path = here.issue_path(2)
    path.write_text(path.read_text().replace("coding agent processing", ""))

    # stop by the beginning of the uuid
    here.run("stop", here.row(1)["uuid"][:8], code=0)
    until(lambda: here.row(1)["status"] == "stopped", "the stop")
    until(lambda: here.label(1) == "coding agent stopped", "the label")
    assert "Stopped, as asked" in here.said(1)[0]

    # a question, an answer
    until(lambda: here.row(4).get("status") == "paused", "the question")
    assert "Red or blue?" in here.said(4)[0]
    assert here.label(4) == "coding agent paused"
    here.comment(4, "Blue, please.")
    until(lambda: here.row(4)["status"] == "completed", "the end after the answer")
    assert here.show(f"{here.row(4)['branch']}:colour.txt") == "Blue"
    assert here.row(4)["attempt"] == 2
    assert len(here.said(4)) == 2
    assert len(here.progress(4)) == 1
    assert here.label(4) == "coding agent done"

    # a comment reaches the next turn
    here.comment(3, "And greet Hanako.")
    until(lambda: here.row(2)["status"] == "stopped", "the stop by the label")
    time.sleep(1)  # two looks at the comments
    later.go()
    held["Tell me"].arrived()
    messages = held["Tell me"].requests[0]["messages"]
    assert "And greet Hanako." in json.dumps(messages[-1]["content"])
    assert messages[-1]["role"] == "user"
    held["Tell me"].go()
    until(lambda: here.row(3)["status"] == "completed", "the end")
    assert len(here.progress(3)) == 1
    assert "**Done.**" in here.progress(3)[0]
    assert len(here.said(3)) == 1

    daemon.send_signal(signal.SIGTERM)
    text = finished(daemon)
    assert daemon.returncode == 0, text
    assert here.workers() == {}


def answer_in(request):
    return "Blue" if "Blue, please." in request.body.decode() else "none"


def test_a_worker_that_is_killed_is_taken_up_again_and_nothing_happens_twice(home):
    held = Held(do("read_file", path="a.txt"))
    here = home({"Kill me": [write("a.txt"), held, finish()]})
    here.issue(1, "Kill me")
    daemon = here.start("run", "--once")
    held.arrived()
    first = here.worker(1)
    os.kill(first, signal.SIGKILL)
    held.go()
    text = finished(daemon)
    assert daemon.returncode == 0, text
    row = here.row(1)
    assert (row["status"], row["attempt"]) == ("completed", 2)
    assert [one["tool"] for one in here.lines(1, "tools.jsonl")] == ["write_file", "read_file", "finish"]
    assert len(here.progress(1)) == len(here.said(1)) == len(here.pulls()) == 1
    assert git("rev-list", "--count", f"main..{row['branch']}", cwd=here.repos["default"]).strip() == "1"
    assert here.workers() == {}


def test_workers_outlive_a_daemon_that_is_killed_and_the_next_one_finds_them(home):
    held = {name: Held(finish()) for name in ("First", "Second")}
    here = home({name: [write(f"{name}.txt"), one] for name, one in held.items()})
    here.issue(1, "First")
    here.issue(2, "Second")
    daemon = here.start("run")
    for one in held.values():
        one.arrived()
    daemon.kill()
    daemon.wait()
    before = {number: here.worker(number) for number in (1, 2)}
    assert all(before.values())
    held["First"].go()
    until(lambda: here.row(1)["status"] == "completed", "the end without a daemon")
    following = here.start("run", "--once")
    said(following, "daemon_started")
    assert here.worker(2) == before[2]
    held["Second"].go()
    text = finished(following)
    assert following.returncode == 0, text
    assert (here.row(2)["status"], here.row(2)["attempt"]) == ("completed", 1)
    assert len(here.pulls()) == 2
    assert here.workers() == {}


def test_a_drain_gives_tasks_back_and_a_later_run_ends_them(home):
    held = Held(finish())
    here = home({"Drain me": [write("a.txt"), held], "Wait": [finish()]}, config="scheduling: {max_workers: 1}\n")
    here.issue(1, "Drain me")
    here.issue(2, "Wait")
    daemon = here.start("run")
    held.arrived()
    daemon.send_signal(signal.SIGTERM)
    text = finished(daemon)
    assert daemon.returncode == 0, text
    assert {row["status"] for row in here.rows().values()} == {"queued"}
    assert here.workers() == {}
    assert "Waiting to go on." in here.progress(1)[0]
    held.go()
    here.once(code=0)
    assert {row["status"] for row in here.rows().values()} == {"completed"}
    assert len(here.progress(1)) == len(here.said(1)) == len(here.pulls()) == 1
    assert [one["tool"] for one in here.lines(1, "tools.jsonl")] == ["write_file", "finish"]


@pytest.mark.parametrize("deaf", [False, True])
def test_a_drain_gives_back_what_workers_of_a_daemon_that_crashed_still_do(home, deaf):
    held = Held(finish())
    here = home({"Left": [write("a.txt"), held]}, config="scheduling: {drain_seconds: 1}\n")
    here.issue(1, "Left")
    first = here.start("run")
    held.arrived()
    first.kill()
    first.wait()
    before = here.worker(1)
    daemon = here.start("run")
    said(daemon, "daemon_started")
    assert here.worker(1) == before
    if deaf:
        os.kill(before, signal.SIGSTOP)
    daemon.send_signal(signal.SIGINT)
    text = finished(daemon)
    assert daemon.returncode == 0, text
    assert ("drain_overdue" in text) == deaf
    assert here.workers() == {}
    assert (here.row(1)["status"], here.row(1)["deaths"]) == ("queued", 0)
    held.go()
    here.once(code=0)
    assert here.row(1)["status"] == "completed"
    assert [one["tool"] for one in here.lines(1, "tools.jsonl")] == ["write_file", "finish"]


def test_an_answer_under_way_is_waited_for_when_the_daemon_is_told_to_stop(home):
    held = Held(write("b.txt"))
    here = home({"Answer me": [write("a.txt"), held, finish()]})
    here.drain_seconds = 60
    here.issue(1, "Answer me")
    daemon = here.start("run")
    held.arrived()
    daemon.send_signal(signal.SIGTERM)
    said(daemon, "daemon_stopping")
    time.sleep(2.5)  # the watcher of the call looks each second
    assert daemon.poll() is None
    held.go()
    text = finished(daemon)
    assert daemon.returncode == 0, text
    assert here.row(1)["status"] == "queued"
    assert [one["tool"] for one in here.lines(1, "tools.jsonl")] == ["write_file", "write_file"]
    asked = len(here.server.asked)
    here.once(code=0)
    assert here.row(1)["status"] == "completed"
    assert len(here.server.asked) == asked + 1  # no answer was paid for twice


def test_a_second_signal_of_the_same_kind_ends_the_workers_at_once(home):
    held = Held(finish())
    here = home({"Slow": [held]})
    here.drain_seconds = 60
    here.issue(1, "Slow")
    daemon = here.start("run")
    held.arrived()
    daemon.send_signal(signal.SIGTERM)
    said(daemon, "daemon_stopping")
    daemon.send_signal(signal.SIGTERM)
    finished(daemon, 20)
    assert daemon.returncode == 130
    assert (here.row(1)["status"], here.row(1)["deaths"]) == ("queued", 0)
    assert here.workers() == {}


def test_an_interrupt_ends_a_command_under_way_and_a_later_run_goes_on(home):
    here = home({"Command": [do("run_command", command="sleep 600", timeout=900), finish()]})
    here.issue(1, "Command")
    daemon = here.start("run")
    until(lambda: here.rows() and sleeping(here.row(1)["uuid"]), "the command")
    daemon.send_signal(signal.SIGINT)
    text = finished(daemon)
    assert daemon.returncode == 0, text
    assert here.workers() == {}
    assert not sleeping(here.row(1)["uuid"])
    assert here.row(1)["status"] == "queued"
    here.once(code=0)
    assert here.row(1)["status"] == "completed"
    assert [one["tool"] for one in here.lines(1, "tools.jsonl")] == ["run_command", "finish"]


def sleeping(uuid):
    """The command of the task, not its git."""
    from agent import proc

    return [pid for pid in proc.marked(uuid) if command_of(pid).startswith("sleep\0")]


def command_of(pid):
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""


def test_a_second_interrupt_ends_a_daemon_whose_worker_does_not_listen(home):
    held = Held(finish())
    here = home({"Deaf": [held]})
    here.issue(1, "Deaf")
    daemon = here.start("run")
    held.arrived()
    pid = here.worker(1)
    os.kill(pid, signal.SIGSTOP)  # it cannot drain
    daemon.send_signal(signal.SIGINT)
    said(daemon, "daemon_stopping")
    daemon.send_signal(signal.SIGINT)
    finished(daemon)
    assert daemon.returncode == 130
    until(lambda: here.worker(1) is None, "the end of the worker")
    held.go()
    here.once(code=0)
    assert here.row(1)["status"] == "completed"
    assert len(here.said(1)) == 1


# --- checks, sandbox, set-up ------------------------------------------------------------------------------------


def test_a_red_check_leaves_a_draft_and_a_failed_label(home):
    plays = {"Break it": [write("a.txt", "bad\n"), *[finish()] * 3], "Mend it": [write("a.txt", "bad\n"), finish(), write("a.txt", "good\n"), finish()]}  # fmt: skip
    here = home(plays, config="verify: {command: 'test ! -e a.txt || grep good a.txt'}\n")
    here.issue(1, "Break it")
    text = here.once(code=1)
    assert (here.row(1)["status"], here.row(1)["error_code"]) == ("failed", "verify_failed"), text
    (pull,) = here.pulls()
    assert "draft: true" in pull
    assert "**not passed**" in pull
    assert here.label(1) == "coding agent failed"
    assert "exit code 1" in here.said(1)[0]
    assert here.row(1)["branch"] in here.branches()
    here.issue(2, "Mend it")
    here.once(code=0)
    assert (here.row(2)["status"], here.label(2)) == ("completed", "coding agent done")
    (told,) = [one for one in here.lines(2, "messages.jsonl") if one.get("kind") == "fix"]
    assert "On the base commit, without your change, it passes." in told["content"]


def test_a_drain_during_the_check_is_no_failure(home, tmp_path):
    go = tmp_path / "go"
    flag = f"while [ ! -e {go} ]; do sleep 0.1; done"
    here = home({"Check long": [write("a.txt"), finish()]}, config=f"verify: {{command: '{flag}'}}\n")
    here.issue(1, "Check long")
    daemon = here.start("run")
    until(lambda: here.rows() and "verify_started" in log_of(here, 1), "the check")
    daemon.send_signal(signal.SIGTERM)
    text = finished(daemon)
    assert daemon.returncode == 0, text
    assert here.row(1)["status"] == "queued"
    assert here.said(1) == []
    go.write_text("")
    here.once(code=0)
    assert here.row(1)["status"] == "completed"
    assert len(here.said(1)) == len(here.pulls()) == 1
    assert "draft: false" in here.pulls()[0]


def log_of(here, number):
    path = here.kept(number) / "worker.log" if (here.row(number).get("attempt")) else None
    return path.read_text() if path is not None and path.exists() else ""


def isolates():
    from agent.config import settings_of
    from agent.sandbox import probe

    verdict = probe(settings_of({}))
    return verdict.kind == "bubblewrap", verdict.reason


def needs_isolation():
    works, reason = isolates()
    if not works:
        if os.environ.get("CI") == "1":
            pytest.fail(reason)
        pytest.skip(reason)


def test_the_set_up_runs_once_and_the_second_task_gets_a_copy(home):
    needs_isolation()
    see = do("run_command", command="cat ~/tools/made && cat deps/lib && git log --oneline | wc -l")
    here = home(
        {"One": [see, write("a.txt"), finish()], "Two": [see, write("b.txt"), finish()]},
        sandbox="auto",
        config="scheduling: {max_workers: 1}\nworkspace: {setup: {command: 'mkdir ~/tools deps && git rev-parse HEAD > ~/tools/made && echo lib > deps/lib'}}\n",
    )
    here.issue(1, "One")
    here.issue(2, "Two")
    text = here.once(code=0)
    assert '"cached":false' in log_of(here, 1), text
    assert '"cached":true' in log_of(here, 2)
    for number in (1, 2):
        result = here.lines(number, "tools.jsonl")[0]
        assert result["status"] == "success", result
        assert "lib" in result["result"]
        tree = git("ls-tree", "-r", "--name-only", here.row(number)["branch"], cwd=here.repos["default"])
        assert "deps" not in tree


def test_without_a_sandbox_commands_are_refused_and_the_person_is_told(home):
    parts = {
        "Refuse": [do("run_command", command="echo unsafe"), write("a.txt"), finish()],
        "Look": [do("run_command", command="echo unsafe"), finish()],
        "Plain": [write("b.txt"), finish()],
    }
    here = home(parts, sandbox="bubblewrap")
    for number, title in enumerate(parts, 1):
        here.issue(number, title)
    barred = "echo 0 > /proc/sys/user/max_user_namespaces && echo 0 > /proc/sys/user/max_mnt_namespaces"
    inside = ["unshare", "--user", "--map-root-user", "--"]
    trial = subprocess.run([*inside, "sh", "-c", barred], capture_output=True, text=True, check=False)
    if trial.returncode != 0:
        pytest.skip(f"namespaces cannot be taken away here: {trial.stderr.strip()}")
    main = [sys.executable, str(here.main), "run", "--once", "--config", str(here.config)]
    done = subprocess.run(
        [*inside, "sh", "-c", f'{barred} && exec "$@"', "sh", *main],
        cwd=here.folder,
        env=here.environment,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    result = here.lines(1, "tools.jsonl")[0]
    assert result["status"] == "error"
    assert "sandbox.kind: none" in result["result"]
    assert "unsafe" not in result["result"]
    assert "No command could be run" in here.said(1)[0]
    # Work of which nothing could be tried is no completed work; a task that asked for no command goes on without.
    assert [here.row(number)["status"] for number in (1, 2, 3)] == ["failed", "failed", "completed"]
    assert [here.row(number)["error_code"] for number in (1, 2)] == ["no_sandbox"] * 2
    assert sorted(pull.count("draft: true") for pull in here.pulls()) == [0, 1]
    assert all("No command could be run" in pull for pull in here.pulls())
