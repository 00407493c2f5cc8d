"""Processes: run one command to its end, and end whole trees.

`run` is for commands of this program (git, bwrap): own session, stdin closed, killed as a group at the time-out,
output streamed into a bounded head and tail.  What a model wants to run goes through `sandbox`, which uses this.
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

from agent import keyring, step
from agent.disk import libc, write_all, writing
from agent.values import Finished

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

MARK = "MAKIMONO_UUID"
"""Every command that is executed for a task carries its uuid in this variable, so that its tree can be found."""

EXECUTING_SECONDS = 0.5
"""How long the search for them waits for processes that are just being executed."""

CHUNK = 1 << 16
PIPE = 1 << 20  # what a pipe holds at most without a privilege (pipe(7))
_WAITED: set[int] = set()
_STARTING = threading.Lock()
_commands = [0, 0]  # starts and ends of what may write into a work tree; how many run

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


class Spool:
    """The file `path`, made when more came than `kept` holds: then it has the whole output, up to `cap` bytes."""

    def __init__(self, path: Path, cap: int, kept: Tail) -> None:
        self.path = path
        self.cap = cap
        self.kept = kept
        self.size = 0
        self.descriptor = -1

    def feed(self, chunk: bytes) -> None:
        """Called before `kept` takes the chunk in.  DiskError when it cannot be written."""
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
) -> Finished:
    """Run `argv` to its end with exactly the environment `env`; as root with `user`, as that uid, the group of the
    same number and `groups`.  With `foreign` it is no command of this program, and gets a session keyring of its own.

    Output (stdout, and stderr unless `merge` is False, which drops it, or `errors` is given, a descriptor that
    gets it) is kept as head + tail of `cap` bytes; when it is longer (`dropped`), the file `spool` is made and has it
    whole up to `spool_cap`.  Returns when the direct child ends, even if a grandchild still holds the pipe.  At the
    time-out, or when `stop()` is true, the whole group is killed and `timed_out` is set; when the step is cut
    (`agent/step.py`) it is killed too, and the error raised.  `returncode` is negative for a signal.  OSError when the
    program cannot be started, DiskError when `spool` cannot be written (the command is killed then).

    `memory`: bytes that the process, and each that it starts, may write to (RLIMIT_DATA); more than this one has.
    A `foreign` one may change a work tree (`commands`).
    """
    started = time.monotonic()
    kept = Tail(cap)
    start = partial(
        subprocess.Popen,
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
        extra_groups=None if user is None else groups,
    )
    timed_out = False
    with _foreign() if foreign else nullcontext(_called) as call:
        with _STARTING, _bounded(memory):
            child: subprocess.Popen[bytes] = call(start)
            _WAITED.add(child.pid)
        spooled = Spool(spool, spool_cap, kept) if spool is not None else None
        try:
            with step.within(os.path.basename(argv[0]), timeout):  # noqa: PTH119 - a word for a person
                timed_out = _pump(child, stdin, kept, spooled, started + timeout, stop)
        finally:
            if spooled is not None:
                spooled.close()
            kill_group(child.pid)
            child.wait()
            _WAITED.discard(child.pid)
            reap_group(child.pid)
            for pipe in (child.stdout, child.stdin):
                if pipe is not None:
                    with suppress(OSError):
                        pipe.close()
    output, dropped = kept.bytes()
    return Finished(child.returncode, output, time.monotonic() - started, timed_out, dropped, spool)


@contextmanager
def _foreign() -> Iterator[Callable[[Callable[[], Any]], Any]]:
    """Around a foreign program: its start and its end are counted, and what is called starts it (`keyring.apart`)."""
    with _STARTING:
        _commands[0] += 1
        _commands[1] += 1
    try:
        with keyring.apart() as call:
            yield call
    finally:
        with _STARTING:
            _commands[0] += 1
            _commands[1] -= 1


@contextmanager
def _bounded(memory: int | None) -> Iterator[None]:
    """Inside, a child that is started may write to so many bytes.  The limit is inherited: whatever this process asks
    for after the start comes too late for what the child starts first."""
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
    """How many starts and ends of foreign programs there were; None while one runs.  The same number twice says that
    nothing but this program changed a work tree between."""
    with _STARTING:
        return _commands[0] if _commands[1] == 0 else None


def _called(start: Callable[[], Any]) -> Any:
    return start()


def _pump(
    child: subprocess.Popen[bytes],
    stdin: bytes | None,
    kept: Tail,
    spooled: Spool | None,
    deadline: float,
    stop: Callable[[], bool] | None,
) -> bool:
    """Move bytes until the child has ended and its pipe is quiet; True when it had to be killed."""
    assert child.stdout is not None
    pending = memoryview(stdin or b"")
    ended_at: float | None = None
    look_at = time.monotonic() + TICK
    pipes = select.poll()  # no descriptor of its own, for one or two pipes
    pipes.register(output := child.stdout.fileno(), select.POLLIN)
    if child.stdin is not None:
        os.set_blocking(child.stdin.fileno(), False)
        pipes.register(child.stdin.fileno(), select.POLLOUT)
    while True:
        step.check()
        now = time.monotonic()
        if now >= deadline or (stop is not None and stop()):
            _take_rest(pipes, output, kept, spooled)
            return True
        if ended_at is None and now >= look_at:  # an end is seen by the pipe, unless a grandchild holds it
            look_at = now + TICK
            ended_at = now if child.poll() is not None else None
        if ended_at is not None and now - ended_at > LINGER:
            return False
        wait = min(TICK, deadline - now) if ended_at is None else 0.02
        for descriptor, _ in pipes.poll(math.ceil(wait * 1000)):
            if descriptor == output:
                if not _take(output, kept, spooled):
                    return _wait_after_close(child, deadline, stop)
            elif child.stdin is not None:
                try:
                    pending = pending[os.write(descriptor, pending[:CHUNK]) :]
                except BrokenPipeError:
                    pending = pending[:0]
                if not pending:
                    pipes.unregister(descriptor)
                    child.stdin.close()


def _take(output: int, kept: Tail, spooled: Spool | None) -> bool:
    """Move one chunk; False at the end of the pipe."""
    chunk = os.read(output, CHUNK)
    if spooled is not None:
        spooled.feed(chunk)
    kept.feed(chunk)
    return bool(chunk)


def _take_rest(pipes: select.poll, output: int, kept: Tail, spooled: Spool | None) -> None:
    """Move what was printed before the command is ended: at most the largest pipe, so that a flood cannot go on."""
    for _ in range(PIPE // CHUNK):
        if not any(descriptor == output for descriptor, _ in pipes.poll(0)) or not _take(output, kept, spooled):
            return


def _wait_after_close(child: subprocess.Popen[bytes], deadline: float, stop: Callable[[], bool] | None) -> bool:
    """The child closed its output; wait for its end."""
    while child.poll() is None:
        step.check()
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


def waited() -> set[int]:
    """Children that some thread's `run` waits for."""
    with _STARTING:
        return set(_WAITED)


