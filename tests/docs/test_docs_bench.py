"""docs/bench.md says what scripts/bench measures."""

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def run(*arguments, check=True):
    env = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'scripts'}"}
    command = [sys.executable, "-m", *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=check)


def listed():
    return [line.split()[0] for line in run("benchmarks", "--list").stdout.splitlines()]


def test_every_bench_stands_in_the_document_and_has_its_module():
    page = (ROOT / "docs/bench.md").read_text(encoding="utf-8")
    names = listed()
    assert names
    for name in names:
        assert f"| `{name}` |" in page, name
        assert (ROOT / "scripts" / "benchmarks" / f"{name}.py").is_file()


def test_every_bench_has_a_measured_figure():
    measured = (ROOT / "docs/bench.md").read_text(encoding="utf-8").partition("\n## As measured\n")[2]
    assert [name for name in listed() if f"\n| `{name}." not in measured and f"\n| `{name}` |" not in measured] == []


def test_a_bench_that_there_is_not_is_answered_with_those_that_there_are():
    done = run("benchmarks", "speed", check=False)
    assert done.returncode == 2
    assert "no bench speed; there are memory, append" in done.stderr


def test_a_bench_that_builds_requests_uses_the_client_as_it_is(tmp_path):
    size = 4 * 16_384  # four messages of the bench
    assert json.loads(run("benchmarks.memory", "append", size, tmp_path).stdout)["messages"] == 6
    assert json.loads(run("benchmarks.memory", "openai", size, tmp_path).stdout)["messages"] == 6
