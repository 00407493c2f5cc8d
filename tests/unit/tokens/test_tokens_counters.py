"""Which counter a model gets, what a message costs, and what usage teaches."""

import hashlib
import json

import pytest

from agent.tokens import (
    EstimatedCounter,
    MemoryRatios,
    count_message,
    count_tools,
    counter_for,
    drift,
    plain,
    preload,
    ratio_of,
)
from agent.tokens.base import FAMILIES, family_of


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("gpt-4o", "o200k_base"),
        ("gpt-4o-mini-2024-07-18", "o200k_base"),
        ("ft:gpt-4o-mini:org::id", "o200k_base"),
        ("gpt-4.1-nano", "o200k_base"),
        ("openai/gpt-5-codex", "o200k_base"),
        ("o3-mini", "o200k_base"),
        ("openai/o1", "o200k_base"),
        ("gpt-oss:20b", "o200k_base"),
        ("gpt-4-turbo", "cl100k_base"),
        ("gpt-35-turbo", "cl100k_base"),
        ("llama3.2", "bytes:llama-3"),
        ("mini-moto3", "bytes:unknown"),
        ("", "bytes:unknown"),
        ("   ", "bytes:unknown"),
        ("モデル", "bytes:unknown"),
    ],
)
def test_a_model_name_finds_its_counter(model, name):
    counter = counter_for(model)
    assert counter.name == name
    assert counter.exact == (not name.startswith("bytes:"))
    assert counter.count("hello world") >= 2


@pytest.mark.parametrize(
    ("model", "family"),
    [
        ("claude-3-5-sonnet-20241022", "claude-3"),
        ("claude-sonnet-4-20250514", "claude-3"),
        ("us.anthropic.claude-opus-4-1-20250805-v1:0", "claude-3"),
        ("claude-haiku-4.5", "claude-3"),
        ("claude-opus-4-8", "claude"),
        ("claude-opus-4-10", "claude"),
        ("claude-sonnet-5", "claude"),
        ("qwen3:30b", "qwen"),
        ("lmstudio-community/Qwen2.5-Coder-GGUF", "qwen"),
        ("deepseek-r1-distill-llama-70b", "llama"),
        ("deepseek-chat", "deepseek"),
        ("gemini-2.5-pro", "gemma"),
        ("mixtral:8x7b", "mistral-7b"),
        ("devstral", "mistral"),
        ("deepseek-r1:7b", "qwen"),
        ("deepseek-r1:70b", "llama"),
        ("codellama:13b", "llama-2"),
        ("mistral-7b-gpt4-x", "mistral-7b"),
        ("qwen3.6:27b", "qwen-3.5"),
        ("my-gpt-4o-deployment", "o200k"),
        ("phi4", "unknown"),
    ],
)
def test_a_model_name_finds_its_family(model, family):
    assert family_of(model).name == family


OWN = [
    "gpt-4o",
    "chatgpt-4o-latest",
    "gpt-4-0613",
    "gpt-4-32k",
    "gpt-4-turbo-2024-04-09",
    "gpt-3.5-turbo-16k",
    "o1-preview",
    "o4-mini-2025-04-16",
    "gpt-5.1-codex",
    "gpt-oss:20b",
    "unsloth/gpt-oss-20b-GGUF",
    "qwen3:30b",
    "qwen2.5-coder:32b",
    "qwq:32b",
    "Qwen/Qwen3.6-27B",
    "deepseek-v3.1",
    "deepseek-ai/DeepSeek-V3.2-Exp",
    "deepseek-r1",
    "deepseek-r1:671b",
    "devstral",
    "mistral-nemo",
    "mistral-small3.1",
    "Mistral-Small-3.2-24B-Instruct-2506",
    "pixtral-12b-2409",
    "ministral-8b-2410",
]
ANOTHER = [
    "mistral",
    "mistral:7b",
    "mistral-7b-instruct-v0.2",
    "mixtral:8x7b",
    "codestral",
    "codestral-2405",
    "mathstral",
    "mistral-large-2407",
    "pixtral-large-2411",
    "mistral-small:22b",
    "gpt4all",
    "gpt-4-x-alpaca",
    "Mistral-7B-GPT4-x",
    "marco-o1",
    "skywork-o1",
    "gpt-6",
    "gpt-j",
    "deepseek-r1:7b",
    "deepseek-r1:8b",
    "deepseek-r1-distill-llama-70b",
    "DeepSeek-R1-Distill-Qwen-7B",
    "DeepSeek-R1-0528-Qwen3-8B",
    "deepseek-coder:6.7b",
    "deepseek-coder-v2",
    "deepseek-v2",
    "deepseek-llm",
    "codeqwen",
    "qwen-max",
    "qwen4",
    "qwen3.7",
    "openhermes-2.5-mistral",
    "dolphin-mixtral",
    "llama-3-8b-gpt-4o-ru",
]


