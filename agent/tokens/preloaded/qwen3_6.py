"""Reads the vocabulary of Qwen 3.5 and later on import."""

from agent.tokens.preloaded import read

read("qwen3.6")
