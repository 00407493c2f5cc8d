"""What a person sees while tasks run: log lines on stderr, and on a terminal a live line below them.

Log lines are the daemon's own events and, of its workers' events, those that a person waits for: how each task began
and ended, and every warning.  The whole is in the `worker.log` of each task.
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
from agent.security.redact import Redactor
from agent.values import Status

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from agent.cli.state import State
    from agent.config import Settings

TOLD = ("task_started", "task_paused", "task_requeued", "task_ended")
OF_THE_LINE = ("timestamp", "level", "logger", "message", "exception")
"""Fields that a worker's line has for itself; ours gets its own."""

COUNT_SECONDS = 1.0


@contextmanager
def listening(state: State) -> Iterator[tuple[Events, Events]]:
    """(events of this process, events of its workers), shown for `state`."""
    log.lose_what_stderr_refuses()
    log.setup(level="info", json=state.json, redact=Redactor(state.settings.secrets()))
    events, heard = Events([to_log]), Events([worker_to_log])
    if not state.watched:
        yield events, heard
        return
    with live(state, events, heard):
        yield events, heard


def worker_to_log(name: str, fields: Mapping[str, Any]) -> None:
    """The listener that logs what a person waits for of a worker."""
    if name in TOLD or LEVELS.get(name) in ("warning", "error"):
        to_log(name, {key: value for key, value in fields.items() if key not in OF_THE_LINE})


@contextmanager
def measured(port: int | None, settings: Settings, *announcers: Events) -> Iterator[None]:
    """Metrics of what is announced and the daemon's health, on a port of this machine; nothing without a port."""
    if port is None:
        yield
        return
    from agent.observe.metrics import Metrics
    from agent.run.gauges import snapshot
    from agent.run.health import look

    def health() -> tuple[bool, bool, tuple[str, ...]]:
        found = look(settings)
        return found.live, found.ready, found.why

    metrics = Metrics(lambda: snapshot(settings))
    log.get("metrics").info("metrics", port=metrics.serve(port, health=health))
    for events in announcers:
        events.on(metrics)
    try:
        yield
    finally:
        metrics.close()


class Board:
    """What the live line says: how many tasks run and wait, how many ended since it began, what happens just now.

    `running`, `queued` and `paused` are set by who counts the rows; everything else is heard.
    """

    def __init__(self) -> None:
        self.counts: Mapping[Status, int] = {}
        self.ended: dict[str, int] = {}
        self.now = ""

    def hear(self, name: str, fields: Mapping[str, Any]) -> None:
        """Take in one event of a worker."""
        uuid = str(fields.get("uuid", ""))[:8]
        if name == "task_ended":
            status = str(fields.get("status"))
            self.ended[status] = self.ended.get(status, 0) + 1
        elif name == "tool_finished":
            self.now = f"{uuid} {fields.get('tool')}: {fields.get('status')}"
        elif name in ("request_sent", "setup_started", "verify_started", "model_wait", "compaction"):
            self.now = f"{uuid} {name.replace('_', ' ')}"

    def text(self) -> str:
        """The line."""
        shown = [f"{self.counts.get(status, 0)} {status}" for status in (Status.RUNNING, Status.QUEUED)]
        if paused := self.counts.get(Status.PAUSED):
            shown.append(f"{paused} {Status.PAUSED}")
        ended = [f"{count} {status}" for status, count in sorted(self.ended.items())]
        return " · ".join(part for part in (", ".join(shown), ", ".join(ended), tables.cell(self.now)) if part)


@contextmanager
def live(state: State, events: Events, heard: Events) -> Iterator[None]:
    """A line at the bottom of the terminal, kept up to date by a thread that counts the rows."""
    from rich.text import Text

    board, over = Board(), threading.Event()
    with tables.console(sys.stderr).status(Text("starting …")) as status:

        def redraw() -> None:
            status.update(Text(board.text(), no_wrap=True, overflow="ellipsis"))

        def hear(name: str, fields: Mapping[str, Any]) -> None:
            board.hear(name, fields)
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


def _count(state: State, board: Board, redraw: Any, over: threading.Event) -> None:
    """Count rows until it is over, with a connection of its own; what cannot be counted just now is next time."""
    from agent.run.wiring import Wiring

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
