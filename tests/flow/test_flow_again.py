"""The label set again on an issue that was worked on: a new task that goes on from the earlier one."""

import re
import shutil
import signal

import pytest
from flow_home import FlowHome, Held, do, finish, finished, git, until, write


@pytest.fixture
def home(tmp_path):
    here = FlowHome(tmp_path, {})
    yield here
    here.close()


def relabel(here, number):
    path = here.issue_path(number)
    path.write_text(re.sub(r"^labels: .*$", "labels: [coding agent]", path.read_text(), flags=re.MULTILINE))


def uuids(here):
    return sorted(path.name for path in (here.contexts / "completed").iterdir())


def test_the_label_again_goes_on_in_the_same_branch_and_pull_request(home):
    asked = []

    def second(request):
        asked.append(request.json["messages"][1]["content"])
        return write("b.txt", "two\n")

    home.plays["First try"] = [write("a.txt", "one\n"), finish("Write a", "There is an a now.")]
    home.issue(1, "First try")
    home.once()
    branch = home.row(1)["branch"]
    home.plays["First try"] = [second, finish("Write b as well", "And a b.")]
    home.comment(1, "Please add a b.")
    relabel(home, 1)
    home.once()
    assert len(home.pulls()) == 1
    assert "title: Write b as well" in home.pulls()[0]
    assert home.branches() == ["main", branch]
    assert home.show(f"{branch}:a.txt") == "one\n"
    assert home.show(f"{branch}:b.txt") == "two\n"
    assert "There is an a now." in asked[0]
    assert "Please add a b." in asked[0]
    assert "its pull request is open" in asked[0]
    assert "only as far as it has come onto" not in asked[0]
    assert len(home.said(1)) == 2
    assert len(home.progress(1)) == 2
    first, last = (row for row in sorted(home_rows(home), key=lambda row: row["created_at"]))
    assert last["parent_uuid"] == first["uuid"]
    assert last["branch"] == first["branch"] == branch


def home_rows(here):
    from pysqlite3 import dbapi2 as sqlite3

    connection = sqlite3.connect(here.contexts / "tasks.db")
    connection.row_factory = sqlite3.Row
    try:
        return [dict(row) for row in connection.execute("SELECT * FROM tasks")]
    finally:
        connection.close()


def test_a_merged_pull_request_is_not_pushed_to_again(home):
    home.plays["Merged"] = [write("a.txt", "one\n"), finish("Write a")]
    home.issue(1, "Merged")
    home.once()
    branch = home.row(1)["branch"]
    git("push", "-q", ".", f"refs/heads/{branch}:refs/heads/main", cwd=home.repos["default"])
    (pull,) = (home.folder / "tracker" / "pulls").glob("*.md")
    pull.write_text(pull.read_text().replace("state: open", "state: closed"))
    home.plays["Merged"] = [write("b.txt", "two\n"), finish("Write b")]
    relabel(home, 1)
    home.once()
    assert len(home.pulls()) == 2
    (other,) = set(home.branches()) - {"main", branch}
    assert home.show(f"{other}:b.txt") == "two\n"


def test_work_that_did_not_pass_is_gone_on_with(home):
    text = home.config.read_text()
    home.config.write_text(text + "verify: {command: 'grep good a.txt'}\n")
    home.plays["Until it is good"] = [write("a.txt", "bad\n"), finish("Bad", "I think it is done.")]
    home.issue(1, "Until it is good")
    home.once(code=1)
    assert home.said(1)[0].startswith("**Not done: what the model handed in did not pass.**")
    assert home.progress(1)[0].startswith("**Failed.**")
    assert "draft: true" in home.pulls()[0]
    home.plays["Until it is good"] = [write("a.txt", "good\n"), finish("Good", "Now it is.")]
    relabel(home, 1)
    home.once()
    assert len(home.pulls()) == 1
    assert "draft: false" in home.pulls()[0]
    assert home.label(1) == "coding agent done"
    assert len(uuids(home)) == 2


def test_the_command_retry_goes_on_from_what_has_ended(home):
    home.plays["Once more"] = [write("a.txt", "one\n"), finish("Write a")]
    home.issue(1, "Once more")
    home.once()
    first = home.row(1)["uuid"]
    home.plays["Once more"] = [write("b.txt", "two\n"), finish("Write b")]
    home.run("retry", first[:8], code=0)
    assert home.label(1) == "coding agent processing"
    code, text = home.run("retry", first[:8])
    assert code == 2
    second = home.row(1)["uuid"]
    assert (
        f"task {second}, a later one of the same issue as {first}, is queued; only what has ended can be tried again"
        in text
    )
    assert f"`stop {second}`" in text
    home.once()
    assert home.row(1)["parent_uuid"] == first
    assert len(home.pulls()) == 1
    path = home.issue_path(1)
    path.write_text(path.read_text().replace("state: open", "state: closed"))
    code, text = home.run("retry", home.row(1)["uuid"][:8])
    assert code == 2
    assert "the issue is closed" in text
    assert len(home_rows(home)) == 2


