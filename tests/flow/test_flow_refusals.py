"""What a forge may refuse, from the label to the last word: the comment, the label, and the row's code."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest
from flow_home import Held, do, finish, git, until, write
from forge_home import HOMES, TASK
from length import either

from agent.errors import IssueUnreadable


@pytest.fixture(params=["github", "gitlab", "forgejo"])
def home(request, tmp_path):
    held = Held(finish("Round late", "Done."))
    made = HOMES[request.param](tmp_path, {TASK: [write("calc.py", "x = 1\n"), held]})
    made.held = held
    held.go()
    yield made
    made.close()


def hook(home, words):
    path = home.repo / "hooks" / "pre-receive"
    path.write_text(f"#!/bin/sh\necho '{words}' >&2\nexit 1\n")
    path.chmod(0o755)


@pytest.mark.parametrize(
    ("words", "code", "advice"),
    [
        ("GH006: Protected branch update failed", "branch_protected", "a rule protects this name"),
        ("You are not allowed to push code to this project.", "push_forbidden", "the account may not push here"),
    ],
)
def test_a_push_that_is_refused_is_said_with_what_to_do(home, words, code, advice):
    hook(home, words)
    key = home.issue()
    home.flow.once(code=1)
    assert home.flow.row(1)["error_code"] == code
    (final,) = home.own(key, "final")
    assert advice in final
    assert home.labels(key) == ["coding agent failed"]
    assert home.pulls() == []


def test_an_archived_repository_is_said_once_and_has_a_code(home):
    key = home.issue()
    if home.source != "gitlab":
        home.state.archived = True
    else:
        home.place.project["archived"] = True
    assert "archived" in home.flow.once()
    assert home.flow.row(1) == {}
    with pytest.raises(IssueUnreadable, match="read-only") as caught:
        home.place.forge.repository(key, None)
    assert caught.value.code == "repository_archived"


def test_a_pull_request_that_is_refused_leaves_the_branch_and_says_the_hosts_words(home):
    words = "The head branch has no history in common with main"
    if home.source != "gitlab":
        home.server.fault("POST", "/pulls$", status=422, message=words, times=-1)
    else:
        home.server.fault("POST", "/merge_requests$", status=422, body={"message": [words]}, times=-1)
    key = home.issue()
    home.flow.once(code=1)
    row = home.flow.row(1)
    assert (row["status"], row["error_code"]) == ("failed", "pull_refused")
    assert home.show(f"{row['branch']}:calc.py") == "x = 1\n"
    (final,) = home.own(key, "final")
    assert f"**No {'merge' if home.source == 'gitlab' else 'pull'} request:**" in final
    assert words in final
    assert "The branch is pushed" in final
    assert "could not be pushed" not in final
    assert home.labels(key) == ["coding agent failed"]


@pytest.mark.parametrize("kind", either(["gitlab"], ["github", "gitlab", "forgejo"]))
def test_a_push_that_a_proxy_takes_for_too_large_is_said_and_not_tried_for_days(tmp_path, kind):
    class Narrow(HOMES[kind]):
        git_most = 32

    noise = do("run_command", command="head -c 100000 /dev/urandom > noise.bin")
    home = Narrow(tmp_path, {TASK: [noise, finish("Noise", "Done.")]})
    key = home.issue()
    home.flow.once(code=1)
    row = home.flow.row(1)
    assert (row["status"], row["error_code"], row["attempt"]) == ("failed", "push_too_large", 1)
    (final,) = home.own(key, "final")
    assert "takes no push so large" in final
    assert "413" in final
    assert home.labels(key) == ["coding agent failed"]
    assert home.pulls() == []
    home.close()


def test_a_last_word_that_a_proxy_takes_for_too_large_is_made_shorter(home):
    home.held.step = finish("Round late", "It was like this. " * 2000)
    comments = r"/issues/1/notes$" if home.source == "gitlab" else r"/issues/1/comments$"
    home.server.fault("POST", comments, status=413, over=20_000, times=-1)
    key = home.issue()
    home.flow.once()
    (final,) = home.own(key, "final")
    assert "It was like this." in final
    assert f"… cut; the whole text is in the folder of task {home.flow.row(1)['uuid']}." in final
    assert home.flow.row(1)["status"] == "completed"
    assert len(home.server.asked("POST", comments)) == 3  # the progress, one that was too large, the end


def test_a_pull_request_that_a_proxy_takes_for_too_large_leaves_the_branch(home):
    if home.source != "gitlab":
        verb, path = ("POST", "/graphql$") if home.source == "github" else ("PATCH", "/pulls/2$")
        home.server.fault(verb, path, status=413, body="<html>413 Request Entity Too Large</html>", times=-1)
    else:
        home.server.fault("PUT", "/merge_requests/1$", status=413, body=b"Request Entity Too Large", times=-1)
    home.held.free.clear()
    home.flow.plays[TASK].insert(1, do("update_plan", items=[{"text": "Round late", "status": "done"}]))
    key, row = in_mid_run(home, lambda: None)
    assert (row["status"], row["error_code"], row["attempt"]) == ("failed", "pull_refused", 1)
    assert home.show(f"{row['branch']}:calc.py") == "x = 1\n"
    (final,) = home.own(key, "final")
    assert f"**No {'merge' if home.source == 'gitlab' else 'pull'} request:**" in final
    assert "413" in final


def in_mid_run(home, change):
    """`change` while the model thinks; the row at the end."""
    home.held.free.clear()
    key = home.issue()
    process = home.flow.start("run")
    home.held.arrived()
    change()
    home.held.go()
    until(lambda: home.flow.row(1).get("completed_at"), "the end")
    process.terminate()
    process.wait(60)
    return key, home.flow.row(1)


def test_a_repository_that_is_archived_in_mid_run_ends_the_task_at_once_with_its_code(home):
    def archive():
        if home.source != "gitlab":
            home.state.archived = True
        else:
            home.place.project["archived"] = True

    _, row = in_mid_run(home, archive)
    assert (row["status"], row["error_code"]) == ("failed", "repository_archived")
    assert "archived" in row["error_message"]
    assert row["attempt"] == 1  # nothing that waiting would mend
    assert row["branch"] in (None, f"makimono/1-{row['uuid'][:8]}")
    assert home.pulls() == []


def test_issues_that_are_switched_off_in_mid_run_end_the_task_with_their_code(home):
    def switch_off():
        if home.source != "gitlab":
            home.state.has_issues = False
        else:
            home.place.project["issues_on"] = False

    _, row = in_mid_run(home, switch_off)
    assert (row["status"], row["error_code"]) == ("failed", "issues_off")
    assert row["attempt"] == 1
    assert [pull.draft for pull in home.pulls()] == [True]  # the work is there, and nobody is told that it is done


def test_no_token_is_in_a_list_of_arguments_a_file_or_a_log(home):
    """Every process of this home is looked at while the task runs, and every file after it."""
    seen, stop, own = set(), threading.Event(), str(home.flow.folder).encode()

    def look():
        while not stop.is_set():
            for entry in Path("/proc").iterdir():
                if entry.name.isdigit() and int(entry.name) != os.getpid():
                    try:
                        found = [(name, (entry / name).read_bytes()) for name in ("cmdline", "environ")]
                    except OSError:
                        continue
                    seen.update(found if any(own in text for _, text in found) else ())

    thread = threading.Thread(target=look)
    thread.start()
    key = home.issue()
    try:
        said = home.flow.once()
    finally:
        stop.set()
        thread.join()
    assert home.flow.row(1)["status"] == "completed"
    pushes = [text for name, text in seen if name == "cmdline" and b"\0push\0" in text]
    assert pushes  # it was looked at the right moment
    assert [text for _, text in seen if home.token.encode() in text] == []
    assert home.token not in said
    assert home.where_the_token_is() == []
    assert all(home.token not in body for _, body in home.place.comments(key))
    for config in home.flow.contexts.rglob("config"):
        assert "://" not in git("config", "--list", "--file", str(config), cwd="/")
