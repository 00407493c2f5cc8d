"""`replay`: a task that real processes recorded, played again on a copy."""

import hashlib
import json
import shutil
from pathlib import Path

import pytest
from flow_home import Held, do, finish, finished, git, write

FIX = [
    do("update_plan", items=[{"text": "fix", "status": "done"}]),
    do("edit_file", path="calc.py", old_text="sum(round(p) for p in prices)", new_text="round(sum(prices))"),
    do("run_command", command="python3 -c 'import calc; print(calc.total([1.5, 1.5]))'; rm -rf __pycache__"),
    write("new/deep.txt", "合計\n"),
    finish("Round the sum once"),
]


@pytest.fixture
def homes(home):
    return home


def digest(folder):
    """Every file of a folder and what is in it, with its mode."""
    found = {}
    for path in sorted(folder.rglob("*")):
        data = path.read_bytes() if path.is_file() and not path.is_symlink() else b""
        found[str(path.relative_to(folder))] = (
            path.lstat().st_mode,
            path.lstat().st_mtime_ns,
            hashlib.sha256(data).hexdigest(),
        )
    return found


def outside(home):
    """What a replay must leave alone: the original, tracker, repositories, mirrors and every row."""
    kept = {str(path): digest(path) for path in home.contexts.glob("completed/*")}
    return (
        kept,
        digest(home.folder / "tracker"),
        digest(home.folder / "repos"),
        digest(home.contexts / "repos"),
        home.rows(),
    )


def replay(home, uuid, code=0):
    before = outside(home)
    text = home.run("replay", uuid[:8], "--json", code=code)[1]
    assert outside(home) == before
    return json.loads(text[text.index("{") :])


def test_it_comes_to_the_same_tree_and_the_original_stays_as_it_was(homes):
    home = homes({"Totals": FIX}, config='verify: {command: "python3 -c \\"import calc\\""}\n')
    home.issue(7, "Totals are off")
    home.once()
    assert sorted({"workspace", "home", "git"} & {path.name for path in home.kept(7).iterdir()}) == ["git"]
    uuid = home.row(7)["uuid"]
    asked = len(home.server.journal)
    played = replay(home, uuid)
    assert len(home.server.journal) == asked, "no model was asked"
    assert (played["same"], played["status"], played["changed"]) == (True, "completed", [])
    assert (played["answers"], played["used"], played["error"]) == (5, 5, "")
    tree = git("rev-parse", f"{home.row(7)['branch']}^{{tree}}", cwd=home.repos["default"]).strip()
    assert (played["recorded"], played["came_to"]) == (tree, tree)
    copy = home.contexts / "replays"
    assert played["task"].startswith(f"{copy}/{uuid[:8]}-")


def test_the_copy_begins_with_the_recorded_words(homes):
    home = homes({"Totals": FIX})
    home.issue(7, "Totals are off", "Round the sum.")
    home.once()
    played = replay(home, home.row(7)["uuid"])

    def head(folder):
        with open(f"{folder}/messages.jsonl", encoding="utf-8") as lines:
            return [json.loads(next(lines))["content"] for _ in range(2)]

    assert head(played["task"]) == head(home.kept(7))
    metadata = json.loads(Path(played["task"], "metadata.json").read_text())
    assert metadata["replay_of"] == home.row(7)["uuid"]
    assert metadata["uuid"] == played["copy"]


def test_an_issue_and_a_repository_that_have_changed_or_gone_make_no_difference(homes):
    home = homes({"Totals": FIX})
    home.issue(7, "Totals are off")
    home.once()
    home.commit("default", {"calc.py": "something else\n"}, message="Later")
    home.issue_path(7).write_text("no issue any more")
    assert replay(home, home.row(7)["uuid"])["same"]
    home.issue_path(7).unlink()
    shutil.rmtree(home.repos["default"])
    home.config.write_text(home.config.read_text().replace("repos/default.git", "repos/none.git"))
    assert replay(home, home.row(7)["uuid"])["same"]


def test_what_comes_out_differently_is_named(homes):
    home = homes({"Totals": [do("run_command", command="mkdir -p a; date +%s%N > a/now; echo same > same"), finish()]})
    home.issue(7, "Totals are off")
    home.once()
    played = replay(home, home.row(7)["uuid"], code=1)
    assert (played["same"], played["status"], played["changed"]) == (False, "completed", ["a/now"])
    text = home.run("replay", home.row(7)["uuid"], code=1)[1]
    assert "ANOTHER tree" in text
    assert "differs: a/now" in text


def test_a_question_is_answered_again_with_what_was_said(homes):
    home = homes({"Totals": [write("a.txt"), do("ask_user", question="Which?"), write("b.txt"), finish()]})
    home.issue(7, "Totals are off")
    home.once()
    assert home.row(7)["status"] == "paused"
    home.comment(7, "The second.")
    home.once()
    assert home.row(7)["status"] == "completed"
    played = replay(home, home.row(7)["uuid"])
    assert (played["same"], played["used"], played["status"]) == (True, 4, "completed")
    assert "The second." in Path(played["task"], "messages.jsonl").read_text()


def test_a_task_that_waits_is_played_to_where_it_waits_and_that_is_no_failure(homes):
    home = homes({"Totals": [write("a.txt"), do("ask_user", question="Which?")]})
    home.issue(7, "Totals are off")
    home.once()
    assert home.row(7)["status"] == "paused"
    text = home.run("replay", home.row(7)["uuid"])[1]
    assert "the same tree" in text
    assert "failed" not in text


def test_a_task_that_failed_in_the_middle_comes_to_the_same_unfinished_tree(homes):
    home = homes({"Totals": [write("a.txt"), write("b.txt", "half\n")]})
    home.issue(7, "Totals are off")
    home.once(code=1)
    assert home.row(7)["status"] == "failed"
    played = replay(home, home.row(7)["uuid"])
    assert (played["same"], played["status"], played["status_recorded"]) == (True, "failed", "failed")
    assert (played["used"], played["answers"], played["error"]) == (2, 2, "")


def test_a_task_that_runs_that_never_began_and_that_is_not_there(homes):
    thinking = Held(finish())
    home = homes({"Totals": [thinking]})
    home.issue(7, "Totals are off")
    daemon = home.start("run", "--once")
    thinking.arrived()
    assert "is running" in home.run("replay", home.row(7)["uuid"], code=2)[1]
    thinking.go()
    finished(daemon)
    assert "no task has a uuid" in home.run("replay", "ffff", code=2)[1]
    shutil.rmtree(home.kept(7))
    assert "nothing to replay" in home.run("replay", home.row(7)["uuid"], code=2)[1]
    assert not (home.contexts / "replays").exists()


def test_copies_go_with_cleanup(homes):
    home = homes({"Totals": [write("a.txt"), finish()]})
    home.issue(7, "Totals are off")
    home.once()
    home.run("replay", home.row(7)["uuid"], code=0)
    assert "replay" in home.run("cleanup", "--days", "0", "--dry-run", code=0)[1]
    assert len(list((home.contexts / "replays").iterdir())) == 1
    home.run("cleanup", "--days", "0", code=0)
    assert list((home.contexts / "replays").iterdir()) == []
