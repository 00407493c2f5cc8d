"""The newest command of each kind, its failures and errors of other tools."""

import itertools
import os

import orjson
import pytest

from agent.window.command_history import MOST, CommandHistory
from agent.window.failure_excerpt import FailureLines

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
        self.commands = CommandHistory()

    def add(self, tool, arguments, result, status="success", error=None):
        record = {"seq": len(self.records) + 1, "tool": tool, "args": arguments, "result": result, "status": status}
        if error is not None:
            record["error"] = error
        self.records.append(record)
        self.commands.add(orjson.loads(orjson.dumps(record)), len(self.records) - 1)

    def run(self, command, code, output=""):
        self.add("run_command", {"command": command}, f"[exit code {code}]\n{output or '(no output)'}")

    def show(self, room=2000, count=words, folder=None):
        return self.commands.render(room, count, self.records.__getitem__, folder)


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
    assert len(calls.commands.successes) == MOST
    assert len(calls.commands.errors) == MOST
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


# --- a success speaks for a failure ----------------------------------------------------------------------------------

FAILED = "FAILED tests/a/test_total.py::test_rounds - assert 2 == 1"


def over(failed, *later):
    """Whether the failure of the first command is gone after the later ones succeeded."""
    calls = Calls()
    calls.run(failed, 1, FAILED)
    for command in later:
        calls.run(command, 0)
    return FAILED not in calls.show()


@pytest.mark.parametrize(
    ("failed", "later"),
    [
        ("pytest tests/a", "pytest tests/a"),
        ("pytest tests/a", "pytest"),
        ("pytest tests/a", "pytest -q"),
        ("pytest tests/a/test_total.py::test_rounds", "pytest tests/a"),
        ("pytest tests/a/test_total.py::test_rounds", "pytest tests/a/test_total.py"),
        ("pytest tests/a -k rounds", "pytest tests/a"),
        ("pytest -x -q tests/a", "pytest tests/a --tb=short"),
        ("pytest tests/a tests/b", "pytest tests"),
        ("pytest tests/a", "cd tests/.. && timeout -k 5 60 pytest tests"),
        ("cd app && pytest", "cd app; pytest -q 2>&1"),
        ("cd app && pytest", "cd /work/app && pytest > log 2>&1"),
        ("(cd app && pytest)", "bash -lc 'cd app && pytest'"),
        ("python -m pytest tests/a", "python -m pytest"),
        ("python -X dev -m pytest tests/a", "python -X dev -m pytest"),
        ("uv run python -m pytest tests/a", "uv run python -m pytest"),
        ("poetry run pytest tests/a", "poetry run pytest"),
        ("npx --no-install jest src/a", "npx --no-install jest"),
        ("docker run --rm image pytest tests/a", "docker run --rm image pytest tests/a"),
        ("make -C app test", "make -C app test"),
        ("npm --prefix app test -- src/a.test.js", "npm --prefix app test"),
        ("cargo +stable test rounds", "cargo +stable test"),
        ("go test ./money", "go test ./..."),
        ("python - <<'END'\nimport app\nEND", "python - <<'END'\nimport app\nEND"),
        ("python -c 'import app'", "python -c 'import app'"),
        ("./check.sh src", "./check.sh src"),
        ("env -u FOO pytest tests/a", "env -u FOO pytest"),
        ("ls tests | xargs -n 1 pytest", "ls tests | xargs -n 1 pytest"),
        ("pytest", "set -euo pipefail; pytest | tail -5"),
        ("pytest", "pytest && echo fine"),
        ("cat > a.py <<'END'\nx\nEND\npytest", "pytest && cat > a.py <<'END'\nx\nEND"),
    ],
)
def test_a_success_of_the_same_or_of_more_ends_a_failure(failed, later):
    assert over(failed, later)


