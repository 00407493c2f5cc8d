"""`dashboard`: the page that shows in a browser what runs, what waits and why, and what tasks did."""

from __future__ import annotations

import os
import sys
import threading
import time
from typing import TYPE_CHECKING, Annotated

import typer

from agent.cli.app import app

if TYPE_CHECKING:
    from agent.cli.config_and_output import CliState

JOIN_SECONDS = 1.0
"""The maximum number of seconds that the end of the command waits for pages that are still being made."""


@app.command()
def dashboard(
    context: typer.Context,
    host: Annotated[
        str,
        typer.Option(
            "--host",
            metavar="ADDRESS",
            help="The address to listen on; one that other machines reach needs dashboard.token.",
        ),
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option("--port", metavar="PORT", min=0, max=65535, help="The port to listen on; 0: a free one.")
    ] = 8017,
    actions: Annotated[
        bool, typer.Option("--actions", help="Show buttons that stop, pause, resume and retry tasks.")
    ] = False,
) -> int:
    """Show in a browser what runs, what waits and why, what each task did and what it cost; until Ctrl-C."""
    from agent.dashboard.server import PageServer
    from agent.observe import log
    from agent.security.redact import masker_of

    state: CliState = context.obj
    log.setup(level="warning", json=state.json, redact=masker_of(state.settings_to_inspect))
    server = PageServer(state.settings if actions else state.settings_to_inspect, host, port, has_actions=actions)

    def ready() -> None:
        state.print_line(f"{server.address} shows {server.settings.base_dir}; Ctrl-C ends it")
        state.print_json({"address": server.address})

    server.run(ready)
    _leave_pages_that_hang()
    return 0


def _leave_pages_that_hang() -> None:
    """End the process if a thread hangs in a page, for example on a disk, since Python would wait for the thread."""
    until = time.monotonic() + JOIN_SECONDS
    for thread in threading.enumerate():
        if thread is threading.main_thread() or thread.daemon:
            continue
        thread.join(max(0.0, until - time.monotonic()))
        if thread.is_alive():
            sys.stdout.flush()
            os._exit(0)
