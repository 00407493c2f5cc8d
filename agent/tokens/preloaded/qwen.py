"""Reads on import the vocabulary of Qwen models before 3.5, if it is installed."""

from agent.tokens.preloaded import read

read("qwen3")
