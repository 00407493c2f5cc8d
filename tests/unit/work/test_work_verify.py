"""The verify command is judged by its exit code, whatever it prints."""

import pytest

from agent import proc
from agent.values import Finished
from agent.work.verify import Verdict, tail, touched_tests, verdict_of


def verified(command):
    return verdict_of(command, proc.run(["/bin/sh", "-c", command], env={"PATH": "/usr/bin:/bin"}, timeout=600))


def test_exit_code_zero_passes():
    verdict = verified("echo 3 passed")
    assert verdict.ok
    assert verdict.exit_code == 0
    assert verdict.tail == "3 passed\n"
    assert str(verdict).startswith("`echo 3 passed` passed in")


def test_a_verdict_which_people_see_has_no_secret_of_the_command():
    verdict = verdict_of("API_KEY=pw1 make test --token pw2", Finished(1, b"", 0.1))
    assert verdict.command == "API_KEY=******** make test --token ********"
    assert "pw" not in str(verdict)


def test_a_claim_of_success_with_another_exit_code_fails():
    verdict = verified("echo All tests passed; exit 5")
    assert not verdict.ok
    assert "failed with exit code 5" in str(verdict)


def test_a_command_that_is_not_there_fails():
    assert verified("pytest-that-is-not-installed").exit_code == 127


def test_a_command_that_could_not_be_started_says_why():
    assert str(Verdict("x", None, ok=False, duration=0.0, tail="no sandbox")) == "`x` could not be run: no sandbox"


def test_too_long_fails_even_with_exit_code_zero():
    verdict = verdict_of("x", Finished(0, b"so far\n", 9.0, timed_out=True))
    assert not verdict.ok
    assert verdict.timed_out
    assert str(verdict) == "`x` was ended after 9 s: too long"


def test_the_end_of_long_output_is_kept_in_whole_lines():
    text = tail("".join(f"line {number} é\n" for number in range(5000)).encode(), 100)
    assert len(text) <= 100
    assert text.startswith("line ")
    assert text.endswith("line 4999 é\n")
    assert tail(b"x" * 500, 100) == "x" * 100


@pytest.mark.parametrize(
    "path",
    [
        "tests/unit/test_a.py",
        "test_a.py",
        "pkg/conftest.py",
        "a/b_test.go",
        "src/x.test.ts",
        "src/__tests__/x.js",
        "spec/models/user_spec.rb",
        "src/test/java/AppTest.java",
        "AppTests.cs",
        "x/__snapshots__/a.snap",
        "test/fixtures/a",
    ],
)
def test_tests_are_recognised(path):
    assert touched_tests([path]) == [path]


@pytest.mark.parametrize(
    "path", ["src/app.py", "latest/x.py", "contest.py", "attestation.go", "docs/testing.md", "a/protest.ts"]
)
def test_others_are_not(path):
    assert touched_tests([path]) == []