def wait_gone(pid: int, seconds: float = 5.0, *, collect: bool = True) -> bool:
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
    if collect:
        with suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)
    return gone


def marked(uuid: str, name: str = MARK) -> list[int]:
    """Processes whose *executed* environment carries this task's uuid in variable `name` (durability facts: survives
    setsid)."""
    return _search(uuid, name)[0]


def _search(uuid: str, name: str) -> tuple[list[int], set[int]]:
    """(the marked processes; those that are just being executed, which show no environment in that moment)."""
    needle = f"{name}={uuid}".encode()
    me = str(os.getpid())
    found, unclear = [], set()
    for entry in os.listdir("/proc"):  # noqa: PTH208 - names, thousands of times
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
    """What a process was executed with, whole; None for one that is gone or may not be looked at."""
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
    """Whether a process without an environment may be about to get one: it has a program, and does not sleep."""
    try:
        Path(f"/proc/{pid}/exe").readlink()
        state = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0]
    except OSError:
        return False
    return state in b"RD"


def end_tree(uuid: str, seconds: float = 5.0, name: str = MARK, *, own: bool = False) -> int:
    """Kill every process that carries the uuid, again and again until none is left; returns how many were killed.

    `own` says that this process started all of them.  Then there is nothing to look for where it reaps orphans and has
    no child: whatever is left of a command would be one.
    """
    if own and not has_children() and reaps():
        return 0
    killed: set[int] = set()
    pending: set[int] | None = None  # once none of the task's lives, only these can still become one
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
    """Make orphaned grandchildren children of this process, so that it can reap them (Linux; else nothing)."""
    pr_set_child_subreaper = 36
    with suppress(OSError, AttributeError):
        libc().prctl(pr_set_child_subreaper, 1, 0, 0, 0)


def reaps() -> bool:
    """Whether orphans below this process become its children: asked of the kernel, since a fork does not inherit it."""
    pr_get_child_subreaper = 37
    answer = ctypes.c_int(0)
    with suppress(OSError, AttributeError):
        libc().prctl(pr_get_child_subreaper, ctypes.byref(answer), 0, 0, 0)
    return answer.value == 1


def has_children() -> bool:
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


def has_title(pid: int, text: str) -> bool:
    """Whether process `pid` was given this title."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0 ").decode("utf-8", "replace") == text
    except OSError:
        return False
