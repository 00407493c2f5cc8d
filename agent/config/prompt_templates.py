"""The section `prompts`: templates of people that take the place of the program's own (docs/templates.md)."""

from __future__ import annotations

from pydantic import Field

from agent.config.base import Section
from agent.config.value_kinds import Number, RootPath  # noqa: TC001 - pydantic needs these names at run time


class Prompts(Section):
    """Where the templates of people are."""

    folder: RootPath | None = Field(
        default=None,
        description="Folder of templates that take the place of the program's own of the same name; empty: none. Only "
        "this user and root may be able to write it.",
    )
    ttl_seconds: Number = Field(
        default=300,
        gt=0,
        description="Seconds after which a template counts as old for `reload` with the mode ttl, unless it has "
        "`ttl_seconds` of its own.",
    )
