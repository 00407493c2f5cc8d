"""Runs of the program that begin at once: a process that has everything imported forks one for each.

As a program (`python forks.py`) it reads one JSON object a line, forks, and answers with the pid.  The child waits for
SIGUSR1, so that `strace` can be attached before its first step.  There are two kinds of runs:

- `work`: one poll, one sweep, then the worker of the due task, in the one process that is to be killed;
- `recover`: the work of a fresh daemon (`run --once`), with the clock put forward by `ahead` seconds.  Its workers are
  forked from here, because a forkserver of its own would only cost time.
"""

import ctypes
import json
import os
import signal
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

MEMORY_SECONDS = 60.0
"""Maximum seconds that a task of these tests waits for its memories."""
PR_SET_PTRACER = 0x59616D61
"""With -1, a process that is no ancestor may trace it too, where Yama forbids that to ordinary users (prctl(2))."""


class Forks:
    """The process, and one run of it at a time."""

    def __init__(self):
        kept = ("PATH", "LANG", "TZ", "TMPDIR", "PYTHONPATH")
        environment = {k: v for k, v in os.environ.items() if k in kept}
        self.process = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**environment, "HOME": "/nonexistent"},
        )

    def start(self, what, config, **more):
        """Start a child that waits for SIGUSR1; returns its pid."""
        self._say({"what": what, "config": str(config), **more})
        return int(self.process.stdout.readline())

    def end(self):
        """Wait for its end; returns the exit code, negative for a signal."""
        self._say({})
        return int(self.process.stdout.readline())

    def run(self, what, config, **more):
        pid = self.start(what, config, **more)
        os.kill(pid, signal.SIGUSR1)
        return self.end()

    def close(self):
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait()

    def _say(self, record):
        self.process.stdin.write(json.dumps(record) + "\n")
        self.process.stdin.flush()


class Ahead:
    """Mixed into the clock: adds seconds to the time."""

    ahead = timedelta()

    def now(self):
        return super().now() + self.ahead

    def stamp(self):
        from agent import clock

        return clock.format_stamp(self.now())


def later(seconds):
    from agent import clock

    return type("Later", (Ahead, clock.Clock), {"ahead": timedelta(seconds=seconds)})()


def work(config, ahead=0.0, **_):
    from agent import clock
    from agent.config import load
    from agent.daemon.supervisor import Supervisor
    from agent.intake.poller import fetch_and_enqueue_tasks
    from agent.observe.events import Events
    from agent.wiring.wiring import Wiring
    from agent.worker import worker

    settings = load(config)
    with clock.use(later(ahead)):
        wiring = Wiring(settings, events=Events([]))
        fetch_and_enqueue_tasks(settings, wiring.ledger, wiring.forges, wiring.events)
        Supervisor(wiring).dead_rows.requeue()
        due = wiring.ledger.due(1)
        wiring.close()
        if due:
            worker.main(settings, due[0])


def recover(config, ahead=0.0, **_):
    from agent import clock
    from agent.config import load
    from agent.daemon.daemon import Daemon
    from agent.observe.events import Events

    with clock.use(later(ahead)):
        sys.exit(Daemon(load(config), Events([])).run(once=True))


def fork_instead():
    """Let `multiprocessing.get_context("forkserver")` of this process fork directly: it serves as the forkserver
    itself."""
    import multiprocessing

    context = multiprocessing.get_context("fork")
    context.set_forkserver_preload = lambda names: None
    multiprocessing.get_context = lambda method=None: context


def wait_for_memory():
    """Let a task wait for its memories as long as it takes: under `strace` on a busy machine they may need more than the
    second that a task has for them, and the test then saw a task without memories."""
    from agent.window.recall_layers import recall_memories
    from agent.worker import long_term_memory

    recall_memories.__kwdefaults__["own_patience"] = long_term_memory.OWN_PATIENCE = MEMORY_SECONDS


def serve():

    fork_instead()
    wait_for_memory()
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    for line in sys.stdin:
        order = json.loads(line)
        pid = os.fork()
        if not pid:
            child(order)
        print(pid, flush=True)
        sys.stdin.readline()  # the request for the exit code
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)


def child(order):
    code = 70
    try:
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(2, 1)
        ctypes.CDLL(None).prctl(PR_SET_PTRACER, ctypes.c_ulong(-1), 0, 0, 0)
        signal.sigwait({signal.SIGUSR1})
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGUSR1})
        what = order.pop("what")
        {"work": work, "recover": recover}[what](Path(order.pop("config")), **order)
        code = 0
    except SystemExit as end:
        code = end.code or 0
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        os._exit(code)


if __name__ == "__main__":
    serve()
