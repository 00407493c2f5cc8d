"""A shell command taken apart: its pipelines with the operators between them, and where in the work tree they run.

Not a shell: loops and conditions come out as plain words.  `steps.py` asks and says what is certain.
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
"""Where a command sees the work tree, in which it starts."""

LONGEST = 20_000
"""Characters of a command, without texts that stand in it as input, that are taken apart."""

_SIGNS = "();<>|&\n"
_PUNCTUATION = frozenset(_SIGNS)
_OPERATOR = re.compile(r"&&|\|\||\|&|\||;+|&|\(|\)|\n")
_QUOTED_OPERATOR = "\ue000"  # put before a quoted operator, which shlex would return like a real one
_PIECE = re.compile(
    r"""
      (?P<quoted> '[^']*' | "(?:\\.|[^"\\])*" | \\. )
    | (?P<text> <<(?P<tabs>-?)[ \t]*(?P<mark>['"]?)(?P<end>[\w.-]+)(?P=mark) )
    | (?P<word> <<< )
    | (?P<comment> (?<![^\s;&|()])\#[^\n]* )
    | (?P<descriptor> (?<![^\s;&|()])\d+(?=[<>]) )
    | (?P<inner> \$\((?:[^()'"]|'[^']*'|"[^"]*"|\([^()]*\))*\) | `[^`]*` )
    """,
    re.VERBOSE | re.DOTALL,
)
ASSIGNMENT = re.compile(r"[A-Za-z_]\w*\+?=")

FOLDERS = frozenset(("cd", "pushd", "popd"))
SETTING = frozenset(("export", "source", ".", "unset", "ulimit", "alias", "declare"))
"""They change what the programs behind them meet."""


@dataclass(frozen=True)
class Place:
    """Where in a command one is: what `cd`, `export` and `set` have made of it so far."""

    directory: str = ""
    around: tuple[str, ...] = ()
    errexit: bool = False
    pipefail: bool = False


@dataclass(frozen=True)
class Pipeline:
    """Simple commands between pipes, with the operator before them."""

    joint: str
    members: tuple[tuple[str, ...], ...]
    place: Place


def read(command: str, place: Place) -> tuple[list[Pipeline], str]:
    """(the pipelines of a command that begins at `place`, its operators in order with a `w` for each word); "?" for the
    operators when the command cannot be read to its end."""
    text = _plain(command)
    try:
        tokens = _tokens(text[:LONGEST])
    except ValueError:  # a quotation without its end
        return list(_pipelines(text[:LONGEST].split(), place)), "?"
    operators = "".join(token if _is_operator(token) else "w" for token in tokens)
    return list(_pipelines(tokens, place)), operators if len(text) <= LONGEST else "?"


def _is_operator(token: str) -> bool:
    return bool(token) and set(token) <= _PUNCTUATION


def _plain(command: str) -> str:
    """`command` as shlex reads it: without comments and numbers of descriptors, an inner command as one word, and for
    each text that stands in it as input (`<<END`) a word with its check sum."""
    shown: list[str] = []
    at = 0
    while found := _PIECE.search(command, at):
        shown.append(command[at : found.start()])
        at = found.end()
        if found["quoted"]:
            inside = set(found["quoted"]) - set("\\'\"")
            mark = _QUOTED_OPERATOR if inside and inside <= _PUNCTUATION else ""
            shown.append(" " if found["quoted"] == "\\\n" else mark + found["quoted"])
        elif found["text"]:
            body, command = _text_cut_out(command, at, found["end"], found["tabs"])
            shown.append(f"< text:{blake2b(body.encode('utf-8', 'replace'), digest_size=8).hexdigest()} ")
        elif found["word"]:
            shown.append("< ")
        elif found["inner"]:
            shown.append(shlex.quote(found["inner"]))
    shown.append(command[at:])
    return "".join(shown)


def _text_cut_out(command: str, at: int, mark: str, tabs: str) -> tuple[str, str]:
    """(the text behind the line in which `<<mark` ends at `at`, `command` without it)."""
    if (line := command.find("\n", at)) < 0:
        return "", command
    last = re.compile(("^\t*" if tabs else "^") + re.escape(mark) + "$", re.MULTILINE).search(command, line + 1)
    if last is None:
        return command[line + 1 :], command[:line]
    return command[line + 1 : last.start()], command[:line] + command[last.end() :]


def _tokens(text: str) -> list[str]:
    """Words and operators; ValueError for a quotation without its end."""
    lexer = shlex.shlex(text, posix=True, punctuation_chars=_SIGNS)
    lexer.whitespace = " \t\r"
    lexer.whitespace_split = True
    lexer.commenters = ""
    return list(lexer)


def _pipelines(tokens: list[str], place: Place) -> Iterator[Pipeline]:
    words: list[str] = []
    members: list[tuple[str, ...]] = []
    joint = redirect = ""
    outer: list[Place] = []
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


def _behind(members: list[tuple[str, ...]], place: Place) -> Place:
    """The place behind a pipeline."""
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
    """Where `cd to` leads, relative to the work tree; a place that is not known has a `?` in its name."""
    if not to or to[0] in "~$`" or "$" in to or "`" in to:
        return f"?{before}/{to}"
    path = normpath(join(TREE, before, to))
    return path[len(TREE) + 1 :] if path == TREE or path.startswith(f"{TREE}/") else path
