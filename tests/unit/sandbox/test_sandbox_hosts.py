"""Commands on hosts that lack something: each is made of namespaces, and what is tried there is a whole command."""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from agent.sandbox import sandbox_user
from agent.sandbox.probe import trial

ROOT = Path(__file__).resolve().parents[3]

PROGRAM = """
import os, sys
from pathlib import Path
from uuid import uuid4
from rooms import Room, settings
from agent.config.loading import load
from agent.commands import doctor
folder = Path(sys.argv[1])
(folder / "config.yaml").write_text("context_storage: {base_dir: base}")
folder.joinpath("base").mkdir()
print(next(iter(doctor.sandbox(load(folder / "config.yaml", environ={}, complete=False)))).advice)
for mode in MODES:
    folder.joinpath("base").chmod(mode)
    place = folder / "base" / str(mode)
    place.mkdir()
    place.chmod(0o711)
    room = Room(place, str(uuid4()))
    said = next(iter(doctor.sandbox(load(folder / "config.yaml", environ={}, complete=False))))
    print(room.sandbox.kind, said.state, room.says("echo works; ls -d /proc/[0-9]* | wc -l"))
"""


def on_a_host(tmp_path, within, prepare=":", modes="0o711, 0o700"):
    """What the program above says where `prepare`, a line for a shell, was run in new namespaces."""
    search = os.pathsep.join([str(ROOT), str(Path(__file__).parent), *filter(None, sys.path)])
    line = f'{prepare} && exec "$@"'
    argv = [
        "unshare",
        *within,
        "sh",
        "-c",
        line,
        "sh",
        sys.executable,
        "-c",
        PROGRAM.replace("MODES", f"({modes})"),
        str(tmp_path),
    ]
    made = subprocess.run([*argv[: len(within) + 3], f"{prepare} && true"], capture_output=True, text=True, check=False)
    if made.returncode != 0:
        pytest.skip(f"such a host cannot be made here: {made.stderr.strip()}")
    done = subprocess.run(
        argv,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": search},
        capture_output=True,
        text=True,
        check=False,
        cwd="/",
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root makes such hosts")

OWN_PROCESSES = ("unshare", "--mount", "--pid", "--fork", "--mount-proc")
HIDING = "mount -t proc -o hidepid=2 proc /proc"


@pytest.mark.parametrize(
    ("within", "prepare"),
    [
        pytest.param(["unshare", "--mount"], HIDING, id="/proc hides processes"),
        pytest.param([*OWN_PROCESSES], ":", id="no process has the number 3"),
        pytest.param([*OWN_PROCESSES], HIDING, id="both"),
        pytest.param([*OWN_PROCESSES, "--user", "--map-root-user"], ":", id="no other user is mapped"),
    ],
)
def test_commands_run_and_doctor_says_so(tmp_path, isolated, within, prepare):
    lines = on_a_host(tmp_path, within, prepare).split("bubblewrap ")[1:]
    assert len(lines) == 2
    for line in lines:
        state, works, processes = line.split()
        assert (state, works) == ("ok", "works")
        assert int(processes) <= 5


CONTAINERS = (
    "chown,dac_override,fowner,fsetid,kill,setgid,setuid,setpcap,net_bind_service,net_raw,sys_chroot,mknod,audit_write"
)
"""Capabilities that container runtimes leave to root; without those that a kernel lacks, and setfcap."""


def leaving(*capabilities):
    bounds = ",".join(["-all", *(f"+{name}" for name in ",".join(capabilities).split(","))])
    return ["setpriv", f"--bounding-set={bounds}", "--inh-caps=-all", "--no-new-privs"]


def test_root_that_may_not_mount_runs_commands_without_an_interpreter_they_cannot_reach(tmp_path, isolated):
    """The first of the two folders can be reached; of the second nothing is claimed."""
    if not sandbox_user.reachable(trial(None)[1].path, sandbox_user.uid_of("x")):
        pytest.skip("commands cannot reach bubblewrap here")
    base = Path(tempfile.mkdtemp(prefix="makimono-reachable-"))
    try:
        base.chmod(0o711)
        said = on_a_host(base, leaving(CONTAINERS, "setfcap"), modes="0o711,")
    finally:
        shutil.rmtree(base)
    assert "bubblewrap ok works" in said


def test_root_that_may_not_map_itself_is_told_which_capability_it_lacks(tmp_path, isolated):
    said = on_a_host(tmp_path, leaving("sys_chroot"), modes="")
    assert "CAP_SETFCAP" in said
