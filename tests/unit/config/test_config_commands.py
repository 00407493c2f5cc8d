"""Commands of the configuration are run only if nobody else may write the file that names them."""

import json
import os
import pickle
import subprocess
import sys

import pytest

from agent.config import load, settings_of
from agent.config.configured_commands import check, check_commands, commands_of
from agent.errors import CommandRefused
from agent.other_writers import writers, writers_of
from agent.sandbox.probe import candidates

TEXT = """\
workspace: {setup: {command: make deps}}
verify: {command: make test}
mcp_servers:
  files: {command: node, args: [server.js]}
  remote: {url: "https://mcp.example.org/mcp"}
"""
KEYS = ["workspace.setup.command", "verify.command", "mcp_servers.files.command"]


@pytest.fixture
def config(tmp_path):
    folder = tmp_path / "own"
    folder.mkdir(mode=0o755)
    path = folder / "config.yaml"
    path.write_text(TEXT)
    path.chmod(0o644)
    return path


def refusal(settings, key):
    with pytest.raises(CommandRefused) as caught:
        check(settings, key)
    return str(caught.value)


def test_a_file_that_only_this_user_may_write_names_commands(config):
    settings = load(config, environ={})
    assert list(commands_of(settings)) == KEYS
    check_commands(settings)
    check_commands(pickle.loads(pickle.dumps(settings)))
    check_commands(settings_of({"verify": {"command": "make"}}))


@pytest.mark.parametrize("place", ["own/config.yaml", "own", "."])
def test_no_command_of_a_file_that_others_may_write_is_run(config, tmp_path, place):
    path = tmp_path / place
    path.chmod(path.stat().st_mode | 0o002)
    settings = load(config, environ={})
    for key in KEYS:
        said = refusal(settings, key)
        assert said.startswith(f"{key} is a command of config.yaml, and {path.resolve()}")
        assert "every user may write it" in said
        assert f"Give {config} and the folders above it to this user alone" in said
    assert refusal(pickle.loads(pickle.dumps(settings)), KEYS[0])  # a worker has the same settings


def test_a_symlink_is_followed_and_its_own_place_counts_too(config, tmp_path):
    shared = tmp_path / "shared"
    shared.mkdir()
    link = shared / "config.yaml"
    link.symlink_to(config)
    check_commands(load(link, environ={}))
    shared.chmod(0o777)
    assert "a folder above" in refusal(load(link, environ={}), KEYS[0])
    shared.chmod(0o1777)  # with the sticky bit nobody can replace the link of another
    check_commands(load(link, environ={}))
    config.chmod(0o666)
    assert "every user may write it" in refusal(load(link, environ={}), KEYS[0])


def test_a_command_from_elsewhere_needs_no_file(config):
    config.chmod(0o666)
    servers = {"files": {"command": "node"}}
    environ = {"AGENT__VERIFY__COMMAND": "make check", "AGENT__MCP_SERVERS": json.dumps(servers)}
    settings = load(config, environ=environ, overrides={"workspace.setup.command": "make other"})
    check_commands(settings)


def test_an_origin_that_the_guard_does_not_know_names_no_command(config):
    guard = load(config, environ={}).plugin_guard
    with pytest.raises(CommandRefused, match=r"of-the-repository\.yaml is no source of commands"):
        guard.check_command("verify.command", "of-the-repository.yaml")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")
def test_a_file_of_another_user_names_no_command(config):
    os.chown(config, 12345, -1)
    assert "belongs to the user 12345" in refusal(load(config, environ={}), KEYS[1])


def test_the_mode_of_a_folder_on_a_read_only_mount_does_not_count(config):
    """A ConfigMap in Kubernetes is a read-only volume with a top folder of mode 0777."""
    tool = next(iter(candidates()), None)
    if tool is None:
        pytest.skip("there is no bubblewrap here")
    config.parent.chmod(0o777)
    script = "import sys, pathlib, agent.other_writers as w; print(w.writers_of(pathlib.Path(sys.argv[1])))"
    outside = [sys.executable, "-c", script, str(config)]
    assert "every user may write it" in subprocess.run(outside, capture_output=True, text=True, check=True).stdout
    inside = [str(tool.path), "--bind", "/", "/", "--ro-bind", config.parent, config.parent, "--", *outside]
    done = subprocess.run(inside, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"no mount namespace here: {done.stderr}")
    # For an ordinary user, the folders of root belong to nobody in there, which is another reason.
    assert "every user may write it" not in done.stdout


def test_writers_takes_a_descriptor(config):
    with config.open() as file:
        assert writers(file.fileno()) == ""
        config.chmod(0o602)
        assert writers(file.fileno()) == "every user may write it"
    assert writers_of(config).startswith(f"{config}: ")
