"""The whole life of an issue on each forge, with one daemon all the time: label, draft, an edit of what was said, green,
ready, a person's comment, a second commit on the same pull request, `/stop`; and the count of what people see."""

from __future__ import annotations

import pytest
from flow_home import Held, do, finish, until, write
from forge_home import HOMES, TASK

CHECK = "verify: {command: 'grep -q round calc.py'}\nscheduling: {interval: 1, idle_interval: 1}\n"
STEP_DONE = do("update_plan", items=[{"text": "Round late", "status": "done"}])


@pytest.mark.parametrize("kind", ["github", "gitlab", "forgejo", "github-emulate"])
def test_from_the_label_over_a_wish_to_the_stop(tmp_path, kind):
    draft, stopped = Held(finish("Round late", "The sum is rounded.")), Held(finish())
    second = [write("test_calc.py", "def test_total(): ...\n"), finish("Round late, tested", "And a test.")]
    calc = write("calc.py", "def total(prices):\n    return round(sum(prices))\n")
    after = Held(finish("Round late", "The sum is rounded."))
    after.go()
    home = HOMES[kind](tmp_path, {TASK: [calc, STEP_DONE, draft, after]}, config=CHECK)
    try:
        key = home.issue("bug")
        said = home.place.comment(key, "To whole numbers.")
        process = home.flow.start("run")

        draft.arrived()
        (pull,) = home.pulls()
        assert (pull.draft, pull.state, pull.reviewers) == (True, "open", ())
        assert home.labels(key) == ["bug", "coding agent processing"]
        home.relabel(key, add=["urgent"])  # while the agent works
        home.place.edit_comment(key, said, "To cents.")
        draft.go()
        ended(home, key, "done")
        (pull,) = home.pulls()
        assert (pull.draft, pull.state) == (False, "open")
        assert "exit code 0" in pull.body
        assert home.commits(pull.head) == ["Round late"]
        (turn,) = after.requests  # the one after the edit
        assert "To cents." not in str(draft.requests)
        assert str(turn).count("To cents.") == 1

        home.flow.plays[TASK] = second
        home.place.comment(key, "@makimono Please add a test.")
        ended(home, key, "done", runs=2)
        assert [one.head for one in home.pulls()] == [pull.head]
        assert home.pulls()[0].draft is False
        assert home.commits(pull.head) == ["Round late, tested", "Round late"]
        assert home.show(f"{pull.head}:test_calc.py") == "def test_total(): ...\n"
        assert "Please add a test." in str(home.flow.lines(1, "messages.jsonl"))

        home.flow.plays[TASK] = [stopped]
        home.place.comment(key, "@makimono Something else, perhaps.")
        stopped.arrived()
        home.place.comment(key, "/stop")
        ended(home, key, "stopped", runs=3)
        process.terminate()
        assert process.wait(60) == 0

        assert home.labels(key) == ["bug", "coding agent stopped", "urgent"]
        assert len(home.own(key, "progress")) == len(home.own(key, "final")) == 3  # one of each a run
        assert len(home.pulls()) == 1
        assert len(home.commits(pull.head)) == 2
        assert [author for author, _ in home.place.comments(key)].count("makimono") == 6
        assert home.where_the_token_is() == []
    finally:
        home.close()


def ended(home, key, how, runs=1):
    """Wait for the end of run number `runs`."""
    label = f"coding agent {how}"
    until(lambda: len(home.own(key, "final")) == runs and label in home.labels(key), f"run {runs} {how}")
    until(lambda: home.flow.row(1).get("completed_at"), "the row")
