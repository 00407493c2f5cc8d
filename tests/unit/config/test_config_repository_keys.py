"""The file `.makimono.yaml` of a repository: what it may set, and hostile texts."""

import re

import pytest

from agent.config import load, settings_of
from agent.config.project_settings import for_project
from agent.config.repository_keys import FILE, MOST_BYTES, MOST_INSTRUCTIONS, RepositoryKeys, parse_file, with_file
from agent.config.repository_section import KEYS
from agent.errors import ConfigError

ALLOWED = ("verify", "base", "instructions")
BOMB = b"a: &a [x, x, x, x, x, x, x, x, x, x]\n" + b"".join(
    b"%c: &%c [%s]\n" % (one, one, b", ".join([b"*%c" % (one - 1)] * 10)) for one in b"bcdefgh"
)


def test_the_file_sets_a_check_a_base_and_instructions():
    keys = parse_file(b"\xef\xbb\xbfverify: {command: make test}\nbase: develop\ninstructions: Use tabs.\n", ALLOWED)
    assert (keys.verify.command, keys.verify.timeout, keys.base) == ("make test", 600, "develop")
    assert keys.instructions == "Use tabs."
    settings = with_file(settings_of({"verify": {"command": "make"}}), keys)
    assert (settings.verify.command, settings.workspace.base) == ("make test", "develop")
    assert settings.origins["verify.command"] == FILE
    assert parse_file(b"", ALLOWED) == RepositoryKeys()
    same = settings_of({})
    assert with_file(same, RepositoryKeys()) is same


def test_a_set_up_of_the_file_has_the_network_that_the_operator_gives_it():
    text = b"setup: {command: npm ci, env: {A: b}}\n"
    settings = settings_of({"repository_file": {"allow": [*KEYS], "network": ["registry.npmjs.org"]}})
    setup = with_file(settings, parse_file(text, KEYS)).workspace.setup
    assert (setup.command, setup.network, setup.env) == ("npm ci", ("registry.npmjs.org",), {"A": "b"})
    with pytest.raises(ConfigError, match=r"\.makimono\.yaml, line 1: setup\.network is not a known key"):
        parse_file(b"setup: {command: npm ci, network: true}\n", KEYS)


def test_the_operators_entry_of_the_project_comes_first(tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text(
        "task_sources: [github]\ngithub: {token: x, projects: [{name: acme/web, verify: {command: theirs}}]}\n"
    )
    settings = load(path, environ={})
    of_project = for_project(settings, settings.github[0], "acme/web")
    made = with_file(of_project, parse_file(b"verify: {command: ours}\nbase: develop\n", ALLOWED))
    assert (made.verify.command, made.workspace.base) == ("theirs", "develop")


def test_no_variable_of_the_environment_gets_into_the_file(monkeypatch):
    monkeypatch.setenv("OPERATORS", "secret")
    assert parse_file(b"verify: {command: 'echo ${OPERATORS}'}\n", ALLOWED).verify.command == "echo ${OPERATORS}"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"verify: {comand: x}\n", "line 1: verify.comand is not a known key; did you mean verify.command? Known here"),
        (b"\nverify:\n  timeout: 5\n", "line 2: verify.command is missing"),
        (
            b"verify: {command: x, timeout: 1000000}\n",
            "line 1: verify.timeout: found 1000000; allowed is a number abov",
        ),
        (b"base: [main]\n", "line 1: base: found a list; allowed is the name of a git branch"),
        (b"base: ../../x\n", "line 1: base: found '../../x'"),
        (b"\nbase: refs/heads/gone\n", "line 2: base: found 'refs/heads/gone'; allowed is a branch of the repository"),
        (b"sandbox: {kind: none}\n", "line 1: sandbox is not a known key"),
        (b"setup: {command: npm ci}\n", "line 1: setup may not be set here (`repository_file.allow`); allowed are ver"),
        (b"base: a\nbase: b\n", "line 2: base stands here again (first in line 1)"),
        (b"- verify\n", "line 1: found a list; the top level must be a mapping"),
        (b"verify: {command: \xff\xfe}\n", "byte 18 is not UTF-8"),
        (b"verify: !!python/object/apply:os.system [id]\n", "line 1, column 9: not valid YAML"),
        (b"a: &a [*a]\n", "nested too deeply"),
        (b"--- {}\n--- {}\n", "line 2, column 1: not valid YAML"),
        (b"base: " + b"[" * 20_000, "nested too deeply"),
        (b"base: " + b"9" * 20_000, "a value cannot be read"),
        (BOMB, "more than 20000 values; are there aliases of aliases?"),
        (b"#" * (MOST_BYTES + 1), f"the file has {MOST_BYTES + 1} bytes"),
        (b"instructions: " + b"x" * (MOST_INSTRUCTIONS + 1), "line 1: instructions: found 'xxx"),
        (b"base: \x00\n", "character 6 is not allowed in YAML"),
    ],
)
def test_a_hostile_or_wrong_file_is_an_error_with_its_place(text, said):
    with pytest.raises(ConfigError, match="^" + re.escape(FILE)) as caught:
        parse_file(text, ALLOWED, "main".__eq__)
    assert said in str(caught.value)
    assert len(str(caught.value)) < 2000
