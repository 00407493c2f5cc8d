"""The entry points of processes with low priority for CPU and disk: one extracts the memories of a task, one indexes a
repository's history, one applies the shared log to memory.db.

The daemon forks such a process (`daemon/extraction_runner.py`); `solve` starts one for its task and does not wait for
its end. SIGTERM ends the process: an extraction is then due again at once, and the try does not count; the index of a
history keeps the commits that were read before the signal.
"""

from __future__ import annotations

import ctypes
import os
import pickle
import platform
import signal
import subprocess
import sys
from contextlib import closing, contextmanager, suppress
from typing import TYPE_CHECKING, Any

from agent import clock, durable_files, proc
from agent.errors import MakimonoError
from agent.extraction import job
from agent.extraction.fact_check import FactCheck
from agent.extraction.task_extraction import has_branch
from agent.memory.namespaces import actor_name
from agent.observe import log
from agent.observe.events import Events
from agent.wiring.memory import CONFIDENTIAL, open_memory
from agent.wiring.wiring import Wiring

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from multiprocessing.connection import Connection

    from agent.config import Settings
    from agent.memory.index_requests import IndexRequest
    from agent.values import Listener

TITLE = "makimono memory"
NICE = 19
_IOPRIO_SET = {"x86_64": 251, "aarch64": 30, "riscv64": 30}
_OF_PROCESS, _IDLE = 1, 3 << 13
"""IOPRIO_WHO_PROCESS, and the value of the class IOPRIO_CLASS_IDLE (ioprio_set(2))."""

_CHILD = "import sys; sys.path[:] = sys.argv[2:]; from agent.extraction.process import detached; detached(sys.argv[1])"


def main(settings: Settings, uuid: str, report: Connection | None = None) -> None:
    """Entry point of the forked process that extracts the memories of a task. The process sends every event to `report`
    as (name, fields). The exit code is 0 even if the job failed; if the ledger or the disk failed, it is the exit code
    of that error."""
    with suppress(PermissionError):  # `setsid` fails if the process leads a session already
        os.setsid()
    log.lose_what_stderr_refuses()
    sys.exit(_run_extraction(settings, uuid, _listener_for(report)))


def index(settings: Settings, request: IndexRequest, report: Connection | None = None) -> None:
    """Entry point of the forked process that indexes the history of a repository; events go to `report`."""
    with _in_background(f"history of {request.actor}", report) as events:
        _index(settings, request, events)


def _index(settings: Settings, request: IndexRequest, events: Events) -> None:
    mirror = settings.base_dir / request.mirror
    begun = clock.monotonic()
    if not has_branch(mirror, request.branch):
        return
    with closing(open_memory(settings, f"history of {request.actor}")) as store:
        commits = store.index_commits(mirror, request.actor, branch=request.branch)
        check = FactCheck(store, mirror, request.branch)
        ended = sum(check.run(one) for one in (request.actor, actor_name(request.actor, CONFIDENTIAL)))
    seconds = round(clock.monotonic() - begun, 3)
    events.emit("history_indexed", actor=request.actor, commits=commits, ended=ended, seconds=seconds)


def follow(settings: Settings, _: str, report: Connection | None = None) -> None:
    """Entry point of the forked process that applies the log that hosts share to memory.db; events go to `report`."""
    with _in_background("follow", report) as events, closing(open_memory(settings, "follow")) as store:
        job.follow(store, events)
        store.fill_vectors()


@contextmanager
def _in_background(title: str, report: Connection | None) -> Iterator[Events]:
    """Give this forked process a low priority and let SIGTERM end it; yields an `Events` that sends each event to
    `report`.

    An error of this program becomes the event `memory_unavailable`."""
    with suppress(PermissionError):  # `setsid` fails if this process leads a session already
        os.setsid()
    log.lose_what_stderr_refuses()
    _prepare(title)
    events = Events([_listener_for(report)])
    try:
        yield events
    except job.Stopped:
        return
    except MakimonoError as error:
        events.emit("memory_unavailable", uuid="", error=str(error))


def _prepare(title: str) -> None:
    """Set the title, the priority and the signal handlers of this process. The caller handles `job.Stopped`, which
    SIGTERM raises from now on."""
    proc.title(f"{TITLE}: {title}")
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    give_way()
    signal.signal(signal.SIGTERM, _stop)


def start_beside(settings: Settings, uuid: str) -> None:
    """Start a process for the job of a task, and do not wait for it.  Raises OSError when the process cannot be
    started."""
    child = subprocess.Popen(
        [sys.executable, "-I", "-c", _CHILD, uuid, *sys.path],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd=settings.base_dir,
        start_new_session=True,
    )
    assert child.stdin is not None
    with suppress(BrokenPipeError), child.stdin as pipe:
        pipe.write(pickle.dumps(settings))
    child.returncode = 0  # no code waits for this process: suppresses the warning that it still runs


def detached(uuid: str) -> None:
    """Entry point of the process that `start_beside` starts. The process reads the settings from stdin, because they
    have secrets and the arguments of a process are public."""
    settings: Settings = pickle.loads(sys.stdin.buffer.read())  # noqa: S301 - `start_beside` wrote the settings to stdin
    _run_extraction(settings, uuid, lambda _name, _fields: None)


def _run_extraction(settings: Settings, uuid: str, listener: Listener) -> int:
    try:
        _prepare(uuid)
        with closing(Wiring(settings, events=Events([listener]))) as wiring:
            try:
                job.run(wiring, uuid)
            except MakimonoError as error:
                wiring.events.emit("memory_unavailable", uuid=uuid, error=str(error))
                return error.exit_code
    except job.Stopped:
        pass
    return 0


def _stop(*_: object) -> None:
    raise job.Stopped


def give_way() -> None:
    """Lower the priority of this process for CPU and disk to the lowest that the system allows."""
    with suppress(OSError):
        os.nice(NICE)
    number = _IOPRIO_SET.get(platform.machine())
    if number is not None and sys.platform == "linux":
        with suppress(OSError, AttributeError):
            durable_files.libc().syscall(ctypes.c_long(number), _OF_PROCESS, 0, _IDLE)


def _listener_for(report: Connection | None) -> Listener:
    def send(name: str, fields: Mapping[str, Any]) -> None:
        if report is not None and not report.closed:
            with suppress(OSError, ValueError):  # the daemon that reads the events may have ended; the job continues
                report.send((name, dict(fields)))

    return send
