"""Defines the section `mcp_servers`: servers of the Model Context Protocol, by name.

The configuration of an MCP server has either a command, which runs in the sandbox of the task, or an address.
docs/mcp.md describes both.
"""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, SecretStr, field_validator, model_validator

from agent.config.base import Section
from agent.config.encrypted_address import encrypted_or_here
from agent.config.host_allowlist import Entry  # noqa: TC001 - pydantic evaluates the annotations
from agent.config.value_kinds import Allowed, Header, Number, Secret, Text, Url

LONGEST_NAME = 24
NAME = re.compile(r"[a-z][a-z0-9]*(?:-[a-z0-9]+)*")
_NAME_WORDS = (
    f"lower-case letters, digits and single hyphens, a letter first, at most {LONGEST_NAME} signs, such as `files`"
)
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ABOUT_COMMANDS = ("args", "env", "cwd", "network")


def _name(value: Any) -> Any:
    if not isinstance(value, str) or len(value) > LONGEST_NAME or not NAME.fullmatch(value):
        shown = repr(value) if len(str(value)) <= 60 else repr(str(value)[:60] + "…")
        raise ValueError(f"{shown} is no name of a server; allowed are {_NAME_WORDS}")
    return value


def _variable(value: Any) -> Any:
    if isinstance(value, str) and (not _VARIABLE.fullmatch(value) or value == "MAKIMONO_UUID"):
        raise ValueError(f"{value!r} is no name of a variable; allowed are letters, digits and _, no digit first")
    return value


def _argument(value: Any) -> Any:
    if isinstance(value, str) and "\0" in value:
        raise ValueError("has a NUL, which no argument of a command can carry; take it out")
    return value


ServerName = Annotated[str, BeforeValidator(_name), Allowed(_NAME_WORDS)]
Variable = Annotated[str, BeforeValidator(_variable), Allowed("a name of a variable")]
Argument = Annotated[str, BeforeValidator(_argument), Allowed("text")]


class McpServer(Section):
    """The configuration of one MCP server: either `command` or `url` is set."""

    command: Annotated[Text, BeforeValidator(_argument)] | None = Field(
        default=None,
        description="Program of a server that uses stdin and stdout; not a shell line. It runs in the sandbox of the "
        "task.",
    )
    args: tuple[Argument, ...] = Field(default=(), description="Arguments of `command`; other users may see them.")
    env: dict[Variable, Secret] = Field(
        default={},
        description="Environment variables of `command`; their values are secrets, best as ${NAME}. No other command"
        " gets them.",
    )
    cwd: Annotated[Text, BeforeValidator(_argument)] | None = Field(
        default=None, description="Folder of `command` inside the sandbox, from the work tree; empty: the work tree."
    )
    network: tuple[Entry, ...] = Field(
        default=(), description="Hosts that `command` may reach, as in `sandbox.network`; empty: no network."
    )
    url: Url | None = Field(
        default=None, description="Address of a server that speaks over HTTP: https, or http on this machine."
    )
    headers: dict[Header, Secret] = Field(
        default={}, description="Headers of each request to `url`; their values are secrets, best as ${NAME}."
    )
    tools: tuple[Text, ...] = Field(
        default=(), description="Tools that the model gets, by the names of the server; empty: all of them."
    )
    timeout: Number = Field(
        default=60, gt=0, le=3600, description="Seconds for the start of the server, and for each call."
    )
    trust_changes: bool = Field(
        default=False,
        description="Offer a tool also after the server has changed its description or schema; false: only after"
        " `mcp accept`.",
    )

    @field_validator("headers")
    @classmethod
    def _printable_headers(cls, value: dict[str, SecretStr]) -> dict[str, SecretStr]:
        stripped = {name: SecretStr(secret.get_secret_value().strip()) for name, secret in value.items()}
        for name, secret in stripped.items():
            text = secret.get_secret_value()
            if not text.isascii() or not text.isprintable():
                raise ValueError(f"the value of {name} (not shown) has a sign that no header can carry; use ASCII")
        return stripped

    @field_validator("env")
    @classmethod
    def _no_nul(cls, value: dict[str, SecretStr]) -> dict[str, SecretStr]:
        for name, secret in value.items():
            if "\0" in secret.get_secret_value():
                raise ValueError(f"the value of {name} (not shown) has a NUL, which no variable can carry")
        return value

    @field_validator("command")
    @classmethod
    def _no_option(cls, value: str | None) -> str | None:
        if value is not None and value.startswith("-"):
            raise ValueError(f"{value!r} is no program; put options into `args`")
        return value

    @field_validator("url")
    @classmethod
    def _encrypted_or_here(cls, value: str | None) -> str | None:
        return encrypted_or_here(value, "put them into `headers` (Authorization)")

    @model_validator(mode="after")
    def _one_way_to_reach_it(self) -> McpServer:
        if self.command is None and self.url is None:
            raise ValueError("has neither `command` nor `url`; set the one by which the server is reached")
        if self.command is not None and self.url is not None:
            raise ValueError("has both `command` and `url`; keep the one by which the server is reached")
        if self.url is not None and (wrong := [name for name in _ABOUT_COMMANDS if getattr(self, name)]):
            raise ValueError(f"has `url` and {wrong[0]}, which is about a `command`; remove one of them")
        if self.command is not None and self.headers:
            raise ValueError("has `command` and headers, which are about a `url`; put secrets of a command into `env`")
        return self
