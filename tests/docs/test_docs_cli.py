"""docs/cli.md says what the program does."""

import os
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


def test_systemd_takes_the_unit_and_its_drop_in_as_they_are_printed(tmp_path):
    """Only the paths of the installation are replaced.  Two keys are newer than some versions of systemd."""
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("systemd is not installed")
    unit, drop_in = re.findall(r"```ini\n(.*?)```", text("docs/operations.md"), re.DOTALL)
    path = tmp_path / "makimono.service"
    (tmp_path / "makimono.service.d").mkdir()
    (tmp_path / "makimono.service.d" / "ksm.conf").write_text(drop_in)
    path.write_text(unit.replace("/opt/makimono/.venv/bin/python", sys.executable).replace("/opt/makimono", str(ROOT)))
    done = subprocess.run([analyze, "verify", "--man=no", path], capture_output=True, text=True)
    newer = ("DelegateSubgroup", "MemoryKSM")
    said = [line for line in done.stderr.splitlines() if "makimono.service" in line and not any(map(line.count, newer))]
    assert (done.returncode, said) == (0, [])
    path.write_text(path.read_text().replace("Restart=always", "Restart=sometimes"))
    wrong = subprocess.run([analyze, "verify", "--man=no", path], capture_output=True, text=True)
    assert "sometimes" in wrong.stderr, "it does look"


@pytest.fixture
def installed(tmp_path):
    """The program as it is installed in /opt/makimono, with a configuration and the home of its user."""
    place = tmp_path / "opt"
    (place / ".venv" / "bin").mkdir(parents=True)
    (place / "scripts").mkdir()
    for name in ("scripts/setup", "scripts/cleanup.sh", "requirements.lock"):
        shutil.copy(ROOT / name, place / name)
    (place / "main.py").symlink_to(ROOT / "main.py")
    python = place / ".venv" / "bin" / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    lock = (place / "requirements.lock").read_bytes()
    want = subprocess.run(["cksum"], input=lock, capture_output=True, check=True).stdout
    (place / ".venv" / "requirements.lock.installed").write_bytes(want)
    (tmp_path / "tracker" / "issues").mkdir(parents=True)
    (tmp_path / "home").mkdir()
    (tmp_path / "config.yaml").write_text(
        "task_sources: [local]\nlocal: {tracker: tracker}\n"
        "llm: {provider: openai, openai: {model: m, context_length: 32000}}\nsandbox: {kind: none}\n"
    )
    argv = [sys.executable, ROOT / "main.py", "run", "--once", "--config", tmp_path / "config.yaml"]
    subprocess.run(argv, env={"PATH": os.environ["PATH"], "OPENAI_API_KEY": "key"}, check=True, capture_output=True)
    return tmp_path


def run_as_cron(here):
    """The printed line as cron(8) runs it: the sixth field is the user, the rest goes to sh in the user's home."""
    (line,) = re.findall(r"```cron\n#.*\n(.*?)\n```", text("docs/operations.md"))
    command = line.split(None, 6)[6]
    assert "%" not in command, "cron would end the command there, crontab(5)"
    for there, here_is in (("/opt/makimono", "opt"), ("/etc/makimono.env", "env"), ("/etc/makimono/config", "config")):
        command = command.replace(there, str(here / here_is))
    return subprocess.run(
        ["/bin/sh", "-c", command],
        cwd=here / "home",
        env={"HOME": str(here / "home"), "LOGNAME": "makimono", "PATH": "/usr/bin:/bin", "SHELL": "/bin/sh"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )


@pytest.mark.parametrize("env", [None, "OPENAI_API_KEY='a key; with # and $signs'\n"], ids=["no file", "file"])
def test_the_line_of_cron_runs_as_it_is_printed(installed, env):
    """The unit takes a missing file of variables (`EnvironmentFile=-`), and so does cron's line."""
    if env is not None:
        (installed / "env").write_text(env)
    done = run_as_cron(installed)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_line_of_cron_reads_the_file_of_variables(installed):
    (installed / "env").write_text("AGENT__LLM__PROVIDER=nobody\n")
    assert "nobody" in run_as_cron(installed).stderr
