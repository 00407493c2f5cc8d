"""`solve`: real processes, a model on loopback, and repositories that people work in."""

import json
import os
import signal
import subprocess
import sys

import pytest
import quick_start
from flow_home import Held, do, finish, finished, git, until, write

from agent.forge.markers import without_markers

FIX = [
    do("edit_file", path="calc.py", old_text="sum(round(p) for p in prices)", new_text="round(sum(prices))"),
    finish("Round the sum once", "`total` rounds the sum now."),
]
ISSUE = "# Totals are off\n\nRound the sum, not each price.\n"


@pytest.fixture
def homes(home, tmp_path):
    (tmp_path / "issue.md").write_text(ISSUE)
    return home


def checkout(home, name="mine"):
    """A repository as a person has it: a work tree with changes, a staged file and one that is not tracked."""
    mine = home.folder / name
    git("clone", "-q", str(home.repos["default"]), str(mine), cwd=home.folder)
    git("checkout", "-q", "-b", "own-work", "origin/main", cwd=mine)
    (mine / "README.md").write_text("dirty\n")
    (mine / "staged.txt").write_text("staged\n")
    git("add", "staged.txt", cwd=mine)
    (mine / "new.txt").write_text("new\n")
    return mine


def state(repository):
    """Everything of it that must not change: files, index, HEAD and where the branches are."""
    files = {
        str(path.relative_to(repository)): path.read_bytes()
        for path in sorted(repository.rglob("*"))
        if path.is_file() and ".git" not in path.relative_to(repository).parts
    }
    own = repository / ".git"
    heads = git("for-each-ref", "refs/heads", cwd=repository).splitlines()
    return (
        files,
        (own / "index").read_bytes(),
        (own / "HEAD").read_bytes(),
        [one for one in heads if "makimono" not in one],
    )


def solve(home, *args, code=0):
    """stdout and stderr apart."""
    done = quick_start.run(["solve", *args, "--config", home.config], cwd=home.folder, env=home.environment)
    assert done.returncode == code, done.stdout + done.stderr
    return done


def only_row(home):
    (row,) = home.rows().values()
    return row


def test_a_file_is_solved_in_a_repository_whose_work_tree_stays_untouched(homes):
    home = homes({"Totals": FIX})
    mine = checkout(home)
    before = state(mine)
    done = solve(home, "issue.md", "--repo", mine)
    assert state(mine) == before
    row = only_row(home)
    folder = home.contexts / "completed" / row["uuid"]
    assert (row["status"], row["outcome"], row["attempt"]) == ("completed", "finished", 1)
    assert (row["title"], row["branch"]) == ("Totals are off", f"makimono/issue-{row['uuid'][:8]}")
    assert git("show", f"{row['branch']}:calc.py", cwd=mine).endswith("return round(sum(prices))\n")
    assert git("merge-base", row["branch"], "own-work", cwd=mine) == git("rev-parse", "own-work", cwd=mine)
    pull = (folder / "pull.md").read_text()
    assert without_markers(pull).rstrip() in done.stdout
    assert "<!--" not in done.stdout
    assert "`total` rounds the sum now." in pull
    assert "draft: false" in pull
    assert "Closes #" not in pull, "the issue is a file and has no number"
    assert f"\nissue: {home.folder / 'issue.md'}\n" in pull
    assert "issue.md" in home.run("show", row["uuid"], code=0)[1]
    assert "comment on the issue" not in pull
    assert done.stderr == ""
    assert home.pulls() == []


def test_the_result_as_json(homes):
    home = homes({"Totals": FIX})
    done = solve(home, "issue.md", "--repo", checkout(home), "--json")
    result = json.loads(done.stdout)
    row = only_row(home)
    folder = str(home.contexts / "completed" / row["uuid"])
    expected = {"uuid": row["uuid"], "status": "completed", "branch": row["branch"], "folder": folder}
    assert {key: result[key] for key in expected} == expected
    assert result["pull"] == f"{folder}/pull.md"


def test_an_issue_of_the_tracker_is_solved_there_with_or_without_the_label(homes):
    home = homes({"Totals": FIX, "Second": FIX})
    home.issue(3, "Totals are off", labels="[]")
    home.issue(4, "Second thing")
    done = solve(home, "#3")
    assert home.row(3)["status"] == "completed"
    assert home.label(3) == "coding agent done"
    assert f"{home.folder}/tracker/pulls/1.md" in done.stdout
    assert home.row(3)["branch"] in home.branches()
    assert len(home.said(3)) == 1
    assert home.label(4) == "coding agent"
    assert not (home.contexts / "solve").exists()
    solve(home, home.issue_path(4))
    assert home.row(4)["status"] == "completed"


