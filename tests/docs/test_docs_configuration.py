"""config.yaml, docs/configuration.md, docs/events.md and docs/metrics.md say what the program does."""

import ast
import re
from pathlib import Path

import pytest
import yaml

from agent.config import Settings, key_tree, load, reference, repository_keys, settings_of
from agent.observe import events, metrics

ROOT = Path(__file__).resolve().parents[2]


def test_the_configuration_page_is_what_the_program_makes():
    assert (ROOT / "docs/configuration.md").read_text(encoding="utf-8") == reference.markdown()


def test_the_events_page_is_what_the_program_makes():
    assert (ROOT / "docs/events.md").read_text(encoding="utf-8") == events.markdown()


def test_the_metrics_page_is_what_the_program_makes():
    assert (ROOT / "docs/metrics.md").read_text(encoding="utf-8") == metrics.markdown()


def test_config_yaml_is_what_the_program_makes():
    assert (ROOT / "config.yaml").read_text(encoding="utf-8") == reference.example()


def test_config_yaml_loads_equal_to_the_defaults():
    path = ROOT / "config.yaml"
    assert load(path, environ={}) == Settings.build({}, root=ROOT, origins={}, variables={})


def test_every_key_has_a_meaning_and_stands_in_both_documents():
    page = (ROOT / "docs/configuration.md").read_text(encoding="utf-8")
    for path, field in key_tree.leaves(Settings):
        assert field.description, path
        assert f"- `{'.'.join(path)}`: " in page


def test_the_optional_mappings_of_config_yaml_are_right_when_they_are_taken_in(tmp_path):
    """Take the `#` from the commented `price`, `app` and `setup`, fill them, and load."""
    text = (ROOT / "config.yaml").read_text(encoding="utf-8")
    for name in ("price", "app", "setup"):
        text = re.sub(rf"^( *){name}:\n", "", text, flags=re.MULTILINE)
    text = re.sub(r"^( *)# ((?:  )?(?:# )?.*)$", _uncommented, text, flags=re.MULTILINE)
    values = {"input": "1", "output": "2", "id": "5", "private_key_file": "k.pem", "command": "make"}
    for name, value in values.items():
        text = re.sub(rf"^( *){name}:$", rf"\g<1>{name}: {value}", text, flags=re.MULTILINE)
    path = tmp_path / "config.yaml"
    path.write_text(text, encoding="utf-8")
    settings = load(path, environ={})
    assert settings.llm.openai.price is not None
    assert settings.github[0].app is not None
    assert settings.workspace.setup is not None
    assert settings.workspace.setup.timeout == 1800


def _uncommented(match: re.Match[str]) -> str:
    pad, rest = match[1], match[2]
    is_key = re.fullmatch(r"(?:  )?[a-z_]+:(?: \S+)?", rest)
    return f"{pad}{rest}" if is_key else match[0]


def test_every_event_has_one_line_of_meaning():
    for name, meaning in events.EVENTS.items():
        assert re.fullmatch(r"(?:[a-z]+\.)?[a-z]+(_[a-z]+)*", name)
        assert meaning.endswith((".", ")."))
        assert "\n" not in meaning
    assert set(events.LEVELS) <= set(events.EVENTS)
    assert set(events.MESSAGES) <= set(events.EVENTS)


def test_the_events_are_just_those_that_are_announced():
    """An unknown name raises, but perhaps only in a branch that no test takes; one that never comes misleads."""
    announced = {"listener_failed"}  # goes to the log directly, since a listener has just failed
    for path in (ROOT / "agent").rglob("*.py"):
        found = re.findall(r"\b_?emit\(\s*\"([a-z_.]+)\"", path.read_text(encoding="utf-8"))
        assert set(found) <= set(events.EVENTS), path.name
        announced.update(found)
        if path.parent.name in ("commands", "daemon", "intake", "worker", "issue", "wiring"):
            announced.update(re.findall(r"log\.get\([^)]*\)\.\w+\(\"([a-z_]+)\"", path.read_text(encoding="utf-8")))
    assert set(events.EVENTS) - announced == set()


def test_only_this_room_reads_the_environment():
    for path in (ROOT / "agent").rglob("*.py"):
        if path.parent.name != "config" and re.search(rb"environ|getenv", path.read_bytes()):
            names = {node.attr for node in ast.walk(ast.parse(path.read_bytes())) if isinstance(node, ast.Attribute)}
            assert not names & {"environ", "environb", "getenv"}, f"{path} reads the environment"


def examples():
    """(page, text) of each example in YAML; tests/docs/test_docs_servers.py has those of servers.md, which are parts."""
    for path in sorted({ROOT / "README.md", *(ROOT / "docs").rglob("*.md")}):
        if path.name != "servers.md":
            for block in re.findall(r"(?ms)^```yaml\n(.*?)^```$", path.read_text(encoding="utf-8")):
                yield path.relative_to(ROOT).as_posix(), block


EXAMPLES = list(examples())
OF_KUBERNETES = "livenessProbe:"
OF_A_REPOSITORY = "instructions:"


@pytest.mark.parametrize(
    ("page", "block"), [one for one in EXAMPLES if OF_KUBERNETES not in one[1] and OF_A_REPOSITORY not in one[1]]
)
def test_every_configuration_on_a_page_is_valid(monkeypatch, page, block):
    for name in {"GITHUB_TOKEN", "GITLAB_TOKEN", "FORGEJO_TOKEN", *re.findall(r"\$\{(\w+)\}", block)}:
        monkeypatch.setenv(name, "0123456789abcdef")
    assert settings_of(yaml.safe_load(block))


def test_every_file_of_a_repository_on_a_page_is_valid():
    (block,) = [block for _, block in EXAMPLES if OF_A_REPOSITORY in block]
    found = repository_keys.parse_file(block.encode(), ("verify", "base", "instructions"))
    assert found.model_fields_set == set(yaml.safe_load(block))
