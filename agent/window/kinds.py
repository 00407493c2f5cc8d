"""Of what kind a program's start is, and whether its success speaks for another start that failed.

The kind is the program with its sub-command: `pytest`, `npm test`, `uv run pytest`.  It only groups.  A success speaks
for a failure of the same words, and of a check (tests, build, lint) for one of a part of its targets.  The names below
are of checks whose words behind the name are targets and options; for a program that is not among them only the same
words count, so that a failure stays rather than gets lost.
"""

from __future__ import annotations

import re
from posixpath import normpath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agent.window.steps import Step

_PROGRAMS = frozenset(
    (
        *("pytest", "py.test", "unittest", "nose2", "tox", "nox", "mypy", "pyright", "flake8", "pylint"),
        *("jest", "vitest", "mocha", "ava", "eslint", "tsc", "rspec", "rubocop", "phpunit", "ctest"),
    )
)
_TASKS = frozenset(
    ("test", "tests", "check", "lint", "build", "vet", "clippy", "typecheck", "verify", "compile", "spec")
)
"""Sub-commands that check; also as a part: `test:unit`."""
_STARTERS = frozenset(("run", "exec", "x", "dlx"))
"""Sub-commands that start a program or a script, whose name follows."""
_INTERPRETER = re.compile(r"(?:python|pypy|node|ruby|perl|php|lua|bash|zsh|dash|ksh|sh|Rscript|java)[\d.]*")
_VALUED = frozenset(("-X", "-W", "-r", "-I", "-cp", "--require", "--import", "--loader"))
"""Options of interpreters whose value is the next word."""

_BARE = re.compile(r"[A-Za-z][\w:-]*")
_LEADING = re.compile(r"--[\w-]+|-[A-Z]|\+\S+")
"""Options that may stand before a sub-command."""

_PRINTING = re.compile(
    r"-rN?[a-zA-Z]|--(?:quiet|verbose|silent|no-header|maxfail=\d+|tb=\w+|color(?:=\w+)?|durations=\d+)"
)
_SHORT_PRINTING = {"pytest": "qvsx", "py.test": "qvsx", "unittest": "qvfb", "cargo": "qv", "go": "v"}
"""Letters of options that say how much is printed, or that it ends at the first failure.  Elsewhere `-v` may be the
version."""
_EARLY = re.compile(r"-[a-z]*x[a-z]*|-f|--(?:exitfirst|maxfail(?:=\d+)?|fail-?fast|bail(?:=\d+)?)")
_NARROWING = frozenset(
    ("-k", "-t", "-g", "-R", "-run", "--run", "--filter", "--tests", "--grep", "-Dtest", "--lf", "--last-failed")
)
"""Options that choose some tests of all; with `=` or with the next word as their value."""


def kind_of(step: Step) -> str:
    """The program with its sub-command, or with the script or module that it runs."""
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


def speaks_for(good: Step, failed: Step) -> bool:
    """Whether a success of `good` means that `failed` would succeed now."""
    if good.words[:1] != failed.words[:1] or (good.directory, good.around) != (failed.directory, failed.around):
        return False
    at = _check_at(good.words)
    if at is None or good.words[: at + 1] != failed.words[: at + 1]:
        return good.words == failed.words
    return _Scope(good.words, at).covers(_Scope(failed.words, at))


def is_check(step: Step) -> bool:
    """Whether it runs tests, or checks in another way."""
    return _check_at(step.words) is not None


def ends_early(step: Step) -> bool:
    """Whether it may end at the first failure, so that it names one of several."""
    return any(_EARLY.fullmatch(word) for word in step.words)


class _Scope:
    """What a check is asked to look at: its options, each with its value, and its targets."""

    def __init__(self, words: tuple[str, ...], at: int) -> None:
        head = [word.rpartition("/")[2] for word in words[: at + 1]]
        printing = next((_SHORT_PRINTING[word] for word in head if word in _SHORT_PRINTING), "")
        self.is_go = head[0] == "go"
        self.has_parts = head[-1] in _PROGRAMS or head[0] == "cargo"  # else a bare word may be one more task
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
            self.targets = ["."]  # the package in this folder alone (`go help packages`)

    def covers(self, other: _Scope) -> bool:
        """Whether `other` asks for the same or for a part of it."""
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
    """Whether an option only says how much is printed."""
    return bool(_PRINTING.fullmatch(option)) or (option[0] == "-" and set(option[1:]) <= set(letters))


def _check_at(words: tuple[str, ...]) -> int | None:
    """The number of the word that names a check, None for another program.

    Words before it may be a program that starts it, options with their values, a script that has tasks.
    """
    after = False  # behind an option, whose value it may be
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
    """The words before a check, and its own, without options and their values."""
    found: list[str] = []
    before = ""
    for number, word in enumerate(words, 1):
        is_known = number == len(words) or word == "-m" or word in _STARTERS or _INTERPRETER.fullmatch(word)
        if is_known or (not before.startswith("-") and word[:1] not in ("-", "+")):
            found.append(word.rpartition("/")[2])
        before = word
    return found


def _script(words: list[str]) -> str:
    """What an interpreter runs: `-m module`, `-c`, or the name of a file."""
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
