"""Outputs of test runners, compilers and linters: a failure, the lines in it that explain the failure, and lines of a
success.  `SAMPLES` has one for each tool; `tool` names the version."""

from __future__ import annotations

from typing import NamedTuple


class Sample(NamedTuple):
    """`names` are the lines with the name of a failed test, `faults` those with the reason; `passed` are lines of a
    success."""

    tool: str
    output: str
    names: tuple[str, ...]
    faults: tuple[str, ...]
    passed: tuple[str, ...]


SAMPLES = (
    Sample(
        "pytest 8.3",
        """\
=================================== FAILURES ===================================
____________________________ test_rounds[0.005-half] ___________________________
>       assert total(0.005) == 1
E       assert 2 == 1
tests/test_total.py:12: AssertionError
=========================== short test summary info ============================
FAILED tests/test_total.py::test_rounds[0.005-half] - assert 2 == 1
ERROR tests/test_db.py::test_opens - RuntimeError: no database
========================= 1 failed, 3 passed, 1 error in 0.12s =================""",
        (
            "FAILED tests/test_total.py::test_rounds[0.005-half] - assert 2 == 1",
            "ERROR tests/test_db.py::test_opens - RuntimeError: no database",
        ),
        ("tests/test_total.py:12: AssertionError",),
        (
            "tests/test_error.py ....s..x                                        [ 40%]",
            "tests/test_error.py::test_error PASSED                              [ 50%]",
        ),
    ),
    Sample(
        "pytest 8.3, collection",
        """\
==================================== ERRORS ====================================
_____________________ ERROR collecting tests/test_total.py _____________________
tests/test_total.py:1: in <module>
    import decimals
E   ModuleNotFoundError: No module named 'decimals'
=========================== short test summary info ============================
ERROR tests/test_total.py
!!!!!!!!!!!!!!!!!!!! Interrupted: 1 error during collection !!!!!!!!!!!!!!!!!!!!""",
        ("ERROR tests/test_total.py",),
        ("E   ModuleNotFoundError: No module named 'decimals'",),
        (),
    ),
    Sample(
        "unittest of Python 3.11",
        """\
test_adds (tests.test_total.Total.test_adds) ... ok
test_rounds (tests.test_total.Total.test_rounds) ... FAIL

======================================================================
FAIL: test_rounds (tests.test_total.Total.test_rounds)
----------------------------------------------------------------------
Traceback (most recent call last):
  File "/work/tests/test_total.py", line 12, in test_rounds
    self.assertEqual(total(0.005), 1)
AssertionError: 2 != 1

----------------------------------------------------------------------
Ran 2 tests in 0.001s

FAILED (failures=1)""",
        ("FAIL: test_rounds (tests.test_total.Total.test_rounds)",),
        ("AssertionError: 2 != 1",),
        ("test_error (tests.test_total.Total.test_error) ... ok", "test_x (a.B.test_x) ... skipped 'fails on error'"),
    ),
    Sample(
        "go test 1.22",
        """\
=== RUN   TestTotal
=== RUN   TestTotal/rounds
    total_test.go:12: got 2, want 1
--- FAIL: TestTotal (0.00s)
    --- FAIL: TestTotal/rounds (0.00s)
FAIL
FAIL\texample.org/money/total\t0.003s
FAIL""",
        ("--- FAIL: TestTotal (0.00s)", "    --- FAIL: TestTotal/rounds (0.00s)"),
        ("    total_test.go:12: got 2, want 1",),
        (
            "--- PASS: TestFailsOnError (0.00s)",
            "--- SKIP: TestError (0.00s)",
            "=== RUN   TestError",
            "ok  \texample.org/money/error\t0.003s",
        ),
    ),
    Sample(
        "cargo 1.95",
        """\
running 2 tests
test tests::adds ... ok
test tests::rounds ... FAILED

failures:

---- tests::rounds stdout ----

thread 'tests::rounds' panicked at src/lib.rs:6:17:
assertion `left == right` failed
  left: 1
 right: 2


failures:
    tests::rounds

test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.10s""",
        ("---- tests::rounds stdout ----",),
        ("thread 'tests::rounds' panicked at src/lib.rs:6:17:",),
        ("test tests::fails_with_error ... ok", "test tests::panic ... ignored"),
    ),
    Sample(
        "jest 29",
        """\
FAIL src/total.test.js
  total
    ✓ adds (2 ms)
    ✕ rounds once (3 ms)

  ● total › rounds once

    expect(received).toBe(expected) // Object.is equality

    Expected: 1
    Received: 2

      at Object.toBe (src/total.test.js:6:20)

Tests:       1 failed, 1 passed, 2 total""",
        ("FAIL src/total.test.js", "    ✕ rounds once (3 ms)", "  ● total › rounds once"),
        ("      at Object.toBe (src/total.test.js:6:20)",),
        ("PASS src/error.test.js", "    ✓ fails with an error (2 ms)"),
    ),
    Sample(
        "vitest 1.6",
        """\
 ❯ src/total.test.ts  (2 tests | 1 failed) 5ms
   ❯ src/total.test.ts > total > rounds once
     → expected 2 to be 1 // Object.is equality

⎯⎯⎯⎯⎯⎯⎯ Failed Tests 1 ⎯⎯⎯⎯⎯⎯⎯

 FAIL  src/total.test.ts > total > rounds once
AssertionError: expected 2 to be 1 // Object.is equality
 ❯ src/total.test.ts:6:20""",
        (" FAIL  src/total.test.ts > total > rounds once",),
        ("AssertionError: expected 2 to be 1 // Object.is equality",),
        (" ✓ src/error.test.ts  (2 tests) 3ms", "   ✓ fails with an error"),
    ),
    Sample(
        "mocha 10",
        """\
  total
    ✔ adds
    1) rounds once

  1 passing (5ms)
  1 failing

  1) total
       rounds once:

      AssertionError [ERR_ASSERTION]: 2 == 1
      at Context.<anonymous> (test/total.js:6:12)""",
        ("    1) rounds once", "  1) total"),
        ("      AssertionError [ERR_ASSERTION]: 2 == 1",),
        ("    ✔ fails with an error",),
    ),
    Sample(
        "node --test 20, spec",
        """\
✔ adds (1.06ms)
✖ rounds once (1.07ms)
  AssertionError [ERR_ASSERTION]: 1 == 2
      at TestContext.<anonymous> (/work/total.test.js:3:32)

ℹ pass 1
ℹ fail 1""",
        ("✖ rounds once (1.07ms)",),
        ("  AssertionError [ERR_ASSERTION]: 1 == 2",),
        ("✔ fails with an error (1.06ms)",),
    ),
    Sample(
        "TAP 13, as node --test 20 prints it",
        """\
ok 1 - adds
not ok 2 - rounds once
  ---
  location: '/work/total.test.js:3:1'
  error: '1 == 2'
  code: 'ERR_ASSERTION'
  ...
1..2
# fail 1""",
        ("not ok 2 - rounds once",),
        ("  error: '1 == 2'",),
        ("ok 1 - fails with an error", "    ok 12 error", "not ok 3 - error # TODO later"),
    ),
    Sample(
        "Maven 3.8 with Surefire 3.2 and JUnit 5.10",
        """\
[INFO] Running org.example.TotalTest
[ERROR] Tests run: 2, Failures: 1, Errors: 0, Skipped: 0, Time elapsed: 0.05 s <<< FAILURE! -- in org.example.TotalTest
[ERROR] org.example.TotalTest.roundsOnce -- Time elapsed: 0.01 s <<< FAILURE!
org.opentest4j.AssertionFailedError: expected: <1> but was: <2>
\tat org.example.TotalTest.roundsOnce(TotalTest.java:12)
[INFO] Results:
[ERROR] Failures:
[ERROR]   TotalTest.roundsOnce:12 expected: <1> but was: <2>
[ERROR] Tests run: 2, Failures: 1, Errors: 0, Skipped: 0""",
        (
            "[ERROR] org.example.TotalTest.roundsOnce -- Time elapsed: 0.01 s <<< FAILURE!",
            "[ERROR]   TotalTest.roundsOnce:12 expected: <1> but was: <2>",
        ),
        ("org.opentest4j.AssertionFailedError: expected: <1> but was: <2>",),
        (
            "[INFO] Running org.example.ErrorTest",
            "[INFO] Tests run: 5, Failures: 0, Errors: 0, Skipped: 0, Time elapsed: 0.1 s -- in org.example.ErrorTest",
        ),
    ),
    Sample(
        "Gradle 8.7",
        """\
TotalTest > adds() PASSED

TotalTest > roundsOnce() FAILED
    org.opentest4j.AssertionFailedError at TotalTest.java:12

2 tests completed, 1 failed

> Task :test FAILED

FAILURE: Build failed with an exception.""",
        ("TotalTest > roundsOnce() FAILED", "> Task :test FAILED"),
        ("    org.opentest4j.AssertionFailedError at TotalTest.java:12",),
        ("ErrorTest > failsWithError() PASSED",),
    ),
    Sample(
        "CTest 3.25",
        """\
    Start 1: adds
1/2 Test #1: adds .............................   Passed    0.00 sec
    Start 2: rounds
2/2 Test #2: rounds ...........................***Failed    0.00 sec

50% tests passed, 1 tests failed out of 2

The following tests FAILED:
\t  2 - rounds (Failed)
Errors while running CTest""",
        ("2/2 Test #2: rounds ...........................***Failed    0.00 sec", "\t  2 - rounds (Failed)"),
        ("50% tests passed, 1 tests failed out of 2",),
        ("1/2 Test #1: error .............................   Passed    0.00 sec",),
    ),
    Sample(
        "rspec 3.13",
        """\
Failures:

  1) Total rounds once
     Failure/Error: expect(total(0.005)).to eq(1)

       expected: 1
            got: 2
     # ./spec/total_spec.rb:6:in `block (2 levels) in <top (required)>'

2 examples, 1 failure

Failed examples:

rspec ./spec/total_spec.rb:5 # Total rounds once""",
        ("  1) Total rounds once", "rspec ./spec/total_spec.rb:5 # Total rounds once"),
        ("     Failure/Error: expect(total(0.005)).to eq(1)",),
        (),
    ),
    Sample(
        "tsc 5.4",
        "src/total.ts(4,7): error TS2322: Type 'string' is not assignable to type 'number'.",
        (),
        ("src/total.ts(4,7): error TS2322: Type 'string' is not assignable to type 'number'.",),
        (),
    ),
    Sample(
        "ESLint 8.57",
        """\
/work/src/total.js
  2:1  warning  Unexpected console statement  no-console
  3:7  error    'cents' is assigned a value but never used  no-unused-vars

✖ 2 problems (1 error, 1 warning)""",
        (),
        ("/work/src/total.js", "  3:7  error    'cents' is assigned a value but never used  no-unused-vars"),
        (),
    ),
    Sample(
        "gcc 12.2",
        """\
src/money.c: In function 'f':
src/money.c:14:9: error: 'ibex_limit' undeclared (first use in this function)
   14 | return ibex_limit;
      |        ^~~~~~~~~~
src/money.c:14:9: note: each undeclared identifier is reported only once for each function it appears in
make: *** [Makefile:3: all] Error 1""",
        (),
        (
            "src/money.c:14:9: error: 'ibex_limit' undeclared (first use in this function)",
            "make: *** [Makefile:3: all] Error 1",
        ),
        (),
    ),
    Sample(
        "clang 16",
        "src/money.c:14:9: error: use of undeclared identifier 'ibex_limit'\n1 error generated.",
        (),
        ("src/money.c:14:9: error: use of undeclared identifier 'ibex_limit'",),
        (),
    ),
    Sample(
        "GNU Make 4.3",
        "make[1]: *** No rule to make target 'money.o', needed by 'all'.  Stop.",
        (),
        ("make[1]: *** No rule to make target 'money.o', needed by 'all'.  Stop.",),
        (),
    ),
    Sample(
        "GoogleTest 1.14",
        """\
[ RUN      ] Total.Adds
[       OK ] Total.Adds (0 ms)
[ RUN      ] Total.Rounds
total_test.cc:12: Failure
Expected equality of these values:
  total(0.005)
    Which is: 2
  1
[  FAILED  ] Total.Rounds (0 ms)
[  PASSED  ] 1 test.
[  FAILED  ] 1 test, listed below:
[  FAILED  ] Total.Rounds""",
        ("[  FAILED  ] Total.Rounds",),
        ("total_test.cc:12: Failure",),
        ("[ RUN      ] Error.Fails", "[       OK ] Error.Fails (0 ms)"),
    ),
    Sample(
        "PHPUnit 10.5",
        """\
There was 1 failure:

1) TotalTest::testRounds
Failed asserting that 2 is identical to 1.

/work/tests/TotalTest.php:12

FAILURES!
Tests: 2, Assertions: 2, Failures: 1.""",
        ("1) TotalTest::testRounds",),
        ("Failed asserting that 2 is identical to 1.", "/work/tests/TotalTest.php:12"),
        (),
    ),
)
