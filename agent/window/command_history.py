"""Collects from tools.jsonl, within a budget, the newest command of each kind, unresolved failures, and errors of other
tools.

A failure of a command is resolved when its programs have succeeded later in the same directory, with the same targets
or more (`command_kinds.py`). If the command fails again in the same way, the new failure replaces the old one. A
failure that may be resolved, without proof, comes after the other failures in the list. Of each command, only numbers,
one line, and the programs with their arguments stay in memory; the output is read again when it is shown.
docs/window.md has the rules.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from agent.store.storable_text import dumps, replace_surrogates
from agent.window.command_kinds import ends_early, is_check, kind_of, speaks_for
from agent.window.output_lines import names_test
from agent.window.shell_programs import steps_of
from agent.window.stored_output import ENDING, printed_lines, recorded_output

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from agent.values import Json
    from agent.window.failure_excerpt import FailureLines
    from agent.window.shell_programs import ProgramCall

COMMAND = "run_command"

MOST = 40
"""The maximum number of failures; also of kinds of commands that succeeded, and of errors of other tools. Above this
number, the oldest success or error is dropped, but of the failures the oldest one of the most frequent kind."""

LINE = 200
"""The maximum number of characters of the line that shows a command or an error."""

ONE = 40
"""The minimum number of tokens for the output of one command, if the budget allows it: about one long line."""

JOINED = 3
"""The maximum number of programs that the kind of a command names."""

_CODE = re.compile(r"\[exit code (-?\d+)")


@dataclass
class CommandRun:
    """The result of a command, or the error of another tool.

    `seq` and `at` are the number and the offset of the tool call in tools.jsonl; `code` is the exit code, None if there
    is none. `sure`: the exit code covers all programs of the command, not only the last one. `names_tests`: the output
    of the command names failing tests. `about` are the programs of the command that may have failed; those in `waiting`
    must still succeed before the failure counts as resolved. `in_doubt`: a command with a program of the same kind ran
    after the failure, so the failure may be resolved.
    """

    seq: int
    at: int
    line: str
    ending: str
    kinds: tuple[str, ...] = ()
    code: int | None = None
    sure: bool = True
    steps: tuple[ProgramCall, ...] = ()
    names_tests: bool = False
    in_doubt: bool = False
    about: tuple[ProgramCall, ...] = field(init=False)
    waiting: list[ProgramCall] = field(init=False)

    def __post_init__(self) -> None:
        checks = tuple(filter(is_check, self.steps)) if self.names_tests else ()
        self.about = checks or self.steps  # if tests failed in `pip install . && pytest`, pip did not fail
        self.waiting = list(self.about)

    @property
    def kind(self) -> str:
        """The kinds of the last programs of the command, joined into one text, as a key."""
        return " && ".join(self.kinds[-JOINED:]) or "shell"

    @property
    def failed(self) -> bool:
        """Whether the command failed: its exit code is not 0 or is missing, or its output names failing tests while the
        exit code may be that of another program."""
        return self.code != 0 or (self.names_tests and not self.sure)

    def repeats(self, other: CommandRun) -> bool:
        """Whether this failure replaces the older failure `other`: everything that failed then was tried again."""
        if self.code != other.code or self.sure != other.sure or (other.names_tests and not self.names_tests):
            return False
        # A program that filters the output may hide another failure, so only a run of the same command line replaces
        # it.
        if not self.steps or not self.sure:
            return self.steps == other.steps and self.line == other.line
        return len(self.about) == len(other.about) and all(
            speaks_for(one, two) and (one.words == two.words or not ends_early(one))
            for one, two in zip(self.about, other.about, strict=True)
        )


class CommandHistory:
    """The state of all commands so far, built from the records of tools.jsonl in order; its size is bounded."""

    def __init__(self) -> None:
        self.failures: list[CommandRun] = []
        self.successes: dict[str, CommandRun] = {}
        self.errors: dict[str, CommandRun] = {}
        self._printed: dict[int, FailureLines] = {}

    def failing(self) -> list[str]:
        """The kinds of the unresolved failures, the newest last."""
        return list(dict.fromkeys(run.kind for run in sorted(self.failures, key=lambda run: run.seq)))

    def add(self, record: Json, at: int) -> None:
        """Update the state by one tool call; `record` is its line in tools.jsonl, which begins at the offset `at`."""
        arguments = record.get("args")
        arguments = arguments if isinstance(arguments, dict) else {}
        if record.get("tool") == COMMAND and isinstance(arguments.get("command"), str):
            self._take_command(record, at, arguments["command"])
        else:
            self._take_other(record, at, arguments)

    def _take_command(self, record: Json, at: int, command: str) -> None:
        run = _run(record, at, command)
        self.successes.pop(run.kind, None)
        proved = [step for step in run.steps if step.proved] if run.code == 0 else []
        kept: list[CommandRun] = []
        for failure in self.failures:
            failure.waiting = [one for one in failure.waiting if not any(speaks_for(good, one) for good in proved)]
            is_over = not failure.waiting and (bool(failure.steps) or (run.code == 0 and run.line == failure.line))
            if is_over or (run.failed and run.repeats(failure)):
                continue
            failure.in_doubt = failure.in_doubt or not set(run.kinds).isdisjoint(failure.kinds)
            kept.append(failure)
        self.failures = kept
        if run.failed:
            self.failures.append(run)
            _bound(self.failures)
        else:
            _newest(self.successes, run.kind, run)

    def _take_other(self, record: Json, at: int, arguments: Json) -> None:
        tool = str(record.get("tool"))
        what = arguments.get("path")
        path = what if isinstance(what, str) else ""
        key = f"{tool} {path or blake2b(dumps(arguments), digest_size=12).hexdigest()}"
        if record.get("status") == "success":
            self.errors.pop(key, None)
            return
        error = one_line(str(record.get("error") or record.get("result") or ""))
        _newest(self.errors, key, CommandRun(record["seq"], at, one_line(f"{tool} {path}".strip()), error))

    def render(
        self,
        room: int,
        count: Callable[[str], int],
        read: Callable[[int], Mapping[str, Any]],
        folder: Path | None = None,
    ) -> str:
        """A text about commands and errors, in at most `room` tokens as `count` counts; "" if there are none.

        The order is: failures (first those that name failing tests), errors of other tools, failures that may be
        resolved, successes; the newest first within each of these. As far as tokens are left, failures have excerpts of
        their output.
        `read(offset)` returns a record of tools.jsonl; the output of a command is read from `outputs/` in `folder`,
        else from the record.
        """
        failures = sorted(self.failures, key=lambda run: (run.in_doubt, not run.names_tests, -run.seq))
        fresh = [run for run in failures if not run.in_doubt]
        doubtful = [run for run in failures if run.in_doubt]
        errors = sorted(self.errors.values(), key=lambda run: -run.seq)
        rest = sorted(self.successes.values(), key=lambda run: (run.sure, -run.seq))
        heads: dict[int, str] = {}
        left = room
        for number, run in enumerate((*fresh, *errors, *doubtful, *rest)):
            head = _head(run)
            # If there are failures, all lines but the first get at most two thirds of the tokens: a third is for
            # output.
            keep = room // 3 if number > 0 and failures else 0
            if (cost := count(head) + 1) <= left - keep:
                heads[run.seq] = head
                left -= cost
        parts: dict[int, str] = {}
        for some in (fresh, doubtful):
            texts = {run.seq: self._lines(run, read, folder) for run in some if run.seq in heads}
            found = _shared(texts, left, count)
            left -= sum(count(part) + 1 for part in found.values())
            parts |= found
        return "\n".join(f"{head}\n{parts[seq]}" if seq in parts else head for seq, head in heads.items())

    def _lines(self, run: CommandRun, read: Callable[[int], Mapping[str, Any]], folder: Path | None) -> FailureLines:
        """The output of a failed command; it is read once and cached as long as the failure is unresolved."""
        known = {failure.seq for failure in self.failures}
        self._printed = {seq: lines for seq, lines in self._printed.items() if seq in known}
        if run.seq not in self._printed:
            self._printed[run.seq] = printed_lines(read(run.at), folder)
        return self._printed[run.seq]


def _run(record: Json, at: int, command: str) -> CommandRun:
    """The result of a command, made from its record in tools.jsonl."""
    steps = steps_of(command)
    result = str(record.get("result") or "")
    code = _CODE.match(result)
    ending = ENDING.match(result)
    number = int(code[1]) if code else None
    sure = all(step.proved for step in steps)
    return CommandRun(
        record["seq"],
        at,
        one_line(command),
        one_line(ending[1] if ending else str(record.get("error") or result)),
        tuple(dict.fromkeys(map(kind_of, steps))),
        number,
        sure,
        steps,
        (number != 0 or not sure) and names_test(recorded_output(record)),
    )


def _shared(texts: Mapping[int, FailureLines], room: int, count: Callable[[str], int]) -> dict[int, str]:
    """Excerpts of the texts, together in at most `room` tokens: short texts are whole, long ones get equal parts."""
    found: dict[int, str] = {}
    sizes = sorted((seq for seq in texts if texts[seq].size), key=lambda seq: (texts[seq].size, -seq))
    for number, seq in enumerate(sizes):
        part = texts[seq].excerpt(min(room, max(ONE, room // (len(sizes) - number))) - 1, count)
        if part:
            found[seq] = part
            room -= count(part) + 1
    return found


def _head(run: CommandRun) -> str:
    about = "" if run.sure else " (of the last program in it)"
    return f"- {run.line} → {run.ending}{about} [tools:{run.seq}]"


def one_line(text: str) -> str:
    """A text put on one line and cut to LINE characters."""
    line = " ".join(replace_surrogates(text[: 4 * LINE]).split())
    return line if len(line) <= LINE else f"{line[: LINE - 1]}…"


def _newest(runs: dict[str, CommandRun], key: str, run: CommandRun) -> None:
    """Add `run` as the newest entry, in place of the entry with the same key; above MOST entries, drop the oldest."""
    runs.pop(key, None)
    runs[key] = run
    if len(runs) > MOST:
        del runs[next(iter(runs))]


def _bound(failures: list[CommandRun]) -> None:
    """If there are more than MOST failures, drop the oldest one of the most frequent kind."""
    if len(failures) > MOST:
        kind, _ = Counter(run.kind for run in failures).most_common(1)[0]
        failures.remove(next(run for run in failures if run.kind == kind))
