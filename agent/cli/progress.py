"""Displays progress while tasks run: log lines on stderr, and on a terminal a live line below them.

The log lines are the daemon's own events and the important events of its workers: start, pause, requeue and end of each
task, every warning and every error.  The file `worker.log` of each task has all events of the task's workers.
"""

from __future__ import annotations

import sys
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from agent.cli import tables
from agent.errors import MakimonoError
from agent.observe import log
from agent.observe.events import LEVELS, Events, to_log
from agent.security.redact import masker_of
from agent.values import Status

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from agent.cli.config_and_output import CliState
    from agent.config import Settings

TOLD = ("task_started", "task_paused", "task_requeued", "task_ended")
OF_THE_LINE = ("timestamp", "level", "logger", "message", "exception")
"""Fields of a worker's log line that the daemon does not copy, since the daemon's log line has these fields itself."""

COUNT_SECONDS = 1.0


@contextmanager
def event_sources(state: CliState) -> Iterator[tuple[Events, Events]]:
    """(event source of this process, event source of its workers); with `--json` the log lines of both are JSON."""
    log.lose_what_stderr_refuses()
    log.setup(level="info", json=state.json, redact=masker_of(state.settings))
    events, heard = Events([to_log]), Events([worker_to_log])
    if not state.is_stderr_terminal:
        yield events, heard
        return
    with live_line(state, events, heard):
        yield events, heard


def worker_to_log(name: str, fields: Mapping[str, Any]) -> None:
    """Log an event of a worker if it is important: the start, pause, requeue or end of a task, a warning or an
    error."""
    if name in TOLD or LEVELS.get(name) in ("warning", "error"):
        to_log(name, {key: value for key, value in fields.items() if key not in OF_THE_LINE})


@contextmanager
def serve_metrics(port: int | None, settings: Settings, *announcers: Events) -> Iterator[None]:
    """Serve metrics, which are counted from the events of `announcers`, and the daemon's health on a port of 127.0.0.1;
    do nothing if `port` is None."""
    if port is None:
        yield
        return
    from agent.daemon.health import read_health
    from agent.daemon.ledger_gauges import snapshot
    from agent.observe.metrics import Metrics

    def health() -> tuple[bool, bool, tuple[str, ...]]:
        found = read_health(settings)
        return found.live, found.ready, found.why

    metrics = Metrics(lambda: snapshot(settings))
    log.get("metrics").info("metrics", port=metrics.serve(port, health=health))
    for events in announcers:
        events.on(metrics)
        events.on_failure(metrics)
    try:
        yield
    finally:
        metrics.close()


class Board:
    """The content of the live line of `run`: the numbers of running and queued tasks and of tasks that have ended since
    the start of the command, and the last activity.

    A thread that counts the rows of the ledger sets `Board.counts`; events of this process and of its workers set the
    other fields.
    """

    def __init__(self) -> None:
        self.counts: Mapping[Status, int] = {}
        self.ended: dict[str, int] = {}
        self.now = ""

    def add_event(self, name: str, fields: Mapping[str, Any]) -> None:
        """Update the live line by one event."""
        uuid = str(fields.get("uuid", ""))[:8]
        if name == "task_ended":
            status = str(fields.get("status"))
            self.ended[status] = self.ended.get(status, 0) + 1
        elif name == "tool_finished":
            self.now = f"{uuid} {fields.get('tool')}: {fields.get('status')}"
        elif name in ("request_sent", "setup_started", "verify_started", "model_wait", "compaction"):
            self.now = f"{uuid} {name.replace('_', ' ')}"

    def text(self) -> str:
        """The text of the live line."""
        shown = [f"{self.counts.get(status, 0)} {status}" for status in (Status.RUNNING, Status.QUEUED)]
        if paused := self.counts.get(Status.PAUSED):
            shown.append(f"{paused} {Status.PAUSED}")
        ended = [f"{count} {status}" for status, count in sorted(self.ended.items())]
        return " · ".join(part for part in (", ".join(shown), ", ".join(ended), tables.cell(self.now)) if part)


@contextmanager
def live_line(state: CliState, events: Events, heard: Events) -> Iterator[None]:
    """Show a live line about the tasks at the bottom of the terminal; each event, and a thread that counts the rows of
    the ledger, update the line."""
    from rich.text import Text

    board, over = Board(), threading.Event()
    with tables.console(sys.stderr).status(Text("starting …")) as status:

        def redraw() -> None:
            status.update(Text(board.text(), no_wrap=True, overflow="ellipsis"))

        def hear(name: str, fields: Mapping[str, Any]) -> None:
            board.add_event(name, fields)
            redraw()

        events.on(hear)
        heard.on(hear)
        counter = threading.Thread(target=_count, args=(state, board, redraw, over), name="counter", daemon=True)
        counter.start()
        try:
            yield
        finally:
            over.set()
            counter.join(2 * COUNT_SECONDS)


def _count(state: CliState, board: Board, redraw: Any, over: threading.Event) -> None:
    """Count the ledger's rows each second until `over` is set, with a database connection of its own; a failed count is
    skipped."""
    from agent.wiring.wiring import Wiring

    wiring = Wiring(state.settings)
    try:
        while not over.wait(COUNT_SECONDS):
            try:
                board.counts = wiring.ledger.counts()
            except MakimonoError:
                continue
            redraw()
    finally:
        wiring.close()
