"""Shell commands taken apart: the programs that they are about, their kinds, and what their exit code proves."""

import random
import subprocess

import pytest

from agent.window.command_kinds import kind_of
from agent.window.shell_parser import LONGEST
from agent.window.shell_programs import ProgramCall, steps_of


@pytest.mark.parametrize(
    ("command", "kinds"),
    [
        ("pytest -q tests/test_a.py", ["pytest"]),
        ("pytest -q | tail -5", ["pytest"]),
        ("npm test", ["npm test"]),
        ("npm --prefix app test", ["npm test"]),
        ("npm run build && npm test", ["npm run build", "npm test"]),
        ("npm run test:unit -- --watch=false", ["npm run test:unit"]),
        ("make -C app -j4 test", ["make test"]),
        ("cargo +stable test", ["cargo test"]),
        ("git -C app status", ["git status"]),
        ("git --no-pager log -5", ["git log"]),
        ("python -m pytest -x", ["python -m pytest"]),
        ("python -X dev -m pytest", ["python -m pytest"]),
        ("python -W error scripts/run.py --fast", ["python run.py"]),
        ("python -c 'import app'", ["python -c"]),
        ("python manage.py test app", ["python manage.py test"]),
        ("/usr/bin/python3.11 scripts/run.py --fast", ["python3.11 run.py"]),
        ("uv run python -m pytest tests", ["uv run python -m pytest"]),
        ("uv run ruff check", ["uv run ruff"]),
        ("npx jest src/a", ["npx jest"]),
        ("docker run --rm image pytest", ["docker run pytest"]),
        ("./gradlew :app:test --tests Total", ["gradlew :app:test"]),
        ("FOO=1 timeout -k 5 60 cargo build --release 2>&1", ["cargo build"]),
        ("env -u FOO nice -n 5 sudo -u other make", ["make"]),
        ("git ls-files '*.py' | xargs -n 5 mypy", ["mypy"]),
        ("make > log 2>&1", ["make"]),
        ("(cd x && go test ./...)", ["go test"]),
        ("cat > x.py <<'END'\nimport a; b\nEND\npytest -x", ["cat", "pytest"]),
        ("cat <<A <<-B\nmake a\nA\nmake b\n\tB\nmake", ["cat", "make"]),
        ("cat <<< 'make; ls'", ["cat"]),
        ("cat <<END", ["cat"]),
        ("find . -exec make {} \\; && ls", ["find", "ls"]),
        ("grep 'a && b | c;' x # make", ["grep"]),
        ("for one in a b; do pytest $one; done", ["pytest"]),
        ("bash -euo pipefail -c 'cd x; make | tee log'", ["make"]),
        ("sh checks/build.sh", ["sh build.sh"]),
        ("grep -rn missing notes", ["grep"]),
        ("grep 'un", ["grep"]),
        ("echo hi", []),
        ("[ -f a ] && cd a", []),
        ("", []),
        ("timeout", ["timeout"]),
        ("sudo", ["sudo"]),
    ],
)
def test_a_kind_is_the_program_with_its_sub_command(command, kinds):
    assert [kind_of(step) for step in steps_of(command)] == kinds


PROVED = [
    ("a && b && c", "abc"),
    ("a; b && c", "bc"),
    ("a\nb", "b"),
    ("a || b", ""),
    ("a || b && c", "c"),
    ("a & b", "b"),
    ("a && b &", ""),
    ("a | b", ""),
    ("a && b | c", "a"),
    ("set -o pipefail; a | b", "a"),
    ("set -e; a; b; c", "abc"),
    ("set -e; a && b; c", "c"),
    ("set -e; set +e; a; b", "b"),
    ("set -euo pipefail\na | x\nb", "ab"),
    ("(a; b) && c", "bc"),
    ("set -e; ((a); b) && c", "bc"),
    ("(a && b) | c", ""),
    ("a || (b && c)", ""),
    ("if a; then b; fi", ""),
    ("! a", ""),
    ("while a; do b; break; done", ""),
    ("trap 'exit 0' EXIT; a", ""),
    ("f() { a; }; f", ""),
    ("diff <(a) <(b)", ""),
    ("a 'un", ""),
    ("bash -c 'a; b' && c", "bc"),
    ("bash -ec 'a; b' && c", "abc"),
    ("a $(b)", ""),
    ("a -j$(nproc)", "a"),
    ("a && \\\n b", "ab"),
]


