"""Runs of the program that begin at once: a process that has everything imported forks one for each.

As a program (`python forks.py`) it reads one JSON object a line, forks, and answers with the pid; the child waits for
SIGUSR1, so that `strace` can be attached before its first step.  Two things can be asked for:

- `work`: one poll, one sweep, then the worker of the task that is due, in the one process that is to be killed;
- `recover`: what a fresh daemon does (`run --once`), the clock put forward by `ahead` seconds, its workers forked from
  here instead of from a forkserver of its own, which would only cost time.
"""

import ctypes
import json
import os
import signal
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

PR_SET_PTRACER = 0x59616D61
"""With -1: who is no ancestor may trace it too, where Yama forbids that to ordinary users (prctl(2))."""


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
        """The pid of a child that waits for SIGUSR1."""
        self._say({"what": what, "config": str(config), **more})
        return int(self.process.stdout.readline())

    def end(self):
        """Wait for it; its exit code, negative for a signal."""
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
    """Mixed into the clock: everything is later than it is."""

    ahead = timedelta()

    def now(self):
        return super().now() + self.ahead

    def stamp(self):
        from agent import clock

        return clock.written(self.now())


def later(seconds):
    from agent import clock

    return type("Later", (Ahead, clock.Clock), {"ahead": timedelta(seconds=seconds)})()


def work(config, ahead=0.0, **_):
    from agent import clock
    from agent.config import load
    from agent.observe.events import Events
    from agent.run import worker
    from agent.run.producer import fetch_and_enqueue_tasks
    from agent.run.supervisor import Supervisor
    from agent.run.wiring import Wiring

    settings = load(config)
    with clock.use(later(ahead)):
        wiring = Wiring(settings, events=Events([]))
        fetch_and_enqueue_tasks(settings, wiring.ledger, wiring.forges, wiring.events)
        Supervisor(wiring).sweep()
        due = wiring.ledger.due(1)
        wiring.close()
        if due:
            worker.main(settings, due[0])


def recover(config, ahead=0.0, **_):
    from agent import clock
    from agent.config import load
    from agent.observe.events import Events
    from agent.run.daemon import Daemon

    with clock.use(later(ahead)):
        sys.exit(Daemon(load(config), Events([])).run(once=True))


def fork_instead():
    """`multiprocessing.get_context("forkserver")` of this process forks: it is itself what a forkserver is for."""
    import multiprocessing

    context = multiprocessing.get_context("fork")
    context.set_forkserver_preload = lambda names: None
    multiprocessing.get_context = lambda method=None: context


def serve():
    import agent.run.daemon
    import agent.run.preload  # noqa: F401

    fork_instead()
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    for line in sys.stdin:
        order = json.loads(line)
        pid = os.fork()
        if not pid:
            child(order)
        print(pid, flush=True)
        sys.stdin.readline()  # "tell me how it ended"
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
