"""cleanup beside a daemon: tasks and their mirror go, a running task stays, and the next one makes the mirror anew; and
the branches of ended tasks, on a forge over HTTP."""

import os
import signal
import socket
from types import SimpleNamespace

import pytest
from flow_home import Held, finish, finished, until, write
from forge_home import HOMES, TASK
from forges.git_http import write_logins


def test_cleanup_beside_a_daemon_takes_what_is_over_and_leaves_what_runs(home):
    held = Held(finish())
    here = home({"First": [write("a.txt"), finish()], "Second": [write("b.txt"), held], "Third": [finish()]})
    here.issue(1, "First")
    here.once(code=0)
    here.issue(2, "Second")
    daemon = here.start("run")
    held.arrived()
    (made,) = (here.contexts / "repos").rglob("made")
    os.utime(made, (0, 0))
    for name, said in (("nobody-is-called-so", "no task names a host"), (socket.gethostname(), "that is this host")):
        assert said in here.run("cleanup", "--gone", name, code=2)[1]
    text = here.run("cleanup", "--days", "0", code=0)[1]
    assert 1 not in here.rows()
    assert here.row(2)["status"] == "running"
    assert "mirror" not in text
    held.go()
    until(lambda: here.row(2)["status"] == "completed", "the end of the second")
    daemon.send_signal(signal.SIGTERM)
    finished(daemon)
    os.utime(made, (0, 0))
    assert "mirror" in here.run("cleanup", "--days", "0", code=0)[1]
    assert not made.parent.exists()
    assert list((here.contexts / "completed").iterdir()) == []
    here.issue(3, "Third")
    here.once(code=0)
    assert here.row(3)["status"] == "completed"


@pytest.fixture(params=["github", "gitlab", "forgejo"])
def forge(request, tmp_path):
    made = HOMES[request.param](tmp_path, {TASK: [write("calc.py", "x = 1\n"), finish("Round late", "Done.")]})
    config = made.flow.config
    config.write_text(config.read_text().replace("{durability: none", "{cleanup_branches: true, durability: none"))
    yield made
    made.close()


def ended(forge):
    """A task whose pull request a person has closed; its branch."""
    forge.issue()
    forge.flow.once()
    (pull,) = forge.pulls()
    numbers = forge.place.project["merge_requests"] if forge.source == "gitlab" else forge.state.issues
    (number,) = [number for number, one in numbers.items() if forge.source == "gitlab" or one["pull"]]
    forge.place.close_pull(SimpleNamespace(id=str(number)))
    assert pull.head in forge.flow.branches(forge.project)
    return pull.head


def clean(forge, *more):
    return forge.flow.run("cleanup", "--days", "0", *more, code=0)[1]


def test_the_branch_of_an_ended_task_goes_from_the_forge_over_http(forge):
    branch = ended(forge)
    assert f"would remove {branch} branch" in clean(forge, "--dry-run")
    assert branch in forge.flow.branches(forge.project)
    assert f"removed {branch} branch" in clean(forge)
    assert forge.flow.branches(forge.project) == ["main"]
    assert forge.flow.rows() == {}
    log = forge.flow.folder / "http" / "access.log"  # lighttpd writes it every few seconds
    until(lambda: f"POST /{forge.project}.git/git-receive-pack" in log.read_text(), "the push over HTTP")


@pytest.mark.parametrize("away", ["git", "api"])
def test_a_branch_that_nobody_can_be_asked_about_keeps_its_task_until_somebody_answers(forge, away):
    branch = ended(forge)
    uuid = forge.flow.row(1)["uuid"]
    tokens = dict(forge.server.tokens)
    if away == "git":
        forge.refuse_git()
    else:
        forge.server.tokens.clear()
    for more in ((), ("--dry-run",)):
        said = clean(forge, *more)
        assert f"kept {uuid}: nobody answered about its branch" in said
        assert f"remove {uuid}" not in said
        assert forge.flow.row(1)["status"] == "completed"
        assert forge.flow.kept(1).is_dir()
        assert branch in forge.flow.branches(forge.project)
    forge.server.tokens.update(tokens)
    write_logins(forge.flow.folder / "http", {forge.git_user: forge.token})
    assert f"removed {branch} branch" in clean(forge)
    assert forge.flow.branches(forge.project) == ["main"]
    assert forge.flow.rows() == {}
    assert list((forge.flow.contexts / "completed").iterdir()) == []
