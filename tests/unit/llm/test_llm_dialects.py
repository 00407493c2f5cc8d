"""The table of dialects: its rows, and how a server is recognised."""

import re

import pytest
from llm_servers import Reply, Script, client_for

from agent.config.base import DIALECTS as NAMES
from agent.llm.dialects import DIALECTS, by_headers, by_host, by_owner

HOSTS = [
    ("api.openai.com", "openai"),
    ("eu.api.openai.com", "openai"),
    ("my-resource.openai.azure.com", "azure"),
    ("my-resource.services.ai.azure.com", "azure"),
    ("my-resource.cognitiveservices.azure.com", "azure"),
    ("models.github.ai", "github"),
    ("models.inference.ai.azure.com", "github"),
    ("openrouter.ai", "openrouter"),
    ("api.deepseek.com", "deepseek"),
    ("api.mistral.ai", "mistral"),
    ("codestral.mistral.ai", "mistral"),
    ("api.groq.com", "groq"),
    ("generativelanguage.googleapis.com", "gemini"),
    ("us-central1-aiplatform.googleapis.com", "gemini"),
    ("api.moonshot.ai", "kimi"),
    ("api.moonshot.cn", "kimi"),
    ("dashscope.aliyuncs.com", "dashscope"),
    ("dashscope-intl.aliyuncs.com", "dashscope"),
    ("api.anthropic.com", "anthropic"),
]


@pytest.mark.parametrize(("host", "name"), HOSTS)
def test_a_service_is_recognised_by_its_host(host, name):
    assert by_host(host).name == name


@pytest.mark.parametrize("host", ["", "localhost", "127.0.0.1", "openai.com.example", "notopenrouter.ai", "gpu-box"])
def test_a_host_that_is_no_known_service_is_not_taken_for_one(host):
    assert by_host(host) is None


@pytest.mark.parametrize(
    ("owner", "name"),
    [("vllm", "vllm"), ("sglang", "sglang"), ("llamacpp", "llamacpp"), ("library", "ollama"), ("moonshot", "kimi")],
)
def test_a_server_is_recognised_by_the_owner_of_its_models(owner, name):
    assert by_owner(owner).name == name


def test_a_gateway_is_recognised_by_the_headers_that_only_it_sends():
    assert by_headers(["content-type", "x-litellm-version"]).name == "litellm"
    assert by_headers(["content-type", "date"]) is None


def test_the_configuration_allows_just_the_rows_of_the_table():
    assert tuple(DIALECTS) == NAMES


@pytest.mark.parametrize("dialect", DIALECTS.values(), ids=DIALECTS)
def test_every_row_holds_what_a_client_can_use(dialect):
    assert dialect.title
    assert not dialect.base_path.endswith("/")
    assert dialect.limit_key not in dialect.refused
    assert re.compile(dialect.id_form)
    assert {dialect.stop(reason) for reason in ("stop", "length", "tool_calls", *dialect.stops)} <= {
        "stop",
        "length",
        "tool_calls",
        "content_filter",
        "error",
        "resample",
    }
    assert dialect.stop("a reason of next year") == ""


def test_the_configuration_decides_the_dialect_whatever_the_server_says(tmp_path):
    listed = {"data": [{"id": "m", "owned_by": "vllm", "max_model_len": 9000}]}
    with Script(routes={("GET", "/v1/models"): Reply(listed)}) as server:
        told, _ = client_for("openai", server.url, tmp_path, dialect="mistral")
        free, _ = client_for("openai", server.url, tmp_path)
        assert (told.dialect.name, free.dialect.name) == ("mistral", "compatible")
        assert (told.loaded_window(), free.loaded_window()) == (9000, 9000)
        assert (told.dialect.name, free.dialect.name) == ("mistral", "vllm")
        told.close()
        free.close()
