"""A repository without a commit: its first one is pushed, people are told what to do with it, and the next task starts
from it."""

from __future__ import annotations

import pytest
from flow_home import do, finish, git, write
from forge_home import HOMES, TASK

STEP_DONE = do("update_plan", items=[{"text": "Begin", "status": "done"}])
BEGIN = [write("calc.py", "x = 1\n"), STEP_DONE, write("calc.py", "x = 2\n"), finish("Begin", "It begins.")]
CHECK = "verify: {command: 'grep -q 2 calc.py'}\n"


@pytest.fixture(params=["github", "gitlab", "forgejo"])
def home(request, tmp_path):
    made = HOMES[request.param](tmp_path, {TASK: BEGIN}, config=CHECK)
    git("update-ref", "-d", "refs/heads/main", cwd=made.repo)
    if made.source == "gitlab":
        made.place.project.update(branches=set(), protected=set(), default_branch=None)
    yield made
    made.close()


def make_default(home, branch):
    """What a person does in the settings, or the host by itself."""
    git("symbolic-ref", "HEAD", f"refs/heads/{branch}", cwd=home.repo)
    if home.source == "gitlab":
        home.place.project["default_branch"] = branch
    else:
        home.state.default_branch = branch


def test_the_first_commit_is_pushed_and_people_are_told_what_to_do_with_it(home):
    key = home.issue()
    home.flow.once()
    row = home.flow.row(1)
    assert (row["status"], row["error_code"], row["url"]) == ("completed", None, None)
    assert home.show(f"{row['branch']}:calc.py") == "x = 2\n"
    assert home.flow.branches(home.project) == [row["branch"]]
    assert home.labels(key) == ["coding agent done"]
    assert home.pulls() == []
    assert not [one for one in home.changes() if one.endswith(("/pulls", "/merge_requests"))]  # nor was one tried
    (final,) = home.own(key, "final")
    assert f"The repository was empty:** the first commit is pushed as branch `{row['branch']}`" in final
    assert "make that branch the default branch" in final
    assert f"`git push origin origin/{row['branch']}:refs/heads/main`" in final
    assert "exit code 0" in final
    assert "It begins." in final


def test_a_task_after_it_starts_from_the_branch_once_that_is_the_default(home):
    key = home.issue()
    home.flow.once()
    first = home.flow.row(1)["branch"]
    make_default(home, first)
    home.flow.plays[TASK] = [write("more.py", "y = 1\n"), finish("More", "There is more.")]
    home.relabel(key, remove=["coding agent done"], add=["coding agent"])
    home.flow.once()
    (pull,) = home.pulls()
    assert (pull.base, pull.draft) == (first, False)
    assert pull.head != first
    assert home.show(f"{pull.head}:calc.py") == "x = 2\n"


def test_without_a_default_branch_the_next_task_says_what_is_missing(home):
    key = home.issue()
    home.flow.once()
    first = home.flow.row(1)["branch"]
    if home.source == "gitlab":
        home.place.project["default_branch"] = "main"
    home.relabel(key, remove=["coding agent done"], add=["coding agent"])
    home.flow.once(code=1)
    assert home.flow.row(1)["error_code"] == "base_missing"
    said = home.own(key, "final")[-1]
    assert "make another one the default branch" in said
    assert first in said


def test_a_red_check_is_said_there_too(home):
    home.flow.plays[TASK] = [write("calc.py", "x = 1\n"), finish("Begin", "It begins.")]
    key = home.issue()
    home.flow.once(code=1)
    assert home.flow.row(1)["error_code"] == "verify_failed"
    (final,) = home.own(key, "final")
    assert "The repository was empty" in final
    assert "not passed" in final
