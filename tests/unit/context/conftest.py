"""A configuration in a temporary folder, and a counter that is easy to follow."""

import pytest
from tests_context import Characters

KEY = {"task_source": "github", "owner": "notfolder", "repo": "coding_agent", "task_type": "issue", "task_id": "27"}


@pytest.fixture
def counter():
    return Characters()


@pytest.fixture
def config(tmp_path):
    return {
        "context_storage": {"base_dir": str(tmp_path / "contexts"), "durability": "none"},
        "llm": {
            "provider": "openai",
            "openai": {
                "model": "gpt-4o",
                "api_key": "sk-not-a-real-key",
                "context_length": 128000,
                "price": {"input": 2.0, "cached": 0.5, "output": 8.0},
            },
        },
    }


@pytest.fixture
def key():
    return dict(KEY)
