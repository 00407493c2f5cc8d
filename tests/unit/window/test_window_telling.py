"""What lines of real outputs say, and which of them an excerpt of a long output has."""

import pytest
from runner_outputs import SAMPLES

from agent.window.failure_excerpt import FailureLines
from agent.window.output_lines import FAULT, NAME, PLACE, REST, parse_line


def words(text):
    return len(text.split())


def of(field):
    return [pytest.param(line, id=f"{one.tool}: {line}"[:60]) for one in SAMPLES for line in getattr(one, field)]


def ids(sample):
    return sample.tool


@pytest.mark.parametrize("line", of("names"))
def test_a_line_that_names_a_failing_test_says_so(line):
    assert parse_line(line)[0] == NAME


@pytest.mark.parametrize("line", of("faults"))
def test_a_line_that_says_why_is_a_fault_or_a_place(line):
    assert parse_line(line)[0] in (FAULT, PLACE)


@pytest.mark.parametrize("line", of("passed"))
def test_what_passed_never_tells_whatever_its_name_is(line):
    assert parse_line(line) == (REST, "")


@pytest.mark.parametrize("sample", SAMPLES, ids=ids)
def test_failures_in_the_middle_of_a_long_output_are_shown(sample):
    passed = sample.passed or ("   Compiling one more part of the program",)
    noise = [passed[number % len(passed)].replace("1", f"{number}") for number in range(1500)]
    lines = [*noise, *sample.output.split("\n"), *noise, "the end of it"]
    shown = FailureLines(lines).excerpt(100, words)
    assert words(shown) <= 100
    for line in (*sample.names, *sample.faults):
        assert line in shown.split("\n")
    assert shown.endswith("the end of it")


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("FAILED tests/a.py::test_b[x - y] - assert 1 == 2", "tests/a.py::test_b[x - y]"),
        ("tests/a.py::test_b FAILED                        [ 50%]", "tests/a.py::test_b"),
        ("FAIL: test_b (a.B.test_b)", "test_b (a.B.test_b)"),
        ("test_b (a.B.test_b) ... FAIL", "test_b (a.B.test_b)"),
        ("--- FAIL: TestB (0.00s)", "TestB"),
        ("✕ adds - twice (3 ms)", "adds - twice"),
        ("2/2 Test #2: rounds .......***Failed    0.00 sec", "2/2 Test #2: rounds"),
    ],
)
def test_a_name_stands_without_its_message_time_and_share(line, name):
    assert parse_line(line) == (NAME, name)


@pytest.mark.parametrize(
    ("line", "sort"),
    [
        ("src/a.c:3:5: warning: unused variable 'error' [-Wunused-variable]", PLACE),
        ("  2:1  warning  Unexpected console error  no-console", PLACE),
        ("0 errors, 0 failures", REST),
        ("Found 0 errors. Watching for file changes.", REST),
        ("10 errors", FAULT),
        ("FAILED (failures=1)", FAULT),
        ("test result: FAILED. 1 passed; 1 failed; 0 ignored", FAULT),
        ("2026-01-02 03:04:05 listening on port 80", REST),
    ],
)
def test_warnings_and_counts_of_nothing_are_no_faults(line, sort):
    assert parse_line(line)[0] == sort


def test_names_come_before_faults_and_both_before_the_end():
    lines = [f"src/a{n}.py:{n}: ValueError: bad value {n}" for n in range(300)]
    lines[150:150] = ["FAIL: test_b (a.B.test_b)", "FAIL: test_c (a.B.test_c)"]
    shown = FailureLines(lines).excerpt(20, words)
    assert "FAIL: test_b (a.B.test_b)\nFAIL: test_c (a.B.test_c)" in shown


def test_a_line_that_stands_there_often_is_shown_once():
    lines = [*(["connection error: refused by the host"] * 200), "ValueError: the cause", *(["try again"] * 200)]
    shown = FailureLines(lines).excerpt(30, words).split("\n")
    assert shown.count("connection error: refused by the host") == 1
    assert shown.count("try again") == 1
    assert "ValueError: the cause" in shown


@pytest.mark.parametrize("line", ["FAIL: " + "test_kestrel " * 40, "ValueError: kestrel " + "is wrong " * 40])
@pytest.mark.parametrize("room", [8, 12, 30])
def test_the_first_telling_line_is_shortened_rather_than_left_out(line, room):
    shown = FailureLines(["setting up"] * 30 + [line] + ["taking down"] * 30).excerpt(room, words)
    assert "kestrel" in shown
    assert words(shown) <= room


def test_all_names_of_many_failing_tests_share_the_room_with_the_cause_and_the_end():
    lines = [f"FAILED tests/test_a.py::test_{number} - KeyError: 'rate'" for number in range(1000)]
    shown = FailureLines(["E   KeyError: 'rate'", *lines, "1000 failed in 3.20s"]).excerpt(100, words).split("\n")
    assert "E   KeyError: 'rate'" in shown
    assert shown[-1] == "1000 failed in 3.20s"
    assert sum("FAILED" in line for line in shown) > 10


def test_what_is_known_of_a_long_output_is_bounded():
    lines = FailureLines(f"tests/a.py::test_{n} {'x' * 400} FAILED" for n in range(4000))
    more = FailureLines(f"src/a.py:{n}: error: {n} {'x' * 400}" for n in range(4000))
    for one in (lines, more):
        assert one.size < 200_000