def test_an_issue_that_is_solved_again_goes_on_in_its_pull_request(homes):
    home = homes({"Totals": FIX})
    home.issue(3, "Totals are off")
    first = json.loads(solve(home, "#3", "--json").stdout)
    home.plays["Totals"] = [write("b.txt", "two\n"), finish("Write b as well", "And a b.")]
    home.comment(3, "Please add a b.")
    second = json.loads(solve(home, "#3", "--json").stdout)
    assert (second["status"], second["branch"]) == ("completed", first["branch"])
    assert second["uuid"] != first["uuid"]
    assert len(home.pulls()) == 1
    assert home.show(f"{first['branch']}:b.txt") == "two\n"


def test_the_repository_of_the_issue_may_be_named_too(homes):
    home = homes({"Totals": FIX})
    home.issue(3, "Totals are off")
    solve(home, home.issue_path(3), "--repo", home.repos["default"])
    assert home.label(3) == "coding agent done"
    assert not (home.contexts / "solve").exists()


def test_an_issue_of_the_tracker_with_another_repository_leaves_the_tracker_alone(homes):
    home = homes({"Totals": FIX})
    home.issue(3, "Totals are off")
    home.comment(3, "Do it in calc.py")
    before = home.issue_path(3).read_bytes()
    solve(home, "#3", "--repo", checkout(home))
    assert home.issue_path(3).read_bytes() == before
    briefing = home.lines(1, "messages.jsonl")[1]["content"]
    assert "Do it in calc.py" in briefing


def test_an_answer_and_a_question_are_no_failures(homes):
    home = homes({"Totals": [finish("Answered", "It is 42.")], "Which": [do("ask_user", question="Which sum?")]})
    assert "It is 42." in solve(home, "issue.md", "--repo", home.repos["default"]).stdout
    (home.folder / "ask.md").write_text("# Which one\n")
    done = solve(home, "ask.md", "--repo", home.repos["default"])
    assert "Which sum?" in done.stdout
    assert sorted(row["status"] for row in rows(home)) == ["completed", "paused"]


def rows(home):
    """Every row: those of private trackers all have number 1."""
    listed = quick_start.run(["tasks", "--json", "--config", home.config], cwd=home.folder, env=home.environment)
    assert listed.returncode == 0, listed.stderr
    return json.loads(listed.stdout)


def test_a_check_that_fails_and_a_model_that_refuses_are_failures(homes):
    check = "! grep -q 'round(sum' calc.py"
    home = homes({"Totals": [*FIX, FIX[-1], FIX[-1]], "Other": []}, config=f'verify: {{command: "{check}"}}\n')
    done = solve(home, "issue.md", "--repo", home.repos["default"], code=1)
    assert f"`{check}` failed" in done.stderr
    assert "draft: true" in done.stdout
    (home.folder / "other.md").write_text("# Other\n")
    done = solve(home, "other.md", "--repo", home.repos["default"], "--json", code=1)
    result = json.loads(done.stdout)
    assert (result["status"], result["pull"]) == ("failed", None)
    assert "is over" in result["error"]


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ([], "ISSUE"),
        (["none.md"], "No such file"),
        (["issue.md", "--repo", "nowhere"], "not a folder"),
        (["issue.md", "--repo", "tracker"], "error: --repo: there is no git repository at "),
        (["#9"], "no open issue 9"),
        (["https://github.com/a/b/issues/1"], "hosts in task_sources: none"),
        (["https://github.com/a/b/issues/1", "--repo", "repos/default.git"], "hosts in task_sources: none"),
    ],
)
def test_wrong_usage_is_told_and_leaves_nothing_behind(homes, args, words):
    home = homes({})
    done = solve(home, *args, code=2)
    assert words in done.stderr
    assert not home.contexts.exists()


def test_without_a_model_nothing_is_begun(homes):
    home = homes({}, url="http://127.0.0.1:9")
    done = solve(home, "issue.md", "--repo", home.repos["default"], code=3)
    assert "no model answers" in done.stderr
    assert "see llm.provider" in done.stderr, "it was chosen here"
    assert not home.contexts.exists()
    variables = {"OPENAI_BASE_URL": "http://127.0.0.1:9", "AGENT__CONTEXT_STORAGE__BASE_DIR": str(home.contexts)}
    done = quick_start.run(["solve", "../issue.md"], cwd=checkout(home), env=home.environment | variables)
    assert done.returncode == 3, done.stdout + done.stderr
    assert "openai, which takes OPENAI_API_KEY, is only the default: set llm.provider (or LLM_PROVIDER)" in done.stderr


