"""Pretended hosts: a process with a host name of its own, on this machine."""

import os
import shutil
import subprocess
import sys

from flow_home import IDENTITY, ROOT


def named(name):
    """What gives the rest of a command line a host name of its own; [] where that is not allowed (it needs root)."""
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        return []
    return ["unshare", "--uts", "sh", "-c", 'hostname "$0" && exec "$@"', name]


def started(name, place, log):
    """A daemon on a host of this name, with the config.yaml of the folder `place`; what it says goes to the file `log`."""
    with log.open("w") as said:
        return subprocess.Popen(
            [*named(name), sys.executable, str(ROOT / "main.py"), "run", "--config", "config.yaml"],
            cwd=place,
            env={"PATH": os.environ["PATH"], "HOME": str(place), **IDENTITY},
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=subprocess.STDOUT,
        )
