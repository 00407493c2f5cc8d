"""The repository's own checks, run by this program and judged by their exit code.

It believes no report of a model: `verify.command` is run in the sandbox once more, on a clean check-out of the commit
(`checkout.py`), and a changed test is named beside the result, because a test that was changed proves less.  Called by
`run/delivery.py`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

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


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the verify command said: `ok` is exit code 0 in time; `exit_code` None: it could not be run; `tail` is the
    end of the output."""

    command: str
    exit_code: int | None
    ok: bool
    duration: float
    tail: str
    timed_out: bool = False

    def __str__(self) -> str:
        if self.ok:
            return f"`{self.command}` passed in {self.duration:.1f} s"
        if self.timed_out:
            return f"`{self.command}` was ended after {self.duration:.0f} s: too long"
        if self.exit_code is None:
            return f"`{self.command}` could not be run: {self.tail}"
        return f"`{self.command}` failed with exit code {self.exit_code} after {self.duration:.1f} s"


def verify(command: str, run: Callable[[str, float], Finished], *, timeout: float = 600) -> Verdict:
    """Run `command` through `run(command, timeout)`, which isolates it, and judge it."""
    done = run(command, timeout)
    return Verdict(
        command=command,
        exit_code=done.returncode,
        ok=done.returncode == 0 and not done.timed_out,
        duration=done.duration,
        tail=tail(done.output),
        timed_out=done.timed_out,
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
