"""A token that ends while the model works: what it did is published later, and the model is not asked again."""

from __future__ import annotations

import json

import pytest
from flow_home import FlowHome, Held, do, finish, git, until, write
from forge_home import HOMES, TASK
from forges.git_http import write_logins
from length import either


class Renewable:
    """A home whose token ends, and gets another one."""

    def __init__(self, kind, folder, **more):
        self.held = Held(finish("Round late", "Done."))
        self.home = HOMES[kind](folder, {TASK: [write("calc.py", "x = 1\n"), self.held]}, **more)
        self.key = self.home.issue()
        self.new = self.home.token[:-8] + "renewed1"

    def api_takes(self, token):
        tokens = self.home.server.tokens
        account = tokens.pop(self.home.token, None) or tokens.pop(self.new)
        tokens[token] = account

    def git_takes(self, token):
        write_logins(self.home.flow.folder / "http", {self.home.git_user: token})

    def renew(self):
        """What a person does: a new token in the configuration."""
        self.api_takes(self.new)
        self.git_takes(self.new)
        config = self.home.flow.config
        config.write_text(config.read_text().replace(self.home.token, self.new))

    def shown(self, kind):
        return self.home.own(self.key, kind)


@pytest.fixture(params=["github", "gitlab", "forgejo"])
def one(request, tmp_path):
    made = Renewable(request.param, tmp_path)
    yield made
    made.home.close()


def asked(one):
    return len(one.home.flow.server.journal)


def waits(one):
    row = one.home.flow.row(1)
    return row if row.get("status") == "queued" and row.get("outcome") == "publishing" else None


def work_until_it_waits(one, break_it):
    process = one.home.flow.start("run")
    one.held.arrived()
    break_it()
    one.held.go()
    row = until(lambda: waits(one), "the wait")
    process.terminate()
    process.wait(60)
    return row


def published(one, asked_before):
    row = one.home.flow.row(1)
    assert (row["status"], row["outcome"], row["error_code"]) == ("completed", "finished", None)
    assert asked(one) == asked_before  # the model did its part once
    assert row["llm_call_count"] == 2
    (pull,) = one.home.pulls()
    assert not pull.draft
    assert one.home.show(f"{pull.head}:calc.py") == "x = 1\n"
    assert (len(one.shown("progress")), len(one.shown("final"))) == (1, 1)
    assert "waits to be published" not in one.shown("progress")[0]


@pytest.mark.parametrize("where", either(["git", "api"], ["git", "api", "both"]))
def test_a_token_that_ended_is_renewed_by_a_person_and_the_work_is_published(one, where):
    def end():
        if where != "api":
            one.git_takes(one.new)
        if where != "git":
            one.api_takes(one.new)

    row = work_until_it_waits(one, end)
    asked_before = asked(one)
    assert row["error_code"] == ("forge_access" if where == "api" else "git_access")
    assert row["not_before"] is not None
    assert one.home.pulls() == []
    assert one.shown("final") == []
    if where == "git":  # the API lets us say so
        assert "waits to be published" in one.shown("progress")[0]
        assert "was refused" in one.shown("progress")[0]
    log = [json.loads(line) for line in (one.home.flow.kept(1) / "worker.log").read_text().splitlines()]
    assert [line["event"] for line in log].count("task_requeued") == 1
    one.renew()
    one.home.flow.once()
    published(one, asked_before)


def test_a_right_that_is_missing_is_given_and_the_work_is_published(one):
    def forbid():
        git("config", "http.receivepack", "false", cwd=one.home.repo)  # git-http-backend answers with a 403 then

    row = work_until_it_waits(one, forbid)
    asked_before = asked(one)
    assert row["error_code"] == "git_access"
    assert "403" in row["error_message"]
    assert "check the token and what it may do" in one.shown("progress")[0]
    one.home.flow.once(code=3)
    assert waits(one)["attempt"] == row["attempt"] + 1
    git("config", "http.receivepack", "true", cwd=one.home.repo)
    one.home.flow.once()
    published(one, asked_before)