@pytest.mark.parametrize(
    ("failed", "later"),
    [
        ("pytest tests/a", "pytest tests/b"),
        ("pytest tests/a", "pytest tests/a/test_other.py"),
        ("pytest tests/a", "pytest tests/ab"),
        ("pytest", "pytest tests/a"),
        ("pytest", "pytest -k other"),
        ("pytest", "pytest --version"),
        ("pytest", "pytest --collect-only"),
        ("pytest", "pytest --lf"),
        ("pytest", "pytest -h"),
        ("pytest", "command -v pytest"),
        ("pytest", "pip install pytest"),
        ("pytest", "pytest | tail -5"),
        ("pytest", "pytest; echo done"),
        ("pytest", "pytest || true"),
        ("pytest", "pytest &"),
        ("pytest", "! pytest"),
        ("pytest", "for one in 1 2; do pytest; done"),
        ("pytest", "if pytest; then echo fine; fi"),
        ("pytest", "false && pytest; true"),
        ("pytest", "set -e; false && pytest; true"),
        ("pytest", "(false && pytest) | cat"),
        ("pytest", "true || (false && pytest)"),
        ("pytest", "run() { pytest; }; run"),
        ("pytest", "cd app && pytest"),
        ("cd app && pytest", "pytest"),
        ("pytest", "FOO=1 pytest"),
        ("pytest", "export FOO=1; pytest"),
        ("pytest", "env -u FOO pytest"),
        ("pytest", "sudo -u other pytest"),
        ("pytest", "uv run pytest"),
        ("pytest --runslow", "pytest"),
        ("pytest $(git diff --name-only)", "pytest $(git diff --name-only)"),
        ("make -C app test", "make -C web test"),
        ("make -C app test", "make -C app build"),
        ("make test", "make -n test"),
        ("make test", "make"),
        ("make test lint", "make test"),
        ("make test CC=clang", "make test"),
        ("npm --prefix app test", "npm --prefix web test"),
        ("npm test", "npm -v"),
        ("npm test", "npm test -v"),
        ("tsc", "tsc -v"),
        ("cargo test", "cargo test --no-run"),
        ("cargo +stable test", "cargo +nightly test"),
        ("go test ./money/...", "go test ./money"),
        ("go test ./money", "go test"),
        ("git -C app status", "git -C web status"),
        ("uv run python -m pytest", "uv run python -m mypy"),
        ("uv run pytest", "uv run ruff check"),
        ("docker run --rm image pytest tests/a", "docker run --rm image pytest tests/b"),
        ("docker run image make", "docker run image true"),
        ("python -c 'import app'", "python -c 'print(1)'"),
        ("node -e 'require(1)'", "node -e '1'"),
        ("python - <<'END'\nimport app\nEND", "python - <<'END'\nprint(1)\nEND"),
        ("python < a.py", "python < b.py"),
        ("python -W error app.py", "python -W error web.py"),
        ("python -X dev -m pytest", "python -X dev -m mypy"),
        ("sh checks/a.sh", "sh checks/b.sh"),
        ("app/check.sh", "web/check.sh"),
        ("ls app/none", "ls app"),
        ("ls a | xargs -n 1 pytest", "ls b | xargs -n 1 pytest"),
        ("echo a | ./check.sh", "echo b | ./check.sh"),
        ("bash -c 'pytest tests/a'", "bash -c 'pytest tests/b'"),
        ("pytest --shard 1 > log", "pytest --shard 2 > log"),
        ("cd none", "echo fine"),
        ("grep 'un", "grep 'un"),
    ],
)
def test_a_success_of_something_else_leaves_a_failure_where_it_is(failed, later):
    assert not over(failed, later)


def test_a_failure_in_doubt_stands_behind_fresher_ones_and_is_the_first_without_room():
    calls = Calls()
    calls.run("pytest tests/a", 1, FAILED)
    calls.run("go vet ./...", 1, "x.go:3: unreachable code")
    calls.run("pytest tests/b", 0)
    shown = calls.show()
    assert shown.index("go vet") < shown.index("pytest tests/a") < shown.index("pytest tests/b")
    assert "x.go:3" in calls.show(18)
    assert "tests/a" not in calls.show(18)


def test_the_same_failure_again_takes_the_place_of_the_one_before():
    calls = Calls()
    for number in range(30):
        calls.run("pytest -q", 1, f"FAILED tests/test_total.py::test_{number} - assert 2 == 1")
    assert [run.seq for run in calls.commands.failures] == [30]


