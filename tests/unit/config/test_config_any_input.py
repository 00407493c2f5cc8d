"""Whatever stands in the configuration: it is taken, or refused with a ConfigError; nothing else comes out."""

import json
from contextlib import suppress
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from length import either

from agent.config import Settings, key_tree, load, settings_of, yamlfile
from agent.errors import ConfigError

WORDS = sorted(
    {step for path, _ in key_tree.leaves(Settings) for step in path} | {"endpoint", "0", "", "${A}", "${", "a.b"}
)
KEYS = st.sampled_from(WORDS) | st.text(max_size=8)
LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | KEYS | st.just("http://h:1")
TREES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4), max_leaves=20
)


@settings(max_examples=either(30, 60), deadline=None)
@given(st.dictionaries(KEYS, TREES, max_size=5))
def test_any_mapping_is_taken_or_refused(mapping):
    with suppress(ConfigError):
        found = settings_of(mapping)
        assert found.show()
        assert found.provider().context_length > 0


@settings(max_examples=either(30, 60), deadline=None)
@given(st.text(max_size=60) | st.text(alphabet="ab:-[]{}&*<!|>'#?%@ \n\t\\\"", max_size=40))
def test_any_text_is_parsed_or_refused(text):
    with suppress(ConfigError):
        assert isinstance(yamlfile.parse(text, "config.yaml")[0], dict)


@settings(max_examples=either(20, 40), deadline=None)
@given(st.lists(st.sampled_from(WORDS), min_size=1, max_size=4), TREES)
def test_any_variable_is_taken_or_refused(steps, value):
    text = value if isinstance(value, str) else json.dumps(value)
    with suppress(ConfigError):
        assert load(Path("/dev/null"), environ={"AGENT__" + "__".join(steps).upper(): text}).show()