def test_a_question_that_cannot_be_posted_waits_like_a_result_and_is_asked_once(one):
    one.held.step = do("ask_user", question="Red or blue?")
    one.home.flow.plays[TASK].append(finish("Round late", "Done."))
    row = work_until_it_waits(one, lambda: one.api_takes(one.new))
    asked_before = asked(one)
    assert row["error_code"] == "forge_access"
    one.renew()
    one.home.flow.once()
    row = one.home.flow.row(1)
    assert (row["status"], row["outcome"]) == ("paused", "asked")
    assert asked(one) == asked_before
    (question,) = one.shown("question")
    assert "Red or blue?" in question
    one.home.place.comment(one.key, "Blue.")
    one.home.flow.once()
    row = one.home.flow.row(1)
    assert (row["status"], row["outcome"]) == ("completed", "finished")
    assert row["llm_call_count"] == 3  # the write, the question, the end
    assert len(one.shown("question")) == len(one.shown("final")) == 1


@pytest.mark.parametrize(
    ("path", "content", "found"),
    [
        ("key.txt", "token = ghp_" + "a1B2c3D4e5" * 4 + "\n", "GitHub token in key.txt"),
        (".github/workflows/ci.yml", "on: push\n", ".github/workflows/ci.yml"),
    ],
)
def test_what_came_into_the_tree_meanwhile_is_scanned_and_guarded_before_the_push_that_is_tried_again(
    one, path, content, found
):
    def away():
        one.home.repo.rename(one.home.repo.with_name("elsewhere"))

    work_until_it_waits(one, away)
    target = one.home.flow.kept(1) / "workspace" / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(content)
    one.home.repo.with_name("elsewhere").rename(one.home.repo)
    one.home.flow.once(code=1)
    row = one.home.flow.row(1)
    assert (row["status"], row["error_code"]) == ("failed", "policy")
    assert one.home.flow.branches(one.home.project) == ["main"]
    assert one.home.pulls() == []
    (final,) = one.shown("final")
    assert "**Not published:**" in final
    assert found in final
    assert "a1B2c3D4e5" not in final


def test_a_repository_that_cannot_be_reached_is_waited_for(one):
    def away():
        one.home.repo.rename(one.home.repo.with_name("elsewhere"))

    row = work_until_it_waits(one, away)
    asked_before = asked(one)
    assert row["error_code"] == "repository_missing"
    assert one.home.pulls() == []
    one.home.repo.with_name("elsewhere").rename(one.home.repo)
    one.home.flow.once()
    published(one, asked_before)


def test_a_branch_that_a_reviewer_has_checked_out_is_waited_for_and_new_work_says_where_it_began(tmp_path):
    """The most natural way to look at a result, where the repository is a work tree of one's own."""
    home = FlowHome(tmp_path, {"Two files": [write("a.txt", "one\n"), finish("Write a", "Done.")]})
    try:
        git("clone", "-q", str(home.repos["default"]), str(tmp_path / "mine"), cwd=tmp_path)
        home.config.write_text(home.config.read_text().replace("repos/default.git", "mine"))
        home.issue(1, "Two files")
        home.once()
        branch = home.row(1)["branch"]
        git("checkout", "-q", branch, cwd=tmp_path / "mine")
        home.plays["Two files"] = [write("b.txt", "two\n"), finish("Write b", "Done.")]
        home.comment(1, "@makimono please, b too.")
        home.once(code=3)
        row = home.row(1)
        assert (row["status"], row["outcome"], row["error_code"]) == ("queued", "publishing", "git_access")
        assert "check out another one" in home.progress(1)[-1]
        asked = len(home.server.journal)
        git("checkout", "-q", "main", cwd=tmp_path / "mine")
        home.once()
        assert home.row(1)["status"] == "completed"
        assert len(home.server.journal) == asked
        assert git("show", f"{branch}:b.txt", cwd=tmp_path / "mine") == "two\n"

        git("checkout", "-q", branch, cwd=tmp_path / "mine")
        home.plays["Something else"] = [write("c.txt", "c\n"), finish("Write c", "Done.")]
        home.issue(2, "Something else")
        home.once()
        assert f"the repository's HEAD is {branch}" in home.said(2)[0]
    finally:
        home.close()
