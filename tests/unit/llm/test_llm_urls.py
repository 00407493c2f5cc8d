"""Addresses as people write them."""

import pytest

from agent.errors import ConfigError
from agent.llm import urls

CHAT = "/chat/completions"


@pytest.mark.parametrize(
    ("written", "first", "root"),
    [
        ("https://api.openai.com/", "https://api.openai.com/v1", "https://api.openai.com"),
        ("https://api.openai.com", "https://api.openai.com/v1", "https://api.openai.com"),
        ("https://api.openai.com/v1/", "https://api.openai.com/v1", "https://api.openai.com"),
        ("https://api.openai.com/v1/chat/completions", "https://api.openai.com/v1", "https://api.openai.com"),
        ("https://api.openai.com/v1/models", "https://api.openai.com/v1", "https://api.openai.com"),
        ("api.openai.com", "https://api.openai.com/v1", "https://api.openai.com"),
        ("localhost:1234", "http://localhost:1234/v1", "http://localhost:1234"),
        ("localhost", "http://localhost/v1", "http://localhost"),
        ("192.168.1.9:8080", "http://192.168.1.9:8080/v1", "http://192.168.1.9:8080"),
        ("http://localhost:1234/api/v1", "http://localhost:1234/api/v1", "http://localhost:1234"),
        (" http://gpu-box:8000/v1// ", "http://gpu-box:8000/v1", "http://gpu-box:8000"),
        ("https://openrouter.ai/api/v1", "https://openrouter.ai/api/v1", "https://openrouter.ai"),
        ("https://x.example/v1beta/openai/", "https://x.example/v1beta/openai", "https://x.example/v1beta/openai"),
        ("http://proxy/llm", "http://proxy/llm", "http://proxy/llm"),  # the whole base, as OpenAI's clients take it
        ("http://[::1]:8080", "http://[::1]:8080/v1", "http://[::1]:8080"),
        ("http://h/v1/chat/completions?key=x", "http://h/v1", "http://h"),
    ],
)
def test_an_address_is_understood_however_it_is_written(written, first, root):
    assert urls.bases(written, CHAT)[0] == first
    assert urls.root(written) == root


@pytest.mark.parametrize(
    ("written", "base_path", "called"),
    [
        ("https://models.github.ai/inference", "/inference", "https://models.github.ai/inference/chat/completions"),
        ("https://models.github.ai", "/inference", "https://models.github.ai/inference/chat/completions"),
        (
            "https://models.github.ai/orgs/acme/inference",
            "/inference",
            "https://models.github.ai/orgs/acme/inference/chat/completions",
        ),
        (
            "https://r.openai.azure.com/openai/deployments/d/chat/completions?api-version=2024-10-21",
            "/openai/v1",
            "https://r.openai.azure.com/openai/deployments/d/chat/completions?api-version=2024-10-21",
        ),
        (
            "https://r.openai.azure.com/openai/deployments/d/?api-version=2024-10-21",
            "/openai/v1",
            "https://r.openai.azure.com/openai/deployments/d/chat/completions?api-version=2024-10-21",
        ),
        (
            "https://r.openai.azure.com/openai/v1/",
            "/openai/v1",
            "https://r.openai.azure.com/openai/v1/chat/completions",
        ),
        ("https://r.openai.azure.com", "/openai/v1", "https://r.openai.azure.com/openai/v1/chat/completions"),
        ("https://r.openai.azure.com/openai", "/openai/v1", "https://r.openai.azure.com/openai/v1/chat/completions"),
        (
            "https://r.services.ai.azure.com/models?api-version=2024-05-01-preview",
            "/openai/v1",
            "https://r.services.ai.azure.com/models/chat/completions?api-version=2024-05-01-preview",
        ),
        (
            "https://generativelanguage.googleapis.com/v1beta",
            "/v1beta/openai",
            "https://generativelanguage.googleapis.com/v1beta/openai/chat/completions",
        ),
        (
            "https://generativelanguage.googleapis.com/v1beta/openai/",
            "/v1beta/openai",
            "https://generativelanguage.googleapis.com/v1beta/openai/chat/completions",
        ),
        ("https://openrouter.ai", "/api/v1", "https://openrouter.ai/api/v1/chat/completions"),
        ("https://openrouter.ai/api", "/api/v1", "https://openrouter.ai/api/v1/chat/completions"),
        ("https://api.groq.com/openai", "/openai/v1", "https://api.groq.com/openai/v1/chat/completions"),
        ("https://gateway.example/v1/a/b/openai", "", "https://gateway.example/v1/a/b/openai/chat/completions"),
        ("https://gateway.example/a/chat/completions/", "", "https://gateway.example/a/chat/completions"),
    ],
)
def test_the_call_goes_where_the_server_has_it_and_a_query_stays(written, base_path, called):
    assert urls.join(written, urls.bases(written, CHAT, base_path)[0], CHAT) == called


def test_other_forms_are_there_to_be_tried_unless_the_address_is_whole():
    assert urls.bases("http://proxy/llm", CHAT) == ("http://proxy/llm", "http://proxy/llm/v1")
    assert urls.bases("https://api.example", CHAT) == ("https://api.example/v1", "https://api.example")
    assert urls.bases("http://proxy/anthropic", "/messages", version_first=True) == (
        "http://proxy/anthropic/v1",
        "http://proxy/anthropic",
    )
    assert urls.bases("http://proxy/llm/chat/completions", CHAT) == ("http://proxy/llm",)
    assert urls.bases("http://proxy/v1", CHAT) == ("http://proxy/v1",)


@pytest.mark.parametrize("written", ["", "http://", "ftp://x", "http://x:port", "http://:80"])
def test_what_is_no_address_is_a_configuration_error(written):
    with pytest.raises(ConfigError, match="base_url"):
        urls.clean(written)


def test_a_password_in_an_address_is_not_shown():
    assert urls.displayable("http://user:secret@host:1/v1?key=x") == "http://host:1/v1"
