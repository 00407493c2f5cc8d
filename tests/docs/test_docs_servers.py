"""Each configuration in docs/servers.md is read as it stands there: it is valid, recognised, and goes where it should."""

import re
from pathlib import Path

import pytest
import yaml
from dialect_rules import RULES
from llm_servers import store_for

from agent.config import settings_of
from agent.llm import make_client
from agent.llm.dialects import DIALECTS

PAGE = (Path(__file__).parents[2] / "docs" / "servers.md").read_text(encoding="utf-8")
WHERE = {
    "OpenAI": ("openai", "https://api.openai.com/v1/chat/completions"),
    "Azure OpenAI, v1": ("azure", "https://NAME.openai.azure.com/openai/v1/chat/completions"),
    "Azure OpenAI, deployments": (
        "azure",
        "https://NAME.openai.azure.com/openai/deployments/DEPLOYMENT/chat/completions?api-version=2024-10-21",
    ),
    "GitHub Models": ("github", "https://models.github.ai/inference/chat/completions"),
    "OpenRouter": ("openrouter", "https://openrouter.ai/api/v1/chat/completions"),
    "DeepSeek": ("deepseek", "https://api.deepseek.com/v1/chat/completions"),
    "Mistral": ("mistral", "https://api.mistral.ai/v1/chat/completions"),
    "Groq": ("groq", "https://api.groq.com/openai/v1/chat/completions"),
    "Gemini": ("gemini", "https://generativelanguage.googleapis.com/v1beta/openai/chat/completions"),
    "Kimi": ("kimi", "https://api.moonshot.ai/v1/chat/completions"),
    "DashScope": ("dashscope", "https://dashscope-intl.aliyuncs.com/compatible-mode/v1/chat/completions"),
    "Anthropic": ("anthropic", "https://api.anthropic.com/v1/messages"),
    "vLLM": ("compatible", "http://gpu:8000/v1/chat/completions"),  # recognised when it is asked
    "SGLang": ("compatible", "http://gpu:30000/v1/chat/completions"),
    "TGI": ("compatible", "http://gpu:8080/v1/chat/completions"),
    "llama.cpp": ("compatible", "http://localhost:8080/v1/chat/completions"),
    "LiteLLM": ("compatible", "http://gateway:4000/v1/chat/completions"),
    "LM Studio": ("lmstudio", "http://localhost:1234/v1/chat/completions"),
    "Ollama": ("ollama", "http://localhost:11434/api/chat"),
    "any other": ("compatible", "https://HOST/PATH/chat/completions"),
}


def rows():
    """(server, provider, its section) of each configuration."""
    sections = PAGE.partition("\n## Configurations\n")[2].partition("\n## ")[0]
    for name, written in re.findall(r"(?ms)^### ([^\n]+)\n.*?^```yaml\n(.*?)^```$", sections):
        llm = yaml.safe_load(written)
        yield name, llm["provider"], llm[llm["provider"]]


ROWS = list(rows())


def test_the_page_has_every_server_that_there_is_a_strict_one_of():
    assert [name for name, *_ in ROWS] == list(WHERE)
    titles = {DIALECTS[name].title for name in RULES}
    assert not {title for title in titles if title not in PAGE and title.split()[0] not in PAGE} - {
        "Text Generation Inference"
    }


@pytest.mark.parametrize(("name", "provider", "keys"), ROWS, ids=[name for name, *_ in ROWS])
def test_a_configuration_of_the_page_is_valid_and_goes_where_it_should(name, provider, keys, tmp_path, monkeypatch):
    for variable in re.findall(r"\$\{(\w+)\}", PAGE):
        monkeypatch.setenv(variable, "sk-0123456789")
    settings = settings_of({"llm": {"provider": provider, provider: keys}})
    store = store_for(tmp_path, settings)
    client = make_client(settings, store, tmp_path)
    dialect, url = WHERE[name]
    assert (client.dialect.name, client.url) == (dialect, url)
    if "api_key" in keys:
        assert any("sk-0123456789" in value for value in client.headers().values())
    client.close()
    store.close()
