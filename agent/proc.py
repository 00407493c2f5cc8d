"""Runs commands to their end, and kills whole process trees.

`run` starts a command in a session of its own, kills the whole process group of the command at the time-out, and
returns only head and tail of the output. The program's own commands, such as git, are run directly with `run`; commands
of a model run through a sandbox (`agent/sandbox/`), which starts them with `run`.
"""

from __future__ import annotations

import ctypes
import math
import os
import resource
import select
import selectors
import signal
import subprocess
import threading
import time
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent import deadline, session_keyring
from agent.durable_files import libc, write_all, writing
from agent.values import Finished

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

MARK = "MAKIMONO_UUID"
"""The environment variable with the task's uuid that every command of a task has, by which its process tree can be
found."""

EXECUTING_SECONDS = 0.5
"""Seconds for which `end_tree` continues to search because a process that is in execve may belong to the task."""

CHUNK = 1 << 16
PIPE = 1 << 20  # largest capacity of a pipe that needs no privileges (pipe(7))
_WAITED: set[int] = set()
_STARTING = threading.Lock()
_commands = [0, 0]  # [number of starts and ends of foreign commands, number of foreign commands that run now]

LINGER = 0.5  # seconds for which a grandchild may hold the pipe of the output open after the direct child has ended
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
        """(head and tail of the stream joined, number of bytes dropped between them)."""
        tail = self.tail[-self.half :]
        dropped = self.total - len(self.head) - len(tail)
        return bytes(self.head) + (b"\n" if dropped else b"") + bytes(tail), dropped


class Spool:
    """Writes the whole output of a command to the file `path`, up to about `cap` bytes; creates the file only when the
    output becomes longer than `kept` can hold."""

    def __init__(self, path: Path, cap: int, kept: Tail) -> None:
        self.path = path
        self.cap = cap
        self.kept = kept
        self.size = 0
        self.descriptor = -1

    def feed(self, chunk: bytes) -> None:
        """Add a chunk of the output; must be called before `kept.feed` with the same chunk.

        Raises DiskError if the file of the output cannot be written.
        """
        if self.descriptor < 0:
            if self.kept.total + len(chunk) <= 2 * self.kept.half:
                return
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
            with writing(self.path):
                self.descriptor = os.open(self.path, flags, 0o600)
            chunk = bytes(self.kept.head + self.kept.tail) + chunk
        if self.size < self.cap:
            with writing(self.path):
                write_all(self.descriptor, chunk)
            self.size += len(chunk)

    def close(self) -> None:
        if self.descriptor >= 0:
            os.close(self.descriptor)


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
    groups: Sequence[int] = (),
    memory: int | None = None,
    foreign: bool = False,
    streams: tuple[int, int] | None = None,
    started: Callable[[int], None] | None = None,
) -> Finished:
    """Run `argv` to its end with exactly the environment `env`.

    `user`: the command runs as this uid, with the group of the same number and `groups`; only root can do that.
    `started` is called with the pid of the started command.

    `foreign`: the command does not belong to this program.  A foreign command gets a session keyring of its own, and
    `commands` counts it as a command that may change a work tree.

    The result has the head and tail of the output, together at most about `cap` bytes. The output is stdout and stderr
    of the command together; with `errors` stderr goes to the descriptor `errors` instead, and with `merge=False` alone
    it is dropped. With `streams` the command has the descriptors in `streams` as stdin and stdout, and the output is
    the command's stderr alone. If the output is longer than `cap` (`dropped`), the file `spool` has the output,
    complete up to `spool_cap`. `run` returns soon after the direct child has ended, even if a grandchild still holds
    the pipe of the output open; before it returns, it kills the processes that are left in the command's process group.
    At the time-out of a command, or when `stop()` returns True, the whole process group is killed and `timed_out` is
    set. If the calling thread is interrupted (`agent/deadline.py`), the process group of the command is killed too, and
    the error of the interruption is raised. `returncode` is negative if a signal ended the command. Raises OSError if
    the program cannot be started, DiskError if `spool` cannot be written (the command is then killed).

    `memory` is the value of RLIMIT_DATA in bytes for the command and its children; the value must be more than this
    process uses. RLIMIT_CPU of the command is set to the CPU time that all cores have during `timeout`, so that the
    kernel ends the command even if this process was killed.
    """
    began = time.monotonic()
    kept = Tail(cap)
    start = partial(
        subprocess.Popen,
        list(argv),
        env=dict(env),
        cwd=cwd,
        **_ends(stdin is not None, errors, merge=merge, streams=streams),
        start_new_session=True,
        pass_fds=tuple(pass_fds),
        user=user,
        group=user,
        extra_groups=None if user is None else groups,
    )
    timed_out = False
    with _foreign() if foreign else nullcontext(_start_process) as call:
        with _STARTING, _bounded(memory):
            child: subprocess.Popen[bytes] = call(start)
            _WAITED.add(child.pid)
        _limit_cpu(child.pid, timeout)
        spooled = Spool(spool, spool_cap, kept) if spool is not None else None
        try:
            if started is not None:
                started(child.pid)
            with deadline.within(os.path.basename(argv[0]), timeout):  # noqa: PTH119 - the name of the step is for people
                timed_out = _pump(child, stdin, kept, spooled, began + timeout, stop)
        finally:
            if spooled is not None:
                spooled.close()
            kill_group(child.pid)
            child.wait()
            _WAITED.discard(child.pid)
            reap_group(child.pid)
            for pipe in (child.stdout, child.stdin, child.stderr):
                if pipe is not None:
                    with suppress(OSError):
                        pipe.close()
    output, dropped = kept.bytes()
    return Finished(child.returncode, output, time.monotonic() - began, timed_out, dropped, spool)


