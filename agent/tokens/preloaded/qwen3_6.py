"""Qwen's vocabulary since 3.5."""

from agent.tokens.preloaded import read

read("qwen3.6")
