"""Two runs of a red check compared: is it the same fault, or a new one?"""

import pytest

from agent.work.check_outline import Outline, is_contained, outline

PYTEST = """\
..F..                                                    [100%]
=================================== FAILURES ===================================
tests/test_a.py:{line}: AssertionError
=========================== short test summary info ============================
FAILED tests/test_a.py::test_old[1 - 2] - AssertionError: assert {value} == 2
1 failed, {passed} passed in {took}s
"""
UNITTEST = """\
test_old (test_a.T.test_old) ... FAIL
{more}
======================================================================
FAIL: test_old (test_a.T.test_old)
----------------------------------------------------------------------
Ran {ran} tests in {took}s

FAILED (failures={failures})
"""
GO = "--- FAIL: TestOld ({took}s)\n    a_test.go:{line}: got 1\nFAIL\nexit status 1\nFAIL\texample.com/a\t{took}s\n"
CARGO = "test tests::old ... FAILED\ntest tests::fine ... ok\n\ntest result: FAILED. {passed} passed; 1 failed; finished in {took}s\n"
JEST = "  ● sums › old\n\n    expect(received)\n\nTests:       1 failed, {passed} passed\nTime:        {took} s\n"
TAP = "TAP version 13\nok 1 - fine\nnot ok {number} - old\n# fail 1\n# duration_ms {took}\n"
MAVEN = "[ERROR]   SumTest.old:{line} expected: <1>\n[ERROR] Tests run: {passed}, Failures: 1, Errors: 0\n"
RUFF = "a.py:{line}:5: F401 `os` imported but unused\nFound 1 error.\n"
MAKE = "cc -c a.c\na.c:{line}:1: error: unknown type name 'x'\nmake: *** [Makefile:{line}: all] Error 1\n"


@pytest.mark.parametrize(
    ("text", "before", "after"),
    [
        (PYTEST, {"line": 3, "value": 1, "passed": 4, "took": "0.02"}, {"line": 33, "value": 1, "passed": 5, "took": "1.20"}),
        (UNITTEST, {"more": "", "ran": 1, "took": "0.001", "failures": 1}, {"more": "test_new (test_a.T.test_new) ... ok", "ran": 2, "took": "0.1", "failures": 1}),
        (GO, {"took": "0.00", "line": 5}, {"took": "0.31", "line": 9}),
        (CARGO, {"passed": 1, "took": "0.00"}, {"passed": 2, "took": "0.10"}),
        (JEST, {"passed": 1, "took": "0.4"}, {"passed": 8, "took": "12"}),
        (TAP, {"number": 2, "took": 3.1}, {"number": 7, "took": 99}),
        (MAVEN, {"line": 4, "passed": 3}, {"line": 8, "passed": 5}),
        (RUFF, {"line": 1}, {"line": 9}),
        (MAKE, {"line": 2}, {"line": 22}),
        ("{x}", {"x": ""}, {"x": ""}),
        ("\x1b[31mboom\x1b[0m in /tmp/a1/b at 0x7f00 12:00:01{x}", {"x": ""}, {"x": " "}),
    ],
)  # fmt: skip
def test_the_same_fault_with_other_numbers_is_the_same(text, before, after):
    one, two = outline(text.format(**before)), outline(text.format(**after))
    assert is_contained(two, one)
    assert is_contained(one, one)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (PYTEST, PYTEST + "FAILED tests/test_a.py::test_new - Boom\n"),
        (PYTEST, PYTEST.replace("test_old[1 - 2]", "test_new")),
        (PYTEST, PYTEST + "a.py:1:1: F401 unused\nFound 1 error.\n"),
        (PYTEST, "ModuleNotFoundError: No module named 'lib'\n"),
        ("ModuleNotFoundError: No module named 'lib'\n", PYTEST),
        (GO, GO + "--- FAIL: TestNew (0.00s)\n"),
        (CARGO, CARGO + "test tests::new ... FAILED\n"),
        (JEST, JEST.replace("old", "new")),
        (TAP, TAP.replace("old", "new")),
        (RUFF, RUFF + "b.py:1:5: F401 `os` imported but unused\n"),
        (RUFF, RUFF.replace("Found 1 error", "Found 2 errors") + "a.py:7:5: F401 `os` imported but unused\n"),
        (MAKE, MAKE.replace("unknown type name 'x'", "expected ';'")),
        ("", "boom\n"),
    ],
)
def test_a_new_fault_is_not_the_same(before, after):
    assert not is_contained(outline(after), outline(before))


def test_a_fault_less_is_contained_and_one_that_nobody_can_compare_is_not():
    two = PYTEST + "FAILED tests/test_b.py::test_other - Boom\n"
    assert is_contained(outline(PYTEST), outline(two))
    assert not is_contained(outline("x\n"), outline("x\n", whole=False))
    assert is_contained(outline(PYTEST, whole=False), outline(PYTEST, whole=False))
    long = "".join(f"line {chr(97 + n % 26)}{chr(97 + n // 26 % 26)}{chr(97 + n // 676)}\n" for n in range(9000))
    assert not outline(long).whole


def test_it_comes_back_from_what_is_written():
    made = outline(PYTEST + UNITTEST)
    assert Outline.from_dict(made.to_dict()) == made
    assert made.failing == {"tests/test_a.py::test_old[1 - 2]", "test_old (test_a.T.test_old)"}
