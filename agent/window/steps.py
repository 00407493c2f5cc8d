"""The programs that a shell command is about, and of which of them its exit code speaks.

What cannot be told for certain (loops, conditions, functions, process substitution, quotes without an end) counts as
not certain, so that no success is read out of it.  `shell.py` takes the command apart; `commands.py` asks.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from hashlib import blake2b

from agent.window.shell import ASSIGNMENT, FOLDERS, SETTING, Pipeline, Place, read

DEPTH = 3
"""Shells in shells (`bash -c "sh -c …"`) that are looked into."""

LONG = 200
"""Characters of a word that is kept whole."""

_CROOKED = re.compile(r"\?|[<>]\(|\(\)|\)(?:(?=[&|]*+[<>])[<>&|]++w)*\|(?!\|)|(?<!&)&[;\n]*$")
"""Operators, with `w` for words, that are not read here: `<(…)`, `f()`, a subshell before a pipe, a last `&`."""
_TIME = re.compile(r"\d+(?:\.\d+)?[smhd]?")

_COMPOUND = frozenset(
    ("if", "then", "elif", "else", "while", "until", "do", "for", "case", "select", "function", "{", "!")
)
_ENDS = frozenset(("done", "fi", "esac", "}"))
_SILENT = frozenset(
    (
        "echo",
        "printf",
        "true",
        "false",
        ":",
        "exit",
        "sleep",
        "wait",
        "read",
        "shopt",
        "umask",
        "return",
        "test",
        "[",
        "[[",
    )
)
"""Words of the shell that say something or wait: never what a command is about."""
_NOTHING = _SILENT | SETTING | _ENDS | FOLDERS | {"set", "trap"}
_HEADS = frozenset(("for", "case", "select", "function"))
_SHELLS = frozenset(("sh", "bash", "zsh", "dash", "ksh"))

_WRAPPERS = {
    "time": "fo",
    "timeout": "ks",
    "nice": "n",
    "ionice": "cnp",
    "stdbuf": "ioe",
    "nohup": "",
    "setsid": "",
    "exec": "a",
    "command": "",
    "xargs": "adEILnPs",
    "env": "uCS",
    "sudo": "ugprtCDhRTU",
    "doas": "uC",
}
"""Programs that start another one, each with its options that have a value of their own (manual pages of GNU coreutils
9, findutils 4.9, sudo 1.9)."""
_CHANGING = frozenset(("env", "sudo", "doas", "xargs"))
"""Those under which the program does another thing than without."""


@dataclass(frozen=True)
class Step:
    """A program with its words, as one simple command starts it.

    `directory` is where, relative to the work tree; `around` what else decides about it: variables, a user, its input.
    `proved` says that exit code 0 of the whole command means that this program succeeded.
    """

    words: tuple[str, ...]
    directory: str = ""
    around: tuple[str, ...] = ()
    proved: bool = True


def steps_of(command: str) -> tuple[Step, ...]:
    """The programs that a command is about, in order.  Filters behind a pipe are none, nor is `cd` or `echo`."""
    return tuple(_steps(command, Place(), DEPTH))


def _steps(command: str, place: Place, depth: int) -> list[Step]:
    pipelines, operators = read(command, place)
    proved = _proved(pipelines, operators) if _is_straight(pipelines, operators) else set()
    found: list[Step] = []
    for number, pipeline in enumerate(pipelines):
        found += _subject(pipeline, depth, proved=number in proved)
    return found


def _is_straight(pipelines: list[Pipeline], operators: str) -> bool:
    """Whether the pipelines run one after the other, as far as the operators between them let them."""
    firsts = {member[0] for pipeline in pipelines for member in pipeline.members}
    if firsts & (_COMPOUND | _ENDS | {"trap", "eval"}):
        return False
    return not _CROOKED.search(operators) and not ("(" in operators and "||" in operators)


def _proved(pipelines: list[Pipeline], operators: str) -> set[int]:
    """Numbers of the pipelines that succeeded when the exit code of all is 0: those behind the last place where the
    code of what stands before is lost.  In a subshell bash may take no notice of `set -e`, so beside one it is not
    trusted."""
    found: set[int] = set()
    for number in range(len(pipelines) - 1, -1, -1):
        joint = pipelines[number].joint
        if joint == "||":
            break
        found.add(number)
        if joint != "&&" and not (joint == ";" and number and "(" not in operators and _ends_it(pipelines[number - 1])):
            break
    return found


def _ends_it(pipeline: Pipeline) -> bool:
    """Whether a shell with `set -e` ends when this fails: it goes on behind a failure within `a && b`."""
    return pipeline.place.errexit and pipeline.joint not in ("&&", "||")


def _subject(pipeline: Pipeline, depth: int, *, proved: bool) -> list[Step]:
    """The program that a pipeline is about: what `xargs` starts, else the first one that does not only say something.
    What stands before it is its input."""
    members = pipeline.members
    feeding = [number for number, words in enumerate(members) if number and "xargs" in words[:1]]
    for number in feeding or range(len(members)):
        place = pipeline.place
        if number:
            place = replace(place, around=(*place.around, f"{' '.join(' '.join(one) for one in members[:number])} |"))
        last = number == len(members) - 1
        if steps := _programs(members[number], place, depth, proved=proved and (last or place.pipefail)):
            return steps
    return []


def _programs(words: tuple[str, ...], place: Place, depth: int, *, proved: bool) -> list[Step]:
    """The program of a simple command without what only starts it; none for one that says or sets something."""
    rest = list(words)
    around = list(place.around)
    while rest:
        first = rest[0].rpartition("/")[2]
        if ASSIGNMENT.match(rest[0]):
            around.append(rest.pop(0))
        elif rest[0] in _COMPOUND:
            rest.pop(0)
        elif first in _WRAPPERS and (inner := _unwrapped(first, rest)):
            if first in _CHANGING:
                around += rest[first == "env" : len(rest) - len(inner)]
            rest = inner
        else:
            break
    if not rest or rest[0] in _NOTHING or words[0] in _HEADS:
        return []
    place = replace(place, around=tuple(around))
    if depth and rest[0].rpartition("/")[2] in _SHELLS and (found := _inner(rest)):
        options, command = found
        letters = "".join(one for one in options if not one.startswith("--") and one != "pipefail")
        place = replace(place, errexit="e" in letters, pipefail="pipefail" in options)
        steps = _steps(command, place, depth - 1)
        return [replace(step, proved=step.proved and proved) for step in steps]
    unknown = any(not word.startswith("-") and ("$(" in word or "`" in word) for word in rest)
    return [Step(tuple(map(_kept, rest)), place.directory, tuple(map(_kept, place.around)), proved and not unknown)]


def _kept(word: str) -> str:
    """A long word as its start and its check sum: all that is kept of a program in an argument."""
    if len(word) <= LONG:
        return word
    return f"{word[: LONG // 2]}…{blake2b(word.encode('utf-8', 'replace'), digest_size=8).hexdigest()}"


def _unwrapped(wrapper: str, words: list[str]) -> list[str]:
    """What a wrapper starts; [] where it starts nothing, as `command -v` does."""
    rest = words[1:]
    if wrapper == "command" and rest[:1] and rest[0].startswith("-"):
        return []
    while rest and rest[0].startswith("-"):
        option = rest.pop(0)
        if option == "--":
            break
        if len(option) == 2 and option[1] in _WRAPPERS[wrapper]:
            rest = rest[1:]
    if wrapper == "timeout":
        while rest and not _TIME.fullmatch(rest[0]):
            rest.pop(0)
        rest = rest[1:]
    return rest


def _inner(words: list[str]) -> tuple[list[str], str] | None:
    """(options, command) of `bash -lc "command"`, None for another use of a shell."""
    for number, word in enumerate(words[1:], 1):
        if not word.startswith("-") and word != "pipefail":
            return None
        if not word.startswith("--") and word.endswith("c") and number + 1 < len(words):
            return words[1 : number + 1], words[number + 1]
    return None
