"""Settings of the benches: no sandbox, no compaction (a window large enough by itself), counting by bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agent.config import settings_of

if TYPE_CHECKING:
    from pathlib import Path

    from agent.config import Settings

MODEL = "bench-model"
"""No vocabulary is installed for it, so tokens are counted by the byte classes."""

WINDOW = 2_000_000_000


def settings(
    base_dir: Path,
    provider: str = "openai",
    url: str = "http://127.0.0.1:9",
    durability: str = "none",
    window: int = WINDOW,
    **more: Any,
) -> Settings:
    """`more` are further sections of config.yaml."""
    return settings_of(
        {
            "task_sources": ["local"],
            "context_storage": {"base_dir": str(base_dir), "durability": durability},
            "llm": {
                "provider": provider,
                provider: {"model": MODEL, "context_length": window, "base_url": url, "api_key": "bench-key-0000"},
            },
            "sandbox": {"kind": "none"},
            **more,
        }
    )
