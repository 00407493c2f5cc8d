"""Judges a repository's own check, the verify command, by its exit code.

This program does not trust a model's report. The program itself runs `verify.command`, on a clean checkout of the
commit (`checkout.py`). The delivery report lists tests that the task changed, because such a test proves less. A failed
check is compared with the same check of the base commit (`check_outline.py`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from agent.config.url_passwords import shown_command
from agent.work.check_outline import Outline, is_contained, outline

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from agent.values import Finished

TAIL = 6000
"""The maximum number of characters of output in a verdict; they are from the end of the output, where test runners
print the failures."""

_TEST_FOLDERS = frozenset(("test", "tests", "__tests__", "spec", "specs", "testing", "testdata", "__snapshots__"))
_TEST_NAME = re.compile(
    r"test_.+\.py|conftest\.py|.+[._](?:test|spec)\.[a-z]+|.*Tests?\.(?:java|kt|cs|scala|groovy|swift|php)", re.DOTALL
)


NOT_RUN = (126, 127)
"""Exit codes of a shell that did not find the program of the command, or could not execute it (POSIX, 2.8.2)."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of the verify command.

    - `command`: the verify command in the form in which people may see it (`shown_command`).
    - `ok`: whether the verify command ended with exit code 0 before the time-out.
    - `exit_code`: the exit code, None if the verify command could not be started.
    - `tail`: the end of the verify command's output.
    - `outline`: the parts of the whole output that can be compared.
    """

    command: str
    exit_code: int | None
    ok: bool
    duration: float
    tail: str
    timed_out: bool = False
    why: str = ""  # the reason why the command was killed early, as in `values.Finished`
    outline: Outline = field(default=Outline(), compare=False)

    @property
    def is_red(self) -> bool:
        """Whether the verify command ran to its end and found a failure. If False, the command passed, or proves
        nothing about the commit: the command was killed, could not be started, or was not found."""
        return not (self.ok or self.timed_out or self.exit_code is None or self.exit_code in NOT_RUN)

    def is_red_as(self, before: Verdict) -> bool:
        """Whether both runs of the verify command failed with the same exit code, and every failure of this run is also
        in `before` (`check_outline.is_contained`)."""
        same = self.is_red and before.is_red and self.exit_code == before.exit_code
        return same and is_contained(self.outline, before.outline)

    def to_dict(self) -> dict[str, Any]:
        return {
            "command": self.command,
            "exit_code": self.exit_code,
            "ok": self.ok,
            "duration": self.duration,
            "tail": self.tail,
            "timed_out": self.timed_out,
            "why": self.why,
            "outline": self.outline.to_dict(),
        }

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Verdict:
        """Make a verdict from a result of `to_dict`."""
        return cls(**{**record, "outline": Outline.from_dict(record["outline"])})

    def __str__(self) -> str:
        if self.ok:
            return f"`{self.command}` passed in {self.duration:.1f} s"
        if self.timed_out:
            return f"`{self.command}` was {self.why or f'ended after {self.duration:.0f} s: too long'}"
        if self.exit_code is None:
            return f"`{self.command}` could not be run: {self.tail}"
        if self.exit_code in NOT_RUN:
            return f"`{self.command}` could not be run: exit code {self.exit_code}, no such program or not executable"
        return f"`{self.command}` failed with exit code {self.exit_code} after {self.duration:.1f} s"


def verdict_of(command: str, done: Finished, clean: Callable[[str], str] = str) -> Verdict:
    """The verdict on the finished `command`. `clean` removes from the output all text that must not be shown."""
    text = clean(done.output.decode("utf-8", "replace"))
    return Verdict(
        command=shown_command(command),
        exit_code=done.returncode,
        ok=done.returncode == 0 and not done.timed_out,
        duration=done.duration,
        tail=clean(tail(done.output)),
        timed_out=done.timed_out,
        why=done.why,
        outline=Outline() if done.returncode == 0 else outline(text, whole=not done.dropped),
    )


def tail(output: bytes, limit: int = TAIL) -> str:
    """The last whole lines of `output`, together at most `limit` characters; of a longer last line, its end."""
    text = output[-4 * limit :].decode("utf-8", "replace")
    if len(text) <= limit:
        return text
    cut = text[-limit:]
    return cut.partition("\n")[2] or cut


def touched_tests(paths: Iterable[str]) -> list[str]:
    """Those of `paths` that look like tests or their reference data, in the order of `paths`."""
    return [path for path in paths if _is_test(path)]


def _is_test(path: str) -> bool:
    *folders, name = path.split("/")
    return not _TEST_FOLDERS.isdisjoint(folders) or _TEST_NAME.fullmatch(name) is not None
