"""The ways to ask for a task on a forge: the part `start` of its section of the settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.config.forge_sections import Start

if TYPE_CHECKING:
    from agent.forge.base import Forge

DEFAULTS = Start()
"""The defaults of `start`, for a section of the settings without this part. DEFAULTS is made once for all workers:
pydantic builds the validator of a model when the first object of the model is made."""


def start_of(forge: Forge) -> Start:
    """The ways to ask for a task on a forge (`start` of its section of the settings); the defaults if the forge has no
    section."""
    found = getattr(getattr(forge, "section", None), "start", None)
    return found if isinstance(found, Start) else DEFAULTS


def how_to_ask(start: Start) -> str:
    """How a person asks for a task in another way than by a comment, such as "set the label"; "" if neither a label nor
    an assignment asks for one."""
    if start.label:
        return "set the label"
    return "assign the account" if start.assignee else ""
