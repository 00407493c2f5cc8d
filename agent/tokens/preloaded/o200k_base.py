"""OpenAI's vocabulary o200k_base."""

from agent.tokens.preloaded import read

read("gpt-4o")
