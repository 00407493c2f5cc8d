"""Defines the section `observe`: where traces of tasks are sent.

`observe_section.py` only defines keys of config.yaml, as `sections.py` does.
"""

from __future__ import annotations

from urllib.parse import urlsplit

from pydantic import Field, model_validator

from agent.config.base import Section
from agent.config.value_kinds import Url  # noqa: TC001 - pydantic needs this import at run time


class Observe(Section):
    """The configuration of traces of tasks."""

    otlp: Url | None = Field(
        default=None,
        description="Address of an OTLP/HTTP endpoint, such as http://127.0.0.1:4318, to which each task sends its "
        "trace: a span a turn, a tool call and a request, without texts; empty: no traces. Headers come from the "
        "variable OTEL_EXPORTER_OTLP_HEADERS.",
    )

    @model_validator(mode="after")
    def _no_login(self) -> Observe:
        if self.otlp is not None:
            parts = urlsplit(self.otlp)
            if parts.username is not None or parts.password is not None or parts.query:
                raise ValueError(
                    "otlp has a login or a query; set the header that the endpoint needs by the variable "
                    "OTEL_EXPORTER_OTLP_HEADERS (`Authorization=Bearer …`)"
                )
        return self