def _ends(fed: bool, errors: int | None, *, merge: bool, streams: tuple[int, int] | None) -> dict[str, int]:
    """The standard streams of a command, as arguments for Popen."""
    if streams is not None:
        return {"stdin": streams[0], "stdout": streams[1], "stderr": subprocess.PIPE}
    stderr = errors if errors is not None else subprocess.STDOUT if merge else subprocess.DEVNULL
    return {
        "stdin": subprocess.PIPE if fed else subprocess.DEVNULL,
        "stdout": subprocess.PIPE,
        "stderr": stderr,
    }


def _limit_cpu(pid: int, seconds: float) -> None:
    """Set the soft limit of CPU time of a process to the time that all cores have in `seconds`; the hard limit stays,
    so that the command can raise its soft limit itself."""
    if not math.isfinite(seconds):
        return
    most = math.ceil(seconds * (os.cpu_count() or 1)) + 1
    # if the process has ended, has another uid, or has a lower hard limit already, its limit of CPU time stays as it is
    with suppress(ProcessLookupError, PermissionError, ValueError):
        _, hard = resource.prlimit(pid, resource.RLIMIT_CPU)
        resource.prlimit(pid, resource.RLIMIT_CPU, (most, hard))


@contextmanager
def _foreign() -> Iterator[Callable[[Callable[[], Any]], Any]]:
    """Count the start and the end of a foreign program; yields the function that starts it
    (`session_keyring.in_own_keyring`)."""
    with _STARTING:
        _commands[0] += 1
        _commands[1] += 1
    try:
        with session_keyring.in_own_keyring() as call:
            yield call
    finally:
        with _STARTING:
            _commands[0] += 1
            _commands[1] -= 1


@contextmanager
def _bounded(memory: int | None) -> Iterator[None]:
    """Set RLIMIT_DATA for children that are started inside the block.

    The children inherit RLIMIT_DATA from this process.  A limit that is set after the start of a child would be too
    late for the first grandchildren.
    """
    if memory is None:
        yield
        return
    before = resource.getrlimit(resource.RLIMIT_DATA)
    hard = before[1]
    soft = memory if hard == resource.RLIM_INFINITY else min(memory, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, before)


def commands() -> int | None:
    """The number of starts and ends of foreign programs so far; None while a foreign program runs.

    If two calls of `commands` return the same number, no foreign program has changed a work tree between the calls."""
    with _STARTING:
        return _commands[0] if _commands[1] == 0 else None


def _start_process(start: Callable[[], Any]) -> Any:
    return start()


