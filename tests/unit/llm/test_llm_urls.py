"""Addresses as people write them."""

import pytest

from agent.errors import ConfigError
from agent.llm import urls


@pytest.mark.parametrize(
    ("written", "versioned", "root"),
    [
        ("https://api.openai.com/", "https://api.openai.com/v1", "https://api.openai.com"),
        ("https://api.openai.com", "https://api.openai.com/v1", "https://api.openai.com"),
        ("https://api.openai.com/v1/", "https://api.openai.com/v1", "https://api.openai.com"),
        ("https://api.openai.com/v1/chat/completions", "https://api.openai.com/v1", "https://api.openai.com"),
        ("api.openai.com", "https://api.openai.com/v1", "https://api.openai.com"),
        ("localhost:1234", "http://localhost:1234/v1", "http://localhost:1234"),
        ("localhost", "http://localhost/v1", "http://localhost"),
        ("192.168.1.9:8080", "http://192.168.1.9:8080/v1", "http://192.168.1.9:8080"),
        ("http://localhost:1234/api/v1", "http://localhost:1234/api/v1", "http://localhost:1234"),
        ("http://localhost:11434/api", "http://localhost:11434/api/v1", "http://localhost:11434"),
        (" http://gpu-box:8000/v1// ", "http://gpu-box:8000/v1", "http://gpu-box:8000"),
        ("https://openrouter.ai/api/v1", "https://openrouter.ai/api/v1", "https://openrouter.ai"),
        ("https://x.example/v1beta/openai/", "https://x.example/v1beta/openai", "https://x.example/v1beta/openai"),
        ("http://proxy/llm", "http://proxy/llm/v1", "http://proxy/llm"),
        ("http://[::1]:8080", "http://[::1]:8080/v1", "http://[::1]:8080"),
    ],
)
def test_an_address_is_understood_however_it_is_written(written, versioned, root):
    assert urls.versioned(written) == versioned
    assert urls.root(written) == root


@pytest.mark.parametrize("written", ["", "http://", "ftp://x", "http://x:port", "http://:80"])
def test_what_is_no_address_is_a_configuration_error(written):
    with pytest.raises(ConfigError, match="base_url"):
        urls.clean(written)


def test_a_password_in_an_address_is_not_shown():
    assert urls.shown("http://user:secret@host:1/v1?key=x") == "http://host:1/v1"
