"""Kill -9 after each outside effect, before the one who made it hears of it: after a restart nothing has happened
twice.

The lists below are all changes of a run, in order, and a test says so: a new one is killed too, or that test fails.
"""

from __future__ import annotations

import re
from contextlib import closing

import pytest
from flow_home import do, finish, write
from forge_home import HOMES, TASK
from leaks import GITHUB, ORDERS, PEM, SET_GOING, leaks
from length import LONG, either
from llm_servers import Reply

SUMMARY = "\n\n".join(
    ["Done.", *SET_GOING.values(), *ORDERS.values(), GITHUB, PEM, "The key: " + " ".join("key-of-the-test")]
)
"""What a model may say at its end: all of it would do something, or give something away."""

PLAY = [write("calc.py", "def total(prices):\n    return round(sum(prices))\n"), finish("Round late", SUMMARY)]

EFFECTS = {
    "github": {
        "request seen": "POST /issues/1/reactions",
        "claim, the progress comment": "POST /issues/1/comments",
        "label on": "POST /issues/1/labels",
        "label described": "PATCH /labels/coding%20agent%20processing",
        "bot label off": "DELETE /issues/1/labels/coding%20agent",
        "start shown": "PATCH /issues/comments/N",
        "draft pull request": "POST /pulls",
        "text, ready and reviewer": "POST /graphql",
        "last progress edit": "PATCH /issues/comments/N",
        "final comment": "POST /issues/1/comments",
        "last label": "POST /issues/1/labels",
        "last label described": "PATCH /labels/coding%20agent%20done",
        "processing label off": "DELETE /issues/1/labels/coding%20agent%20processing",
    },
    "gitlab": {
        "request seen": "POST /issues/1/award_emoji",
        "claim, the progress comment": "POST /issues/1/notes",
        "label": "PUT /issues/1",
        "start shown": "PUT /issues/1/notes/N",
        "draft merge request": "POST /merge_requests",
        "ready and reviewer": "PUT /merge_requests/1",
        "last progress edit": "PUT /issues/1/notes/N",
        "final comment": "POST /issues/1/notes",
        "last label": "PUT /issues/1",
    },
    "forgejo": {
        "request seen": "POST /issues/1/reactions",
        "claim, the progress comment": "POST /issues/1/comments",
        "label made": "POST /labels",
        "label on": "POST /issues/1/labels",
        "bot label off": "DELETE /issues/1/labels/N",
        "start shown": "PATCH /issues/comments/N",
        "draft pull request": "POST /pulls",
        "ready": "PATCH /pulls/2",
        "reviewer": "POST /pulls/2/requested_reviewers",
        "last progress edit": "PATCH /issues/comments/N",
        "final comment": "POST /issues/1/comments",
        "last label made": "POST /labels",
        "last label": "POST /issues/1/labels",
        "processing label off": "DELETE /issues/1/labels/N",
    },
    "local": {
        "label": "mark_taken",
        "progress comment": "post_comment",
        "progress edit": "edit_comment",
        "draft pull request": "open_pull",
        "ready": "update_pull",
        "last progress edit": "edit_comment",
        "final comment": "post_comment",
        "last label": "move_label",
    },
}


LIKE_ANOTHER = {"last label made", "last label described", "processing label off", "last progress edit"}
"""Effects that the ordinary run leaves out, since the same request at another point of a task is killed too."""


@pytest.fixture
def homes(tmp_path):
    made = []

    def make(kind):
        made.append(HOMES[kind](tmp_path, {TASK: PLAY}, config="verify: {command: 'grep -q round calc.py'}\n"))
        return made[-1]

    yield make
    for home in made:
        home.close()


def happened_once(home, key):
    """Everything that a run leaves outside, once."""
    assert home.labels(key) == ["bug", "coding agent done"]
    assert (len(home.own(key, "progress")), len(home.own(key, "final"))) == (1, 1)
    (pull,) = home.pulls()
    assert (pull.title, pull.draft, pull.state, pull.reviewers) == ("Round late", False, "open", ("alice",))
    assert "exit code 0" in pull.body
    assert home.own(key, "progress")[0].startswith("**Done.**")
    assert home.commits(pull.head) == ["Round late"]
    assert home.flow.row(1)["status"] == "completed"
    for text in (pull.body, *home.own(key, "progress"), *home.own(key, "final")):
        assert [one for one in leaks(text) if one != f"rings {home.account}"] == []
        assert "k e y - o f" not in text


