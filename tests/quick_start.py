"""Fast starts of `main.py`: a process that has imported everything forks one process for each run.

Importing the program takes most of the processor time of a whole run: once in the daemon, and once more in the fork
server of its workers.  `start` returns a run with the interface of `subprocess.Popen`, with its own arguments,
environment, folder and signals; it calls `agent.cli.main`, as `main.py` does.  `run` waits for one and returns what
`subprocess.run` does.  With MAKIMONO_LONG=1, `FlowHome`, `hosts.py` and `run` without a host name start `main.py`
itself.  Tests of the demo and of the command line that are about the start, the output or a signal always do that.

As a program (`python quick_start.py FD`) it reads one order after the other from a socket.
"""

import atexit
import ctypes
import gc
import io
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path

from length import LONG

ROOT = Path(__file__).resolve().parents[1]
LONGEST = 1 << 16
"""The most bytes of an order."""


class Started:
    """A run, with the part of `subprocess.Popen` that tests use.  Standard output and error are one pipe, read as
    text, unless `start` was given files."""

    def __init__(self, args, stdout, status):
        self.args = args
        self.stdout = None
        if stdout is not None:
            self.stdout = open(stdout, encoding="utf-8", errors="replace")  # noqa: SIM115 - the reader closes it
        self.returncode = None
        self._status = status
        self._said = []
        self.pid = self._number()

    def poll(self):
        if self.returncode is None and readable(self._status, 0):
            self.returncode = self._number()
            os.close(self._status)
        return self.returncode

    def wait(self, timeout=None):
        if self.returncode is None and not readable(self._status, timeout):
            raise subprocess.TimeoutExpired(self.args, timeout)
        return self.poll()

    def communicate(self, timeout=None):
        """(the output up to the end, None)."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while readable(self.stdout.fileno(), left(deadline)):
            self._said.append(os.read(self.stdout.fileno(), LONGEST))
            if not self._said[-1]:
                break
        else:
            raise subprocess.TimeoutExpired(self.args, timeout)
        self.wait(left(deadline))
        self.stdout.close()
        return b"".join(self._said).decode("utf-8", "replace"), None

    def send_signal(self, number):
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def terminate(self):
        self.send_signal(signal.SIGTERM)

    def kill(self):
        self.send_signal(signal.SIGKILL)

    def _number(self):
        """The next line from the keeper process: first the run's pid, later its exit code."""
        found = b""
        while not found.endswith(b"\n"):
            more = os.read(self._status, 1)
            assert more, "the process that starts runs has ended"
            found += more
        return int(found)


def readable(descriptor, seconds):
    """Whether the descriptor becomes readable within `seconds`; None waits without a limit."""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(None if seconds is None else max(0, int(seconds * 1000))))


def left(deadline):
    return None if deadline is None else max(0.0, deadline - time.monotonic())


class Starter:
    """The process that forks.  The first use starts it; it ends with this process."""

    def __init__(self):
        self.lock = threading.Lock()
        self.socket = None
        self.process = None

    def start(self, args, *, cwd, env, files=None, host=""):
        """Start `main.py *args`; returns a `Started`.  `files` are those of standard output and error, else they are
        one pipe.  `host` is a host name for this run alone, which needs root."""
        status, its_status = os.pipe()
        ours, theirs = (None, [os.dup(one.fileno()) for one in files]) if files else piped()
        order = json.dumps({"args": [*map(str, args)], "cwd": str(cwd), "env": env, "host": host}).encode()
        assert len(order) < LONGEST
        with self.lock:
            if self.socket is None:
                self.begin()
            socket.send_fds(self.socket, [order], [*theirs, its_status])
        for one in (*theirs, its_status):
            os.close(one)
        return Started(["main.py", *args], ours, status)

    def begin(self):
        self.socket, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        kept = ("PATH", "LANG", "TZ", "TMPDIR")
        with its:
            self.process = subprocess.Popen(
                [sys.executable, __file__, str(its.fileno())],
                pass_fds=[its.fileno()],
                stdin=subprocess.DEVNULL,
                env={**{k: v for k, v in os.environ.items() if k in kept}, "HOME": "/nonexistent"},
            )
        atexit.register(self.end)

    def end(self):
        self.socket.close()
        self.process.wait()


def piped():
    """(the end of a pipe to read, twice the end to write)."""
    read, written = os.pipe()
    return read, [written, os.dup(written)]


STARTER = Starter()
start = STARTER.start


