"""Processes: run one command to its end, and end whole trees.

`run` is for commands of this program (git, bwrap): own session, stdin closed, killed as a group at the time-out,
output streamed into a bounded head and tail.  What a model wants to run goes through `sandbox`, which uses this.
"""

from __future__ import annotations

import ctypes
import os
import selectors
import signal
import subprocess
import time
from contextlib import suppress
from typing import TYPE_CHECKING, BinaryIO

from agent.disk import write_all, writing
from agent.values import Finished

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

MARK = "MAKIMONO_UUID"
"""Every command that is executed for a task carries its uuid in this variable, so that its tree can be found."""

CHUNK = 1 << 16
LINGER = 0.5  # seconds that a grandchild may hold the pipe after the direct child ended
TICK = 0.2


class Tail:
    """The first and the last `cap // 2` bytes of a stream, in bounded memory."""

    def __init__(self, cap: int) -> None:
        self.half = max(1, cap // 2)
        self.head = bytearray()
        self.tail = bytearray()
        self.total = 0

    def feed(self, chunk: bytes) -> None:
        self.total += len(chunk)
        room = self.half - len(self.head)
        if room > 0:
            self.head += chunk[:room]
            chunk = chunk[room:]
        self.tail += chunk
        if len(self.tail) > 2 * self.half:
            del self.tail[: len(self.tail) - self.half]

    def bytes(self) -> tuple[bytes, int]:
        """(head + tail, bytes dropped between them)."""
        tail = self.tail[-self.half :]
        dropped = self.total - len(self.head) - len(tail)
        return bytes(self.head) + (b"\n" if dropped else b"") + bytes(tail), dropped


def run(
    argv: Sequence[str],
    *,
    env: Mapping[str, str],
    timeout: float,
    cwd: Path | str | None = None,
    stdin: bytes | None = None,
    cap: int = 1 << 20,
    spool: Path | None = None,
    spool_cap: int = 64 << 20,
    merge: bool = True,
    errors: int | None = None,
    pass_fds: Sequence[int] = (),
    stop: Callable[[], bool] | None = None,
    user: int | None = None,
) -> Finished:
    """Run `argv` to its end with exactly the environment `env`; as root with `user`, as that uid, the group of the
    same number and no other.

    Output (stdout, and stderr unless `merge` is False, which drops it, or `errors` is given, a descriptor that
    gets it) is kept as head + tail of `cap` bytes, and whole up to `spool_cap` in the file `spool`.  Returns when the
    direct child ends, even if a grandchild still holds the pipe.  At the time-out, or when `stop()` is true, the whole
    group is killed and `timed_out` is set.  `returncode` is negative for a signal.  OSError when the program cannot
    be started, DiskError when `spool` cannot be written (the command is killed then).
    """
    started = time.monotonic()
    child = subprocess.Popen(
        list(argv),
        env=dict(env),
        cwd=cwd,
        stdin=subprocess.PIPE if stdin is not None else subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=errors if errors is not None else subprocess.STDOUT if merge else subprocess.DEVNULL,
        start_new_session=True,
        pass_fds=tuple(pass_fds),
        user=user,
        group=user,
        extra_groups=None if user is None else (),
    )
    kept = Tail(cap)
    spooled: BinaryIO | None = None
    timed_out = False
    try:
        if spool is not None:
            with writing(spool):
                descriptor = os.open(spool, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            spooled = os.fdopen(descriptor, "wb", buffering=0)
        timed_out = _pump(child, stdin, kept, spooled, spool_cap, started + timeout, stop)
    finally:
        if spooled is not None:
            spooled.close()
        kill_group(child.pid)
        child.wait()
        reap_group(child.pid)
        for pipe in (child.stdout, child.stdin):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()
    output, dropped = kept.bytes()
    return Finished(child.returncode, output, time.monotonic() - started, timed_out, dropped, spool)


def _pump(
    child: subprocess.Popen[bytes],
    stdin: bytes | None,
    kept: Tail,
    spooled: BinaryIO | None,
    spool_cap: int,
    deadline: float,
    stop: Callable[[], bool] | None,
) -> bool:
    """Move bytes until the child has ended and its pipe is quiet; True when it had to be killed."""
    assert child.stdout is not None
    pending = memoryview(stdin or b"")
    ended_at: float | None = None
    with selectors.DefaultSelector() as selector:
        selector.register(child.stdout, selectors.EVENT_READ)
        if child.stdin is not None:
            os.set_blocking(child.stdin.fileno(), False)
            selector.register(child.stdin, selectors.EVENT_WRITE)
        while True:
            now = time.monotonic()
            if now >= deadline or (stop is not None and stop()):
                return True
            if ended_at is None and child.poll() is not None:
                ended_at = now
            if ended_at is not None and now - ended_at > LINGER:
                return False
            wait = min(TICK, deadline - now) if ended_at is None else 0.02
            for key, _ in selector.select(wait):
                if key.fileobj is child.stdout:
                    chunk = os.read(child.stdout.fileno(), CHUNK)
                    if not chunk:
                        return _wait_after_close(child, deadline, stop)
                    kept.feed(chunk)
                    if spooled is not None and spooled.tell() < spool_cap:
                        with writing(spooled.name):
                            write_all(spooled.fileno(), chunk)
                elif child.stdin is not None:
                    try:
                        pending = pending[os.write(child.stdin.fileno(), pending[:CHUNK]) :]
                    except BrokenPipeError:
                        pending = pending[:0]
                    if not pending:
                        selector.unregister(child.stdin)
                        child.stdin.close()


def _wait_after_close(child: subprocess.Popen[bytes], deadline: float, stop: Callable[[], bool] | None) -> bool:
    """The child closed its output; wait for its end."""
    while child.poll() is None:
        if time.monotonic() >= deadline or (stop is not None and stop()):
            return True
        with suppress(subprocess.TimeoutExpired):
            child.wait(min(TICK, max(0.01, deadline - time.monotonic())))
    return False


def kill_group(pid: int, sig: int = signal.SIGKILL) -> None:
    """Signal the process group that `pid` leads; nothing when it is gone."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, sig)


def reap_group(pid: int) -> None:
    """Collect what is dead of the group that `pid` led, where a subreaper inherited it; else nothing happens."""
    with suppress(ChildProcessError):
        while os.waitpid(-pid, os.WNOHANG)[0]:
            pass


def wait_gone(pid: int, seconds: float = 5.0) -> bool:
    """Wait until process `pid`, a child or not, is dead, and collect it if it is ours; False when it still lives."""
    try:
        descriptor = os.pidfd_open(pid)
    except OSError:
        return True
    try:
        with selectors.DefaultSelector() as selector:
            selector.register(descriptor, selectors.EVENT_READ)
            gone = bool(selector.select(seconds))
    finally:
        os.close(descriptor)
    with suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)
    return gone


def marked(uuid: str, name: str = MARK) -> list[int]:
    """Processes whose *executed* environment carries this task's uuid in variable `name` (durability facts: survives
    setsid)."""
    needle = f"{name}={uuid}".encode()
    me = str(os.getpid())
    found = []
    for entry in os.listdir("/proc"):  # noqa: PTH208 - names, thousands of times
        if not entry.isdigit() or entry == me:
            continue
        environment = _environment_of(entry)
        if needle in environment and needle in environment.split(b"\0"):
            found.append(int(entry))
    return found


def _environment_of(pid: str) -> bytes:
    """What a process was executed with, whole; b"" for one that is gone or may not be looked at."""
    try:
        descriptor = os.open(f"/proc/{pid}/environ", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        parts = []
        while part := os.read(descriptor, 1 << 16):
            parts.append(part)
        return b"".join(parts)
    except OSError:
        return b""
    finally:
        os.close(descriptor)


def end_tree(uuid: str, seconds: float = 5.0, name: str = MARK, *, own: bool = False) -> int:
    """Kill every process that carries the uuid, again and again until none is left; returns how many were killed.

    `own` says that this process started all of them.  Then there is nothing to look for where it reaps orphans and has
    no child: whatever is left of a command would be one.
    """
    if own and _reaps() and not _has_children():
        return 0
    killed: set[int] = set()
    deadline = time.monotonic() + seconds
    while (alive := marked(uuid, name)) and time.monotonic() < deadline:
        for pid in alive:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
                killed.add(pid)
        time.sleep(0.02)
    return len(killed)


def become_subreaper() -> None:
    """Make orphaned grandchildren children of this process, so that it can reap them (Linux; else nothing)."""
    pr_set_child_subreaper = 36
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None, use_errno=True).prctl(pr_set_child_subreaper, 1, 0, 0, 0)


def _reaps() -> bool:
    """Whether orphans below this process become its children: asked of the kernel, since a fork does not inherit it."""
    pr_get_child_subreaper = 37
    answer = ctypes.c_int(0)
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None, use_errno=True).prctl(pr_get_child_subreaper, ctypes.byref(answer), 0, 0, 0)
    return answer.value == 1


def _has_children() -> bool:
    """Whether there is a child, alive or not yet reaped."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def title(text: str) -> None:
    """Name this process for `ps`.  SPT_NOENV keeps the environment where /proc shows it."""
    os.putenv("SPT_NOENV", "1")  # read by C getenv; os.environ belongs to `config`
    from setproctitle import setproctitle

    setproctitle(text)
