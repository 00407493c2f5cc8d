"""Parses a shell command into pipelines, with the operators between them and the directory in which each runs.

The parser does not interpret loops and conditions: their keywords are returned as plain tokens. `shell_programs.py`
decides for which programs of a command the exit code 0 proves success.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, replace
from hashlib import blake2b
from posixpath import join, normpath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

TREE = "/work"
"""The path of the work tree as commands see it; each command starts in this directory."""

LONGEST = 20_000
"""The maximum number of characters of a command that are parsed; comments count, here-documents do not."""

MOST_TEXTS = 64
"""The maximum number of here-documents that are parsed; what follows after more of them is not parsed."""

_SIGNS = "();<>|&\n"
_PUNCTUATION = frozenset(_SIGNS)
_OPERATOR = re.compile(r"&&|\|\||\|&|\||;+|&|\(|\)|\n")
# `_QUOTED_OPERATOR` marks a quoted operator, which shlex would return like an unquoted operator
_QUOTED_OPERATOR = "\ue000"
_PIECE = re.compile(
    r"""
      (?P<quoted> '[^']*+' | "[^"\\]*+(?>(?:\\.[^"\\]*+)*)" | \\. )
    | (?P<text> <<(?P<tabs>-?)[ \t]*(?P<mark>['"]?)(?P<end>[\w.-]+)(?P=mark) )
    | (?P<word> <<< )
    | (?P<comment> (?<![^\s;&|()])\#[^\n]* )
    | (?P<descriptor> (?<![^\s;&|()])\d+(?=[<>]) )
    | (?P<inner> \$\((?>(?:[^()'"]++|'[^']*+'|"[^"]*+"|\([^()]*+\))*)\) | `[^`]*+` )
    """,
    re.VERBOSE | re.DOTALL,
)
ASSIGNMENT = re.compile(r"[A-Za-z_]\w*\+?=")

FOLDERS = frozenset(("cd", "pushd", "popd"))
SETTING = frozenset(("export", "source", ".", "unset", "ulimit", "alias", "declare"))
"""Shell commands that change the environment of the programs that follow them."""


@dataclass(frozen=True)
class ShellState:
    """The state of the shell before a pipeline, which `cd`, `export` and `set` earlier in the command may have changed.

    `directory` is relative to the work tree, or absolute outside of it; `around` are the earlier commands that change
    the environment (SETTING and assignments)."""

    directory: str = ""
    around: tuple[str, ...] = ()
    errexit: bool = False
    pipefail: bool = False


@dataclass(frozen=True)
class Pipeline:
    """Simple commands joined by `|` (`members`), the operator before the first of them (`joint`, "" at the beginning of
    the command), and the state of the shell before them (`place`)."""

    joint: str
    members: tuple[tuple[str, ...], ...]
    place: ShellState


def parse_command(command: str, place: ShellState) -> tuple[list[Pipeline], str]:
    """Returns (the pipelines of a command that begins in the state `place`, its operators in order, with a `w` for each
    word).

    If the command cannot be parsed to its end, "?" is returned in place of the operators.
    """
    text, is_whole = _to_shlex_form(command)
    try:
        tokens = _tokens(text)
    except ValueError:  # the command has an unclosed quotation
        return list(_pipelines(text.split(), place)), "?"
    operators = "".join(token if _is_operator(token) else "w" for token in tokens)
    return list(_pipelines(tokens, place)), operators if is_whole else "?"


def _is_operator(token: str) -> bool:
    return bool(token) and set(token) <= _PUNCTUATION


def _to_shlex_form(command: str) -> tuple[str, bool]:
    """Returns (`command` in a form that shlex can split, whether the form covers the whole command).

    Comments and numbers of descriptors are removed from the command, and a command substitution becomes one word. In
    the form for shlex each here-document (`<<END`) is a word with its checksum.
    """
    shown: list[str] = []
    at = texts = 0
    while found := _PIECE.search(command, at, LONGEST):
        shown.append(command[at : found.start()])
        at = found.end()
        if found["quoted"]:
            inside = set(found["quoted"]) - set("\\'\"")
            mark = _QUOTED_OPERATOR if inside and inside <= _PUNCTUATION else ""
            shown.append(" " if found["quoted"] == "\\\n" else mark + found["quoted"])
        elif found["text"]:
            texts += 1
            if texts > MOST_TEXTS:
                return "".join(shown), False
            body, command = _text_cut_out(command, at, found["end"], found["tabs"])
            shown.append(f"< text:{blake2b(body.encode('utf-8', 'replace'), digest_size=8).hexdigest()} ")
        elif found["word"]:
            shown.append("< ")
        elif found["inner"]:
            shown.append(shlex.quote(found["inner"]))
    shown.append(command[at:LONGEST])
    return "".join(shown), len(command) <= LONGEST


def _text_cut_out(command: str, at: int, mark: str, tabs: str) -> tuple[str, str]:
    """Returns (the here-document of the operator `<<mark` that ends at `at`, `command` without that document)."""
    if (line := command.find("\n", at)) < 0:
        return "", command
    last = re.compile(("^\t*" if tabs else "^") + re.escape(mark) + "$", re.MULTILINE).search(command, line + 1)
    if last is None:
        return command[line + 1 :], command[:line]
    return command[line + 1 : last.start()], command[:line] + command[last.end() :]


def _tokens(text: str) -> list[str]:
    """The shell words and operators of a text; raises ValueError for an unclosed quotation."""
    lexer = shlex.shlex(text, posix=True, punctuation_chars=_SIGNS)
    lexer.whitespace = " \t\r"
    lexer.whitespace_split = True
    lexer.commenters = ""
    return list(lexer)


def _pipelines(tokens: list[str], place: ShellState) -> Iterator[Pipeline]:
    words: list[str] = []
    members: list[tuple[str, ...]] = []
    joint = redirect = ""
    outer: list[ShellState] = []
    for token in [*tokens, ";"]:
        if not _is_operator(token):
            if redirect == "<":
                words.append(f"<{token}")
            elif not redirect:
                words.append(token)
            redirect = ""
            continue
        if set(token) & {"<", ">"}:
            redirect = "<" if set(token) == {"<"} else ">"
            continue
        redirect = ""
        for operator in _OPERATOR.findall(token):
            if words:
                members.append(tuple(words))
                words = []
            if operator in ("|", "|&"):
                continue
            if members:
                yield Pipeline(joint, tuple(members), place)
                place = _behind(members, place)
                members, joint = [], ""
            if operator == "(":
                outer.append(place)
            elif operator == ")":
                place = outer.pop() if outer else place
            elif not (joint and operator == "\n"):
                joint = ";" if operator in ("\n", ";;") else operator


def _behind(members: list[tuple[str, ...]], place: ShellState) -> ShellState:
    """The state of the shell after a pipeline has run."""
    (program, *words), *others = members
    if others:
        return place
    if program in FOLDERS:
        where = [word for word in words if not word.startswith("-")]
        return replace(place, directory=_directory(place.directory, where[0] if len(where) == 1 else ""))
    if program == "set":
        letters = "".join(word for word in words if word.startswith("-"))
        off = any(word.startswith("+") for word in words)
        return replace(
            place,
            errexit=not off and (place.errexit or "e" in letters),
            pipefail=not off and (place.pipefail or "pipefail" in words),
        )
    if program in SETTING or all(map(ASSIGNMENT.match, members[0])):
        return replace(place, around=(*place.around, " ".join(members[0])))
    return place


def _directory(before: str, to: str) -> str:
    """The directory after the command `cd to`, relative to the work tree, or absolute outside of it; if the directory
    is unknown, its name contains a `?`."""
    if not to or to[0] in "~$`" or "$" in to or "`" in to:
        return f"?{before}/{to}"
    path = normpath(join(TREE, before, to))
    return path[len(TREE) + 1 :] if path == TREE or path.startswith(f"{TREE}/") else path
