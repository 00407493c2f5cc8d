"""Reads DeepSeek's vocabulary on import, if it is installed."""

from agent.tokens.preloaded import read

read("deepseek-chat")
