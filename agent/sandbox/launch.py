"""Run one command in bubblewrap: descriptors, the way to the uid, and what bubblewrap itself reports.

Used by `bubblewrap.Bubblewrap` for every command and by `probe` for the trial; knows neither settings nor tasks.
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
from agent.sandbox import account, base, profile, surroundings
from agent.sandbox.network import opener

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from agent.sandbox.base import Limits, Mounts
    from agent.sandbox.network.proxy import SandboxProxy
    from agent.values import Finished

SETPRIV = ("/usr/bin/setpriv", "/bin/setpriv")


@dataclass(frozen=True, slots=True)
class Tool:
    """One bubblewrap.  `libraries` is the folder of its own shared libraries that stands beside the packaged one."""

    path: Path
    version: str = ""
    libraries: Path | None = None


@dataclass(frozen=True, slots=True)
class Command:
    """What to run: the argument list inside, its whole environment, what it may see, its way to the network, and the
    filter of its system calls (`seccomp.program`)."""

    argv: Sequence[str]
    env: Mapping[str, str]
    mounts: Mounts
    limits: Limits
    read_only: Sequence[Path] = ()
    proxy: SandboxProxy | None = None
    seccomp: bytes | None = None


def needs_stage(tool: Tool, uid: int | None, command: Command) -> bool:
    """Whether `uid` cannot pass a folder on the way to something that it has to mount or run."""
    mounts = command.mounts
    wanted = [mounts.work, mounts.git, mounts.mirror, mounts.home, *mounts.read_only, *command.read_only, tool.path]
    return not all(account.reachable(path, uid) for path in wanted if path is not None)


def launch(
    tool: Tool,
    command: Command,
    *,
    uid: int | None,
    uuid: str,
    timeout: float,
    cap: int,
    spool: Path | None = None,
    stop: Callable[[], bool] | None = None,
    staged: bool | None = None,
) -> Finished:
    """Run to the end; SandboxUnavailable with bubblewrap's words when the command was not started."""
    if staged is None:
        staged = needs_stage(tool, uid, command)
    sources = profile.Sources(staged=staged)
    proxy = command.proxy
    with ExitStack() as stack:
        if proxy is not None:
            stack.enter_context(proxy)
        user = (os.getuid(), os.getgid()) if uid is None else (uid, uid)
        groups = () if uid is None or command.mounts.mirror is None else (account.readers(),)
        shell_path = command.env.get("SHELL", "/bin/sh")
        contents = profile.files(command.mounts, proxy.file if proxy is not None else None)
        contents |= surroundings.accounts(*user, base.HOME, shell_path)
        data = {place: stack.enter_context(_held(content)) for place, content in contents.items()}
        seccomp = None if command.seccomp is None else stack.enter_context(_held(command.seccomp))
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
            env=command.env,
            network=proxy is not None,
            status=writer,
            seccomp=seccomp,
        )
        # Nothing but what bubblewrap itself closes may be handed on: the command would inherit it.
        as_user, handed = uid, [writer, *data.values(), *([] if seccomp is None else [seccomp])]
        handed += [] if proxy is None else [proxy.descriptor]  # which the program inside closes before the command
        if staged:
            assert uid is not None
            inner = profile.stage(str(tool.path), _setpriv(), uid, groups, sources, outer_writer) + inner
            handed.append(outer_writer)
            as_user = None  # the stage needs root to bind; setpriv becomes the uid after it
        try:
            finished = proc.run(
                inner,
                # Exactly this: bubblewrap's first process keeps the environment it got where the command can read it.
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
            )
        except OSError as error:
            raise SandboxUnavailable(f"{tool.path} cannot be started: {error}") from error
        report = _report(reader)
        first = (_report(outer_reader) if staged else report).get("child-pid")
    if first is not None:
        # The first process inside is killed with bubblewrap; when it is dead, so is everything it was first of.
        proc.wait_gone(first)
    elif finished.timed_out:
        proc.end_tree(uuid)  # ended before it could say who is first inside
    if "exit-code" not in report and not finished.timed_out and finished.returncode >= 0:
        said = finished.output.decode("utf-8", "replace").strip() or f"it ended with {finished.returncode}"
        raise SandboxUnavailable(f"bubblewrap did not start the command: {said}")
    if proxy is None:
        return finished
    if finished.returncode == opener.FAILED and not proxy.opened:
        raise SandboxUnavailable("sandbox.network: no socket could be made inside for the way to the network")
    return replace(finished, contacts=proxy.contacts())


def _name(tool: Tool, uid: int | None, sources: profile.Sources) -> str:
    """The path of bubblewrap as the uid can open it."""
    if not sources.staged or account.reachable(tool.path, uid):
        return str(tool.path)
    if tool.libraries is None:
        return sources.of(tool.path)
    # The packaged binary looks for its libraries at $ORIGIN/../../<folder>: both keep their places to each other.
    package = tool.path.parent.parent
    place = f"{profile.STAGE}/bubblewrap"
    sources.outer += ["--perms", "0755", "--dir", place]  # a parent that bubblewrap makes by itself is 0700
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
def _held(content: bytes) -> Iterator[int]:
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
    """What bubblewrap said of itself: `child-pid`, the first process inside as this process numbers it, and
    `exit-code`, the command's; the latter is missing when it never got that far, or was killed."""
    found: dict[str, int] = {}
    try:
        said = os.read(reader, 1 << 16).decode("utf-8", "replace")
    except BlockingIOError:
        return found
    for line in said.splitlines():
        try:
            found |= {name: int(number) for name, number in json.loads(line).items()}
        except (ValueError, AttributeError):
            continue  # cut by a kill
    return found