def test_without_any_configuration_the_repository_of_the_current_folder_is_meant(homes):
    home = homes({"Totals": FIX})
    mine = checkout(home)
    environment = home.environment | {
        "OPENAI_API_KEY": "key-of-the-test",
        "OPENAI_BASE_URL": f"{home.server.url}/v1",
        "AGENT__SANDBOX__KIND": "none",
        "AGENT__CONTEXT_STORAGE__BASE_DIR": str(home.contexts),
    }
    done = subprocess.run(
        [sys.executable, str(home.main), "solve", "../issue.md"],
        cwd=mine,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert only_row(home)["branch"] in git("for-each-ref", "--format=%(refname:short)", "refs/heads", cwd=mine)


def test_ctrl_c_ends_the_task_as_stopped(homes):
    thinking = Held(finish())
    home = homes({"Totals": [thinking]})
    process = home.start("solve", "issue.md", "--repo", str(home.repos["default"]), start_new_session=True)
    thinking.arrived()
    os.killpg(process.pid, signal.SIGINT)
    text = finished(process)
    assert process.returncode == 130, text
    assert "Stopped, as you asked; what was done so far is in the folder." in text
    row = only_row(home)
    assert row["status"] == "stopped"
    assert (home.contexts / "completed" / row["uuid"] / "messages.jsonl").exists()
    assert home.branches() == ["main"]


def test_a_second_ctrl_c_ends_it_at_once_and_no_daemon_takes_it_up(homes):
    home = homes({"Totals": [do("run_command", command="trap '' INT TERM; echo ready > ready; sleep 60")]})
    process = home.start("solve", "issue.md", "--repo", str(home.repos["default"]), start_new_session=True)
    until(lambda: list(home.contexts.glob("running/*/workspace/ready")), "the command")
    os.killpg(process.pid, signal.SIGINT)
    os.killpg(process.pid, signal.SIGINT)
    finished(process)
    assert process.returncode == 130
    row = only_row(home)
    assert row["status"] == "stopped"
    assert (home.contexts / "completed" / row["uuid"]).is_dir()
    home.once()
    assert only_row(home)["attempt"] == 1


def test_a_daemon_that_runs_does_not_take_the_task(homes):
    thinking = Held(FIX[0])
    home = homes({"Totals": [thinking, FIX[1]]}, config="scheduling: {interval: 0.2}\n")
    daemon = home.start("run")
    until((home.contexts / "daemon.lock").exists, "the daemon")
    process = home.start("solve", "issue.md", "--repo", str(home.repos["default"]))
    thinking.arrived()
    assert only_row(home)["process_id"] == process.pid
    thinking.go()
    text = finished(process)
    assert process.returncode == 0, text
    daemon.send_signal(signal.SIGTERM)
    said = finished(daemon)
    row = only_row(home)
    assert (row["status"], row["attempt"], row["process_id"]) == ("completed", 1, process.pid)
    assert "task_claimed" not in said


def test_a_task_whose_process_was_killed_is_finished_by_a_daemon(homes):
    thinking = Held(FIX[1])
    home = homes({"Totals": [FIX[0], thinking]})
    process = home.start("solve", "issue.md", "--repo", str(home.repos["default"]))
    thinking.arrived()
    process.kill()
    process.wait()
    thinking.go()
    home.once()
    row = only_row(home)
    assert (row["status"], row["attempt"]) == ("completed", 2)
    assert (
        (home.contexts / "completed" / row["uuid"] / "pull.md")
        .read_text()
        .startswith("---\ntitle: Round the sum once\n")
    )
    assert row["branch"] in home.branches()


def test_an_issue_that_is_worked_on_is_not_begun_twice(homes):
    thinking = Held(finish())
    home = homes({"Totals": [thinking]})
    home.issue(1, "Totals are off")
    process = home.start("solve", "#1")
    thinking.arrived()
    done = solve(home, "#1", code=2)
    assert f"task {only_row(home)['uuid']} of this issue is running" in done.stderr
    assert len(list((home.contexts / "running").iterdir())) == 1
    thinking.go()
    finished(process)
    assert process.returncode == 0


def test_the_private_tracker_goes_with_the_task(homes):
    home = homes({"Totals": FIX})
    solve(home, "issue.md", "--repo", home.repos["default"])
    assert len(list((home.contexts / "solve").iterdir())) == 1
    home.run("cleanup", "--days", "0", code=0)
    assert list((home.contexts / "solve").iterdir()) == []


def test_a_new_file_becomes_the_first_commit_of_an_empty_repository(homes):
    home = homes({"Totals": [write("a.txt"), finish()]}, repos=())
    home.repository("empty", files={})
    solve(home, "issue.md", "--repo", home.repos["empty"])
    assert home.show(f"{only_row(home)['branch']}:a.txt", "empty") == "x\n"