def refused(home, title):
    """A task whose work the policy held back; its uuid, and the configuration without that policy."""
    text = home.config.read_text()
    home.config.write_text(text + "policy: {refuse: [locked.txt]}\n")
    home.plays[title] = [write("locked.txt", "one\n"), *[finish("Write it", "It is written.")] * 9]
    home.issue(1, title)
    home.once(code=1)
    assert home.branches() == ["main"]
    comment = home.said(1)[0]
    assert "pushed nowhere" in comment
    assert "- Branch" not in comment
    command = re.search("`(git --git-dir=completed/[^`]*)`", comment)[1]
    assert "+one" in git(*command.split()[1:], cwd=home.contexts)
    return home.row(1)["uuid"], text


def test_work_that_was_never_pushed_is_gone_on_from_once_the_policy_is_mended(home):
    first, text = refused(home, "Locked")
    home.config.write_text(text)
    asked = []

    def second(request):
        asked.append(request.json["messages"][1]["content"])
        return write("b.txt", "two\n")

    home.plays["Locked"] = [second, finish("Write b as well", "And a b.")]
    assert f"queued, goes on from {first}" in home.run("retry", first[:8], code=0)[1]
    home.once()
    branch = home.row(1)["branch"]
    assert home.show(f"{branch}:locked.txt") == "one\n"
    assert home.show(f"{branch}:b.txt") == "two\n"
    assert "its commits are in this branch and were not published" in asked[0]
    assert "draft: false" in home.pulls()[0]


def test_what_may_not_be_published_is_not_in_the_history_of_the_task_that_goes_on_from_it(home):
    first, _ = refused(home, "Locked again")

    def remove(_request):
        return do("run_command", command="rm locked.txt && echo two >b.txt")

    home.plays["Locked again"] = [remove, finish("Write b instead", "Only a b.")]
    home.run("retry", first[:8], code=0)
    home.once()
    branch = home.row(1)["branch"]
    assert git("ls-tree", "--name-only", branch, cwd=home.repos["default"]).split()[-1] != "locked.txt"
    assert "locked.txt" not in git("log", "--format=", "--name-only", branch, cwd=home.repos["default"])
    assert home.show(f"{branch}:b.txt") == "two\n"


def test_where_the_folder_is_gone_a_retry_starts_anew_and_says_so(home):
    first, text = refused(home, "Gone")
    home.config.write_text(text)
    shutil.rmtree(home.contexts / "completed" / first / "git")
    asked = []

    def second(request):
        asked.append(request.json["messages"][1]["content"])
        return write("b.txt", "two\n")

    home.plays["Gone"] = [second, finish("Write b", "A b.")]
    said = home.run("retry", first[:8], code=0)[1]
    assert "queued, starts anew from its issue" in said
    assert "goes on from" not in said
    home.once()
    branch = home.row(1)["branch"]
    assert "locked.txt" not in git("ls-tree", "--name-only", branch, cwd=home.repos["default"])
    assert "were not published" not in asked[0]


def test_a_stopped_task_is_gone_on_from_at_its_last_commit_although_main_moved(home):
    held = Held(finish("Never"))
    home.plays["Stopped"] = [write("a.txt", "one\n"), held]
    home.issue(1, "Stopped")
    daemon = home.start("run")
    held.arrived()
    first = home.row(1)["uuid"]
    home.run("stop", first, code=0)
    until(lambda: home.row(1)["status"] == "stopped", "the stop, which ends the model's answer")
    held.go()
    daemon.send_signal(signal.SIGTERM)
    finished(daemon)
    assert home.branches() == ["main"]
    other = home.folder / "other"
    git("clone", "-q", str(home.repos["default"]), str(other), cwd=home.folder)
    (other / "theirs.txt").write_text("theirs\n")
    git("add", "-A", cwd=other)
    git("-c", "user.name=x", "-c", "user.email=x@x", "commit", "-qm", "theirs", cwd=other)
    git("push", "-q", "origin", "HEAD:main", cwd=other)
    home.plays["Stopped"] = [write("b.txt", "two\n"), finish("Write b", "Both.")]
    assert f"goes on from {first}" in home.run("retry", first[:8], code=0)[1]
    home.once()
    branch = home.row(1)["branch"]
    assert [home.show(f"{branch}:{name}") for name in ("a.txt", "b.txt", "theirs.txt")] == [
        "one\n",
        "two\n",
        "theirs\n",
    ]
    assert home.label(1) == "coding agent done"
