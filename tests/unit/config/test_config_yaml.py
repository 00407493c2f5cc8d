"""What is refused while config.yaml is read."""

import pytest

from agent.config import load, yamlfile
from agent.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: 1\nb: [1, 2\nc: 3\n", "line 3, column 2: not valid YAML"),
        ("a: b: c\n", "line 1, column 5: not valid YAML: mapping values are not allowed here"),
        ("a: 1\na: 2\n", "line 2: a stands here again (first in line 1); keep one"),
        ("x:\n  a: 1\n  b: 2\n  a: 3\n", "line 4: x.a stands here again (first in line 2)"),
        ("x:\n- a: 1\n  a: 3\n", "line 3: x.0.a stands here again"),
        ("- a\n", "line 1: found a list; the top level must be a mapping"),
        ("words\n", "line 1: found a single value; the top level must be a mapping"),
        ("on: 1\n", "line 1: the key 'on' is not text; put it in quotes"),
        ("1: 1\n", "line 1: the key '1' is not text"),
        ("? [a]\n: 1\n", "line 1: the key a list is not text"),
        ("a: 1\n---\nb: 2\n", "not valid YAML"),
        ("a: !!python/object/apply:os.system ['true']\n", "line 1, column 4: not valid YAML: could not determine"),
        ("a: 2026-13-45\n", "a value cannot be read"),
        ("a: \x07\n", "is not allowed in YAML"),
        ("a: &x [*x]\n", "nested too deeply"),
        ("a: " + "[" * 1000 + "\n", "nested too deeply"),
    ],
)
def test_broken_files_are_refused_with_the_line(text, said):
    with pytest.raises(ConfigError) as caught:
        yamlfile.parse(text, "config.yaml")
    assert str(caught.value).startswith("config.yaml")
    assert said in str(caught.value)


def test_an_error_never_repeats_the_line_that_may_hold_a_secret():
    with pytest.raises(ConfigError) as caught:
        yamlfile.parse('token: "sk-very-secret\nother: 1\n', "config.yaml")
    assert "sk-very-secret" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_aliases_of_aliases_end():
    text = "a: &a [x, x, x, x, x, x, x, x, x, x]\n"
    for before, name in zip("abcdefg", "bcdefgh", strict=True):
        text += f"{name}: &{name} [{', '.join([f'*{before}'] * 10)}]\n"
    with pytest.raises(ConfigError, match="aliases of aliases"):
        yamlfile.parse(text, "config.yaml")


def test_anchors_and_merges_are_welcome():
    text = "x: &x {a: 1, b: 2}\ny: {<<: *x, b: 3}\n"
    assert yamlfile.parse(text, "f")[0]["y"] == {"a": 1, "b": 3}


def test_empty_files_and_bom_and_crlf_are_read(tmp_path):
    path = tmp_path / "config.yaml"
    for content in (b"", b"# nothing\n", b"\xef\xbb\xbflimits:\r\n  turns: 200\r\n"):
        path.write_bytes(content)
        assert load(path, environ={}).limits.turns == 200


def test_bytes_that_are_not_utf8_are_refused(tmp_path):
    path = tmp_path / "config.yaml"
    path.write_bytes("a: あ".encode("shift_jis"))
    with pytest.raises(ConfigError, match="is not UTF-8; save the file as UTF-8"):
        load(path, environ={})


def test_a_folder_is_no_configuration(tmp_path):
    with pytest.raises(ConfigError, match=r"is a folder; name the file in it, like .*/config\.yaml"):
        load(tmp_path, environ={})


def test_each_key_has_its_line():
    assert yamlfile.parse("a:\n  b: 1\n  c:\n  - d\n", "f")[1] == {
        ("a",): 1,
        ("a", "b"): 2,
        ("a", "c"): 3,
        ("a", "c", "0"): 4,
    }
