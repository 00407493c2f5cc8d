"""Determines the kind of a run of a program, and whether the success of a later run proves that an earlier failed run
would succeed now.

The kind is the program with its sub-command, for example `pytest`, `npm test`, `uv run pytest`. The kind serves only to
group the runs of commands. A success resolves a failure of the same program with the same arguments. The success of a
check (tests, build, lint) also resolves a failed check of a part of its targets. The tables in `command_kinds.py` list
the programs that count as checks, and which of their arguments are targets and which are options. For a program that is
in no table, a success resolves only a failure with equal arguments; in case of doubt the failure stays in the list.
"""

from __future__ import annotations

import re
from posixpath import normpath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agent.window.shell_programs import ProgramCall

_PROGRAMS = frozenset(
    (
        *("pytest", "py.test", "unittest", "nose2", "tox", "nox", "mypy", "pyright", "flake8", "pylint"),
        *("jest", "vitest", "mocha", "ava", "eslint", "tsc", "rspec", "rubocop", "phpunit", "ctest"),
    )
)
_TASKS = frozenset(
    ("test", "tests", "check", "lint", "build", "vet", "clippy", "typecheck", "verify", "compile", "spec")
)
"""Sub-commands that run a check, also as a part of a longer word like `test:unit`."""
_STARTERS = frozenset(("run", "exec", "x", "dlx"))
"""Sub-commands that start a program or script, which the next word names."""
_INTERPRETER = re.compile(r"(?:python|pypy|node|ruby|perl|php|lua|bash|zsh|dash|ksh|sh|Rscript|java)[\d.]*")
_VALUED = frozenset(("-X", "-W", "-r", "-I", "-cp", "--require", "--import", "--loader"))
"""Options of interpreters that take the next word as their value."""

_BARE = re.compile(r"[A-Za-z][\w:-]*")
_LEADING = re.compile(r"--[\w-]+|-[A-Z]|\+\S+")
"""Options that may precede a sub-command."""

_PRINTING = re.compile(
    r"-rN?[a-zA-Z]|--(?:quiet|verbose|silent|no-header|maxfail=\d+|tb=\w+|color(?:=\w+)?|durations=\d+)"
)
_SHORT_PRINTING = {"pytest": "qvsx", "py.test": "qvsx", "unittest": "qvfb", "cargo": "qv", "go": "v"}
"""Letters of options that only control the amount of output, or end the run at the first failure.

No letter is known for a program that is not in this table, since its `-v` may mean the version.
"""
_EARLY = re.compile(r"-[a-wyz]*x[a-z]*|-f|--(?:exitfirst|maxfail(?:=\d+)?|fail-?fast|bail(?:=\d+)?)")
_NARROWING = frozenset(
    ("-k", "-t", "-g", "-R", "-run", "--run", "--filter", "--tests", "--grep", "-Dtest", "--lf", "--last-failed")
)
"""Options of test runners that select some of the tests; a value follows after `=` or as the next word."""


def kind_of(step: ProgramCall) -> str:
    """The kind of a run: the program with its sub-command, or with the script or module that it runs."""
    program = step.words[0].rpartition("/")[2] or step.words[0] or "''"
    if (at := _check_at(step.words)) is not None:
        return " ".join((program, *_names(step.words[1 : at + 1])))
    rest = list(step.words[1:])
    if _INTERPRETER.fullmatch(program):
        return f"{program} {_script(rest)}".strip()
    while rest and _LEADING.fullmatch(rest[0]):
        option = rest.pop(0)
        if option[0] == "-" and len(rest) > 1 and _BARE.fullmatch(rest[1]) and not rest[0].startswith("-"):
            rest.pop(0)
    if not rest or not _BARE.fullmatch(rest[0]):
        return program
    if rest[0] in _STARTERS and len(rest) > 1 and _BARE.fullmatch(rest[1]):
        return f"{program} {rest[0]} {rest[1]}"
    return f"{program} {rest[0]}"


def speaks_for(good: ProgramCall, failed: ProgramCall) -> bool:
    """Whether the success of the run `good` proves that the run `failed` would succeed now."""
    if good.words[:1] != failed.words[:1] or (good.directory, good.around) != (failed.directory, failed.around):
        return False
    at = _check_at(good.words)
    if at is None or good.words[: at + 1] != failed.words[: at + 1]:
        return good.words == failed.words
    return _Scope(good.words, at).covers(_Scope(failed.words, at))


