"""`sandbox.kind: auto` and `bubblewrap`: commands in a minimal root of their own, without network
but for hosts that are allowed, killed whole.

The class holds what is the same for every command of a task; `profile` says what a command sees, `launch` runs it.
"""

from __future__ import annotations

import os
import platform
import pwd
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from agent.errors import ConfigError, SandboxUnavailable
from agent.sandbox import account, base, profile, seccomp, surroundings
from agent.sandbox.launch import Command, launch
from agent.sandbox.network import opener
from agent.sandbox.probe import stage_works, trial

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from agent.config.reach import Reach
    from agent.sandbox.base import Mounts, Settings
    from agent.sandbox.network.dial import Dialer
    from agent.sandbox.network.proxy import SandboxProxy
    from agent.values import Finished


class Bubblewrap:
    """One task's bubblewrap.

    SandboxUnavailable when it does not work here (`make_sandbox` asks before), ConfigError for a path of
    `sandbox.read_only` that is missing or cannot stand at its own place inside.
    """

    kind = "bubblewrap"

    def __init__(self, settings: Settings, *, uuid: str, base_dir: Path) -> None:
        self.seccomp = seccomp.wanted(settings)
        self.environment = seccomp.environment(settings)
        verdict, tool = trial(self.seccomp)
        if tool is None:
            raise SandboxUnavailable(f"{verdict.reason}\n{verdict.advice}")
        self.uuid = uuid
        self.uid = account.own_uid(uuid)
        self.limits = settings.sandbox.limits
        self.tool = tool
        self.interpreter = interpreter(base_dir)
        shown = checked(settings.sandbox.read_only)
        self.read_only = shown + prefix_paths(self.interpreter)
        closed = [
            path for path in (base_dir / "x", tool.path, *self.read_only) if not account.reachable(path, self.uid)
        ]
        if closed and (failed := stage_works(tool, self.seccomp)):
            if not set(closed) <= set(prefix_paths(self.interpreter)):
                raise SandboxUnavailable(unreached(self.uid, closed, base_dir, failed))
            self.interpreter, self.read_only = None, shown
        self.shell = surroundings.shell()
        self.reason = verdict.reason
        self.advice = ""

    def run(
        self,
        command: str,
        mounts: Mounts,
        *,
        timeout: float,
        network: Sequence[Reach] = (),
        env: Mapping[str, str] | None = None,
        cap: int = base.CAP,
        spool: Path | None = None,
        stop: Callable[[], bool] | None = None,
    ) -> Finished:
        processes = self.uid not in (None, account.NOBODY) or counts_in_namespace()
        argv = surroundings.limited(command, self.limits, timeout, processes=processes, shell_path=self.shell)
        path = surroundings.search_path(str(self.interpreter) if self.interpreter else None)
        inside = surroundings.inside(
            self.uuid,
            home=base.HOME,
            tmp=base.TMP,
            path=path,
            shell_path=self.shell,
            extra={**self.environment, **(opener.variables() if network else {}), **(env or {})},
        )
        proxy = self.proxy(self.dialer(network)) if network else None
        wanted = Command(argv, inside, mounts, self.limits, self.read_only, proxy, self.seccomp)
        return launch(self.tool, wanted, uid=self.uid, uuid=self.uuid, timeout=timeout, cap=cap, spool=spool, stop=stop)

    def dialer(self, network: Sequence[Reach]) -> Dialer:
        """What reaches those hosts, and no other."""
        from agent.config.environment import network_environment
        from agent.sandbox.network.dial import Dialer

        return Dialer(network, proxies=network_environment())

    def proxy(self, dialer: Dialer) -> SandboxProxy:
        """The proxy of one command."""
        from agent.sandbox.network.proxy import SandboxProxy

        prefix = self.interpreter or Path("/usr")
        python = prefix / "bin" / "python3"
        return SandboxProxy(dialer, str(python) if python.exists() else None)


def unreached(uid: int | None, closed: Sequence[Path], base_dir: Path, failed: str) -> str:
    """Why commands cannot be run: `uid` cannot pass a folder on the way to `closed`, and root's stage `failed`."""
    names = [str(base_dir if path.parent == base_dir else path) for path in closed]
    return (
        f"commands run as user {uid}, which cannot reach {', '.join(names)}: {failed}\n"
        f"Give every folder above {names[0]} mode o+x, or move it (base_dir: context_storage.base_dir) to a place that "
        "all users reach."
    )


def checked(paths: object) -> tuple[Path, ...]:
    """`sandbox.read_only`, each path there and free to stand at its own place."""
    found = []
    for name in paths if isinstance(paths, (list, tuple)) else ():
        path = Path(name)
        if not path.is_absolute() or not path.exists():
            raise ConfigError(f"sandbox.read_only: {path} must be an absolute path that exists; correct or remove it")
        if place := profile.clashes(path):
            raise ConfigError(
                f"sandbox.read_only: {path} cannot be shown, {place} inside the sandbox is its own; move it elsewhere"
            )
        found.append(path)
    return tuple(found)


def interpreter(base_dir: Path, prefix: str = sys.base_prefix) -> Path | None:
    """The prefix of this Python when it lies outside /usr and can be shown whole, else None.

    Not shown: a prefix that holds a home or this program's own files.
    """
    path = Path(prefix)
    if path.is_relative_to("/usr") or path.resolve().is_relative_to("/usr") or profile.clashes(path):
        return None
    private = [base_dir.resolve(), Path(pwd.getpwuid(os.getuid()).pw_dir).resolve()] if _has_account() else [base_dir]
    if any(folder.is_relative_to(path.resolve()) for folder in private):
        return None
    return path


def prefix_paths(prefix: Path | None) -> tuple[Path, ...]:
    """`prefix` and, behind links, the folder it really is: its programs name either."""
    return tuple(dict.fromkeys((prefix, prefix.resolve()))) if prefix is not None else ()


def _has_account() -> bool:
    try:
        pwd.getpwuid(os.getuid())
    except KeyError:
        return False
    return True


def counts_in_namespace(release: str | None = None) -> bool:
    """Whether RLIMIT_NPROC counts per user namespace (Linux 5.14 and later), and so within one command."""
    found = re.match(r"(\d+)\.(\d+)", platform.release() if release is None else release)
    return found is not None and (int(found.group(1)), int(found.group(2))) >= (5, 14)
