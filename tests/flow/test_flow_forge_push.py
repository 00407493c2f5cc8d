"""What may come between a commit and its push, in whole runs: a full disk, and a daemon that is told to end."""

from __future__ import annotations

import os
import signal
import subprocess
from contextlib import suppress

import pytest
from flow_home import Held, finish, said, until, write
from forge_home import HOMES, TASK
from length import either


@pytest.fixture(params=either(["github"], ["github", "gitlab"]))
def make(request, tmp_path):
    made, mounted = [], []

    def build(plays, size=None, **more):
        made.append(HOMES[request.param](tmp_path, plays, **more))
        if size is not None:
            contexts = made[-1].flow.contexts
            contexts.mkdir()
            argv = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(contexts)]
            done = subprocess.run(argv, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                pytest.skip(f"no small file system can be mounted here: {done.stderr.strip()}")
            mounted.append(contexts)
        return made[-1]

    yield build
    for home in made:
        home.close()
    for contexts in mounted:
        subprocess.run(["umount", "-l", str(contexts)], check=False)


def slow_push(home, seconds=4):
    """The host takes its time with a push; the path is made when it begins."""
    hook = home.repo / "hooks" / "pre-receive"
    hook.write_text(f"#!/bin/sh\ntouch {home.flow.folder}/pushing\nsleep {seconds}\n")
    hook.chmod(0o755)
    return home.flow.folder / "pushing"


def asked(home):
    """How often the model was asked."""
    return len([one for one in home.flow.server.journal if one.method == "POST"])


def fill(path):
    """Take all room that there is."""
    with path.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(4096))


def is_done(home, key, most=2):
    row = home.flow.row(1)
    assert (row["status"], row["deaths"]) == ("completed", 0)
    assert 2 <= asked(home) <= most
    assert home.labels(key) == ["bug", "coding agent done"]
    (pull,) = home.pulls()
    assert (pull.draft, home.commits(pull.head)) == (False, ["Write a"])
    assert home.show(f"{pull.head}:a.txt") == "one\n"
    assert len(home.own(key, "final")) == len(home.own(key, "progress")) == 1


def in_a_push(make):
    """(home, key, daemon): a daemon whose worker is in the middle of its push."""
    home = make({TASK: [write("a.txt", "one\n"), finish("Write a", "Done.")]})
    key = home.issue("bug")
    home.flow.drain_seconds = 60  # the push, and what is told after it, take less
    pushing = slow_push(home)
    daemon = home.flow.start("run")
    until(pushing.exists, "the push")
    return home, key, daemon


def test_a_daemon_that_is_drained_during_a_push_ends_when_all_is_told(make):
    home, key, daemon = in_a_push(make)
    daemon.terminate()
    assert daemon.wait(60) == 0
    is_done(home, key)


def test_a_push_that_was_cut_off_by_an_impatient_person_is_made_whole_by_the_next_run(make):
    home, key, daemon = in_a_push(make)
    daemon.send_signal(signal.SIGINT)
    said(daemon, "daemon_stopping")
    daemon.send_signal(signal.SIGINT)
    assert daemon.wait(60) == 130
    assert home.flow.row(1)["status"] == "queued"
    assert home.labels(key) == ["bug", "coding agent processing"]
    home.flow.once()
    is_done(home, key)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small file system")
@pytest.mark.parametrize(("when", "most"), [("before the commit", 3), ("during the push", 2)])
def test_a_disk_that_is_full_when_the_work_is_published_is_said_and_the_model_is_not_asked_again(make, when, most):
    """To the last byte, so that neither row nor log can be written; the forge is told all the same.  An answer that found
    no room in its file is asked for once more; one that was kept is not."""
    held = Held(finish("Write a", "Done."))
    home = make({TASK: [write("a.txt", "one\n"), held]}, "24m", config="scheduling: {min_free: 1M}\n")
    key = home.issue("bug")
    pushing = slow_push(home)
    daemon = home.flow.start("run")
    held.arrived()
    if when == "during the push":
        held.go()
        until(pushing.exists, "the push")
    ballast = home.flow.contexts / "ballast"
    fill(ballast)
    held.go()
    until(lambda: home.labels(key) == ["bug", "coding agent paused"], "the label")
    until(lambda: "It goes on by itself when that is mended" in home.own(key, "progress")[0], "the reason")
    assert home.own(key, "final") == []
    ballast.unlink()
    until(lambda: home.labels(key) == ["bug", "coding agent done"], "the end")
    until(lambda: home.flow.row(1)["status"] == "completed", "its row")
    daemon.terminate()
    assert daemon.wait(60) == 0
    is_done(home, key, most)