@pytest.mark.parametrize("model", OWN)
def test_a_model_whose_vocabulary_is_known_is_counted_with_it(model):
    assert counter_for(model).exact


@pytest.mark.parametrize("model", ANOTHER)
def test_a_model_that_only_has_the_name_of_a_vocabulary_is_estimated(model):
    assert not counter_for(model).exact


def test_every_family_counts_with_its_own_tokenizer_or_by_bytes():
    for family in FAMILIES:
        assert family.estimate().count("def f(): return 1\n" * 50) > 100
        assert counter_for(family.name).count("hello") >= 1


def test_bytes_can_be_preferred_where_the_vocabulary_costs_too_much_memory():
    counter = counter_for("gpt-4", prefer="bytes")
    assert not counter.exact
    assert counter.name == "bytes:cl100k"


def test_single_digit_vocabularies_pay_for_each_digit():
    text = " ".join(hashlib.sha256(bytes([n])).hexdigest() for n in range(50))
    assert family_of("qwen3").estimate().count(text) > 1.2 * family_of("llama3").estimate().count(text)


def test_a_learnt_ratio_moves_the_estimate():
    ratios = MemoryRatios()
    before = counter_for("phi4")
    text = "The quick brown fox jumps over the lazy dog. " * 100
    for _ in range(20):
        ratios.learn("phi4", 1000, 1500)
    assert counter_for("phi4", ratios).count(text) == pytest.approx(1.5 * before.count(text), rel=0.02)


def test_a_counter_learns_against_its_own_estimate_not_against_the_corrected_one():
    ratios = MemoryRatios()
    for _ in range(30):
        counter = counter_for("phi4", ratios)
        assert isinstance(counter, EstimatedCounter)
        counter.learn(1000, 1200)
    assert ratios.get("phi4") == pytest.approx(1.2, rel=0.01)


def test_what_is_learnt_serves_the_next_count_and_three_pairs_are_enough():
    ratios = MemoryRatios()
    counter = counter_for("phi4", ratios)
    text = "def add(left, right):\n    return left + right\n" * 40
    before = counter.count(text)
    for noise in (0.95, 1.05, 1.0):
        counter.learn(1000, round(1500 * noise))
    assert counter.ratio == pytest.approx(1.5, rel=0.01)
    assert counter.count(text) == pytest.approx(1.5 * before, rel=0.02)
    assert plain(counter).count(text) == before
    assert ratio_of(counter) == counter.ratio
    assert ratio_of(counter_for("gpt-4o")) == 1.0


def test_drift_is_a_signed_share():
    assert drift(1100, 1000) == pytest.approx(0.1)
    assert drift(900, 1000) == pytest.approx(-0.1)
    assert drift(10, 20) == 0.0


def test_exact_counters_take_no_ratio():
    ratios = MemoryRatios()
    ratios.learn("gpt-4o", 1000, 3000)
    assert counter_for("gpt-4o", ratios).count("hello world") == 2


def test_case_29_arguments_of_calls_and_schemas_of_tools_are_counted():
    counter = counter_for("")
    body = "value = compute(item)  # the next\n" * 1180
    assert len(body) > 40_000
    line = {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {
                "id": "c1",
                "type": "function",
                "function": {"name": "write_file", "arguments": json.dumps({"path": "a.py", "content": body})},
            }
        ],
    }
    assert 9_000 < count_message(counter, line) < 16_000
    short = {"role": "assistant", "tool_calls": [{"id": "c", "name": "write_file", "arguments": {"content": body}}]}
    assert count_message(counter, short) == pytest.approx(count_message(counter, line), rel=0.01)
    tools = [{"type": "function", "function": {"name": "read_file", "description": "Reads a file. " * 40}}]
    assert count_tools(counter, tools) > 100
    assert count_tools(counter, []) == 0


def test_a_message_costs_its_text_its_name_and_its_frame():
    counter = counter_for("gpt-4o")
    plain = count_message(counter, {"role": "user", "content": "hello world"})
    assert plain == 2 + 4
    assert count_message(counter, {"role": "user", "content": "hello world", "name": "bob"}) == plain + 2
    assert count_message(counter, {"role": "user", "content": [{"type": "text", "text": "hello world"}]}) == plain
    assert count_message(counter, {"role": "assistant", "content": None}) == 4


def test_preload_takes_any_model():
    assert preload("").count("x") == 1
