"""The newest command of each kind, its failures and errors of other tools."""

import itertools

import orjson
import pytest

from agent.window.commands import Commands, kinds_of
from agent.window.excerpt import excerpt

PYTEST = """============================= test session starts ==============================
collected 200 items
{dots}
=================================== FAILURES ===================================
_______________________________ test_total_rounds ______________________________

    def test_total_rounds():
>       assert total([0.005, 0.005]) == Decimal("0.01")
E       AssertionError: assert Decimal('0.02') == Decimal('0.01')

tests/test_total.py:12: AssertionError
=========================== short test summary info ============================
FAILED tests/test_total.py::test_total_rounds - AssertionError: assert Decimal
1 failed, 199 passed in 3.20s"""


def words(text):
    return len(text.split())


class Calls:
    """tools.jsonl in memory, and what is known of it."""

    def __init__(self):
        self.records = []
        self.commands = Commands()

    def add(self, tool, arguments, result, status="success", error=None):
        record = {"seq": len(self.records) + 1, "tool": tool, "args": arguments, "result": result, "status": status}
        if error is not None:
            record["error"] = error
        self.records.append(record)
        self.commands.take(orjson.loads(orjson.dumps(record)), len(self.records) - 1)

    def run(self, command, code, output=""):
        self.add("run_command", {"command": command}, f"[exit code {code}]\n{output or '(no output)'}")

    def show(self, room=2000, count=words):
        return self.commands.show(room, count, self.records.__getitem__)


@pytest.mark.parametrize(
    ("command", "kinds", "sure"),
    [
        ("pytest -q tests/test_a.py", ["pytest"], True),
        ("cd app && pytest -q", ["pytest"], True),
        ("cd app; pytest -q", ["pytest"], True),
        ("pytest -q | tail -5", ["pytest"], False),
        ("pytest -q; echo $?", ["pytest"], False),
        ("pytest -q || true", ["pytest"], False),
        ("npm test", ["npm test"], True),
        ("npm run build && npm test", ["npm run build", "npm test"], True),
        ("python -m pytest -x", ["python -m pytest"], True),
        ("/usr/bin/python3.11 scripts/run.py --fast", ["python3.11 run.py"], True),
        ("FOO=1 timeout 60 cargo build --release 2>&1", ["cargo build"], True),
        ("make > log 2>&1", ["make"], True),
        ("./gradlew test", ["gradlew test"], True),
        ("uv run pytest tests", ["uv run pytest"], True),
        ("(cd x && go test ./...)", ["go test"], True),
        ("export A=1\ngo vet ./...", ["go vet"], True),
        ("cat > x.py <<'END'\nimport a; b\nEND", ["cat"], True),
        ("echo hi", [], True),
        ("", [], True),
        ("grep 'un", ["grep"], True),
    ],
)
def test_a_kind_is_the_program_with_its_sub_command(command, kinds, sure):
    assert kinds_of(command) == (tuple(kinds), sure)


def test_the_newest_of_a_kind_takes_the_place_of_the_one_before():
    calls = Calls()
    calls.run("pytest tests/test_total.py", 1, PYTEST.format(dots="." * 100))
    assert "→ exit code 1 [tools:1]" in calls.show()
    assert "FAILED tests/test_total.py::test_total_rounds" in calls.show()
    calls.run("pytest -q", 0, "200 passed")
    assert calls.show() == "- pytest -q → exit code 0 [tools:2]"
    calls.run("pytest -q", 2, "ERROR: file not found")
    assert calls.show() == "- pytest -q → exit code 2 [tools:3]\nERROR: file not found"


def test_failures_stand_before_what_succeeded_and_the_newest_first():
    calls = Calls()
    calls.run("cargo build", 101, "error[E0308]: mismatched types\n --> src/main.rs:4:5")
    calls.run("npm test", 0)
    calls.run("go vet ./...", 1, "x.go:3: unreachable code")
    lines = [line for line in calls.show().splitlines() if line.startswith("- ")]
    assert lines == [
        "- go vet ./... → exit code 1 [tools:3]",
        "- cargo build → exit code 101 [tools:1]",
        "- npm test → exit code 0 [tools:2]",
    ]


def test_a_failure_of_several_programs_is_over_when_each_has_succeeded():
    calls = Calls()
    calls.run("npm run build && npm test", 1, "2 failing")
    calls.run("npm run build", 0)
    assert "2 failing" in calls.show()
    calls.run("npm test", 0)
    assert "2 failing" not in calls.show()


