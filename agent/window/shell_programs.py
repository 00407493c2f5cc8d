"""Finds the main programs of a shell command, and for which of them the exit code 0 of the command proves success.

Shell constructs that cannot be analysed with certainty (loops, conditions, functions, process substitution, unclosed
quotes) prove nothing: no program in such a command counts as successful. The module `shell_parser.py` parses the
command.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from hashlib import blake2b

from agent.window.shell_parser import ASSIGNMENT, FOLDERS, SETTING, Pipeline, ShellState, parse_command

DEPTH = 3
"""The maximum depth of nested shells (`bash -c "sh -c …"`) that are analysed."""

LONG = 200
"""The maximum number of characters of a word of a command that is stored unchanged."""

_CROOKED = re.compile(r"\?|[<>]\(|\(\)|\)(?:(?=[&|]*+[<>])[<>&|]++w)*\|(?!\|)|(?<!&)&[;\n]*$")
"""Sequences of operators, with `w` for a word, that make a command too complex to analyse: `<(…)`, `f()`, a subshell
before a pipe, a final `&`."""
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
"""Commands that only print, wait, test, exit or set something, and so are never the main program of a command."""
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
"""Programs that start another program, each with the letters of its options that take a value (manual pages of GNU
coreutils 9, findutils 4.9, sudo 1.9)."""
_CHANGING = frozenset(("env", "sudo", "doas", "xargs"))
"""The programs in `_WRAPPERS` that change what the started program does."""


@dataclass(frozen=True)
class ProgramCall:
    """A program with its arguments, as a simple command starts it.

    `directory` is relative to the work tree.  `around` is everything else that affects the program: variables, another
    user, its input.  `proved` is True if exit code 0 of the whole command proves that this program succeeded.
    """

    words: tuple[str, ...]
    directory: str = ""
    around: tuple[str, ...] = ()
    proved: bool = True


def steps_of(command: str) -> tuple[ProgramCall, ...]:
    """The main programs of a command, in order.

    The main programs of a command do not include filters after a pipe, nor programs such as `cd` and `echo`.
    """
    return tuple(_steps(command, ShellState(), DEPTH))


def _steps(command: str, place: ShellState, depth: int) -> list[ProgramCall]:
    pipelines, operators = parse_command(command, place)
    proved = _proved(pipelines, operators) if _is_straight(pipelines, operators) else set()
    found: list[ProgramCall] = []
    for number, pipeline in enumerate(pipelines):
        found += _subject(pipeline, depth, proved=number in proved)
    return found


def _is_straight(pipelines: list[Pipeline], operators: str) -> bool:
    """Whether a shell command is a plain sequence of pipelines, without loops, conditions and functions."""
    firsts = {member[0] for pipeline in pipelines for member in pipeline.members}
    if firsts & (_COMPOUND | _ENDS | {"trap", "eval"}):
        return False
    return not _CROOKED.search(operators) and not ("(" in operators and "||" in operators)


def _proved(pipelines: list[Pipeline], operators: str) -> set[int]:
    """The numbers of the pipelines that must have succeeded if the exit code of the whole command is 0.

    The result has the pipelines after the last point of the command at which an earlier exit code is lost. bash may
    ignore `set -e` in a subshell, so `set -e` does not count in a command with a subshell.
    """
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
    """Whether a shell with `set -e` exits if this pipeline fails; it continues after a failure within `a && b`."""
    return pipeline.place.errexit and pipeline.joint not in ("&&", "||")


def _subject(pipeline: Pipeline, depth: int, *, proved: bool) -> list[ProgramCall]:
    """The main program of a pipeline: the one that `xargs` starts, else the first program that does more than print.

    The parts of the pipeline before its main program are the input of that program.
    """
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


def _programs(words: tuple[str, ...], place: ShellState, depth: int, *, proved: bool) -> list[ProgramCall]:
    """The program that a simple command starts, without wrappers such as `sudo`, or the programs of its inner shell
    (`bash -c`); [] for a command that only prints or sets something."""
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
    return [
        ProgramCall(
            tuple(map(_storable_word, rest)),
            place.directory,
            tuple(map(_storable_word, place.around)),
            proved and not unknown,
        )
    ]


def _storable_word(word: str) -> str:
    """A word of a command as it is stored: a long word, such as code in an argument, is stored as its beginning and its
    checksum."""
    if len(word) <= LONG:
        return word
    return f"{word[: LONG // 2]}…{blake2b(word.encode('utf-8', 'replace'), digest_size=8).hexdigest()}"


def _unwrapped(wrapper: str, words: list[str]) -> list[str]:
    """The words of the program that a wrapper such as `sudo` starts; [] if it starts none, for example `command -v`."""
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
    """Returns (options, command) of `bash -lc "command"`; None if the shell is called in another way."""
    for number, word in enumerate(words[1:], 1):
        if not word.startswith("-") and word != "pipefail":
            return None
        if not word.startswith("--") and word.endswith("c") and number + 1 < len(words):
            return words[1 : number + 1], words[number + 1]
    return None
