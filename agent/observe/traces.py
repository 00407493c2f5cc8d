"""Sends the trace of a task to an OTLP/HTTP endpoint when `observe.otlp` is set; otherwise no OpenTelemetry package is
imported.

`traced` is a context manager around one attempt of a task, and `require_otlp` checks at the start of the program that
the packages of OpenTelemetry are installed (the extra `otlp`). The module `otlp.py` makes the spans.
"""

from __future__ import annotations

import sys
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING

from agent.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agent.observe.events import Events

PACKAGES = {
    "opentelemetry.sdk": "opentelemetry-sdk",
    "opentelemetry.exporter.otlp.proto.http": "opentelemetry-exporter-otlp-proto-http",
}
"""Name of a module of OpenTelemetry → the package that contains it."""


def require_otlp(address: str | None) -> None:
    """Raise ConfigError when `observe.otlp` is set and a package that it needs is not installed, with the command that
    installs it into the environment of this program. `require_otlp` imports no package; it only checks whether the
    packages are installed."""
    if address is None:
        return
    if missing := [package for module, package in PACKAGES.items() if not _is_there(module)]:
        todo = f"{sys.executable} -m pip install {' '.join(missing)}"
        raise ConfigError(
            f"observe.otlp: {address} needs {' and '.join(missing)}, not installed in the environment of this program: "
            f"call `{todo}` on each host, or leave the key out"
        )


def _is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # the parent package of the module is missing
        return False


@contextmanager
def traced(address: str | None, uuid: str, attempt: int, events: Events) -> Iterator[None]:
    """A context manager that sends a trace of what happens inside it to the endpoint `address`; it does nothing if
    `address` is None.

    `uuid` is the uuid of the task, `attempt` the number of its attempt. A failure of the endpoint does not affect the
    task: spans are dropped, and an event announces this once. The exit of the context manager takes at most
    `otlp.END_SECONDS`.
    """
    if address is None:
        yield
        return
    from agent.observe.otlp import TaskTrace

    trace = TaskTrace(address, uuid, attempt, events)
    events.on(trace)
    try:
        yield
    finally:
        events.off(trace)
        trace.close()
