"""Simulated hosts: processes on this machine with their own host names."""

import os
import shutil
import signal
import subprocess
import sys
import time

from flow_home import IDENTITY, ROOT

SEARCHES = 3


def named(name):
    """The prefix that gives a command line its own host name; [] where that is not allowed (it needs root)."""
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        return []
    return ["unshare", "--uts", "sh", "-c", 'hostname "$0" && exec "$@"', name]


def started(name, place, log):
    """A daemon on a host of this name, with the config.yaml of the folder `place`; its output goes to the file
    `log`."""
    with log.open("w") as said:
        return subprocess.Popen(
            [*named(name), sys.executable, str(ROOT / "main.py"), "run", "--config", "config.yaml"],
            cwd=place,
            env={"PATH": os.environ["PATH"], "HOME": str(place), **IDENTITY},
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=subprocess.STDOUT,
        )


def end_all(daemon, place):
    """Kill a daemon that was `started` in `place`, and all processes that it has started, at once.

    A process has no environment for a moment while it executes another program, as a daemon does that was just started
    (`unshare`, `sh`, Python).  So the daemon is killed by its pid, and the search is repeated.
    """
    empty = 0
    while empty < SEARCHES:
        found = at_home(place) + ([daemon.pid] if daemon.poll() is None else [])
        for pid in found:
            kill(pid)
        empty = 0 if found else empty + 1
        time.sleep(0.01)
    daemon.wait()


def at_home(place):
    """Processes of a host: its daemon, and the processes that it has started."""
    mark, found = f"HOME={place}".encode(), []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/environ", "rb") as file:
                    if mark in file.read().split(b"\0"):
                        found.append(int(entry))
            except OSError:
                continue
    return found


def kill(pid):
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
