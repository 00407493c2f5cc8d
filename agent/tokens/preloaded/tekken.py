"""Mistral's vocabulary Tekken."""

from agent.tokens.preloaded import read

read("mistral-nemo")