def is_check(step: ProgramCall) -> bool:
    """Whether the program in a run executes tests or another check."""
    return _check_at(step.words) is not None


def ends_early(step: ProgramCall) -> bool:
    """Whether the program, by its options, ends after a first failing test (or a few), so that it may not report all
    failures."""
    return any(_EARLY.fullmatch(word) for word in step.words)


class _Scope:
    """The scope of a check: its options with their values, and its targets."""

    def __init__(self, words: tuple[str, ...], at: int) -> None:
        head = [word.rpartition("/")[2] for word in words[: at + 1]]
        printing = next((_SHORT_PRINTING[word] for word in head if word in _SHORT_PRINTING), "")
        self.is_go = head[0] == "go"
        # True: without targets, the check covers all targets. False: a word that is no option may name another task
        # (`make check install`), and not a part of the check.
        self.has_parts = head[-1] in _PROGRAMS or head[0] == "cargo"
        self.options: set[str] = set()
        self.targets: list[str] = []
        option = ""
        for word in words[at + 1 :]:
            if word.startswith("-") and len(word) > 1:
                self.options |= {option} - {""}
                option = "" if _prints(word, printing) or word == "--" else word
            elif option:
                self.options.add(f"{option} {word}")
                option = ""
            elif "=" in word:
                self.options.add(word)
            else:
                self.targets.append(word)
        self.options |= {option} - {""}
        if self.is_go and not self.targets:
            # Without a target, `go` takes the package in the present folder (`go help packages`).
            self.targets = ["."]

    def covers(self, other: _Scope) -> bool:
        """Whether the scope of the check `other` is the same as this scope, or a part of it."""
        more = other.options - self.options
        if self.options - other.options or any(re.split("[ =]", one)[0] not in _NARROWING for one in more):
            return False
        if not self.targets:
            return self.has_parts or not any(map(_BARE.fullmatch, other.targets))
        return bool(other.targets) and all(any(self._holds(one, two) for one in self.targets) for two in other.targets)

    def _holds(self, target: str, part: str) -> bool:
        if target == part:
            return True
        if target.endswith("..."):
            return part.startswith(target[:-3])
        if self.is_go or target.startswith("<"):
            return False
        whole, part = normpath(target), normpath(part)
        return part == whole or part.startswith((f"{whole}/", f"{whole}::")) or (whole == "." and part[0] not in "/.")


def _prints(option: str, letters: str) -> bool:
    """Whether an option controls only the amount of output, or ends the run at the first failures."""
    return bool(_PRINTING.fullmatch(option)) or (option[0] == "-" and set(option[1:]) <= set(letters))


def _check_at(words: tuple[str, ...]) -> int | None:
    """The index of the word that names a check; None if the program runs no check.

    The words before the name of a check may be a program that starts it, options with their values, or a script with
    tasks.
    """
    after = False  # True after an option: the next word may be the option's value
    for number, word in enumerate(words):
        name = word.rpartition("/")[2]
        if _INTERPRETER.fullmatch(name) or (word in _STARTERS and number) or (not number and name not in _PROGRAMS):
            after = False
        elif _is_check(word, name):
            return number
        elif word[0:1] in ("-", "+"):
            after = word[0] == "-"
        elif after or not _BARE.fullmatch(word):
            after = False
        else:
            return None
    return None


def _is_check(word: str, name: str) -> bool:
    if name in _PROGRAMS:
        return True
    return bool(_BARE.fullmatch(word.lstrip(":"))) and any(part in _TASKS for part in re.split("[:_-]", word))


def _names(words: tuple[str, ...]) -> list[str]:
    """The words before a check, and the check itself, without options and their values."""
    found: list[str] = []
    before = ""
    for number, word in enumerate(words, 1):
        is_known = number == len(words) or word == "-m" or word in _STARTERS or _INTERPRETER.fullmatch(word)
        if is_known or (not before.startswith("-") and word[:1] not in ("-", "+")):
            found.append(word.rpartition("/")[2])
        before = word
    return found


def _script(words: list[str]) -> str:
    """The object that an interpreter runs: a module (`-m`), the option for code (`-c`), or the name of a file; "" if
    there is none."""
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if word in ("-m", "-jar") and rest:
            return f"{word} {rest[0]}"
        if word in _VALUED and rest:
            rest.pop(0)
        elif word in ("-c", "-e", "-p", "--eval", "-"):
            return word
        elif not word.startswith(("-", "<")):
            return word.rpartition("/")[2]
    return ""
