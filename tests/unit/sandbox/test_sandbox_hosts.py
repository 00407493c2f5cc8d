"""Commands on hosts that lack something: each is made of namespaces, and what is tried there is a whole command."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]

PROGRAM = """
import os, sys
from pathlib import Path
from uuid import uuid4
from rooms import Room, settings
from agent.config.loading import load
from agent.run import doctor
folder = Path(sys.argv[1])
(folder / "config.yaml").write_text("context_storage: {base_dir: base}")
folder.joinpath("base").mkdir()
for mode in (0o711, 0o700):
    folder.joinpath("base").chmod(mode)
    place = folder / "base" / str(mode)
    place.mkdir()
    place.chmod(0o711)
    room = Room(place, str(uuid4()))
    said = next(iter(doctor.sandbox(load(folder / "config.yaml", environ={}, complete=False))))
    print(room.sandbox.kind, said.state, room.says("echo works; ls -d /proc/[0-9]* | wc -l"))
"""


def on_a_host(tmp_path, within, prepare=":"):
    """What the program above says where `prepare`, a line for a shell, was run in new namespaces."""
    search = os.pathsep.join([str(ROOT), str(Path(__file__).parent), *filter(None, sys.path)])
    line = f'{prepare} && exec "$@"'
    argv = ["unshare", *within, "sh", "-c", line, "sh", sys.executable, "-c", PROGRAM, str(tmp_path)]
    trial = subprocess.run(
        [*argv[: len(within) + 3], f"{prepare} && true"], capture_output=True, text=True, check=False
    )
    if trial.returncode != 0:
        pytest.skip(f"such a host cannot be made here: {trial.stderr.strip()}")
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

HIDING = "mount -t proc -o hidepid=2 proc /proc"


@pytest.mark.parametrize(
    ("within", "prepare"),
    [
        pytest.param(["--mount"], HIDING, id="/proc hides processes"),
        pytest.param(["--mount", "--pid", "--fork", "--mount-proc"], ":", id="no process has the number 3"),
        pytest.param(["--mount", "--pid", "--fork", "--mount-proc"], HIDING, id="both"),
    ],
)
def test_commands_run_and_doctor_says_so(tmp_path, isolated, within, prepare):
    lines = on_a_host(tmp_path, within, prepare).split("bubblewrap ")[1:]
    assert len(lines) == 2
    for line in lines:
        state, works, processes = line.split()
        assert (state, works) == ("ok", "works")
        assert int(processes) <= 5
