"""The contract of a sandbox: where what a model wants to run is run.

A sandbox runs one command line at a time in a task's work tree and gives back a `values.Finished`.  It is not a
place for commands of this program (git, the publisher): those use `agent.proc`.  Called by the tools, by
`workspace.setup` and by the verify command, through a callable that `run/wiring.py` hands them.

What every entry of `SANDBOXES` promises (tests/contract/test_contract_sandbox.py holds each to it):

* The command is a line for a shell, run in the work tree.  Its environment is made from nothing: `MAKIMONO_UUID`,
  what `surroundings.inside` lists, and what the caller passes as `env`; nothing of this process's own.
* stdin is empty.  stdout and stderr are one stream, kept as head and tail of `cap` bytes; a longer one is
  whole in `spool`.
* `run` returns when the direct child has ended, even if something it started still holds the pipe, and nothing it
  started is alive afterwards.  At the time-out, or when `stop()` turns true, everything is killed at once, the
  output so far is kept and `timed_out` is set.
* `returncode` is the command's own; a command that died by signal N gives 128 + N, as in a shell, and -9 stands
  only beside `timed_out`.
* `network` are the hosts that the command may reach, none when empty; `contacts` of the result says which it did and
  which it was refused.  Where nothing is isolated every host can be reached, and nothing is said.
* A command that ran is never an error, whatever its code.  SandboxUnavailable: it could not be isolated and was not
  run.  ToolError: the command line itself cannot be passed on (too long, a NUL in it).  DiskError: `spool` cannot be
  written.

`run` may be called from any thread that lives until it returns, and it returns only after the child's end: a
sandbox dies with the *thread* that started it (security facts 5.2, trap 4).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from agent.errors import SandboxUnavailable
from agent.registry import Registry

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from agent.config.reach import Reach
    from agent.values import Finished

SANDBOXES = Registry(
    "sandbox.kind",
    {
        "auto": "agent.sandbox.bubblewrap:Bubblewrap",
        "bubblewrap": "agent.sandbox.bubblewrap:Bubblewrap",
        "none": "agent.sandbox.unconfined:Unconfined",
    },
)
"""`auto` is bubblewrap where it works and a refusal elsewhere; it never falls back to `none`."""

WORK = "/work"
GIT = "/git"
HOME = "/home/agent"
TMP = "/tmp"  # noqa: S108 - a tmpfs inside, nobody else's
CAP = 1 << 20


@dataclass(frozen=True, slots=True)
class Mounts:
    """What of the host a command sees beside the minimal root.

    `work` is writable at /work.  `git` is the task's git directory, read-only at /git; `mirror` the repository it
    borrows objects from, read-only at its own path.  `home` is writable at /home/agent, a small tmpfs when None.
    `read_only` paths stand at their own places.
    """

    work: Path
    git: Path | None = None
    mirror: Path | None = None
    home: Path | None = None
    read_only: tuple[Path, ...] = ()


class Limits(Protocol):
    """`sandbox.limits` of the configuration: bytes, and a number of processes; None or 0 is no limit.  `memory` may be
    a share of the machine (`50%`), which whoever runs the command watches; in bytes it limits each process too."""

    @property
    def memory(self) -> int | str | None: ...
    @property
    def file_size(self) -> int | None: ...
    @property
    def tmp_size(self) -> int | None: ...
    @property
    def home_size(self) -> int | None: ...
    @property
    def processes(self) -> int | None: ...


class SandboxSettings(Protocol):
    """The section `sandbox` of the configuration."""

    @property
    def kind(self) -> str: ...
    @property
    def read_only(self) -> Sequence[Path | str]: ...
    @property
    def seccomp(self) -> bool: ...
    @property
    def allow(self) -> Sequence[str]: ...
    @property
    def limits(self) -> Limits: ...


class Settings(Protocol):
    """What this room needs of the configuration."""

    @property
    def sandbox(self) -> SandboxSettings: ...


class Sandbox(Protocol):
    """One task's sandbox.

    `kind` is "bubblewrap", "none" or "refused".  `uid` is the host's number of the user that commands run as when
    this process is root (the work tree and the home must belong to it), None when it is this process's own user.
    `reason` says in a sentence why it is this kind, `advice` what an administrator can do about it ("" when nothing).
    """

    kind: str
    uid: int | None
    reason: str
    advice: str

    def run(
        self,
        command: str,
        mounts: Mounts,
        *,
        timeout: float,
        network: Sequence[Reach] = (),
        env: Mapping[str, str] | None = None,
        cap: int = CAP,
        spool: Path | None = None,
        stop: Callable[[], bool] | None = None,
    ) -> Finished:
        """Run `command` to its end; the module's docstring says what that means."""
        ...


class Refused:
    """The sandbox of a machine that has none: every command is refused with what can be done about it."""

    kind = "refused"

    def __init__(self, reason: str, advice: str = "") -> None:
        self.uid: int | None = None
        self.reason = reason
        self.advice = advice

    def run(
        self,
        command: str,
        mounts: Mounts,
        *,
        timeout: float,
        network: Sequence[Reach] = (),
        env: Mapping[str, str] | None = None,
        cap: int = CAP,
        spool: Path | None = None,
        stop: Callable[[], bool] | None = None,
    ) -> Finished:
        del command, mounts, timeout, network, env, cap, spool, stop
        raise SandboxUnavailable(f"{self.reason}\n{self.advice}".strip())
