"""Defines the section `dashboard`: who may open the page, under which host names, and the pages of other hosts.

`dashboard_section.py` only defines keys of config.yaml, as `sections.py` does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field, field_validator, model_validator

from agent.config.base import Section
from agent.config.encrypted_address import encrypted_or_here
from agent.config.value_kinds import Secret, Text, Url  # noqa: TC001 - pydantic needs these names at run time

if TYPE_CHECKING:
    from pydantic import SecretStr

LEAST_TOKEN = 16
"""Minimum length of the dashboard's token: a shorter token could be found by trial."""


class Dashboard(Section):
    """The keys for the page of the command `dashboard`."""

    token: Secret | None = Field(
        default=None,
        description="Token that the page asks for, 16 characters or more, best as ${NAME}; empty: none, and the page "
        "is for this machine only.",
    )
    hosts: tuple[Text, ...] = Field(
        default=(),
        description="Host names by which people open the page, such as `agent.example.org` behind a proxy; a request "
        "for any other name is refused.",
    )
    peers: dict[Text, Url] = Field(
        default={},
        description="Pages of other hosts with the same ledger and the same token, as `{hostname: address}`. "
        "Conversations on those hosts are read from these pages.",
    )

    @field_validator("peers")
    @classmethod
    def _encrypted(cls, value: dict[str, str]) -> dict[str, str]:
        for address in value.values():
            encrypted_or_here(address, "the token is sent as a header")
        return value

    @model_validator(mode="after")
    def _token_is_long(self) -> Dashboard:
        if self.token is not None and is_short(self.token):
            raise ValueError(f"token has fewer than {LEAST_TOKEN} characters")
        if self.peers and self.token is None:
            raise ValueError("peers needs token, which the other hosts ask for")
        return self


def is_short(token: SecretStr) -> bool:
    """Whether the dashboard's token is shorter than LEAST_TOKEN."""
    return len(token.get_secret_value()) < LEAST_TOKEN
