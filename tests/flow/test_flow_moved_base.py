"""Somebody merges into the base branch while the model works, in whole runs on a forge."""

from __future__ import annotations

import pytest
from flow_home import Held, finish, git, write
from forge_home import HOMES, TASK

ROUNDED = "def total(prices):\n    return round(sum(prices))\n"
THEIRS = "def total(prices):\n    return sum(prices, 0.0)\n"


@pytest.fixture(params=["github", "gitlab", "forgejo"])
def meanwhile(request, tmp_path):
    """What comes of a run in whose middle `files` arrive on main: (home, key, pull request, last words)."""
    made = []

    def run(files):
        held = Held(finish("Round late", "Done."))
        home = HOMES[request.param](
            tmp_path, {TASK: [write("calc.py", ROUNDED), held]}, config="verify: {command: 'grep -q round calc.py'}\n"
        )
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
    home, key, pull, final = meanwhile({"calc.py": THEIRS})
    assert home.commits(pull.head) == ["Round late"]
    assert home.show(f"{pull.head}:calc.py") == ROUNDED
    assert home.show("main:calc.py") == THEIRS
    assert final.startswith("**Not done: the change and what came to the base branch meanwhile do not go together.**")
    assert "has moved on, and the change conflicts with it" in final
    assert "calc.py" in final
    assert pull.draft
    assert home.flow.row(1)["error_code"] == "conflict"
    assert home.labels(key) == ["bug", "coding agent failed"]
