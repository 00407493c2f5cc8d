"""The window of a model, as configured (design: "The window of a model"; seed 001, FR-1 and section 5).

Only what was written down.  What a server says is loaded, and what an error has taught, is added by
`window/limits.py`; the least of them counts, but what is only assumed here gives way to both.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from agent.config.base import PROVIDERS
from agent.config.known_windows import MADE, served_window
from agent.config.models import KNOWN_WINDOWS
from agent.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agent.config.settings import Settings

SMALLEST = 4096
"""What is assumed when nothing is known (seed 001, section 5)."""
UNKNOWN = f"the default, {SMALLEST}"
"""What says so where nobody does."""

OWN_MACHINES = ("ollama", "lmstudio", "replay")
"""Providers whose windows are what is loaded, whatever the model's vendor serves."""

FAMILIES = {
    "openai": ("OPENAI_MAX_TOKENS", "CHATGPT_MAX_TOKENS"),
    "ollama": ("OLLAMA_MAX_TOKENS",),
    "lmstudio": ("LMSTUDIO_MAX_TOKENS",),
    "anthropic": ("ANTHROPIC_MAX_TOKENS",),
}
"""provider → variables, first one first."""

MODEL_FAMILIES = {"gemini": "GEMINI_MAX_TOKENS", "claude": "ANTHROPIC_MAX_TOKENS"}
"""A word in the model's name → variable; models that are reached through a server of another kind."""

CAP = "MLC_MAX_CONTEXT_TOKENS"
DEFAULT = "DEFAULT_MAX_TOKENS"


def is_window_variable(name: str) -> bool:
    """Whether a variable of the environment is about windows."""
    known = {*MODEL_FAMILIES.values(), *(one for family in FAMILIES.values() for one in family), DEFAULT}
    return name in known or name.endswith("_MAX_CONTEXT_TOKENS")


def model_variable(model: str) -> str:
    """`GPT_4O_MAX_CONTEXT_TOKENS` for `gpt-4o`: upper case, every sign but A–Z and 0–9 is `_`."""
    return re.sub(r"[^A-Z0-9]", "_", model.upper()) + "_MAX_CONTEXT_TOKENS"


def configured_window(settings: Settings, provider: str | None = None, model: str | None = None) -> tuple[int, str]:
    """(tokens, what said so) for a model of a provider; both default to those in use.

    The first of: the model's variable, the variables of its family, `context_length` (which is about the model
    configured beside it), the known window of the model, DEFAULT_MAX_TOKENS, 4096; then
    MLC_MAX_CONTEXT_TOKENS as a cap.  ConfigError for a variable that is no whole number above 0.
    """
    provider = provider or settings.llm.provider
    tokens, source = _uncapped(settings, provider, model or settings.llm.of(provider).model)
    cap = window_cap(settings)
    return (cap, CAP) if cap is not None and cap < tokens else (tokens, source)


def _uncapped(settings: Settings, provider: str, model: str) -> tuple[int, str]:
    section = settings.llm.of(provider)
    variables = settings.variables
    tokens, source = _first(variables, [model_variable(model), *_family(provider, model)])
    if not tokens and section.context_length is not None and model == section.model:
        tokens, source = section.context_length, f"llm.{provider if provider in PROVIDERS else 'plugin'}.context_length"
    if not tokens and KNOWN_WINDOWS.get(provider, ("", 0))[0] == model:
        tokens, source = KNOWN_WINDOWS[provider][1], f"the known window of {model}"
    if not tokens and provider not in OWN_MACHINES and (served := served_window(model)):
        tokens, source = served, f"the known window of {model} ({MADE})"
    if not tokens:
        tokens, source = _first(variables, [DEFAULT])
    if not tokens:
        tokens, source = SMALLEST, UNKNOWN
    return tokens, source


def assumed_window(settings: Settings, provider: str, model: str) -> bool:
    """Whether nobody says anything about this model, so that what its server tells is the window."""
    return _uncapped(settings, provider, model)[1] in (UNKNOWN, DEFAULT)


def window_cap(settings: Settings) -> int | None:
    """MLC_MAX_CONTEXT_TOKENS, None when it is not set."""
    return _first(settings.variables, [CAP])[0] or None


def _family(provider: str, model: str) -> list[str]:
    by_model = [variable for word, variable in MODEL_FAMILIES.items() if word in model.lower()]
    return [*by_model, *FAMILIES.get(provider, ())]


def _first(variables: Mapping[str, str], names: list[str]) -> tuple[int, str]:
    """The first variable that is set, (0, "") when none is."""
    for name in names:
        text = variables.get(name, "").strip()
        if not text:
            continue
        if not re.fullmatch(r"[0-9]{1,12}", text) or int(text) == 0:
            raise ConfigError(f"environment {name}: found {text!r}; allowed is a whole number of tokens above 0")
        return int(text), name
    return 0, ""