def test_an_exit_code_behind_a_pipe_is_not_taken_for_success():
    calls = Calls()
    calls.run("pytest -q", 1, "1 failed")
    calls.run("pytest -q | tail -3", 0, "FAILED tests/test_b.py::test_x\n1 failed, 3 passed")
    shown = calls.show()
    assert "exit code 0 (of the last program in it) [tools:2]" in shown
    assert "FAILED tests/test_b.py::test_x" in shown
    calls.run("pytest -q", 0)
    assert "FAILED" not in calls.show()


def test_a_command_that_was_ended_is_a_failure():
    calls = Calls()
    calls.add(
        "run_command",
        {"command": "make test"},
        "[ended after 120 s, before it was done; its output until then follows]\nrunning",
        "error",
    )
    assert calls.show().startswith("- make test → ended after 120 s, before it was done")


def test_an_error_of_another_tool_stays_until_the_same_call_succeeds():
    calls = Calls()
    calls.add(
        "edit_file", {"path": "a.py", "old_text": "x", "new_text": "y"}, "not there", "error", "old_text is not in a.py"
    )
    calls.add("read_file", {"path": "b.py"}, "no such file", "error", "b.py: no such file")
    calls.add("search_text", {"pattern": "("}, "bad", "error", "pattern: missing )")
    calls.add("search_text", {"pattern": "x"}, "none")
    calls.add("read_file", {"path": "a.py"}, "text")
    calls.add("edit_file", {"path": "a.py", "old_text": "z", "new_text": "y"}, "[edited]")
    shown = calls.show()
    assert "old_text is not in" not in shown
    assert "- read_file b.py → b.py: no such file [tools:2]" in shown
    assert "- search_text → pattern: missing ) [tools:3]" in shown


def test_what_is_known_is_bounded_and_failures_outlive_successes():
    calls = Calls()
    calls.run("first-check", 1, "broken")
    for number in range(200):
        calls.run(f"tool{number}", 0)
        calls.add("read_file", {"path": f"f{number}"}, "", "error", "gone")
    assert len(calls.commands.runs) <= 40
    assert len(calls.commands.errors) <= 40
    assert "first-check → exit code 1" in calls.show()


@pytest.mark.parametrize("room", [0, 5, 20, 60, 200, 1000])
def test_all_of_it_keeps_to_the_room(room):
    calls = Calls()
    for number in range(6):
        calls.run(f"check{number} all", 1, PYTEST.format(dots="\n".join(["tests/x.py ....."] * 80)))
        calls.run(f"fine{number}", 0)
    assert words(calls.show(room)) <= room


def test_two_failures_both_show_what_they_printed():
    calls = Calls()
    calls.run("pytest -q", 1, PYTEST.format(dots="\n".join(["tests/x.py ....."] * 80)))
    calls.run("cargo build", 101, "\n".join(f"note: line {n}" for n in range(300)) + "\nerror: could not compile `app`")
    shown = calls.show(150)
    assert "FAILED tests/test_total.py::test_total_rounds" in shown
    assert "error: could not compile `app`" in shown


# --- the lines of an output ------------------------------------------------------------------------------------------


def test_the_lines_that_say_why_are_taken_word_for_word_and_in_order():
    text = PYTEST.format(dots="\n".join(f"tests/test_{n}.py ......" for n in range(150)))
    shown = excerpt(text, 70, words)
    assert words(shown) <= 75
    wanted = [
        "E       AssertionError: assert Decimal('0.02') == Decimal('0.01')",
        "tests/test_total.py:12: AssertionError",
        "FAILED tests/test_total.py::test_total_rounds - AssertionError: assert Decimal",
        "1 failed, 199 passed in 3.20s",
    ]
    places = [shown.index(line) for line in wanted]
    assert places == sorted(places)
    assert "…" in shown


def test_the_first_error_of_a_compiler_is_taken_although_it_stands_far_from_the_end():
    lines = ["src/main.rs:4:5: mismatched types", *(f"   Compiling crate{n} v1.0" for n in range(400)), "build stopped"]
    shown = excerpt("\n".join(lines), 40, words)
    assert shown.startswith("src/main.rs:4:5: mismatched types\n…")
    assert shown.endswith("build stopped")


def test_a_language_without_any_known_word_is_shown_by_its_end():
    lines = [f"処理 {n} 件目" for n in range(300)] + ["試験は通りませんでした", "終了"]
    shown = excerpt("\n".join(lines), 30, words)
    assert shown.endswith("試験は通りませんでした\n終了")


@pytest.mark.parametrize(
    ("text", "room"),
    list(itertools.product(["", "\n\n", "one", "x" * 100_000, "a\n" * 5000, "😀" * 3000], [0, 1, 3, 30])),
)
def test_odd_outputs_keep_to_the_room(text, room):
    shown = excerpt(text, room, words)
    assert words(shown) <= room + 1
