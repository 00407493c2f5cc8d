"""What a whole run does about failed tests: a few are repeated alone, and one that fails again fails the run."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
REPEAT = ROOT / "scripts" / "repeat_failed.py"
CONFTEST = ROOT / "tests" / "conftest.py"
TESTS = """
from pathlib import Path

def test_once():
    mark = Path("failed once")
    was = mark.exists()
    mark.touch()
    assert was

def test_always():
    assert False

def test_never():
    assert True
"""


def run(folder, *argv):
    environment = {
        **os.environ,
        "MAKIMONO_FAILED_TESTS": str(folder / "failed"),
        "PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}",
    }
    done = subprocess.run([sys.executable, *argv], cwd=folder, env=environment, capture_output=True, text=True)
    return done.returncode, done.stdout


@pytest.mark.parametrize(
    ("which", "code", "output"),
    [
        ("once", 0, "1 of the tests failed beside others and passed alone: test_here.py::test_once"),
        ("always", 1, "repeated alone: test_here.py::test_always"),
        ("never", 1, ""),
    ],
)
def test_a_test_that_fails_again_fails_the_run(tmp_path, which, code, output):
    (tmp_path / "test_here.py").write_text(TESTS)
    (tmp_path / "conftest.py").write_text(CONFTEST.read_text())
    run(tmp_path, "-m", "pytest", "-q", "-n", "1", "-k", which)
    got, printed = run(tmp_path, REPEAT, "failed")
    assert got == code
    assert output in printed


def test_many_failures_are_not_repeated(tmp_path):
    (tmp_path / "test_here.py").write_text(TESTS)
    (tmp_path / "failed").write_text(json.dumps([f"test_here.py::test_{one}" for one in range(4)]))
    assert run(tmp_path, REPEAT, "failed") == (1, "")
