"""The configured window of a model (docs/configuration.md, "The window of a model").

`configured_window.py` asks no server: it uses the configuration, the environment and `known_windows.py`.
`window/limits.py` uses the smallest of the configured window, the window that the server reports, the window learnt
from an error, and `assembler.max_tokens`; if the server or an error has shown the window, a window that this module
only assumes does not count.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Protocol

from agent.config.base import PROVIDERS
from agent.config.known_windows import MADE, served_window
from agent.config.llm_section import KNOWN_WINDOWS
from agent.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agent.config.llm_section import LLM

SMALLEST = 4096
"""The window, in tokens, that is assumed when nothing is known (docs/design/compression.md, 5)."""
UNKNOWN = f"the default, {SMALLEST}"
"""The text that people see as the origin of a window that is only assumed (SMALLEST)."""

OWN_MACHINES = ("ollama", "lmstudio", "replay")
"""Providers for which the window is the one that their server has loaded, not the one that the vendor of the model
serves."""

FAMILIES = {
    "openai": ("OPENAI_MAX_TOKENS", "CHATGPT_MAX_TOKENS"),
    "ollama": ("OLLAMA_MAX_TOKENS",),
    "lmstudio": ("LMSTUDIO_MAX_TOKENS",),
    "anthropic": ("ANTHROPIC_MAX_TOKENS",),
}
"""provider → environment variables for its window, the one with precedence first."""

MODEL_FAMILIES = {"gemini": "GEMINI_MAX_TOKENS", "claude": "ANTHROPIC_MAX_TOKENS"}
"""A part of a model's name → the environment variable for its window, for models of a vendor on another provider's
server."""

CAP = "MLC_MAX_CONTEXT_TOKENS"
DEFAULT = "DEFAULT_MAX_TOKENS"


class HasModels(Protocol):
    """The fields of `Settings` that `configured_window` needs."""

    @property
    def llm(self) -> LLM: ...

    @property
    def variables(self) -> Mapping[str, str]: ...


def is_window_variable(name: str) -> bool:
    """Whether an environment variable with this name configures the window of a model."""
    known = {*MODEL_FAMILIES.values(), *(one for family in FAMILIES.values() for one in family), DEFAULT}
    return name in known or name.endswith("_MAX_CONTEXT_TOKENS")


def model_variable(model: str) -> str:
    """The name of the environment variable for a model's window, `GPT_4O_MAX_CONTEXT_TOKENS` for `gpt-4o`: upper case,
    with `_` for every character but A–Z and 0–9."""
    return re.sub(r"[^A-Z0-9]", "_", model.upper()) + "_MAX_CONTEXT_TOKENS"


def configured_window(settings: HasModels, provider: str | None = None, model: str | None = None) -> tuple[int, str]:
    """(tokens, the origin of this number) of the configured window of a model; provider and model default to the
    configured ones.

    The first of these sources of a window that has a value counts: the model's variable, the variables of the model's
    vendor and of the provider, `context_length` (which applies to the model configured beside it), the known window of
    the model, DEFAULT_MAX_TOKENS, 4096; MLC_MAX_CONTEXT_TOKENS is an upper bound. Raises ConfigError for an environment
    variable that is not a whole number above 0.
    """
    provider = provider or settings.llm.provider
    tokens, source = _uncapped(settings, provider, model or settings.llm.provider_section(provider).model)
    cap = window_cap(settings)
    return (cap, CAP) if cap is not None and cap < tokens else (tokens, source)


def _uncapped(settings: HasModels, provider: str, model: str) -> tuple[int, str]:
    section = settings.llm.provider_section(provider)
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


def assumed_window(settings: HasModels, provider: str, model: str) -> bool:
    """Whether no source but DEFAULT_MAX_TOKENS has a window for this model, so that the value of the server is used."""
    return _uncapped(settings, provider, model)[1] in (UNKNOWN, DEFAULT)


def window_cap(settings: HasModels) -> int | None:
    """The value of MLC_MAX_CONTEXT_TOKENS, None when it is not set."""
    return _first(settings.variables, [CAP])[0] or None


def _family(provider: str, model: str) -> list[str]:
    by_model = [variable for word, variable in MODEL_FAMILIES.items() if word in model.lower()]
    return [*by_model, *FAMILIES.get(provider, ())]


def _first(variables: Mapping[str, str], names: list[str]) -> tuple[int, str]:
    """The value and name of the first environment variable that is set, (0, "") if none is set."""
    for name in names:
        text = variables.get(name, "").strip()
        if not text:
            continue
        if not re.fullmatch(r"[0-9]{1,12}", text) or int(text) == 0:
            raise ConfigError(f"environment {name}: found {text!r}; allowed is a whole number of tokens above 0")
        return int(text), name
    return 0, ""
