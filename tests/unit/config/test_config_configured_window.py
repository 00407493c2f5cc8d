"""The window of a model, as configured."""

import pytest

from agent.config import load
from agent.config.configured_window import configured_window, model_variable
from agent.errors import ConfigError


def loaded(tmp_path, text="", **environ):
    path = tmp_path / "config.yaml"
    path.write_text(text)
    return load(path, environ=environ)


def test_the_order_of_the_sources(tmp_path):
    text = "llm: {openai: {context_length: 50000}}\n"
    every = {
        "GPT_4O_MAX_CONTEXT_TOKENS": "1001",
        "OPENAI_MAX_TOKENS": "1002",
        "CHATGPT_MAX_TOKENS": "1003",
        "DEFAULT_MAX_TOKENS": "1004",
    }
    assert configured_window(loaded(tmp_path, text, **every)) == (1001, "GPT_4O_MAX_CONTEXT_TOKENS")
    del every["GPT_4O_MAX_CONTEXT_TOKENS"]
    assert configured_window(loaded(tmp_path, text, **every)) == (1002, "OPENAI_MAX_TOKENS")
    del every["OPENAI_MAX_TOKENS"]
    assert configured_window(loaded(tmp_path, text, **every)) == (1003, "CHATGPT_MAX_TOKENS")
    del every["CHATGPT_MAX_TOKENS"]
    assert configured_window(loaded(tmp_path, text, **every)) == (50000, "llm.openai.context_length")
    assert configured_window(loaded(tmp_path, "", **every)) == (128000, "the known window of gpt-4o")
    other = "llm: {openai: {model: mine}}\n"
    assert configured_window(loaded(tmp_path, other, **every)) == (1004, "DEFAULT_MAX_TOKENS")
    assert configured_window(loaded(tmp_path, other)) == (4096, "the default, 4096")


@pytest.mark.parametrize(
    ("provider", "variable"),
    [("ollama", "OLLAMA_MAX_TOKENS"), ("lmstudio", "LMSTUDIO_MAX_TOKENS"), ("anthropic", "ANTHROPIC_MAX_TOKENS")],
)
def test_each_provider_has_its_variable(tmp_path, provider, variable):
    settings = loaded(tmp_path, f"llm: {{provider: {provider}}}\n", **{variable: "777", "OPENAI_MAX_TOKENS": "1"})
    assert configured_window(settings) == (777, variable)
    assert settings.provider().context_length == 777


def test_gemini_behind_another_server_has_its_own_variable(tmp_path):
    text = "llm: {openai: {model: google/gemini-2.5-pro}}\n"
    settings = loaded(tmp_path, text, GEMINI_MAX_TOKENS="900000", OPENAI_MAX_TOKENS="5")
    assert configured_window(settings) == (900000, "GEMINI_MAX_TOKENS")


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("gpt-4o", "GPT_4O"),
        ("qwen3:30b-a3b", "QWEN3_30B_A3B"),
        ("openai/gpt-oss-20b", "OPENAI_GPT_OSS_20B"),
        ("日本語-7b", "____7B"),
    ],
)
def test_other_signs_become_underscores(model, name):
    assert model_variable(model) == f"{name}_MAX_CONTEXT_TOKENS"


def test_the_cap_lowers_and_never_raises(tmp_path):
    assert configured_window(loaded(tmp_path, MLC_MAX_CONTEXT_TOKENS="8000")) == (8000, "MLC_MAX_CONTEXT_TOKENS")
    tokens, source = configured_window(loaded(tmp_path, MLC_MAX_CONTEXT_TOKENS="900000"))
    assert (tokens, source) == (128000, "the known window of gpt-4o")


def test_context_length_is_about_the_configured_model_only(tmp_path):
    settings = loaded(tmp_path, "llm: {openai: {model: mine, context_length: 9000}}\n")
    assert configured_window(settings, "openai", "other") == (4096, "the default, 4096")
    assert configured_window(settings, "openai", "gpt-4o") == (128000, "the known window of gpt-4o")
    assert configured_window(settings, "ollama") == (32768, "the known window of qwen3-30b")


def test_the_model_of_the_environment_has_no_window_of_the_default_one(tmp_path):
    assert loaded(tmp_path, OPENAI_MODEL="mine").provider().context_length == 4096


@pytest.mark.parametrize("value", ["lots", "0", "-5", "1.5", "128k", "1_000", "٣", "9" * 30])
@pytest.mark.parametrize("name", ["OPENAI_MAX_TOKENS", "GPT_4O_MAX_CONTEXT_TOKENS", "MLC_MAX_CONTEXT_TOKENS"])
def test_a_bad_number_is_refused_when_it_would_count(tmp_path, name, value):
    with pytest.raises(ConfigError, match=f"environment {name}: found .*; allowed is a whole number of tokens above 0"):
        loaded(tmp_path, **{name: value})


def test_a_bad_number_for_another_provider_does_not_matter(tmp_path):
    assert loaded(tmp_path, GEMINI_MAX_TOKENS="lots").provider().context_length == 128000


def test_a_plugin_has_the_context_length_of_its_section(tmp_path):
    settings = loaded(tmp_path, "llm: {provider: 'a.b:C', plugin: {model: m, context_length: 5}}\n")
    assert configured_window(settings) == (5, "llm.plugin.context_length")


@pytest.mark.parametrize(
    ("model", "window"),
    [
        ("gpt-4.1", 1_047_576),
        ("openai/gpt-4.1-mini-2025-04-14", 1_047_576),
        ("gpt-4o-mini", 128_000),
        ("gpt-4", 8_192),
        ("gpt-5.1", 272_000),
        ("gpt-5-chat-latest", 128_000),
        ("o3-mini", 200_000),
        ("claude-3-5-haiku-20241022", 200_000),
        ("claude-opus-4-6", 1_000_000),
        ("google/gemini-2.5-pro", 1_048_576),
        ("deepseek-chat", 131_072),
        ("kimi-k2-thinking", 262_144),
        ("moonshot-v1-8k", 8_192),
        ("qwen-plus", 131_072),
        ("mistral-large-latest", 131_072),
        ("deepseek-r1:8b", 4096),  # a model that people run themselves: their server tells
        ("my-gpt-4.1-finetune", 4096),
        ("gpt-4.1.gguf", 4096),
    ],
)
def test_models_that_their_vendors_serve_have_known_windows(tmp_path, model, window):
    settings = loaded(tmp_path, f"llm: {{openai: {{model: '{model}'}}}}\n")
    assert configured_window(settings)[0] == window


def test_a_served_model_on_a_machine_of_ones_own_has_the_window_that_is_loaded(tmp_path):
    settings = loaded(tmp_path, "llm: {provider: ollama, ollama: {model: gpt-4o}}\n")
    assert configured_window(settings) == (4096, "the default, 4096")
