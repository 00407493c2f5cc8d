"""The finding of `doctor` about the templates that users have written (`prompts.folder`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.prompts.loader import TemplateLoader

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agent.config import Settings

ADVICE = (
    "`prompts check` looks again; until then tasks use the set that was good last, else the program's own templates"
)


def findings(settings: Settings) -> Iterator[tuple[str, str, str]]:
    """Yields the finding about the templates as (state, observation, advice); yields nothing if users have written
    none. The check of the templates changes no file."""
    loader = TemplateLoader(settings, stores=False)
    loader.refresh(force=True)
    if loader.error:
        yield "warn", loader.error, ADVICE
    elif loader.current is not None:
        names = ", ".join(sorted(loader.current.revisions)) or "none"
        yield "ok", f"{loader.source} replaces {names} (set {loader.current.sha256[:12]})", ""
