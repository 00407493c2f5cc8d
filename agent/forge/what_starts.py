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
