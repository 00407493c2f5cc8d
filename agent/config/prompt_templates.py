"""Defines the section `prompts`: templates of people that take the place of the program's own (docs/templates.md)."""

from __future__ import annotations

import re

from pydantic import Field, field_validator, model_validator

from agent.config.base import Section
from agent.config.encrypted_address import encrypted_or_here
from agent.config.value_kinds import Number, RootPath, Text, Url  # noqa: TC001 - pydantic needs these names at run time


class Prompts(Section):
    """The keys for people's own templates, which come from a folder or an address."""

    folder: RootPath | None = Field(
        default=None,
        description="Folder of templates that take the place of the program's own of the same name; empty: none. Only "
        "this user and root may be able to write it.",
    )
    url: Url | None = Field(
        default=None,
        description="Address of a set of templates, in place of `folder`: https, or http on this machine; empty: none.",
    )
    sha256: Text | None = Field(
        default=None, description="SHA-256 in hex of the document at `url`; another one is refused."
    )
    allow_unpinned: bool = Field(
        default=False,
        description="Accept any document at `url`, without `sha256`. The server of that address then "
        "decides every text to models and people.",
    )
    ttl_seconds: Number = Field(
        default=300,
        gt=0,
        description="Seconds after which a template counts as old for `reload` with the mode ttl, unless it has "
        "`ttl_seconds` of its own; and between two downloads of `url`.",
    )

    @field_validator("url")
    @classmethod
    def _encrypted_or_here(cls, value: str | None) -> str | None:
        return encrypted_or_here(value, "serve the templates without a login")

    @field_validator("sha256")
    @classmethod
    def _hexadecimal(cls, value: str | None) -> str | None:
        if value is not None and not re.fullmatch(r"[0-9a-f]{64}", value):
            raise ValueError("is no SHA-256: 64 digits 0-9 and a-f, as `sha256sum` prints them")
        return value

    @model_validator(mode="after")
    def _one_source_that_is_pinned(self) -> Prompts:
        if self.url is not None and self.folder is not None:
            raise ValueError("has both `folder` and `url`; keep one")
        if self.url is not None and self.sha256 is None and not self.allow_unpinned:
            raise ValueError("has `url` without `sha256`; set it, or `allow_unpinned: true`")
        return self

    @property
    def is_set(self) -> bool:
        """Whether the configuration names a folder or an address with templates that people wrote."""
        return self.folder is not None or self.url is not None