@pytest.mark.parametrize(("command", "proved"), PROVED)
def test_exit_code_0_proves_what_stands_behind_the_last_loss_of_a_code(command, proved):
    assert "".join(step.words[0] for step in steps_of(command) if step.proved) == proved


@pytest.mark.parametrize(("command", "proved"), PROVED)
def test_bash_itself_runs_what_is_proved_and_fails_when_it_fails(command, proved):
    script = """
    for failing in "" a b c ab ac bc abc; do
        for one in a b c; do eval "$one() { echo $one >&9; case $failing in *$one*) return 1;; esac; }"; done
        export -f a b c; export failing
        ran=$({ bash -c "$0" >/dev/null; echo $? >&9; } 9>&1 2>/dev/null)
        echo "-$failing" $ran
    done
    """
    done = subprocess.run(
        ["bash", "-c", script, command], capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=20
    )
    rows = [line.split() for line in done.stdout.splitlines()]
    assert len(rows) == 8
    for failing, *ran in rows:
        if "0" in ran:
            assert set(proved) <= set(ran), (failing, ran)
            assert not set(proved) & set(failing), (failing, ran)


@pytest.mark.parametrize(
    ("command", "step"),
    [
        ("cd a && cd ../b && make", ProgramCall(("make",), "b")),
        ("cd /work/a/ && make", ProgramCall(("make",), "a")),
        ("cd /tmp; make", ProgramCall(("make",), "/tmp")),
        ("(cd a && ls) && make", ProgramCall(("make",), "")),
        ('cd "$HOME" && make', ProgramCall(("make",), "?/$HOME")),
        ("export A=1\nB=2 make", ProgramCall(("make",), "", ("export A=1", "B=2"))),
        (". venv/bin/activate && make", ProgramCall(("make",), "", (". venv/bin/activate",))),
        ("make < in 2> err >> out", ProgramCall(("make", "<in"))),
        ("echo y | ./set-up", ProgramCall(("./set-up",), "", ("echo y |",))),
    ],
)
def test_a_step_knows_where_and_with_what_it_runs(command, step):
    assert steps_of(command)[-1] == step


def test_a_long_argument_is_known_by_its_start_and_a_check_sum():
    one, two = (steps_of(f"python -c '{'x = 1; ' * 500}{last}'")[0] for last in "ab")
    assert one.words != two.words
    assert max(map(len, one.words)) < 200
    assert one == steps_of(f"python -c '{'x = 1; ' * 500}a'")[0]


def test_of_a_command_without_end_only_the_start_is_taken_apart_and_nothing_is_proved():
    (step,) = steps_of("make " + "x" * LONGEST * 50)
    assert not step.proved
    (cat, make) = steps_of("cat > a <<'END'\n" + "x\n" * LONGEST + "END\nmake")
    assert (cat.proved, make.proved) == (False, True)


def test_no_text_is_too_odd():
    signs = [
        "'",
        '"',
        "\\",
        "\n",
        "<<",
        "<<<",
        "END",
        "$(",
        ")",
        "`",
        "|",
        "&&",
        ";",
        ">",
        "2>&1",
        "#",
        "cd ",
        "-",
        " ",
    ]
    signs += ["sudo ", "env ", "xargs ", "bash -c ", "set ", "timeout ", "test ", "pytest ", "x=", "é", "\ud800", "\0"]
    source = random.Random(7)
    for _ in range(3000):
        for step in steps_of("".join(source.choices(signs, k=source.randint(1, 14)))):
            assert step.words
            assert kind_of(step)