def test_a_failure_that_names_tests_is_about_the_checks_of_its_command():
    calls = Calls()
    calls.run("sed -i s/1/2/ a.py && pytest tests/a", 1, FAILED)
    calls.run("sed -i s/2/3/ a.py && pytest tests/a", 1, FAILED)
    assert [run.seq for run in calls.commands.failures] == [2]
    calls.run("pytest tests/a", 0)
    assert calls.commands.failures == []
    calls.run("sed -i s/1/2/ a.py && pytest tests/a", 1, "sed: can't read a.py: No such file or directory")
    calls.run("pytest tests/a", 0)
    assert "No such file" in calls.show()
    calls.run("ruff check && pytest", 1, FAILED)
    calls.run("pytest", 0)
    assert FAILED in calls.show()


@pytest.mark.parametrize(
    ("command", "code", "output"),
    [
        ("pytest -x", 1, "FAILED tests/test_b.py::test_b - assert 2 == 1"),  # it ended at the first one
        ("pytest", 2, "ERROR tests/test_b.py - ImportError: none"),  # no test was run
        ("pytest", 1, "INTERNALERROR> KeyError: 1"),  # it names none
        ("pytest tests/b", 1, "FAILED tests/b/test_b.py::test_b - assert 2 == 1"),
        ("ruff check && pytest", 1, "Found 3 errors."),
        ("pytest | tail -1", 0, "FAILED tests/test_b.py::test_b - assert 2 == 1"),
        ("pytest", None, ""),
    ],
)
def test_another_failure_of_the_kind_stands_beside_it(command, code, output):
    calls = Calls()
    calls.run("pytest", 1, FAILED)
    if code is None:
        calls.add("run_command", {"command": command}, "[ended after 120 s, before it was done]\n..", "error")
    else:
        calls.run(command, code, output)
    assert len(calls.commands.failures) == 2
    assert FAILED in calls.show()
    assert output in calls.show()


def test_an_output_that_names_failing_tests_is_a_failure_behind_a_pipe_and_stays():
    calls = Calls()
    calls.run("pytest tests/a | tail -3", 0, f"{FAILED}\n1 failed, 3 passed")
    calls.run("pytest tests/b", 0, "3 passed")
    calls.run("ls", 0, FAILED)
    shown = calls.show()
    assert shown.startswith("- pytest tests/a | tail -3 → exit code 0 (of the last program in it) [tools:1]")
    assert shown.count(FAILED) == 1


def test_many_failures_of_one_kind_do_not_push_out_those_of_others():
    calls = Calls()
    calls.run("pytest tests/a", 1, FAILED)
    for number in range(200):
        calls.run(f"grep -rn missing_{number} notes", 1)
    assert len(calls.commands.failures) == MOST
    assert FAILED in calls.show(60)


def test_the_kinds_of_what_fails_are_named_once():
    calls = Calls()
    calls.run("uv run pytest tests/a", 1, FAILED)
    calls.run("make -C app lint", 2)
    calls.run("uv run pytest tests/b", 1, FAILED)
    assert calls.commands.failing() == ["uv run pytest", "make lint"]


# --- the whole output ------------------------------------------------------------------------------------------------


def long_output(middle):
    noise = [f"tests/test_{number}.py ....      [ 10%]" for number in range(4000)]
    return "\n".join([*noise, middle, *noise, "1 failed, 3 passed"])


def stored(calls, folder, data, name="0001.txt"):
    """A failed command whose output is capped in its record, and whole in a file."""
    (folder / "outputs").mkdir(exist_ok=True)
    (folder / "outputs" / name).write_bytes(data)
    calls.run("pytest", 1, "head\n[… 8,000 lines left out …]\n1 failed, 3 passed")
    calls.records[-1]["output"] = f"outputs/{name}"


def test_a_failing_test_in_the_middle_of_a_long_output_is_read_in_outputs(tmp_path):
    calls = Calls()
    stored(calls, tmp_path, long_output(FAILED).encode())
    assert FAILED in calls.show(folder=tmp_path)


