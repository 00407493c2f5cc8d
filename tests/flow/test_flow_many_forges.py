"""One daemon with several hosts and projects of GitHub and GitLab at once; and orders by label and command line."""

from __future__ import annotations

from contextlib import ExitStack

import pytest
import yaml
from flow_home import Held, do, finish, until, write
from forge_home import HOMES, OFTEN, TASK


def test_one_daemon_works_for_two_githubs_and_a_gitlab(tmp_path):
    """Issue 1 of each: three keys, three branches, and nobody's token at another's host."""
    with ExitStack() as stack:
        homes = []
        for name in ("github", "github", "gitlab"):
            folder = tmp_path / str(len(homes))
            folder.mkdir()
            plays = {TASK: [write("a.txt", "one\n"), finish("Write a", "Done.")]}
            homes.append(HOMES[name](folder, plays))
            stack.callback(homes[-1].close)
        first, second, third = homes
        settings = [yaml.safe_load(home.flow.config.read_text()) for home in homes]
        settings[0] |= {
            "task_sources": ["github", "gitlab"],
            "github": [settings[0]["github"], settings[1]["github"]],
            "gitlab": settings[2]["gitlab"],
        }
        first.flow.config.write_text(yaml.safe_dump(settings[0]))
        keys = [home.issue("bug") for home in homes]
        assert len({key.instance for key in keys}) == 3
        first.flow.once()
        for home, key in zip(homes, keys, strict=True):
            assert home.labels(key) == ["bug", "coding agent done"]
            (pull,) = home.pulls()
            assert home.show(f"{pull.head}:a.txt") == "one\n"
            assert len(home.own(key, "progress")) == len(home.own(key, "final")) == 1
        assert len(list((first.flow.contexts / "completed").iterdir())) == 3
        kept = [one.name for one in (first.flow.contexts / "limits").glob("*.json")]
        assert len([name for name in kept if not name.endswith(".facts.json")]) == 3, "one file a host"
        assert len(kept) == 6, "and one for what it said of accounts"
        assert not second.flow.contexts.exists()
        assert not third.flow.contexts.exists()


@pytest.mark.parametrize("kind", ["github", "gitlab"])
def test_a_task_is_paused_and_resumed_by_command_and_stopped_by_its_label(tmp_path, kind):
    held = Held(do("read_file", path="README.md"))
    home = HOMES[kind](tmp_path, {TASK: [held]}, config=OFTEN)
    try:
        key = home.issue("bug")
        daemon = home.flow.start("run")
        held.arrived()
        uuid = home.flow.row(1)["uuid"]
        home.flow.run("pause", uuid[:8], code=0)
        until(lambda: home.flow.row(1)["status"] == "paused", "the pause")
        until(lambda: home.labels(key) == ["bug", "coding agent paused"], "its label")
        until(lambda: home.flow.worker(1) is None, "the end of the worker")
        asked = len(held.requests)
        home.flow.run("resume", uuid[:8], code=0)
        until(lambda: len(held.requests) > asked, "the same turn")
        assert home.labels(key) == ["bug", "coding agent processing"]
        home.relabel(key, remove=["coding agent processing"])
        until(lambda: home.flow.row(1)["status"] == "stopped", "the stop")
        until(lambda: home.labels(key) == ["bug", "coding agent stopped"], "the label of the stop")
        assert len(home.own(key, "progress")) == len(home.own(key, "final")) == 1
        assert home.pulls() == []
        daemon.terminate()
        assert daemon.wait(60) == 0
    finally:
        home.close()
