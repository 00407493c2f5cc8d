"""Clients for model servers: one client class for each provider; the client classes share the transport, the retries
and the table of errors.

A client class is imported on first use, so a worker imports only the modules of its own provider.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from agent.llm.base import CLIENTS, Check, Interrupted, ModelClient, make_client

if TYPE_CHECKING:
    from agent.llm.anthropic import AnthropicClient
    from agent.llm.lmstudio import LMStudioClient
    from agent.llm.ollama import OllamaClient
    from agent.llm.openai import OpenAIClient
    from agent.llm.replay import ReplayClient

__all__ = [
    "CLIENTS",
    "AnthropicClient",
    "Check",
    "Interrupted",
    "LMStudioClient",
    "ModelClient",
    "OllamaClient",
    "OpenAIClient",
    "ReplayClient",
    "make_client",
]

_HOMES = {target.rpartition(":")[2]: target.partition(":")[0] for target in CLIENTS.entries.values()}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
