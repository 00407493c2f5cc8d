"""The repository's own checks, run by this program and judged by their exit code.

It believes no report of a model: `verify.command` is run in the sandbox once more, on a clean check-out of the commit
(`checkout.py`), and a changed test is named beside the result, because a test that was changed proves less.  A red
check is compared with the same check of the base commit (`outline.py`).  Called by `run/delivery.py`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from agent.work.outline import Outline, is_contained, outline

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from agent.values import Finished

TAIL = 6000
"""Signs of output that a verdict keeps: the end, where test runners say what failed."""

_TESTS = re.compile(
    r"""(^|/)(tests?|__tests__|specs?|testing|testdata|__snapshots__)/
      | (^|/)(test_[^/]+\.py|conftest\.py|[^/]+_test\.[a-z]+|[^/]+_spec\.[a-z]+)$
      | (^|/)[^/]+\.(test|spec)\.[a-z]+$
      | (^|/)[^/]*Tests?\.(java|kt|cs|scala|groovy|swift|php)$
    """,
    re.VERBOSE,
)


NOT_RUN = (126, 127)
"""Exit codes of a shell that found no such program, or one that cannot be run (POSIX, 2.8.2)."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the verify command said: `ok` is exit code 0 in time; `exit_code` None: it could not be started; `tail` is
    the end of the output, `outline` what can be compared of all of it."""

    command: str
    exit_code: int | None
    ok: bool
    duration: float
    tail: str
    timed_out: bool = False
    why: str = ""  # as in `values.Finished`
    outline: Outline = field(default=Outline(), compare=False)

    @property
    def is_red(self) -> bool:
        """Whether it ran to its end and found something: else it says nothing of the commit."""
        return not (self.ok or self.timed_out or self.exit_code is None or self.exit_code in NOT_RUN)

    def is_red_as(self, before: Verdict) -> bool:
        """Whether both are red, and all that failed here failed there (`outline.is_contained`)."""
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
    def of(cls, record: Mapping[str, Any]) -> Verdict:
        """From what `to_dict` wrote."""
        return cls(**{**record, "outline": Outline.of(record["outline"])})

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


def verify(
    command: str, run: Callable[[str, float], Finished], *, timeout: float = 600, clean: Callable[[str], str] = str
) -> Verdict:
    """Run `command` through `run(command, timeout)`, which isolates it, and judge it.  `clean` takes out of the output
    what may not be shown."""
    done = run(command, timeout)
    text = clean(done.output.decode("utf-8", "replace"))
    return Verdict(
        command=command,
        exit_code=done.returncode,
        ok=done.returncode == 0 and not done.timed_out,
        duration=done.duration,
        tail=clean(tail(done.output)),
        timed_out=done.timed_out,
        why=done.why,
        outline=Outline() if done.returncode == 0 else outline(text, whole=not done.dropped),
    )


def tail(output: bytes, limit: int = TAIL) -> str:
    """The last whole lines of `output`, at most `limit` signs."""
    text = output[-4 * limit :].decode("utf-8", "replace")
    if len(text) <= limit:
        return text
    cut = text[-limit:]
    return cut.partition("\n")[2] or cut


def touched_tests(paths: Iterable[str]) -> list[str]:
    """Those of `paths` that look like tests or what tests compare with, in the order given."""
    return [path for path in paths if _TESTS.search(path)]
