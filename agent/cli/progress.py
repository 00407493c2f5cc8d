"""What a person sees while tasks run: a spinner and a line per event on a terminal, plain lines in a pipe."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from agent.observe import log
from agent.observe.events import Events, to_log
from agent.security.redact import Redactor

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from agent.cli.state import State


@contextmanager
def listening(state: State) -> Iterator[Events]:
    """Events of this process, shown for `state`: log lines on stderr, and on a terminal a live status line."""
    log.setup(level="info", json=state.json, redact=Redactor(state.settings.secrets()))
    events = Events([to_log])
    if not state.terminal:
        yield events
        return
    from rich.console import Console

    console = Console(stderr=True)
    with console.status("starting …") as status:

        def show(name: str, fields: Mapping[str, Any]) -> None:
            status.update(f"{name.replace('_', ' ')} {fields.get('uuid', fields.get('tool', ''))}")

        events.on(show)
        yield events
