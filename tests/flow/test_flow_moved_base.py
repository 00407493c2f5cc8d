"""Somebody merges into the base branch while the model works, in whole runs on a forge."""

from __future__ import annotations

import pytest
from flow_home import Held, do, finish, git, write
from forge_home import HOMES, TASK

ROUNDED = "def total(prices):\n    return round(sum(prices))\n"
THEIRS = "def total(prices):\n    return sum(prices, 0.0)\n"
BOTH = "def total(prices):\n    return round(sum(prices, 0.0))\n"


def push_onto(home, branch, path, text):
    """A person pushes a commit to a branch."""
    work = home.flow.folder / "person"
    git("clone", "-q", "-b", branch, str(home.repo), str(work), cwd=home.flow.folder)
    (work / path).write_text(text)
    git("commit", "-q", "-a", "-m", "By a person", cwd=work)
    git("push", "-q", "origin", branch, cwd=work)


@pytest.fixture(params=["github", "gitlab", "forgejo"])
def meanwhile(request, tmp_path):
    """What comes of a run in whose middle `files` arrive on main: (home, key, pull request, last words).  `more` are the
    model's steps after its first finish."""
    made = []

    def run(files, *more, config=""):
        held = Held(finish("Round late", "Done."))
        config = f"verify: {{command: 'grep -q round calc.py'}}\n{config}"
        home = HOMES[request.param](tmp_path, {TASK: [write("calc.py", ROUNDED), held, *more]}, config=config)
        made.append(home)
        key = home.issue("bug")
        process = home.flow.start("run", "--once")
        held.arrived()
        home.flow.commit(home.project, files, message="Theirs")
        held.go()
        process.wait(90)
        (pull,) = home.pulls()
        (final,) = home.own(key, "final")
        return home, key, pull, final

    yield run
    for home in made:
        home.close()


def test_the_work_goes_on_top_of_what_came_and_is_checked_there(meanwhile):
    home, key, pull, final = meanwhile({"theirs.txt": "theirs\n"})
    tip = git("rev-parse", "main", cwd=home.repo).strip()
    assert home.commits(pull.head) == ["Round late"]
    assert git("merge-base", "main", pull.head, cwd=home.repo).strip() == tip
    assert home.show(f"{pull.head}:theirs.txt") == "theirs\n"
    assert home.show(f"{pull.head}:calc.py") == ROUNDED
    assert not pull.draft
    assert f"rebased onto {tip[:12]}" in final
    assert home.labels(key) == ["bug", "coding agent done"]


def test_a_conflict_is_said_with_its_files_and_the_branch_stays_as_the_work_left_it(meanwhile):
    home, key, pull, final = meanwhile({"calc.py": THEIRS}, config="limits: {fix_rounds: 0}\n")
    assert home.commits(pull.head) == ["Round late"]
    assert home.show(f"{pull.head}:calc.py") == ROUNDED
    assert home.show("main:calc.py") == THEIRS
    assert final.startswith("**Not done: the change and what came to the base branch meanwhile do not go together.**")
    assert "has moved on, and the change conflicts with it" in final
    assert "calc.py" in final
    assert pull.draft
    assert home.flow.row(1)["error_code"] == "conflict"
    assert home.labels(key) == ["bug", "coding agent failed"]


def test_a_conflict_is_laid_into_the_work_tree_and_its_resolution_is_a_merge_with_both_parents(meanwhile):
    asked = []

    def sees(request):
        asked.append(request.json["messages"][-1]["content"])
        return do("read_file", path="calc.py")

    def reads(request):
        asked.append(request.json["messages"][-1]["content"])
        return write("calc.py", BOTH)

    home, key, pull, final = meanwhile({"calc.py": THEIRS}, sees, reads, finish("Round late", "Both sides."))
    assert "The base branch `main` has moved on, and your change conflicts with it." in asked[0]
    assert "- `calc.py`" in asked[0]
    for words in ("<<<<<<<", ROUNDED.splitlines()[1], "=======", THEIRS.splitlines()[1], ">>>>>>>"):
        assert words in asked[1]
    assert home.flow.row(1)["status"] == "completed"
    assert home.show(f"{pull.head}:calc.py") == BOTH
    assert home.show("main:calc.py") == THEIRS
    tip = git("rev-parse", "main", cwd=home.repo).strip()
    first, second = git("log", "-1", "--format=%P", pull.head, cwd=home.repo).split()
    assert second == tip
    assert git("log", "-1", "--format=%s", first, cwd=home.repo).strip() == "Round late"
    assert git("merge-base", "main", pull.head, cwd=home.repo).strip() == tip
    assert not pull.draft
    assert "conflict" not in final
    assert home.labels(key) == ["bug", "coding agent done"]


def test_a_conflict_mark_that_is_left_is_not_published(meanwhile):
    home, _, pull, final = meanwhile(
        {"calc.py": THEIRS},
        finish("Round late", "I resolved it."),
        write("calc.py", BOTH),
        finish("Round late", "Now I did."),
    )
    assert home.show(f"{pull.head}:calc.py") == BOTH
    assert not pull.draft
    assert "Now I did." in final


def test_somebody_asks_to_resolve_the_conflict_of_a_ready_pull_request(meanwhile):
    home, key, pull, _ = meanwhile({"theirs.txt": "theirs\n"})
    assert not pull.draft
    push_onto(home, pull.head, "theirs.txt", "on the branch\n")
    home.flow.commit(home.project, {"calc.py": THEIRS}, message="Theirs again")
    home.flow.plays[TASK] = [
        finish("Look", "Nothing to do?"),
        write("calc.py", BOTH),
        finish("Resolve", "Resolved."),
    ]
    home.place.comment(key, "@makimono resolve the conflict, please.")
    home.flow.once()
    (pull,) = home.pulls()
    assert home.show(f"{pull.head}:calc.py") == BOTH
    assert home.show(f"{pull.head}:theirs.txt") == "on the branch\n"
    tip = git("rev-parse", "main", cwd=home.repo).strip()
    assert git("log", "-1", "--format=%P", pull.head, cwd=home.repo).split()[1:] == [tip]
    assert not pull.draft
