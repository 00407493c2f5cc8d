"""Defines the section `poke`: the endpoint at which a webhook makes the daemon poll at once.

`webhook_endpoint.py` only defines keys of config.yaml, as `sections.py` does.
"""

from __future__ import annotations

import re
from ipaddress import ip_address
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, SecretStr, model_validator

from agent.config.base import Section
from agent.config.value_kinds import Allowed, Secret

LEAST_SECRET = 16
"""Minimum length of the secret of webhooks: a shorter secret could be found by trial from one signed request."""

_LISTEN = re.compile(r"(?:\[(?P<six>[0-9A-Fa-f:]+)\]|(?P<four>[0-9.]+)):(?P<port>[0-9]{1,5})")


def parse_listen(value: str) -> tuple[str, int]:
    """(address, port) from a text `127.0.0.1:PORT` or `[::1]:PORT`. Raises ValueError if the text has neither of these
    two forms, and for an address that other machines can reach."""
    found = _LISTEN.fullmatch(value)
    if found is None or not 1 <= int(found["port"]) <= 65535:
        raise ValueError
    address = ip_address(found["six"] or found["four"])
    if not address.is_loopback:
        raise ValueError
    return str(address), int(found["port"])


def _listen(value: Any) -> Any:
    if isinstance(value, str):
        parse_listen(value)
    return value


Listen = Annotated[
    str,
    BeforeValidator(_listen),
    Allowed("127.0.0.1:PORT or [::1]:PORT: this machine only; a proxy with TLS takes requests of other machines"),
]


class Poke(Section):
    """The keys for the endpoint of webhooks."""

    listen: Listen | None = Field(
        default=None,
        description="Address at which `POST /poke` of a webhook makes the daemon poll at once; empty: no endpoint. "
        "Polling goes on by itself.",
    )
    secret: Secret | None = Field(
        default=None,
        description="Secret of the webhooks, 16 characters or more, best as ${NAME}; a signing token of GitLab with "
        "its `whsec_`.",
    )

    @model_validator(mode="after")
    def _secret_is_there(self) -> Poke:
        if self.listen is not None and (self.secret is None or is_short(self.secret)):
            raise ValueError(f"listen needs a secret of {LEAST_SECRET} characters or more")
        return self


def is_short(secret: SecretStr) -> bool:
    """Whether the secret of webhooks is shorter than LEAST_SECRET."""
    return len(secret.get_secret_value()) < LEAST_SECRET
