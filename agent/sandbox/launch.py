"""Runs one command in bubblewrap: passes descriptors to it, changes to the uid, and reads bubblewrap's own report.

`bubblewrap.Bubblewrap` uses this module for every command and `probe` for the trial; this module does not depend on
settings or tasks.
"""

from __future__ import annotations

import json
import os
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from agent import proc
from agent.errors import SandboxUnavailable
from agent.sandbox import base, environment, profile, sandbox_user
from agent.sandbox.network import socket_opener

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from agent.sandbox.base import Limits, Mounts
    from agent.sandbox.network.proxy import SandboxProxy
    from agent.values import Finished

GONE_SECONDS = 2.0
"""Maximum seconds to wait, after bubblewrap has ended, for the end of the first process inside the sandbox."""
SETPRIV = ("/usr/bin/setpriv", "/bin/setpriv")


@dataclass(frozen=True, slots=True)
class BubblewrapBinary:
    """One bubblewrap binary.

    `libraries` is the folder of shared libraries beside the binary, if a Python package contains both.
    """

    path: Path
    version: str = ""
    libraries: Path | None = None


@dataclass(frozen=True, slots=True)
class Command:
    """The command to run: its argument list inside the sandbox, its whole environment, its mounts, its network access,
    and its system call filter (`seccomp.program`)."""

    argv: Sequence[str]
    env: Mapping[str, str]
    mounts: Mounts
    limits: Limits
    read_only: Sequence[Path] = ()
    proxy: SandboxProxy | None = None
    seccomp: bytes | None = None


def needs_stage(tool: BubblewrapBinary, uid: int | None, command: Command) -> bool:
    """Whether `uid` lacks access to a folder on the path of a file that `uid` must mount or run."""
    mounts = command.mounts
    wanted = [mounts.work, mounts.git, mounts.mirror, mounts.home, *mounts.read_only, *command.read_only, tool.path]
    return not all(sandbox_user.reachable(path, uid) for path in wanted if path is not None)


def launch(
    tool: BubblewrapBinary,
    command: Command,
    *,
    uid: int | None,
    uuid: str,
    timeout: float,
    cap: int,
    spool: Path | None = None,
    stop: Callable[[], bool] | None = None,
    staged: bool | None = None,
    streams: base.Streams | None = None,
) -> Finished:
    """Run the command to its end; raises SandboxUnavailable with the reason, such as bubblewrap's message, if the
    command was not started."""
    if staged is None:
        staged = needs_stage(tool, uid, command)
    sources = profile.Sources(staged=staged)
    proxy = command.proxy
    with ExitStack() as stack:
        if proxy is not None:
            stack.enter_context(proxy)
        user = (os.getuid(), os.getgid()) if uid is None else (uid, uid)
        groups = () if uid is None or command.mounts.mirror is None else (sandbox_user.readers(),)
        shell_path = command.env.get("SHELL", "/bin/sh")
        contents = profile.files(command.mounts, proxy.file if proxy is not None else None)
        contents |= environment.accounts(*user, base.HOME, shell_path)
        data = {place: stack.enter_context(_readable_content(content)) for place, content in contents.items()}
        # other users can read the argument list of a process, and a variable may be a secret
        variables = stack.enter_context(_readable_content(profile.variables(command.env)))
        seccomp = None if command.seccomp is None else stack.enter_context(_readable_content(command.seccomp))
        reader, writer = stack.enter_context(_pipe())
        outer_reader, outer_writer = stack.enter_context(_pipe())
        inner = profile.arguments(
            _name(tool, uid, sources),
            command.argv if proxy is None else [*proxy.argv, *command.argv],
            mounts=command.mounts,
            limits=command.limits,
            read_only=command.read_only,
            sources=sources,
            data=data,
            variables=variables,
            network=proxy is not None,
            status=writer,
            seccomp=seccomp,
        )
        # Only descriptors that bubblewrap itself closes may be passed to it, since the command would inherit any other
        # descriptor.
        as_user, handed = uid, [writer, variables, *data.values(), *([] if seccomp is None else [seccomp])]
        # `network/socket_opener.py`, which runs before the command, closes the descriptor of the proxy
        handed += [] if proxy is None else [proxy.descriptor]
        if staged:
            assert uid is not None
            inner = profile.stage(str(tool.path), _setpriv(), uid, groups, sources, outer_writer) + inner
            handed.append(outer_writer)
            as_user = None  # the outer bubblewrap binds folders as root, and then `setpriv` changes to the uid
        try:
            finished = proc.run(
                inner,
                # The mark is the only environment variable that bubblewrap gets: the command can read the environment
                # with which bubblewrap's first process started.
                env={proc.MARK: uuid},
                cwd="/",
                timeout=timeout,
                cap=cap,
                spool=spool,
                stop=stop,
                pass_fds=handed,
                user=as_user,
                groups=groups,
                foreign=True,
                streams=None if streams is None else streams.ends,
                started=None if streams is None else streams.started,
            )
        except OSError as error:
            raise SandboxUnavailable(f"{tool.path} cannot be started: {error}") from error
        report = _report(reader)
        first = (_report(outer_reader) if staged else report).get("child-pid")
    if first is not None:
        # The kernel kills the first process inside when bubblewrap ends; the death of this process ends its pid
        # namespace and all processes there.  A command that may use ptrace can cancel this signal (prctl
        # PR_SET_PDEATHSIG) in the first process.
        if not proc.wait_gone(first, GONE_SECONDS):
            proc.end_namespace(first)
    elif finished.timed_out:
        proc.end_tree(uuid)  # the first process is unknown: `end_tree` finds the processes by the mark `uuid`
    if "exit-code" not in report and not finished.timed_out and finished.returncode >= 0:
        said = finished.output.decode("utf-8", "replace").strip() or f"it ended with {finished.returncode}"
        raise SandboxUnavailable(f"bubblewrap did not start the command: {said}")
    if proxy is None:
        return finished
    if finished.returncode == socket_opener.FAILED and not proxy.opened:
        raise SandboxUnavailable("sandbox.network: no socket could be made inside for the way to the network")
    return replace(finished, contacts=proxy.contacts())


