"""Defines the section `security`: how the program treats texts that look like an attack."""

from __future__ import annotations

from pydantic import Field

from agent.config.base import Section


class Security(Section):
    """The keys for texts from outside that look like an attack."""

    block: bool = Field(
        default=False,
        description="Start no task on an issue with a text that matches a rule of high risk (docs/security.md, Rules), "
        "and keep later comments of that kind from the model. Off: matches are only counted, since such "
        "words may be legitimate.",
    )
