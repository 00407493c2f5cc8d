"""What asks for a task on a forge: the part `start` of its section of the settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.config.forge_sections import Start

if TYPE_CHECKING:
    from agent.forge.base import Forge


def start_of(forge: Forge) -> Start:
    """What asks for a task on a forge (`start` of its section of the settings); the defaults if it has none."""
    found = getattr(getattr(forge, "section", None), "start", None)
    return found if isinstance(found, Start) else Start()


def how_to_ask(start: Start) -> str:
    """What a person does to ask for a task, beside a comment: "set the label"; "" if a comment alone asks for one."""
    if start.label:
        return "set the label"
    return "assign the account" if start.assignee else ""