def run(args, *, cwd, env=None, timeout=90, host=""):
    """One run of `main.py` to its end, as `subprocess.run` returns it, with output and errors apart."""
    args, env = [*map(str, args)], dict(os.environ if env is None else env)
    if LONG and not host:
        command = [sys.executable, str(ROOT / "main.py"), *args]
        return subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, timeout=timeout, check=False)
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as errors:
        process = start(args, cwd=cwd, env=env, files=(out, errors), host=host)
        try:
            code = process.wait(timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise
        said = []
        for file in (out, errors):
            file.seek(0)
            said.append(file.read().decode())
    return subprocess.CompletedProcess(process.args, code, *said)


# --- the process that forks --------------------------------------------------------------------------------------


def serve(orders):
    import setproctitle

    import agent.cli.main
    import agent.daemon.daemon
    import agent.daemon.preload
    import agent.daemon.preload_memory_package  # noqa: F401
    from agent.config.base import Section

    for model in (Section, *below(Section)):
        model.model_rebuild()  # `defer_build` would do it in each run
    gc.collect()
    gc.freeze()
    setproctitle.getproctitle()  # locates the title in memory, beside the environment that a run replaces
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # no process waits for a keeper
    while True:
        data, descriptors, _, _ = socket.recv_fds(orders, LONGEST, 3)
        if not data:
            return
        if not os.fork():
            orders.close()
            keep(json.loads(data), *descriptors)
        for one in descriptors:
            os.close(one)


def below(kind):
    """All classes that are derived from this one."""
    for one in kind.__subclasses__():
        yield one
        yield from below(one)


def keep(order, stdout, stderr, status):
    """Start the run and report its pid, later its exit code, negative for a signal."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    pid = os.fork()
    if not pid:
        os.close(status)
        become(order, stdout, stderr)
    os.close(stdout)
    os.close(stderr)
    os.write(status, b"%d\n" % pid)
    with suppress(BrokenPipeError):
        os.write(status, b"%d\n" % os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    os._exit(0)


def become(order, stdout, stderr):
    """Run the order in this process as a fresh Python process would."""
    code = 70
    try:
        if order["host"]:
            take_host_name(order["host"])
        os.dup2(stdout, 1)
        os.dup2(stderr, 2)
        os.closerange(3, 1 << 16)
        for number in (signal.SIGTERM, signal.SIGQUIT, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.chdir(order["cwd"])
        os.environ.clear()
        os.environ.update(order["env"])
        time.tzset()
        sys.path[1:1] = filter(None, order["env"].get("PYTHONPATH", "").split(os.pathsep))
        sys.argv = [str(ROOT / "main.py"), *order["args"]]
        sys.stdout, sys.stderr = (
            io.TextIOWrapper(
                io.BufferedWriter(io.FileIO(n, "w", closefd=False)),
                encoding="utf-8",
                errors=errors,
                line_buffering=n == 2,
            )
            for n, errors in ((1, "strict"), (2, "backslashreplace"))
        )
        sys.__stdout__, sys.__stderr__ = sys.stdout, sys.stderr
        if order["args"][:1] in (["run"], ["demo"]):
            hatch_later()
        from agent.cli.main import main

        code = main(order["args"])
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        with suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def take_host_name(name):
    """Give this process, and those that it will start, a host name of their own."""
    clone_newuts = 0x04000000
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(clone_newuts):
        raise OSError(ctypes.get_errno(), "unshare")
    socket.sethostname(name)


def hatch_later():
    """Make the first fork server of this process a fork of its current, unused state: a child that waits until
    `multiprocessing` starts a fork server.  Later fork servers start as usual."""
    from multiprocessing import resource_tracker, util

    # The program makes nothing that the tracker would remove, and Python starts it as a program.
    tracker = resource_tracker._resource_tracker
    tracker._fd, tracker._check_alive = os.open(os.devnull, os.O_WRONLY), lambda: True
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    pid = os.fork()
    if not pid:
        ours.close()
        be_fork_server(its)
    its.close()
    begin = util.spawnv_passfds
    waits = [pid]

    def spawn(path, args, descriptors):
        if not waits or "multiprocessing.forkserver" not in str(args[-1]):
            return begin(path, args, descriptors)
        numbers = [int(one) for one in descriptors]
        socket.send_fds(ours, [json.dumps({"code": args[-1], "numbers": numbers}).encode()], numbers)
        ours.close()
        return waits.pop()

    util.spawnv_passfds = spawn


def be_fork_server(orders):
    data, descriptors, _, _ = socket.recv_fds(orders, LONGEST, 16)
    if not data:
        os._exit(0)  # no fork server was needed
    orders.close()
    order = json.loads(data)
    away = [os.dup(one) for one in descriptors]  # new numbers, so that none collides with a daemon's descriptor
    while set(away) & {*order["numbers"], *descriptors}:
        away = [os.dup(one) for one in away]
    for one, number in zip(away, order["numbers"], strict=True):
        os.dup2(one, number)
    for one in {*away, *descriptors} - {*order["numbers"]}:
        os.close(one)
    try:
        exec(order["code"], {"__name__": "__main__"})
    finally:
        os._exit(0)


if __name__ == "__main__":
    sys.path[0] = str(ROOT)
    serve(socket.socket(fileno=int(sys.argv[1])))