def _pump(
    child: subprocess.Popen[bytes],
    stdin: bytes | None,
    kept: Tail,
    spooled: Spool | None,
    until: float,
    stop: Callable[[], bool] | None,
) -> bool:
    """Write `stdin` to a command and read its output until the child has ended and the pipe is closed, or until LINGER
    seconds after the end of the child; returns True at the time-out or when `stop()` returns True, so that the caller
    kills the command."""
    pipe = child.stdout or child.stderr
    assert pipe is not None
    pending = memoryview(stdin or b"")
    ended_at: float | None = None
    look_at = time.monotonic() + TICK
    pipes = select.poll()  # poll needs no descriptor of its own, unlike epoll
    pipes.register(output := pipe.fileno(), select.POLLIN)
    if child.stdin is not None:
        os.set_blocking(child.stdin.fileno(), False)
        pipes.register(child.stdin.fileno(), select.POLLOUT)
    while True:
        deadline.check()
        now = time.monotonic()
        if now >= until or (stop is not None and stop()):
            _take_rest(pipes, output, kept, spooled)
            return True
        # the end of the pipe shows the end of the child, unless a grandchild holds the pipe open
        if ended_at is None and now >= look_at:
            look_at = now + TICK
            ended_at = now if child.poll() is not None else None
        if ended_at is not None and now - ended_at > LINGER:
            return False
        wait = min(TICK, until - now) if ended_at is None else 0.02
        for descriptor, _ in pipes.poll(math.ceil(wait * 1000)):
            if descriptor == output:
                if not _read_chunk(output, kept, spooled):
                    return _wait_after_close(child, until, stop)
            elif child.stdin is not None:
                try:
                    pending = pending[os.write(descriptor, pending[:CHUNK]) :]
                except BrokenPipeError:
                    pending = pending[:0]
                if not pending:
                    pipes.unregister(descriptor)
                    child.stdin.close()


def _read_chunk(output: int, kept: Tail, spooled: Spool | None) -> bool:
    """Read one chunk of a command's output from the pipe; returns False at the end of the pipe."""
    chunk = os.read(output, CHUNK)
    if spooled is not None:
        spooled.feed(chunk)
    kept.feed(chunk)
    return bool(chunk)


