"""`sandbox.kind: auto` and `bubblewrap`: commands in a separate minimal root, without network access except to allowed
hosts. Bubblewrap ends all processes of a command together.

`Bubblewrap` has the state that all commands of a task share; `profile` builds the mounts, `launch` runs a command.
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
from agent.sandbox import base, environment, profile, sandbox_user, seccomp
from agent.sandbox.launch import Command, launch
from agent.sandbox.network import socket_opener
from agent.sandbox.probe import stage_works, trial

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from agent.config.host_allowlist import AllowedHost
    from agent.sandbox.base import Mounts, Settings
    from agent.sandbox.network.dial import Dialer
    from agent.sandbox.network.proxy import SandboxProxy
    from agent.values import Finished


class Bubblewrap:
    """The bubblewrap sandbox of one task.

    Raises SandboxUnavailable if bubblewrap does not work here (`make_sandbox` checks before) or the user of the
    commands cannot reach its folders and root cannot bind them either, ConfigError for a path of `sandbox.read_only`
    that is missing or cannot be mounted at its own path inside.
    """

    kind = "bubblewrap"
    traits = base.Traits(has_host_programs=True, filters_calls=True)

    def __init__(self, settings: Settings, *, uuid: str, base_dir: Path) -> None:
        self.seccomp = seccomp.make_filter(settings)
        self.environment = seccomp.environment(settings)
        verdict, tool = trial(self.seccomp)
        if tool is None:
            raise SandboxUnavailable(f"{verdict.reason}\n{verdict.advice}")
        self.uuid = uuid
        self.uid = sandbox_user.own_uid(uuid)
        self.limits = settings.sandbox.limits
        self.tool = tool
        self.interpreter = interpreter(base_dir)
        shown = checked(settings.sandbox.read_only)
        self.read_only = shown + prefix_paths(self.interpreter)
        closed = [
            path for path in (base_dir / "x", tool.path, *self.read_only) if not sandbox_user.reachable(path, self.uid)
        ]
        if closed and (failed := stage_works(tool, self.seccomp)):
            if not set(closed) <= set(prefix_paths(self.interpreter)):
                raise SandboxUnavailable(unreached(self.uid, closed, base_dir, failed))
            self.interpreter, self.read_only = None, shown
        self.shell = environment.shell()
        self.reason = verdict.reason
        self.advice = ""

    def run(
        self,
        command: str,
        mounts: Mounts,
        *,
        timeout: float,
        network: Sequence[AllowedHost] = (),
        env: Mapping[str, str] | None = None,
        cap: int = base.CAP,
        spool: Path | None = None,
        stop: Callable[[], bool] | None = None,
        streams: base.Streams | None = None,
    ) -> Finished:
        processes = self.uid not in (None, sandbox_user.NOBODY) or counts_in_namespace()
        argv = environment.limited(command, self.limits, timeout, processes=processes, shell_path=self.shell)
        path = environment.search_path(str(self.interpreter) if self.interpreter else None)
        inside = environment.inside(
            self.uuid,
            home=base.HOME,
            tmp=base.TMP,
            path=path,
            shell_path=self.shell,
            extra={**self.environment, **(socket_opener.variables() if network else {}), **(env or {})},
        )
        proxy = self.proxy(self.dialer(network)) if network else None
        wanted = Command(argv, inside, mounts, self.limits, self.read_only, proxy, self.seccomp)
        return launch(
            self.tool,
            wanted,
            uid=self.uid,
            uuid=self.uuid,
            timeout=timeout,
            cap=cap,
            spool=spool,
            stop=stop,
            streams=streams,
        )

    def dialer(self, network: Sequence[AllowedHost]) -> Dialer:
        """The dialer for one command, which connects to the hosts that `network` allows, and to no other host."""
        from agent.config.environment import network_environment
        from agent.sandbox.network.dial import Dialer

        return Dialer(network, proxies=network_environment())

    def proxy(self, dialer: Dialer) -> SandboxProxy:
        """The network proxy for one command."""
        from agent.sandbox.network.proxy import SandboxProxy

        prefix = self.interpreter or Path("/usr")
        python = prefix / "bin" / "python3"
        return SandboxProxy(dialer, str(python) if python.exists() else None)


def unreached(uid: int | None, closed: Sequence[Path], base_dir: Path, failed: str) -> str:
    """The reason why commands cannot run on this host: the user `uid` has no access to a folder on the path to
    `closed`, and the attempt to bind the folders as root failed with the message `failed`."""
    names = [str(base_dir if path.parent == base_dir else path) for path in closed]
    return (
        f"commands run as user {uid}, which cannot reach {', '.join(names)}: {failed}\n"
        f"Give every folder above {names[0]} mode o+x, or move it (base_dir: context_storage.base_dir) to a place that "
        "all users reach."
    )


def checked(paths: object) -> tuple[Path, ...]:
    """The paths of `sandbox.read_only`, after a check that each exists and can be mounted at its own path. Raises
    ConfigError for a path that fails the check."""
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
    """The installation folder (prefix) of the Python that runs this program, if the folder lies outside /usr and can be
    mounted completely, else None.

    An installation folder that contains base_dir, or the home of the user of this process, is not mounted.
    """
    path = Path(prefix)
    if path.is_relative_to("/usr") or path.resolve().is_relative_to("/usr") or profile.clashes(path):
        return None
    private = [base_dir.resolve(), Path(pwd.getpwuid(os.getuid()).pw_dir).resolve()] if _has_account() else [base_dir]
    if any(folder.is_relative_to(path.resolve()) for folder in private):
        return None
    return path


def prefix_paths(prefix: Path | None) -> tuple[Path, ...]:
    """`prefix` and its resolved path, since programs in this folder use either path."""
    return tuple(dict.fromkeys((prefix, prefix.resolve()))) if prefix is not None else ()


def _has_account() -> bool:
    try:
        pwd.getpwuid(os.getuid())
    except KeyError:
        return False
    return True


def counts_in_namespace(release: str | None = None) -> bool:
    """Whether RLIMIT_NPROC counts processes per user namespace (Linux 5.14 and later), and so per command."""
    found = re.match(r"(\d+)\.(\d+)", platform.release() if release is None else release)
    return found is not None and (int(found.group(1)), int(found.group(2))) >= (5, 14)
