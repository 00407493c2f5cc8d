"""Reads on import the vocabulary of the models from Qwen 3.5 on, if it is installed."""

from agent.tokens.preloaded import read

read("qwen3.6")
