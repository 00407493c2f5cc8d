"""Finds the template for each reviewer of the consensus, and refuses a configured name that no template has
(`consensus.personas`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Collection

    from agent.config import Settings

PERSONAS = ("correctness", "safety", "upkeep")


def template_of(settings: Settings, persona: str, known: Collection[str]) -> str:
    """The name of a reviewer's template; `known` are the names of all templates.

    Raises ConfigError if no template has the name that is configured for the reviewer."""
    name: str = getattr(settings.consensus.personas, persona).template or f"reviewer_{persona}"
    if name not in known:
        raise ConfigError(
            f"consensus.personas.{persona}.template: there is no prompt {name!r}; known are "
            f"{', '.join(sorted(known))}. A new one is a file in `prompts.folder` (docs/templates.md)"
        )
    return name


def check_reviewer_templates(settings: Settings, known: Collection[str]) -> None:
    """Raise ConfigError if a reviewer has an unknown template."""
    for persona in PERSONAS:
        template_of(settings, persona, known)
