"""Checks the endpoint of traces for `doctor`: whether the packages are installed, and whether the endpoint accepts
spans."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.errors import ConfigError
from agent.observe.traces import require_otlp

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agent.config import Settings


def findings(settings: Settings) -> Iterator[tuple[str, str, str]]:
    """Yields the finding about traces as (state, observation, advice); yields nothing if `observe.otlp` is not set. The
    check sends an empty export to the endpoint of traces."""
    address = settings.observe.otlp
    if address is None:
        return
    try:
        require_otlp(address)
    except ConfigError as error:
        yield "fail", str(error), ""
        return
    from agent.observe.otlp import endpoint_of, probe

    if why := probe(address):
        advice = (
            "tasks run without it, and their spans are lost; start the collector, correct observe.otlp, or set the "
            "header that it needs by OTEL_EXPORTER_OTLP_HEADERS"
        )
        yield "warn", f"{endpoint_of(address)} takes no spans: {why}", advice
    else:
        yield "ok", f"{endpoint_of(address)} takes spans", ""
