"""DeepSeek's vocabulary."""

from agent.tokens.preloaded import read

read("deepseek-chat")
