"""CI of a pull request in whole runs: it goes red, the task goes on, it goes green."""

import pytest
from flow_home import finish, git, write
from forge_home import TASK
from test_flow_talk import all_rows

OURS = ["github", "gitlab", "forgejo"]


@pytest.mark.parametrize("kind", OURS)
def test_red_ci_is_mended_and_what_was_red_before_is_left_alone(homes, kind):
    asked = []

    def mend(request):
        asked.append(request.json["messages"][1]["content"])
        return write("calc.py", "def total(prices):\n    return round(sum(prices), 2)\n")

    home = homes(kind, {TASK: [write("calc.py", "def total(prices):\n    return 0\n"), finish("Round", "Rounded.")]})
    key = home.issue()
    home.flow.once()
    (pull,) = home.pulls()
    head, base = (git("rev-parse", name, cwd=home.repo).strip() for name in (pull.head, "main"))
    (row,) = all_rows(home)
    assert (row["head_commit"], row["base_commit"]) == (head, base)
    for commit in (base, head):
        home.place.ci(commit, "old trouble", "failed")
    home.flow.once()
    assert len(all_rows(home)) == 1
    home.place.ci(head, "unit tests", "failed", log=f"ran 3 tests with {home.token}\nAssertionError: 0 != 1.5\n")
    home.flow.plays[TASK] = [mend, finish("Round to cents", "CI is mended.")]
    home.flow.once()
    first, second = all_rows(home)
    assert (second["parent_uuid"], second["started_by"]) == (first["uuid"], f"ci-{head}")
    assert second["status"] == "completed"
    _, told = asked[0].split("## CI is red")
    assert 'source="CI job unit tests"' in told
    assert "AssertionError: 0 != 1.5" in told
    assert home.token not in asked[0]
    assert "old trouble" not in asked[0]
    (pull,) = home.pulls()
    assert (pull.draft, pull.state) == (False, "open")
    assert "round(sum(prices), 2)" in home.show(f"{pull.head}:calc.py")
    after = git("rev-parse", pull.head, cwd=home.repo).strip()
    assert second["head_commit"] == after != head
    home.place.ci(after, "unit tests", "passed")
    home.flow.once()
    assert len(all_rows(home)) == 2
    assert home.labels(key) == ["coding agent done"]
    assert len(home.own(key, "final")) == len(home.own(key, "progress")) == 2