def _take_rest(pipes: select.poll, output: int, kept: Tail, spooled: Spool | None) -> None:
    """Read the rest of the output before a command is killed: at most as many bytes as the largest pipe holds, so that
    the reading ends even if the command writes for ever."""
    for _ in range(PIPE // CHUNK):
        if not any(descriptor == output for descriptor, _ in pipes.poll(0)) or not _read_chunk(output, kept, spooled):
            return


def _wait_after_close(child: subprocess.Popen[bytes], until: float, stop: Callable[[], bool] | None) -> bool:
    """Wait for the end of a child process that has closed its output; returns True at the time-out or when `stop()`
    returns True, so that the caller kills the command."""
    while child.poll() is None:
        deadline.check()
        if time.monotonic() >= until or (stop is not None and stop()):
            return True
        with suppress(subprocess.TimeoutExpired):
            child.wait(min(TICK, max(0.01, until - time.monotonic())))
    return False


def kill_group(pid: int, sig: int = signal.SIGKILL) -> None:
    """Send a signal to the process group that `pid` leads, if the group still exists."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, sig)


def reap_group(pid: int) -> None:
    """Reap dead processes of the group that `pid` led, if this process, as a subreaper, is now their parent."""
    with suppress(ChildProcessError):
        while os.waitpid(-pid, os.WNOHANG)[0]:
            pass


def waited() -> set[int]:
    """The pids of the child processes for which `run`, in any thread, is waiting."""
    with _STARTING:
        return set(_WAITED)


def wait_gone(pid: int, seconds: float = 5.0, *, collect: bool = True) -> bool:
    """Wait until the process `pid` is dead; returns False if it still lives after `seconds`. With `collect`, the
    process is reaped if it is a dead child of this process."""
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
    if collect:
        with suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)
    return gone


def end_namespace(pid: int, seconds: float = 5.0) -> None:
    """Kill `pid`, and with it all processes of its pid namespace, if `pid` is the first process of such a namespace and
    the parent of `pid` is this process or an ancestor of this process.

    Nothing is killed if `pid` is not the first process of a namespace, or has another parent: so an outdated pid does
    no harm.
    """
    try:
        descriptor = os.pidfd_open(pid)
    except OSError:
        return
    try:
        facts = _status(pid)
        inside = facts.get("NSpid", "").split()
        if len(inside) > 1 and inside[-1] == "1" and facts.get("PPid") in _own_ancestors():
            with suppress(ProcessLookupError, PermissionError):
                signal.pidfd_send_signal(descriptor, signal.SIGKILL)
    finally:
        os.close(descriptor)
    wait_gone(pid, seconds)


def _own_ancestors() -> set[str]:
    """The pids of this process and of all processes above it."""
    found, pid = set(), str(os.getpid())
    while pid not in found and pid not in ("", "0"):
        found.add(pid)
        pid = _status(int(pid)).get("PPid", "")
    return found


def _status(pid: int) -> dict[str, str]:
    """The fields of /proc/PID/status of a process; {} if the process is gone."""
    try:
        text = Path(f"/proc/{pid}/status").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return {}
    return {name: value.strip() for name, _, value in (line.partition(":") for line in text.splitlines())}


def marked(uuid: str, name: str = MARK) -> list[int]:
    """The processes that were executed with this task's uuid in the environment variable `name`; a process remains
    marked after setsid (docs/operations.md, "Processes of a task")."""
    return _search(uuid, name)[0]


def _search(uuid: str, name: str) -> tuple[list[int], set[int]]:
    """(the processes marked with a task's uuid, the processes in execve, which have no visible environment at that
    moment)."""
    needle = f"{name}={uuid}".encode()
    me = str(os.getpid())
    found, unclear = [], set()
    for entry in os.listdir("/proc"):  # noqa: PTH208 - only the names of the thousands of entries in /proc are needed
        if not entry.isdigit() or entry == me:
            continue
        environment = _environment_of(entry)
        if environment is None:
            continue
        if needle in environment and needle in environment.split(b"\0"):
            found.append(int(entry))
        if not environment and _is_executing(entry):
            unclear.add(int(entry))
    return found, unclear


def _environment_of(pid: str) -> bytes | None:
    """The environment with which a process was executed; None if the process is gone or its environment cannot be
    read."""
    try:
        descriptor = os.open(f"/proc/{pid}/environ", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        parts = []
        while part := os.read(descriptor, 1 << 16):
            parts.append(part)
        return b"".join(parts)
    except OSError:
        return None
    finally:
        os.close(descriptor)


def _is_executing(pid: str) -> bool:
    """Whether a process without an environment may be in execve, since it has a program and does not sleep."""
    try:
        Path(f"/proc/{pid}/exe").readlink()
        state = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0]
    except OSError:
        return False
    return state in b"RD"


def end_tree(uuid: str, seconds: float = 5.0, name: str = MARK, *, own: bool = False) -> int:
    """Kill every process that is marked with the uuid until none is left or `seconds` have passed; returns the number
    of processes that were killed.

    `own`: this process started all processes with the task's uuid. With `own` a process that adopts orphans (`reaps`)
    and has no child does not search, since every remaining process of the task would be its child.
    """
    if own and not has_children() and reaps():
        return 0
    killed: set[int] = set()
    # the processes in execve: if no process of the task was found, only one of these can still be a process of the task
    pending: set[int] | None = None
    began = time.monotonic()
    while (waited := time.monotonic() - began) < seconds:
        alive, unclear = _search(uuid, name)
        pending = unclear if alive or pending is None else pending & unclear
        if not alive and not (pending and waited < EXECUTING_SECONDS):
            break
        for pid in alive:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
                killed.add(pid)
        time.sleep(0.02)
    return len(killed)


def become_subreaper() -> None:
    """Make orphaned grandchildren children of this process, so that it can reap them (on Linux only)."""
    pr_set_child_subreaper = 36
    with suppress(OSError, AttributeError):
        libc().prctl(pr_set_child_subreaper, 1, 0, 0, 0)


def reaps() -> bool:
    """Whether orphans below this process become its children.

    `reaps` queries the kernel each time: a fork of a subreaper is no subreaper, so a stored answer could be wrong.
    """
    pr_get_child_subreaper = 37
    answer = ctypes.c_int(0)
    with suppress(OSError, AttributeError):
        libc().prctl(pr_get_child_subreaper, ctypes.byref(answer), 0, 0, 0)
    return answer.value == 1


def has_children() -> bool:
    """Whether this process has a child, alive or not yet reaped."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def title(text: str) -> None:
    """Set the title of this process that `ps` shows.

    The variable SPT_NOENV prevents setproctitle from overwriting the environment in /proc.
    """
    os.putenv("SPT_NOENV", "1")  # setproctitle reads the variable SPT_NOENV in C; only `config` may use os.environ
    from setproctitle import setproctitle

    setproctitle(text)


def has_title(pid: int, text: str) -> bool:
    """Whether process `pid` was given the title `text`."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0 ").decode("utf-8", "replace") == text
    except OSError:
        return False
