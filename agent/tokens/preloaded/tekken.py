"""Reads Mistral's vocabulary Tekken on import."""

from agent.tokens.preloaded import read

read("mistral-nemo")
