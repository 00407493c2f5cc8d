"""The contract of a sandbox, which runs the commands of a model.

Each call of a sandbox runs one command line in a task's work tree and returns a `values.Finished`.  The program's own
commands, such as git, do not run in a sandbox: they use `agent.proc`.

Every entry of `SANDBOXES` guarantees the following (tests/contract/test_contract_sandbox.py tests each one):

- The command is a shell command line, run in the work tree.  The environment of a command is built from scratch:
  `MAKIMONO_UUID`, the variables of `environment.inside`, and the caller's `env`; it inherits nothing from this process.
- Without `streams`, stdin is empty, and stdout and stderr are one stream. The result contains the head and tail of the
  command's output, `cap` bytes in all; if the output is longer, `spool` receives all of it. With `streams` the command
  has the descriptors in `streams` as stdin and stdout, and the result contains stderr.
- `timeout` may be infinite; then the command ends by itself or by `stop`.
- No process of another user sees the values of `env` (they are in no argument list).
- `run` returns when the direct child has ended, even if a process that the child started still holds the pipe;
  afterwards no process of the command is alive. (With `none`, a process that has hidden from the sandbox lives until
  the last command of this process ends.) At the time-out, or when `stop()` returns True, all processes of the
  command are killed at once; the result contains the output until then, and `timed_out` is set.
- `returncode` is the exit code of the command itself.  A command that died by signal N gives 128 + N, as in a shell; -9
  occurs only together with `timed_out`.
- `network` lists the hosts that the command may reach; if it is empty, the command has no network access; `contacts` of
  the result lists the hosts that the command tried to reach. A sandbox without isolation lets commands reach every
  host, and leaves `contacts` empty.
- An exit code that is not 0 raises no error. SandboxUnavailable is raised if the command could not be isolated and did
  not run. ToolError is raised if the command line cannot be passed to the kernel (too long, contains a NUL). DiskError
  is raised if `spool` cannot be written.

Any thread that lives until `run` returns may call `run`. The calling thread must live because a sandbox is killed when
the *thread* that started the sandbox ends: `--die-with-parent` refers to the thread.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from agent.errors import SandboxUnavailable
from agent.registry import Registry

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from agent.config.host_allowlist import AllowedHost
    from agent.registry import Guard
    from agent.values import Finished

SANDBOXES = Registry(
    "sandbox.kind",
    {
        "auto": "agent.sandbox.bubblewrap:Bubblewrap",
        "bubblewrap": "agent.sandbox.bubblewrap:Bubblewrap",
        "none": "agent.sandbox.unconfined:Unconfined",
    },
)
"""The kind `auto` is bubblewrap if it works, otherwise every command is refused; `auto` never falls back to `none`."""

WORK = "/work"
GIT = "/git"
HOME = "/home/agent"
TMP = "/tmp"  # noqa: S108 - inside the sandbox, /tmp is a private tmpfs
CAP = 1 << 20


@dataclass(frozen=True, slots=True)
class Mounts:
    """The paths of the host that a command sees, in addition to the minimal root.

    - `work`: a writable folder, mounted at /work.
    - `git`: the task's git directory, mounted read-only at /git.
    - `mirror`: the repository from which the git directory borrows objects, mounted read-only at its own path.
    - `home`: a writable folder, mounted at /home/agent; if None, a small tmpfs is mounted there.
    - `read_only`: paths that are mounted read-only at their own paths.
    """

    work: Path
    git: Path | None = None
    mirror: Path | None = None
    home: Path | None = None
    read_only: tuple[Path, ...] = ()


@dataclass(frozen=True, slots=True)
class Streams:
    """Descriptors of the caller that a command gets as its stdin and stdout; the caller closes these descriptors
    itself.

    `started` is called with the pid of the topmost process of the command; all its other processes are below that one.
    """

    stdin: int
    stdout: int
    started: Callable[[int], None] | None = None

    @property
    def ends(self) -> tuple[int, int]:
        """Both descriptors."""
        return self.stdin, self.stdout


@dataclass(frozen=True, slots=True)
class Traits:
    """The properties of a kind of sandbox that other packages need. A plug-in without an attribute `traits` has those
    of `TRAITS_OF_KINDS`, or the defaults if its `kind` is another one.

    - `isolates`: commands see only the minimal root and `Mounts`; if False, they see the paths of the host.
    - `refuses`: every command is refused.
    - `has_host_programs`: commands find the host's programs at their own paths.
    - `filters_calls`: the system calls of commands are filtered.
    """

    isolates: bool = True
    refuses: bool = False
    has_host_programs: bool = False
    filters_calls: bool = False


TRAITS_OF_KINDS = {
    "none": Traits(isolates=False, has_host_programs=True),
    "refused": Traits(refuses=True),
    "bubblewrap": Traits(has_host_programs=True),
}
"""Kind → traits of a plug-in without an attribute `traits`: before `traits` was part of the contract, a plug-in stated
by one of these kinds that it does not isolate or that it refuses commands."""


class Limits(Protocol):
    """The section `sandbox.limits` of the configuration: numbers of bytes, and a number of processes; None or 0 means
    no limit.  `memory` may be a share of the machine's memory (`50%`), which the caller that runs the command monitors;
    a number of bytes also limits each process."""

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
    """The section `sandbox` of the configuration, as the package `sandbox` reads it."""

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
    """The part of the configuration that the package `sandbox` needs."""

    @property
    def sandbox(self) -> SandboxSettings: ...

    @property
    def plugin_guard(self) -> Guard: ...


class Sandbox(Protocol):
    """One task's sandbox.

    - `kind`: "bubblewrap", "none", "refused", or the kind of a plug-in, for people and for the prompts; the program
      decides by `traits`.
    - `uid`: the host's uid of the user that runs commands if this process is root (the work tree and the home must
      belong to that user); None if commands run as the user of this process.
    - `reason`: one sentence that explains the kind.
    - `advice`: what an administrator can do about `reason` ("" if nothing).
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
        network: Sequence[AllowedHost] = (),
        env: Mapping[str, str] | None = None,
        cap: int = CAP,
        spool: Path | None = None,
        stop: Callable[[], bool] | None = None,
        streams: Streams | None = None,
    ) -> Finished:
        """Run `command` to its end, as the docstring of `agent/sandbox/base.py` specifies."""
        ...


def traits_of(sandbox: Sandbox) -> Traits:
    """The traits of a sandbox; those of its kind if it has no attribute `traits`."""
    found: Traits | None = getattr(sandbox, "traits", None)
    return TRAITS_OF_KINDS.get(getattr(sandbox, "kind", ""), Traits()) if found is None else found


class Refused:
    """The sandbox for a machine on which commands cannot be isolated: it refuses every command, with advice."""

    kind = "refused"
    traits = Traits(refuses=True)

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
        network: Sequence[AllowedHost] = (),
        env: Mapping[str, str] | None = None,
        cap: int = CAP,
        spool: Path | None = None,
        stop: Callable[[], bool] | None = None,
        streams: Streams | None = None,
    ) -> Finished:
        del command, mounts, timeout, network, env, cap, spool, stop, streams
        raise SandboxUnavailable(f"{self.reason}\n{self.advice}".strip())
