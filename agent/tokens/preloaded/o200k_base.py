"""Reads OpenAI's vocabulary o200k_base on import, if it is installed."""

from agent.tokens.preloaded import read

read("gpt-4o")
