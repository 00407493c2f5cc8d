"""The newest command of each kind, failures that nothing is known to have mended, and errors of other tools, read off
tools.jsonl and shown in a budget.

A failure is over when its programs have succeeded since, with the same targets or more (`kinds.py`), in the same place;
the same failure again takes its place.  Where that is in doubt it stays, behind fresher ones.  Only numbers, one line
and the words of the programs are kept of each; what a command printed is read again when it is shown.  `carried.py`
asks.  docs/window.md has the rules.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from agent.store.text import dumps, fit
from agent.window.kinds import ends_early, is_check, kind_of, speaks_for
from agent.window.printed import ENDING, printed, shown
from agent.window.steps import steps_of
from agent.window.telling import names_test

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from agent.values import Json
    from agent.window.excerpt import Lines
    from agent.window.steps import Step

COMMAND = "run_command"

MOST = 40
"""Failures, kinds that succeeded, and errors of other tools that are known, each; the oldest go."""

LINE = 200
"""Characters of a command or an error in its line."""

ONE = 40
"""Tokens that what one command printed may have in any case, as far as they are left: about one long line."""

JOINED = 3
"""Programs of one command that its kind names."""

_CODE = re.compile(r"\[exit code (-?\d+)")


@dataclass
class Run:
    """What a command came to, or an error of another tool.

    `seq` and `at` are its number and offset in tools.jsonl; `code` is the exit code, None where there was none; `sure`
    says that the code speaks of all its programs, `names_tests` that its output names failing tests.  A failure is
    `about` some of its programs; those of them that are `waiting` must succeed before it is over; it is `in_doubt` when
    a command of its kind ran since.
    """

    seq: int
    at: int
    line: str
    ending: str
    kinds: tuple[str, ...] = ()
    code: int | None = None
    sure: bool = True
    steps: tuple[Step, ...] = ()
    names_tests: bool = False
    in_doubt: bool = False
    about: tuple[Step, ...] = field(init=False)
    waiting: list[Step] = field(init=False)

    def __post_init__(self) -> None:
        checks = tuple(filter(is_check, self.steps)) if self.names_tests else ()
        self.about = checks or self.steps  # `pip install . && pytest` that names a test failed in pytest
        self.waiting = list(self.about)

    @property
    def kind(self) -> str:
        """The kinds of its last programs, as one word to know it by."""
        return " && ".join(self.kinds[-JOINED:]) or "shell"

    @property
    def failed(self) -> bool:
        """Whether it failed, or its output says so where its exit code speaks of another program."""
        return self.code != 0 or (self.names_tests and not self.sure)

    def repeats(self, other: Run) -> bool:
        """Whether this failure is the newer state of another one: all that failed there has been tried again."""
        if self.code != other.code or self.sure != other.sure or (other.names_tests and not self.names_tests):
            return False
        if not self.steps or not self.sure:  # a filter may show another part of it
            return self.steps == other.steps and self.line == other.line
        return len(self.about) == len(other.about) and all(
            speaks_for(one, two) and (one.words == two.words or not ends_early(one))
            for one, two in zip(self.about, other.about, strict=True)
        )


class Commands:
    """Fed with the records of tools.jsonl in order; bounded."""

    def __init__(self) -> None:
        self.failures: list[Run] = []
        self.successes: dict[str, Run] = {}
        self.errors: dict[str, Run] = {}
        self._printed: dict[int, Lines] = {}

    def failing(self) -> list[str]:
        """The kinds of the commands that failed, the newest last."""
        return list(dict.fromkeys(run.kind for run in sorted(self.failures, key=lambda run: run.seq)))

    def take(self, record: Json, at: int) -> None:
        """Take one record in; `at` is the offset of its line."""
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
        kept: list[Run] = []
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
        _newest(self.errors, key, Run(record["seq"], at, one_line(f"{tool} {path}".strip()), error))

    def show(
        self,
        room: int,
        count: Callable[[str], int],
        read: Callable[[int], Mapping[str, Any]],
        folder: Path | None = None,
    ) -> str:
        """Failures with what they printed, then what succeeded, in `room` tokens of `count`; "" for nothing.

        The newest come first, those that name failing tests before others and those in doubt last.  `read(offset)`
        gives a record of tools.jsonl; what was printed is in `outputs/` of `folder`, else in the record.
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
            # The lines of what failed may have two thirds, so that some is left for what it printed.
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

    def _lines(self, run: Run, read: Callable[[int], Mapping[str, Any]], folder: Path | None) -> Lines:
        """What a failed command printed, read once while it is known."""
        known = {failure.seq for failure in self.failures}
        self._printed = {seq: lines for seq, lines in self._printed.items() if seq in known}
        if run.seq not in self._printed:
            self._printed[run.seq] = printed(read(run.at), folder)
        return self._printed[run.seq]


def _run(record: Json, at: int, command: str) -> Run:
    """What a command came to, by its record."""
    steps = steps_of(command)
    result = str(record.get("result") or "")
    code = _CODE.match(result)
    ending = ENDING.match(result)
    number = int(code[1]) if code else None
    sure = all(step.proved for step in steps)
    return Run(
        record["seq"],
        at,
        one_line(command),
        one_line(ending[1] if ending else str(record.get("error") or result)),
        tuple(dict.fromkeys(map(kind_of, steps))),
        number,
        sure,
        steps,
        (number != 0 or not sure) and names_test(shown(record)),
    )


def _shared(texts: Mapping[int, Lines], room: int, count: Callable[[str], int]) -> dict[int, str]:
    """An excerpt of each text, in `room` tokens together: short ones are whole, long ones share alike."""
    found: dict[int, str] = {}
    sizes = sorted((seq for seq in texts if texts[seq].size), key=lambda seq: (texts[seq].size, -seq))
    for number, seq in enumerate(sizes):
        part = texts[seq].excerpt(min(room, max(ONE, room // (len(sizes) - number))) - 1, count)
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
    """Put it last.  Over MOST the oldest goes."""
    runs.pop(key, None)
    runs[key] = run
    if len(runs) > MOST:
        del runs[next(iter(runs))]


def _bound(failures: list[Run]) -> None:
    """Over MOST the oldest failure goes of the kind that has most of them."""
    if len(failures) > MOST:
        kind, _ = Counter(run.kind for run in failures).most_common(1)[0]
        failures.remove(next(run for run in failures if run.kind == kind))
