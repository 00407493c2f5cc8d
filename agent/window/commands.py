"""The newest command of each kind and the errors of other tools, read off tools.jsonl, and shown in a budget.

A kind is the program with its sub-command: `pytest`, `npm test`, `cargo build`.  The newest command of a kind takes the
place of the one before, so that the list is the present state.  Only numbers and one line are kept of each; what a
command printed is read again when it is shown.  `carried.py` asks.  docs/window.md has the rules.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from agent.store.text import dumps, fit
from agent.window.excerpt import excerpt

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from agent.values import Json

COMMAND = "run_command"
NOTHING = "(no output)"
"""The result of a command that printed nothing."""

MOST = 40
"""Kinds of commands, and errors of other tools, that are known at most; the oldest go."""

LINE = 200
"""Characters of a command or an error in its line."""

ONE = 40
"""Tokens that what one command printed may have in any case, as far as they are left: about one long line."""

JOINED = 3
"""Programs of one command that its kind names."""

_CODE = re.compile(r"\[exit code (-?\d+)")
_ENDING = re.compile(r"\[([^\n]*)\]")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
_WORD = re.compile(r"[A-Za-z][\w:-]*")
_WRAPPED = re.compile(r"-.*|\d+(?:\.\d+)?[smhd]?")  # options and times of a program that starts another one
_WRAPPERS = frozenset(("time", "env", "timeout", "nice", "nohup", "exec", "command", "sudo", "stdbuf"))
_OPENERS = frozenset(("do", "then", "else", "if", "while", "until", "!", "{"))
_QUIET = frozenset(
    (
        *("cd", "pushd", "popd", "export", "set", "unset", "source", ".", "shopt", "trap", "umask", "ulimit"),
        *("echo", "printf", "true", ":", "exit", "sleep", "wait", "read"),
        *("for", "done", "fi", "esac", "case", "}"),
    )
)
"""Words of the shell that set something up or say something: never what a command is about."""
_INTERPRETERS = re.compile(r"(?:python|pypy|node|ruby|perl|php|lua|bash|zsh|dash|sh|Rscript|java)[\d.]*")
_RUNNERS = frozenset(("run", "exec", "x"))
"""Sub-commands that start a program, whose name is part of the kind."""


def kinds_of(command: str) -> tuple[tuple[str, ...], bool]:
    """(kinds of the programs in a shell command, in order; whether its exit code speaks of all of them).

    It does not behind a pipe, `;`, `||` or a line end: there it is the last program's alone.
    """
    kinds: list[str] = []
    sure = True
    for joint, words in _simple(command):
        sure = sure and (not kinds or joint == "&&")
        if joint in ("|", "|&") and kinds:
            continue  # a filter says nothing by itself
        if (kind := _kind(words)) and kind not in kinds:
            kinds.append(kind)
    return tuple(kinds[-JOINED:]), sure


def _simple(command: str) -> Iterator[tuple[str, list[str]]]:
    """(operator in front, words) of each simple command, without redirections."""
    words: list[str] = []
    joint = ""
    skip = False
    for token in _tokens(command.partition("<<")[0].strip(" \n;&")):
        if set(token) <= set("<>&|") and set(token) & set("<>"):
            skip = True
        elif set(token) <= set(";&|()\n"):
            if words:
                yield joint, words
                words, joint = [], ""
            joint = joint if joint and not token.strip("\n()") else token.strip("()") or joint
            skip = False
        elif not skip:
            words.append(token)
        else:
            skip = False
    if words:
        yield joint, words


def _tokens(command: str) -> list[str]:
    lexer = shlex.shlex(command.replace("\\\n", " "), posix=True, punctuation_chars="();<>|&\n")
    lexer.whitespace = " \t\r"
    lexer.commenters = ""
    try:
        return list(lexer)
    except ValueError:  # a quotation without its end
        return command.split()


def _kind(words: list[str]) -> str:
    """Program and sub-command of a simple command; "" for one that only sets something up."""
    while words and (words[0] in _WRAPPERS or words[0] in _OPENERS or _ASSIGNMENT.match(words[0])):
        wrapper, *words = words
        while wrapper in _WRAPPERS and words and _WRAPPED.fullmatch(words[0]):
            words = words[1:]
    if not words or words[0] in _QUIET:
        return ""
    program, rest = words[0].rpartition("/")[2], words[1:]
    if _INTERPRETERS.fullmatch(program):
        return f"{program} {_script(rest)}".strip()
    if not rest or not _WORD.fullmatch(rest[0]):
        return program
    if rest[0] in _RUNNERS and len(rest) > 1 and _WORD.fullmatch(rest[1]):
        return f"{program} {rest[0]} {rest[1]}"
    return f"{program} {rest[0]}"


def _script(words: list[str]) -> str:
    """What an interpreter runs: `-m module`, or the name of a file."""
    for number, word in enumerate(words):
        if word == "-m" and number + 1 < len(words):
            return f"-m {words[number + 1]}"
        if word in ("-c", "-e"):
            return word
        if not word.startswith("-"):
            return word.rpartition("/")[2]
    return ""


@dataclass
class Run:
    """What the newest command of a kind came to, or an error of another tool.

    `seq` and `at` are its number and offset in tools.jsonl; `code` the exit code, None where there was none.  `waiting`
    are the kinds that must succeed before a failure is over; `suspect` says that the kind failed when it ran before.
    """

    seq: int
    at: int
    line: str
    ending: str
    code: int | None = None
    sure: bool = True
    waiting: set[str] = field(default_factory=set)
    suspect: bool = False

    @property
    def good(self) -> bool:
        """Whether it succeeded for certain."""
        return self.code == 0 and self.sure

    @property
    def bad(self) -> bool:
        """Whether what it printed matters: it failed, or failed before and may not have succeeded since."""
        return self.code != 0 or (self.suspect and not self.sure)


class Commands:
    """Fed with the records of tools.jsonl in order; bounded."""

    def __init__(self) -> None:
        self.runs: dict[str, Run] = {}
        self.errors: dict[str, Run] = {}

    def take(self, record: Json, at: int) -> None:
        """Take one record in; `at` is the offset of its line."""
        arguments = record.get("args")
        arguments = arguments if isinstance(arguments, dict) else {}
        if record.get("tool") == COMMAND and isinstance(arguments.get("command"), str):
            self._take_command(record, at, arguments["command"])
        else:
            self._take_other(record, at, arguments)

    def _take_command(self, record: Json, at: int, command: str) -> None:
        kinds, sure = kinds_of(command)
        result = str(record.get("result") or "")
        code = _CODE.match(result)
        ending = _ENDING.match(result)
        run = Run(
            record["seq"],
            at,
            one_line(command),
            one_line(ending[1] if ending else str(record.get("error") or result)),
            int(code[1]) if code else None,
            sure,
            set(kinds),
        )
        if run.good:
            for key, failed in list(self.runs.items()):
                failed.waiting -= run.waiting
                if not failed.waiting and not failed.good:
                    del self.runs[key]
        key = " && ".join(kinds) or "shell"
        run.suspect = key in self.runs and self.runs[key].bad
        _newest(self.runs, key, run)

    def _take_other(self, record: Json, at: int, arguments: Json) -> None:
        tool = str(record.get("tool"))
        what = arguments.get("path")
        path = what if isinstance(what, str) else ""
        key = f"{tool} {path or blake2b(dumps(arguments), digest_size=12).hexdigest()}"
        if record.get("status") == "success":
            self.errors.pop(key, None)
            return
        error = one_line(str(record.get("error") or record.get("result") or ""))
        _newest(self.errors, key, Run(record["seq"], at, one_line(f"{tool} {path}".strip()), error))

    def show(self, room: int, count: Callable[[str], int], read: Callable[[int], Mapping[str, Any]]) -> str:
        """Failures with what they printed, newest first, then what succeeded, in `room` tokens of `count`; "" for
        nothing.  `read(offset)` gives a record of tools.jsonl."""
        order = sorted(self.runs.values(), key=lambda run: -run.seq)
        bad = [run for run in order if run.bad]
        errors = sorted(self.errors.values(), key=lambda run: -run.seq)
        rest = [*(run for run in order if not run.bad and not run.good), *(run for run in order if run.good)]
        heads: dict[int, str] = {}
        left = room
        for number, run in enumerate((*bad, *errors, *rest)):
            head = _head(run)
            # The lines of what failed may have two thirds, so that some is left for what it printed.
            keep = room // 3 if number > 0 and bad else 0
            if (cost := count(head) + 1) <= left - keep:
                heads[run.seq] = head
                left -= cost
        printed = {run.seq: _printed(read(run.at)) for run in bad if run.seq in heads}
        parts = _shared({seq: text for seq, text in printed.items() if text}, left, count)
        return "\n".join(f"{head}\n{parts[seq]}" if parts.get(seq) else head for seq, head in heads.items())


def _printed(record: Mapping[str, Any]) -> str:
    """What a command printed, "" for nothing."""
    text = _ENDING.sub("", str(record.get("result") or ""), count=1).strip("\n")
    return "" if text == NOTHING else text


def _shared(texts: Mapping[int, str], room: int, count: Callable[[str], int]) -> dict[int, str]:
    """An excerpt of each text, in `room` tokens together: short ones are whole, long ones share alike."""
    found: dict[int, str] = {}
    sizes = sorted(texts, key=lambda seq: (len(texts[seq]), -seq))
    for number, seq in enumerate(sizes):
        part = excerpt(texts[seq], min(room, max(ONE, room // (len(sizes) - number))) - 1, count)
        if part:
            found[seq] = part
            room -= count(part) + 1
    return found


def _head(run: Run) -> str:
    about = "" if run.sure else " (of the last program in it)"
    return f"- {run.line} → {run.ending}{about} [tools:{run.seq}]"


def one_line(text: str) -> str:
    """The text without ends of line, in at most LINE characters."""
    line = " ".join(fit(text[: 4 * LINE]).split())
    return line if len(line) <= LINE else f"{line[: LINE - 1]}…"


def _newest(runs: dict[str, Run], key: str, run: Run) -> None:
    """Put it last.  Over MOST the oldest success goes, else the oldest."""
    runs.pop(key, None)
    runs[key] = run
    if len(runs) > MOST:
        del runs[next((name for name, one in runs.items() if one.good), next(iter(runs)))]