@pytest.mark.parametrize("name", ["../0001.txt", "outputs/../../x.txt", "/etc/passwd", "outputs/1.txt", 7, None, ""])
def test_no_other_file_is_read_than_an_output(tmp_path, name):
    calls = Calls()
    stored(calls, tmp_path, long_output(FAILED).encode())
    (tmp_path / "0001.txt").write_text(FAILED)
    calls.records[-1]["output"] = name
    assert "1 failed, 3 passed" in calls.show(folder=tmp_path)
    assert FAILED not in calls.show(folder=tmp_path)


@pytest.mark.parametrize("what", ["missing", "empty", "link", "folder", "pipe"])
def test_the_result_stands_for_an_output_that_cannot_be_read(tmp_path, what):
    calls = Calls()
    stored(calls, tmp_path, long_output(FAILED).encode())
    path = tmp_path / "outputs" / "0001.txt"
    other = path.rename(tmp_path / "other.txt")
    if what == "empty":
        path.write_bytes(b"")
    elif what == "link":
        path.symlink_to(other)
    elif what == "folder":
        path.mkdir()
    elif what == "pipe":
        os.mkfifo(path)
    shown = calls.show(folder=tmp_path)
    assert "1 failed, 3 passed" in shown
    assert FAILED not in shown


def test_odd_bytes_and_endless_lines_of_an_output_are_taken(tmp_path):
    calls = Calls()
    stored(calls, tmp_path, b"\xff\xfe\x00" * 900_000 + f"\n{FAILED}\n".encode() + b"x" * 900_000)
    assert FAILED in calls.show(folder=tmp_path)


def test_of_a_huge_output_the_first_and_the_last_part_are_read_and_each_once(tmp_path, monkeypatch):
    monkeypatch.setattr("agent.window.stored_output.MOST", 1 << 17)
    calls = Calls()
    first = "src/a.c:3:9: error: 'ibex_limit' undeclared"
    stored(calls, tmp_path, "\n".join([first, *(["."] * 500_000), FAILED]).encode())
    shown = calls.show(folder=tmp_path)
    assert first in shown
    assert FAILED in shown
    (tmp_path / "outputs" / "0001.txt").unlink()
    assert calls.show(folder=tmp_path) == shown
    calls.run("pytest", 0)
    calls.run("make", 2, "stop")
    calls.show(folder=tmp_path)
    assert list(calls.commands._printed) == [3]


def test_binary_output_is_named_and_not_shown(tmp_path):
    calls = Calls()
    stored(calls, tmp_path, b"ERROR: \\x00\\x01" * 5000)
    calls.records[-1]["result"] = "[exit code 1]\n(binary output, ELF; it is not shown. outputs/0001.txt)"
    assert calls.show(folder=tmp_path).endswith("(binary output, ELF; it is not shown. outputs/0001.txt)")


# --- the lines of an output ------------------------------------------------------------------------------------------


def test_the_lines_that_say_why_are_taken_word_for_word_and_in_order():
    text = PYTEST.format(dots="\n".join(f"tests/test_{n}.py ......" for n in range(150)))
    shown = FailureLines(text.split("\n")).excerpt(70, words)
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
    shown = FailureLines(lines).excerpt(40, words)
    assert shown.startswith("src/main.rs:4:5: mismatched types\n…")
    assert shown.endswith("build stopped")


def test_a_language_without_any_known_word_is_shown_by_its_end():
    lines = [f"処理 {n} 件目" for n in range(300)] + ["試験は通りませんでした", "終了"]
    shown = FailureLines(lines).excerpt(30, words)
    assert shown.endswith("試験は通りませんでした\n終了")


@pytest.mark.parametrize(
    ("text", "room"),
    list(itertools.product(["", "\n\n", "one", "x" * 100_000, "a\n" * 5000, "😀" * 3000], [0, 1, 3, 30])),
)
def test_odd_outputs_keep_to_the_room(text, room):
    shown = FailureLines(text.split("\n")).excerpt(room, words)
    assert words(shown) <= room + 1