@pytest.mark.parametrize("kind", EFFECTS)
def test_the_effects_below_are_all_that_a_run_has(homes, kind):
    home = homes(kind)
    key = home.issue("bug")
    home.flow.once()
    happened_once(home, key)
    short = [re.sub(r" \S*/((?:api/v1/)?repos/acme/web|api/v4/projects/1)/", " /", change) for change in home.changes()]
    short = [re.sub(r"(comments|notes|labels)/\d+$", r"\1/N", change) for change in short]
    assert short == list(EFFECTS[kind].values())


@pytest.mark.parametrize(
    ("kind", "number"),
    [
        pytest.param(kind, number, id=f"{kind} {name}")
        for kind, effects in EFFECTS.items()
        for number, name in enumerate(effects)
        if LONG or name not in LIKE_ANOTHER
    ],
)
def test_who_is_killed_after_an_outside_effect_does_nothing_twice(homes, kind, number):
    home = homes(kind)
    key = home.issue("bug")
    home.kill_after(number)
    code, text = home.flow.run("run", "--once")
    if code == -9:  # it was the daemon: that label comes from it
        home.flow.half_a_minute_later()
        home.flow.once()
    else:
        assert code == 0, text
    assert home.killed()
    happened_once(home, key)


@pytest.mark.parametrize("kind", ["github", "gitlab", "forgejo"])
def test_who_is_killed_after_a_pull_request_was_opened_ready_still_asks_for_the_review(tmp_path, kind):
    """Without a check and reviewers nothing is decided after the pull request is open."""
    opened = list(EFFECTS[kind].values()).index(f"POST /{'merge_requests' if kind == 'gitlab' else 'pulls'}")
    with closing(HOMES[kind](tmp_path, {TASK: PLAY})) as home:
        key = home.issue("bug")
        home.kill_after(opened)
        home.flow.once()
        assert home.killed()
        (pull,) = home.pulls()
        assert (pull.title, pull.draft, pull.state, pull.reviewers) == ("Round late", False, "open", ("alice",))
        assert home.labels(key) == ["bug", "coding agent done"]
        assert len(home.own(key, "final")) == 1


@pytest.mark.parametrize(
    ("kind", "verb", "path"), [("github", "POST", "/graphql$"), ("forgejo", "PATCH", r"/pulls/2$")]
)
def test_who_is_killed_after_a_draft_became_ready_still_asks_for_the_review(tmp_path, kind, verb, path):
    plan = [{"text": "Round", "status": "done"}, {"text": "Look", "status": "pending"}]
    with closing(HOMES[kind](tmp_path, {TASK: [PLAY[0], do("update_plan", items=plan), PLAY[1]]})) as home:
        key = home.issue("bug")
        home.server.fault(verb, path, after=True, cut=True, call=home._kill)
        home.flow.once()
        assert home.killed()
        (pull,) = home.pulls()
        assert (pull.draft, pull.state, pull.reviewers) == (False, "open", ("alice",))
        assert home.labels(key) == ["bug", "coding agent done"]


@pytest.mark.parametrize(
    ("kind", "number"),
    [
        *(("local", n) for n in either((4,), (4, 5))),
        *(("github", n) for n in either((8,), (7, 8, 10))),
        *(("gitlab", n) for n in either((6,), (5, 6))),
        *(("forgejo", n) for n in either((7,), (7, 9, 10))),
    ],
)
def test_an_end_that_was_told_stays_the_end_although_the_model_would_do_better_now(tmp_path, kind, number):
    """Killed from the final comment on, in a run that the model's server refused; the server takes the key later."""
    asked = []

    def refused_once(_):
        asked.append(1)
        return Reply({"error": {"message": "bad key"}}, 401) if len(asked) == 1 else finish()

    with closing(HOMES[kind](tmp_path, {TASK: [refused_once]})) as home:
        key = home.issue("bug")
        home.kill_after(number)
        home.flow.once(code=1)
        assert home.killed()
        assert home.labels(key) == ["bug", "coding agent failed"]
        (final,), (progress,) = home.own(key, "final"), home.own(key, "progress")
        assert "could not be done" in final
        assert progress.startswith("**Failed.**")
        row = home.flow.row(1)
        assert (row["status"], row["error_code"]) == ("failed", "access_refused")
        assert len(asked) == 1


@pytest.mark.parametrize("kind", EFFECTS)
def test_a_worker_that_is_killed_after_the_push_pushes_once(homes, kind):
    home = homes(kind)
    key = home.issue("bug")
    home.kill_after_push()
    home.flow.once()
    (branch,) = (home.repo / "killed").read_text().split()
    happened_once(home, key)
    assert branch == f"refs/heads/{home.pulls()[0].head}"
