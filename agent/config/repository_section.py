"""Defines the section `repository_file`: what the file `.makimono.yaml` of a repository may set.

This module defines only keys of config.yaml, like `sections.py`; the keys of the file `.makimono.yaml` are defined in
`repository_keys.py`.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from agent.config.base import Section
from agent.config.host_allowlist import Hosts  # noqa: TC001 - pydantic needs these names at run time
from agent.config.value_kinds import OneOf, Text

KEYS = ("verify", "base", "instructions", "setup")


class RepositoryFile(Section):
    """The section `repository_file` of config.yaml: what the file of a repository may set."""

    allow: tuple[Annotated[Text, OneOf(KEYS)], ...] = Field(
        default=("verify", "base", "instructions"),
        description="Keys that `.makimono.yaml` of a repository's default branch may set; empty list: the file is not "
        "read. `setup` runs a command of the repository with the network below.",
    )
    network: Hosts = Field(
        default=(),
        description="Hosts that a set-up of `.makimono.yaml` may reach beside those of `sandbox.network`; true: every "
        "public one.",
    )
