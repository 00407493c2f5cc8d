"""Reads the vocabulary of Qwen models before 3.5 on import."""

from agent.tokens.preloaded import read

read("qwen3")
