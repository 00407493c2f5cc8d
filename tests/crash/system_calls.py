"""`strace` around one run of `forks.py`: kill it at the n-th call of a kind, or record its calls."""

import os
import re
import shutil
import signal
import subprocess
from dataclasses import dataclass
from itertools import count

import pytest

CHANGES = (
    "write,pwrite64,writev,sendfile,copy_file_range,fsync,fdatasync,syncfs,ftruncate,"
    "rename,renameat,renameat2,unlink,unlinkat,mkdir,mkdirat,rmdir,link,linkat,symlink,symlinkat"
)
"""Calls that change files, or make a change durable."""
OTHERS = "openat,sendto,clone,clone3,vfork"
"""Calls that also make files, send a request to the model, or start git or a command."""
NAMED = {
    "rename",
    "renameat",
    "renameat2",
    "unlink",
    "unlinkat",
    "mkdir",
    "mkdirat",
    "rmdir",
    "link",
    "linkat",
    "openat",
}
"""Calls with strings that are names, not data."""
_LINE = re.compile(r"(?:(\d+) +)?(\w+)\((.*)")


@dataclass(frozen=True)
class Point:
    """The point just before the `when`-th `call` of the process; `about` is its path or purpose."""

    call: str
    when: int
    about: str

    def __str__(self):
        return f"{self.call}:{self.when} {self.about}"


def need_strace():
    if shutil.which("strace") is None:
        if os.environ.get("CI"):
            pytest.fail("strace is not installed (CI is set)")
        pytest.skip("strace is not installed")


def traced(forks, what, config, *options, **more):
    """Run it under strace; returns (exit code, negative for a signal)."""
    need_strace()
    pid = forks.start(what, config, **more)
    strace = subprocess.Popen(
        ["strace", "-p", str(pid), *options], stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True
    )
    try:
        said = strace.stderr.readline()
        if "attached" not in said:
            os.kill(pid, signal.SIGKILL)
            forks.end()
            pytest.skip(f"strace may not trace here: {said.strip()}")
        os.kill(pid, signal.SIGUSR1)
        return forks.end()
    finally:
        strace.communicate(timeout=60)


def killed(forks, what, config, point, **more):
    """Run it until the point; returns whether it reached the point."""
    inject = f"inject={point.call}:signal=KILL:when={point.when}"
    return traced(forks, what, config, "-o", "/dev/null", "-e", f"trace={point.call}", "-e", inject, **more) == -9


def points(forks, what, config, home, log, **more):
    """The points at which a kill of this run makes a difference: each call of the process itself (not of its children)
    that changes a file below `home`, sends a request to the model, or starts a program."""
    options = ("-y", "-s", "400", "-o", str(log), "-e", f"trace={CHANGES},{OTHERS}")
    assert traced(forks, what, config, *options, **more) == 0
    seen, found = {}, []
    for line in log.read_text().splitlines():
        if (match := _LINE.match(line)) is None:
            continue
        call, rest = match[2], match[3]
        when = next(seen.setdefault(call, count(1)))
        if (about := of_interest(call, rest, str(home))) is not None:
            found.append(Point(call, when, about))
    return found


def of_interest(call, rest, home):
    """The path or purpose of the call, None when it makes no difference."""
    if call in ("clone", "clone3", "vfork"):
        return "a program"
    if call == "sendto":
        return "the model" if "HTTP/1" in rest else None
    if call == "openat" and "O_CREAT" not in rest:
        return None
    opened = re.match(r"(?:\d+|AT_FDCWD)<([^>]*)>", rest)  # the descriptor, or the folder that a name is relative to
    names = re.findall(r'"([^"]*)"', rest) if call in NAMED else []
    path = os.path.join(opened[1] if opened else "/", names[-1] if names else "")
    return path.removeprefix(f"{home}/") if path.startswith(f"{home}/") else None
