"""Simulated hosts: processes on this machine with their own host names."""

import os
import shutil
import signal
import subprocess
import sys
import time

import quick_start
from flow_home import IDENTITY, ROOT
from length import LONG

SEARCHES = 3


def named(name):
    """The prefix that gives a command line its own host name; [] where that is not allowed (it needs root)."""
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        return []
    return ["unshare", "--uts", "sh", "-c", 'hostname "$0" && exec "$@"', name]


def started(name, place, log):
    """A daemon on a host of this name, with the config.yaml of the folder `place`; its output goes to the file
    `log`."""
    argv, env = ["run", "--config", "config.yaml"], {"PATH": os.environ["PATH"], "HOME": str(place), **IDENTITY}
    with log.open("w") as said:
        if named(name) and not LONG:
            return quick_start.start(argv, cwd=place, env=env, files=(said, said), host=name)
        return subprocess.Popen(
            [*named(name), sys.executable, str(ROOT / "main.py"), *argv],
            cwd=place,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=subprocess.STDOUT,
        )


def end_all(daemon, place):
    """Kill a daemon that was `started` in `place`, and all processes that it has started, at once.

    They have the environment of the host or, since a fork shows that of the process it comes from, its host name.  A process has no environment for a moment while it executes another program, as a daemon does that was just started
    (`unshare`, `sh`, Python).  So the daemon is killed by its pid, and the search is repeated.
    """
    empty, own = 0, ""
    while empty < SEARCHES:
        own = own or uts(daemon.pid)
        found = at_home(place, own) + ([daemon.pid] if daemon.poll() is None else [])
        for pid in found:
            kill(pid)
        empty = 0 if found else empty + 1
        time.sleep(0.01)
    daemon.wait()


def uts(pid):
    """What names the host name of a process, if it is not that of this process."""
    try:
        found = os.readlink(f"/proc/{pid}/ns/uts")
    except OSError:
        return ""
    return "" if found == os.readlink("/proc/self/ns/uts") else found


def at_home(place, own):
    """Processes of a host: its daemon, and the processes that it has started."""
    mark, found = f"HOME={place}".encode(), []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/environ", "rb") as file:
                    if mark in file.read().split(b"\0") or (own and uts(entry) == own):
                        found.append(int(entry))
            except OSError:
                continue
    return found


def kill(pid):
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
