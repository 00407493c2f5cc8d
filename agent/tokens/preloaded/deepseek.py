"""Reads DeepSeek's vocabulary on import."""

from agent.tokens.preloaded import read

read("deepseek-chat")
