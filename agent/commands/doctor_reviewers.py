"""The findings of `doctor` about the reviewers: their templates, and whether all of them use one model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent import prompts
from agent.errors import ConfigError
from agent.prompts.reviewer_templates import PERSONAS, check_reviewer_templates

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agent.config import Settings


def models_of(settings: Settings) -> dict[tuple[str, str | None], list[str]]:
    """(provider, model) → names of the reviewers that use it; None as model means the model that is configured for the
    provider."""
    found: dict[tuple[str, str | None], list[str]] = {}
    for name in PERSONAS:
        persona = getattr(settings.consensus.personas, name)
        found.setdefault((persona.provider or settings.llm.provider, persona.model), []).append(name)
    return found


def are_used(settings: Settings) -> bool:
    """Whether the configuration enables reviewers, or sets any key of a single reviewer (`consensus.personas`)."""
    section = settings.consensus
    return section.enabled or section.personas != type(section.personas)()


def other_models(settings: Settings) -> list[tuple[str, str | None]]:
    """(provider, model) of the reviewers for which the configuration names a model, or another provider than that of
    the conversation."""
    return [one for one in models_of(settings) if one != (settings.llm.provider, None)]


def findings(settings: Settings) -> Iterator[tuple[str, str, str]]:
    """Yields each finding of `doctor` about the reviewers as (state, observation, advice)."""
    known = set(prompts.program_templates())
    if settings.prompts.is_set:
        from agent.prompts.loader import TemplateLoader

        templates = TemplateLoader(settings, stores=False).refresh()
        known |= set(templates.names()) if templates is not None else set()
    try:
        check_reviewer_templates(settings, known)
    except ConfigError as error:
        yield "fail", str(error), "correct the name, or `prompts check` for the folder; until then no review is made"
    models = models_of(settings)
    if len(models) == 1:
        yield (
            "warn",
            "the three reviewers are one model, which is close to one vote: they make the same mistakes",
            "give each a model of its own (consensus.personas)",
        )
    else:
        named = "; ".join(
            f"{provider}/{model or 'its model'}: {', '.join(who)}" for (provider, model), who in models.items()
        )
        yield "ok", f"the reviewers are {named}", ""
