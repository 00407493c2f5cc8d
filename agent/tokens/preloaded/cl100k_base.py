"""OpenAI's vocabulary cl100k_base."""

from agent.tokens.preloaded import read

read("gpt-4")
