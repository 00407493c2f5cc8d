"""The arithmetic of a request: windows, reserves, marks."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.config import load
from agent.tokens import counter_for
from agent.window import WindowLimits

windows = st.integers(2_048, 2_000_000)
outputs = st.one_of(st.none(), st.integers(1, 400_000))
thresholds = st.sampled_from([0.1, 0.5, 0.7, 0.9, 1.0])
shares = st.sampled_from([0.5, 0.8, 0.95])


@given(windows, outputs, thresholds, shares, st.booleans())
def test_the_parts_of_a_window_never_overlap(window, output, threshold, share, exact):
    limits = WindowLimits.from_window(
        [("x", window)], max_output_tokens=output, threshold=threshold, share=share, exact=exact
    )
    assert limits.input_limit + limits.reserve + limits.margin <= window
    assert 0 < limits.compress_at <= limits.input_limit * 0.9
    assert limits.compress_at <= window * threshold
    assert limits.input_limit >= window * 0.45
    assert limits.output <= limits.reserve <= window // 4


@given(windows, st.integers(0, 50_000), outputs, thresholds, shares, st.booleans())
def test_a_larger_window_never_gives_a_smaller_limit(window, more, output, threshold, share, exact):
    def of(size):
        return WindowLimits.from_window(
            [("x", size)], max_output_tokens=output, threshold=threshold, share=share, exact=exact
        )

    small, large = of(window), of(window + more)
    assert small.input_limit <= large.input_limit
    assert small.compress_at <= large.compress_at
    assert small.reserve <= large.reserve


@given(st.lists(st.integers(2_048, 2_000_000), min_size=1, max_size=4))
def test_the_least_of_all_sources_is_the_window(sizes):
    assert WindowLimits.from_window([(str(size), size) for size in sizes]).window == min(sizes)


def test_case_21_an_output_limit_larger_than_the_window_is_clamped():
    limits = WindowLimits.from_window([("x", 128_000)], max_output_tokens=339_835)
    assert limits.output == limits.reserve == 32_000


def test_case_23_an_unknown_output_limit_leaves_most_of_a_small_window():
    limits = WindowLimits.from_window([("x", 16_384)])
    assert limits.reserve == 4_096
    assert limits.input_limit > 11_000
    assert limits.output == limits.reserve, "an answer without an end is cut where its room ends"


def test_case_11_every_deduction_is_made_once():
    limits = WindowLimits.from_window([("x", 100_000)], max_output_tokens=10_000, share=0.95, exact=True)
    assert limits.input_limit == 100_000 - 10_000 - 90_000 // 50
    assert limits.compress_at == 70_000


def test_the_seeds_example_compacts_at_seventy_percent():
    limits = WindowLimits.from_window([("llm.openai.context_length", 128_000)])
    assert limits.compress_at == int(128_000 * 0.7)


def settings(tmp_path, text="", **environ):
    path = tmp_path / "config.yaml"
    path.write_text(text or "llm: {provider: ollama, ollama: {model: qwen3-30b, context_length: 32768}}\n")
    return load(path, environ=environ)


def test_the_window_is_the_least_of_configured_loaded_and_learnt(tmp_path):
    config = settings(tmp_path)
    assert WindowLimits.from_settings(config).window == 32_768
    assert WindowLimits.from_settings(config, 8_192).window == 8_192
    assert WindowLimits.from_settings(config, 8_192, 6_000).window == 6_000
    assert WindowLimits.from_settings(config, 262_144).window == 32_768


def test_the_cap_of_mlc_counts_as_every_other(tmp_path):
    assert WindowLimits.from_settings(settings(tmp_path, MLC_MAX_CONTEXT_TOKENS="5000")).window == 5_000


def test_a_variable_of_the_model_comes_before_the_file(tmp_path):
    assert WindowLimits.from_settings(settings(tmp_path, QWEN3_30B_MAX_CONTEXT_TOKENS="16384")).window == 16_384


def test_most_tokens_of_a_request_can_be_configured(tmp_path):
    config = settings(tmp_path, "assembler: {max_tokens: 9000}\nllm: {openai: {context_length: 128000}}\n")
    assert WindowLimits.from_settings(config).window == 9_000


def test_the_explanation_names_every_number_and_its_source(tmp_path):
    text = WindowLimits.from_settings(settings(tmp_path), 8_192).explain()
    assert "window 8,192 tokens: loaded by the server" in text
    assert "not 32,768: llm.ollama.context_length" in text
    assert "also 32,768: loaded by the server" in WindowLimits.from_settings(settings(tmp_path), 32_768).explain()
    assert "compacts above" in text
    assert "an estimate" not in text
    assert "bytes:unknown: an estimate" in WindowLimits.from_settings(settings(tmp_path)).explain(counter_for("phi4"))
    assert "o200k_base: the model's own" in WindowLimits.from_settings(settings(tmp_path)).explain(
        counter_for("gpt-4o")
    )


def test_a_mad_variable_is_named(tmp_path):
    with pytest.raises(Exception, match="MLC_MAX_CONTEXT_TOKENS"):
        WindowLimits.from_settings(settings(tmp_path, MLC_MAX_CONTEXT_TOKENS="lots"))
