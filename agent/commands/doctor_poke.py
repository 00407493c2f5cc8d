"""Checks the endpoint of webhooks for `doctor`: whether the daemon answers at `poke.listen`."""

from __future__ import annotations

import http.client
from contextlib import closing
from typing import TYPE_CHECKING

from agent import durable_files
from agent.config.webhook_endpoint import parse_listen
from agent.daemon.program_version import lock_of
from agent.daemon.webhooks import PATH

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agent.config import Settings
    from agent.store.configured_ledger import Finding

SECONDS = 5.0


def findings(settings: Settings) -> Iterator[Finding]:
    """Yields (ok, observation, advice) about the endpoint for webhooks, `ok` False for a fault; yields nothing if no
    endpoint is configured."""
    if settings.poke.listen is None:
        return
    address, port = parse_listen(settings.poke.listen)
    where = f"http://{settings.poke.listen}{PATH}"
    if not durable_files.is_locked(lock_of(settings)):
        yield True, f"webhooks are answered at {where} while the daemon runs; none runs now", ""
        return
    try:
        with closing(http.client.HTTPConnection(address, port, timeout=SECONDS)) as connection:
            connection.request("GET", PATH)
            status = connection.getresponse().status
    except (OSError, http.client.HTTPException) as error:
        said = f"the daemon runs, and {where} does not answer: {error}"
        yield False, said, "restart the daemon, so that it reads poke.listen; its log says why a port cannot be opened"
        return
    if status == http.client.METHOD_NOT_ALLOWED:
        yield True, f"webhooks are answered at {where}", ""
    else:
        yield (
            False,
            f"{where} answers GET with {status}: another program has the port",
            "set poke.listen to a free port, and restart the daemon",
        )
