"""docs/cli.md says what the program does."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from agent.cli import docs_page

ROOT = Path(__file__).resolve().parents[2]


def text(name):
    return (ROOT / name).read_text(encoding="utf-8")


def test_the_page_is_what_the_program_makes():
    assert text("docs/cli.md") == docs_page.markdown()


def test_every_command_has_a_heading_and_a_meaning():
    for name, command in docs_page.commands():
        assert f"## `{docs_page.usage(name, command)}`" in text("docs/cli.md")
        assert command.help.strip(), name
        for parameter in command.params:
            assert parameter.help, f"{name}: {parameter.name} has no help"


@pytest.mark.parametrize("name", sorted(str(path.relative_to(ROOT)) for path in ROOT.glob("docs/*.md")))
def test_commands_that_pages_name_exist(name):
    known = {command.split()[0] for command, _ in docs_page.commands()}
    assert set(re.findall(r"main\.py ([a-z]+)\b", text(name))) - known == set()


def test_every_page_that_says_so_is_made_by_the_script():
    script = text("scripts/write_docs.py")
    for path in ROOT.glob("docs/*.md"):
        if "(`scripts/write_docs.py`)" in path.read_text(encoding="utf-8"):
            assert str(path.relative_to(ROOT)) in script


def test_the_script_writes_every_page_when_it_is_called_as_the_rules_say(tmp_path):
    """From another folder, without a PYTHONPATH; into a copy, whose pages do not exist yet."""
    (tmp_path / "scripts").mkdir()
    (tmp_path / "docs").mkdir()
    (tmp_path / "agent").symlink_to(ROOT / "agent")
    script = shutil.copy(ROOT / "scripts" / "write_docs.py", tmp_path / "scripts")
    done = subprocess.run([sys.executable, script], cwd="/", env={}, capture_output=True, text=True)
    assert done.stderr == ""
    written = done.stdout.split()
    assert "docs/prompts.md" in written
    assert len(written) == 6
    for name in written:
        assert (tmp_path / name).read_bytes() == (ROOT / name).read_bytes()


def test_what_is_printed_for_a_service_and_for_cron_names_its_configuration():
    """Without it both would use the repository's own file, or none."""
    page = text("docs/operations.md")
    calls = [line for line in page.splitlines() if re.match(r"ExecStart=|\d+ \d+ \* \* \*", line)]
    assert len(calls) == 2
    assert all("--config /etc/makimono/config.yaml" in line for line in calls)
    assert "RestartPreventExitStatus=2" in page


def test_systemd_takes_the_unit_as_it_is_printed(tmp_path):
    """Of the paths only those of the installation are another's here.  `DelegateSubgroup` is newer than some systemd."""
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("systemd is not installed")
    (unit,) = re.findall(r"```ini\n(.*?)```", text("docs/operations.md"), re.DOTALL)
    path = tmp_path / "makimono.service"
    path.write_text(unit.replace("/opt/makimono/.venv/bin/python", sys.executable).replace("/opt/makimono", str(ROOT)))
    done = subprocess.run([analyze, "verify", "--man=no", path], capture_output=True, text=True)
    said = [line for line in done.stderr.splitlines() if "makimono.service" in line and "DelegateSubgroup" not in line]
    assert (done.returncode, said) == (0, [])
    path.write_text(path.read_text().replace("Restart=always", "Restart=sometimes"))
    wrong = subprocess.run([analyze, "verify", "--man=no", path], capture_output=True, text=True)
    assert "sometimes" in wrong.stderr, "it does look"
