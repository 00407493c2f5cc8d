"""Runs some jobs of the dashboard, each in a process of its own, since the job needs much memory or time, or writes:
the preview of a request, the checks of this machine, and the stop, pause, resume or retry of a task.

The helper process gets the settings through its standard input, as a worker gets them from the daemon, and writes one
JSON object to its standard output; its log goes to the stderr of the command `dashboard`. `run` ends the helper process
when it takes too long.
"""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import tempfile
from contextlib import closing, suppress
from dataclasses import asdict
from pathlib import Path
from threading import BoundedSemaphore
from typing import TYPE_CHECKING, Any

import orjson

from agent import durable_files
from agent.dashboard.conversation import word_end
from agent.errors import DiskError, HostError, MakimonoError, UsageError
from agent.installed_files import TOP
from agent.observe import log
from agent.security.redact import masker_of

if TYPE_CHECKING:
    from agent.config import Settings
    from agent.values import Json

MOST = 2
"""The maximum number of helper processes at a time."""
SECONDS = 40.0
WAIT_SECONDS = 5.0
LONGEST_REQUEST = 1 << 20
"""The maximum number of characters of a model request that the page shows."""

_CHILD = "import sys; sys.path[:] = sys.argv[1:]; from agent.dashboard.helper_process import main; main()"
_free = BoundedSemaphore(MOST)


def run(settings: Settings, job: str, *arguments: Any, seconds: float = SECONDS) -> Json:
    """Run a job, named by its key in JOBS, in a helper process, and return its result.

    Raises UsageError if the job raised one, for example because the task's state does not allow a stop, pause, resume
    or retry; HostError when the job fails otherwise or takes longer than `seconds`, or when MOST helper processes run
    and none of them ends within WAIT_SECONDS.
    """
    if not _free.acquire(timeout=WAIT_SECONDS):
        raise HostError(f"{MOST} other pages are being made that need a process of their own; try again in a moment")
    try:
        return _result(settings, job, arguments, seconds)
    finally:
        _free.release()


def _result(settings: Settings, job: str, arguments: tuple[Any, ...], seconds: float) -> Json:
    command = [sys.executable, "-c", _CHILD, *(path for path in (str(TOP.parent), *sys.path) if path)]
    given = pickle.dumps((settings, job, arguments))
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True) as child:
        try:
            output, _ = child.communicate(given, timeout=seconds)
        except subprocess.TimeoutExpired as error:
            raise HostError(f"it takes longer than {seconds:.0f} s; the command line shows it too") from error
        finally:
            with suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
    try:
        found = orjson.loads(output)
    except orjson.JSONDecodeError as error:
        raise HostError(f"the process for it ended with {child.returncode} and said nothing") from error
    if "error" in found:
        kind = UsageError if found.get("code") == UsageError.code else HostError
        raise kind(str(found["error"]))
    result: Json = found["result"]
    return result


def main() -> None:
    """Entry point of the helper process."""
    # the alarm ends this process even if the command `dashboard`, which would end it, is gone
    signal.alarm(int(SECONDS + WAIT_SECONDS))
    settings, job, arguments = pickle.load(sys.stdin.buffer)  # noqa: S301 - unpickling is safe: this program wrote the data, through a pipe
    output = os.dup(1)
    os.dup2(2, 1)  # output that a library prints must not become part of the result
    log.setup(level="info" if job == "order" else "warning", redact=masker_of(settings))
    with suppress(DiskError):
        durable_files.temporary(settings.base_dir / "tmp")
    try:
        found: Json = {"result": JOBS[job](settings, *arguments)}
    except (MakimonoError, OSError) as error:
        found = {"error": str(error), "code": getattr(error, "code", "host")}
    with os.fdopen(output, "wb") as out:
        out.write(orjson.dumps(found, default=str))


def _preview(settings: Settings, uuid: str) -> Json:
    """The request that would be sent to the model next, cut after about LONGEST_REQUEST characters, and why it has its
    parts. The request is None if it has more than 4 * LONGEST_REQUEST bytes, or if none can be made."""
    from agent.commands.request_preview import preview, request_of
    from agent.wiring.wiring import Wiring

    with tempfile.TemporaryDirectory(prefix="makimono-request-") as place, closing(Wiring(settings)) as wiring:
        found = preview(wiring, uuid, Path(place))
        body = None
        if found.path is not None and found.path.stat().st_size <= 4 * LONGEST_REQUEST:
            body = orjson.dumps(request_of(found.path), option=orjson.OPT_INDENT_2).decode()
        why = orjson.loads(orjson.dumps({**found.to_json(), "messages": found.messages}, default=str))
    if body is not None and len(body) > LONGEST_REQUEST:
        end = word_end(body, LONGEST_REQUEST)
        body = f"{body[:end]}\n… {len(body) - end:,} characters more"
    return {"why": why, "request": body, "damage": []}


def _doctor(settings: Settings) -> Json:
    """The findings of those checks of this machine that contact no server."""
    from agent.commands.doctor import examine_locally

    return {"checks": [asdict(one) for one in examine_locally(settings)]}


def _order(settings: Settings, uuid: str, word: str, who: str) -> Json:
    """Stop, pause, resume or retry a task."""
    from agent.commands.task_control import give_order, retry_by_prefix
    from agent.wiring.wiring import Wiring

    with closing(Wiring(settings)) as wiring:
        if word == "retry":
            made = retry_by_prefix(wiring, uuid, who=who)
            return {"uuid": made.uuid, "status": "queued"}
        if word not in ("stop", "pause", "resume"):
            raise UsageError(f"{word!r} is no order")
        uuid, status = give_order(wiring, uuid, word, who)  # type: ignore[arg-type]  # checked above
        return {"uuid": uuid, "status": str(status)}


JOBS: dict[str, Any] = {"preview": _preview, "doctor": _doctor, "order": _order}