def _name(tool: BubblewrapBinary, uid: int | None, sources: profile.Sources) -> str:
    """The path under which the user `uid` can open bubblewrap."""
    if not sources.staged or sandbox_user.reachable(tool.path, uid):
        return str(tool.path)
    if tool.libraries is None:
        return sources.bind(tool.path)
    # The bubblewrap binary in a Python package loads its libraries from $ORIGIN/../../<folder>: that relative path must
    # not change.
    package = tool.path.parent.parent
    place = f"{profile.STAGE}/bubblewrap"
    sources.outer += ["--perms", "0755", "--dir", place]  # bubblewrap would create a missing parent with mode 0700
    for folder in (package, tool.libraries):
        sources.outer += ["--ro-bind", str(folder), f"{place}/{folder.name}"]
    return f"{place}/{tool.path.relative_to(package.parent)}"


def _setpriv() -> str:
    for candidate in SETPRIV:
        if Path(candidate).exists():
            return candidate
    raise SandboxUnavailable(
        "the user that commands run as cannot reach the task's folder, and setpriv (util-linux), which could take it "
        "there, is not installed"
    )


@contextmanager
def _readable_content(content: bytes) -> Iterator[int]:
    """A descriptor from which `content` can be read once."""
    descriptor = os.memfd_create("makimono")
    try:
        os.write(descriptor, content)
        os.lseek(descriptor, 0, os.SEEK_SET)
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def _pipe() -> Iterator[tuple[int, int]]:
    reader, writer = os.pipe()
    try:
        os.set_blocking(reader, False)
        yield reader, writer
    finally:
        os.close(reader)
        os.close(writer)


def _report(reader: int) -> dict[str, int]:
    """bubblewrap's report about itself: `child-pid`, the pid of the first process inside as seen by this process, and
    `exit-code`, the exit code of the command. `exit-code` is missing if the command was not started, or bubblewrap was
    killed."""
    found: dict[str, int] = {}
    try:
        said = os.read(reader, 1 << 16).decode("utf-8", "replace")
    except BlockingIOError:
        return found
    for line in said.splitlines():
        try:
            found |= {name: int(number) for name, number in json.loads(line).items()}
        except (ValueError, AttributeError):
            continue  # the line is incomplete, since bubblewrap was killed while it wrote
    return found
