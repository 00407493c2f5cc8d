"""Reads Mistral's vocabulary Tekken on import, if it is installed."""

from agent.tokens.preloaded import read

read("mistral-nemo")
