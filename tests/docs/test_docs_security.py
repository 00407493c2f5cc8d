"""docs/security.md says what the code does."""

from importlib import import_module
from pathlib import Path

from agent.sandbox import environment
from agent.security.finding_catalogue import RULES, markdown

TEXT = (Path(__file__).resolve().parents[2] / "docs" / "security.md").read_text(encoding="utf-8")


def test_the_table_of_rules_is_the_one_of_the_code():
    assert markdown() in TEXT
    assert all(f"| {rule} |" in TEXT for rule in RULES)


def test_every_public_file_of_etc_is_named():
    for name in environment.ETC_ALWAYS:
        assert f"`{name}`" in TEXT


def test_the_advice_of_the_probe_is_the_one_of_the_page():
    module = import_module("agent.sandbox.probe")
    for word in ("kernel.apparmor_restrict_unprivileged_userns", "flags=(unconfined)", "apparmor_parser -r"):
        assert word in module.APPARMOR
        assert word in TEXT
    assert "user.max_user_namespaces" in module.NAMESPACES
    assert "user.max_user_namespaces" in TEXT
    for word in module.CONTAINER.split():
        if word.startswith("--"):
            assert word in TEXT
