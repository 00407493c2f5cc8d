"""Qwen's vocabulary before 3.5."""

from agent.tokens.preloaded import read

read("qwen3")
