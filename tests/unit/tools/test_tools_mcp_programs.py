"""The program of an MCP server is found once, by its absolute path, and is refused where others could change it."""

import shutil
import subprocess
from types import SimpleNamespace

import pytest

from agent.config import settings_of
from agent.errors import CommandRefused
from agent.sandbox import SANDBOXES, Traits
from agent.tools.mcp.programs import ServerPrograms
from agent.tools.mcp.servers import command_line


@pytest.fixture
def make(tmp_path):
    """`make(kind, **section)`: the argument list of a server in a sandbox of this kind."""
    base = tmp_path / "contexts"

    def argv(kind="bubblewrap", **section):
        settings = settings_of({"context_storage": {"base_dir": str(base)}, "mcp_servers": {"one": section}})
        traits = SANDBOXES.load(kind).traits if kind in SANDBOXES.entries else Traits()
        programs = ServerPrograms(settings, SimpleNamespace(traits=traits, interpreter=None))
        return programs.argv("one", settings.mcp_servers["one"])

    return argv


@pytest.fixture
def program(tmp_path):
    folder = tmp_path / "opt"
    folder.mkdir(mode=0o755)
    path = folder / "server"
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize("kind", ["bubblewrap", "none"])
def test_a_name_is_looked_up_once_and_becomes_an_absolute_path(make, kind):
    found = make(kind, command="sh", args=["-c", "exit 0", "$(id)"])
    assert found == (shutil.which("sh", path="/usr/local/bin:/usr/bin:/bin"), "-c", "exit 0", "$(id)")
    assert make(kind, command="no-such-program-of-mine") == ("no-such-program-of-mine",)


def test_a_program_with_a_path_stays_as_it_is(make, program):
    assert make(command=str(program), args=["x"]) == (str(program), "x")
    assert make(command="../opt/server") == ("/opt/server",)  # from /work, so outside of it


@pytest.mark.parametrize("written", ["./server", "bin/server", "/work/server", "/opt/../work/server"])
def test_a_program_in_the_work_tree_is_refused(make, written):
    for kind in ("bubblewrap", "none") if not written.startswith("/") else ("bubblewrap",):
        with pytest.raises(CommandRefused, match="commands of the model can write, so they could replace it"):
            make(kind, command=written)


def test_a_program_in_the_home_of_commands_or_in_base_dir_is_refused(make, tmp_path):
    for written in ("/home/agent/.local/bin/x", "/git/x", str(tmp_path / "contexts" / "running" / "x")):
        with pytest.raises(CommandRefused, match="install it elsewhere"):
            make(command=written)
    with pytest.raises(CommandRefused, match="install it elsewhere"):
        make(command="x/server", cwd="/home/agent")


def test_a_program_or_script_that_others_may_write_is_refused(make, program):
    script = program.parent / "index.js"
    script.write_text("")
    assert make(command="sh", args=["--flag", str(script)])
    script.chmod(0o666)
    with pytest.raises(CommandRefused, match=r"mcp_servers.one.args names .*index.js, and .* every user may write it"):
        make(command="sh", args=["--flag", str(script)])
    program.chmod(0o777)
    for section in ({"command": str(program)}, {"command": "sh", "args": [str(program)]}):
        with pytest.raises(CommandRefused, match="every user may write it; so it is not run"):
            make(**section)
    program.chmod(0o755)
    program.parent.chmod(0o777)
    with pytest.raises(CommandRefused, match="a folder above"):
        make(command=str(program))


def test_a_file_of_data_may_belong_to_anybody(make, tmp_path):
    data = tmp_path / "shared.db"
    data.write_text("")
    data.chmod(0o666)
    assert make(command="sh", args=[str(data)])[1:] == (str(data),)


def test_a_script_of_the_work_tree_gets_no_secret(make):
    assert make(command="sh", args=["server.js"])
    with pytest.raises(CommandRefused, match=r"mcp_servers.one.args: server.js is in a folder that commands"):
        make(command="sh", args=["server.js"], env={"TOKEN": "secret-of-the-server"})


def test_a_sandbox_of_a_plug_in_has_programs_of_its_own(make):
    assert make("container", command="bin/server", args=["a"]) == ("bin/server", "a")


def test_arguments_are_never_read_by_a_shell(tmp_path):
    line = command_line(("printf", "%s\n", "$(id)", "a b", "'; touch x; '"), None)
    said = subprocess.run(["/bin/sh", "-c", line], cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert said == "$(id)\na b\n'; touch x; '\n"
