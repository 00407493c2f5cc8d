"""The sandbox for `sandbox.kind: none`: it has the interface of the other sandboxes but isolates nothing, for users who
choose this on purpose.

A command without isolation has all rights of its user. A command without isolation still gets an environment built from
scratch, an empty stdin, limits, a session of its own and a time-out, and afterwards no process of the command is alive.
A process of a command that left its session and cleared its environment becomes a child of this process, a subreaper,
which kills it, at the latest when the last of the running commands ends.
"""

from __future__ import annotations

import os
import tempfile
import threading
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING
from uuid import uuid4

from agent import filetree, proc, process_tree
from agent.errors import SandboxUnavailable
from agent.sandbox import base, environment, sandbox_user
from agent.sandbox.bubblewrap import interpreter
from agent.sandbox.probe import NONE_REASON

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from agent.config.host_allowlist import AllowedHost
    from agent.sandbox.base import Mounts, Settings
    from agent.values import Finished

MARK = "MAKIMONO_COMMAND"
"""Environment variable that marks the processes of one command; the mark of the task does not suffice, because another
command of the same task may be running."""

_running = 0
_before: set[int] = set()
"""The child processes that this process had when the first of the running commands was started."""
_counting = threading.Lock()


@contextmanager
def _strays_ended() -> Iterator[None]:
    """A context manager around a command: when the last running command ends, it kills all processes that any of the
    commands left behind."""
    global _running, _before  # noqa: PLW0603 - the state is global, since the child processes belong to the whole process
    with _counting:
        proc.become_subreaper()
        if _running == 0:
            _before = set(process_tree.children())
        _running += 1
    try:
        yield
    finally:
        with _counting:  # no new command starts while this lock is held
            _running -= 1
            if _running == 0:
                process_tree.end_strays(_before)


@contextmanager
def _server_strays_ended() -> Iterator[None]:
    """A context manager for a command with streams, which may run as long as this process and is not counted as a
    running command.

    The processes that a command with streams leaves behind are killed when that command ends, or later if another
    command is running at that time.
    """
    proc.become_subreaper()
    try:
        yield
    finally:
        with _counting:
            if _running == 0:
                process_tree.end_strays()


class Unconfined:
    """Runs commands as plain processes.

    If this process is root, commands run under the task's own uid if that uid can reach `base_dir`, so that they cannot
    read the environment of this process or the folders of other tasks.  In all other cases (this process is not root or
    cannot change its uid, or `base_dir` is out of reach of that uid), commands run as this process's user.
    """

    kind = "none"
    traits = base.Traits(isolates=False, has_host_programs=True)

    def __init__(self, settings: Settings, *, uuid: str, base_dir: Path) -> None:
        self.uuid = uuid
        self.limits = settings.sandbox.limits
        own = sandbox_user.own_uid(uuid)
        usable = own is not None and sandbox_user.reachable(base_dir / "x", own)
        self.uid = own if usable else None
        self.interpreter = interpreter(base_dir)
        if self.interpreter is not None and not sandbox_user.reachable(self.interpreter / "x", self.uid):
            self.interpreter = None
        self.shell = environment.shell()
        # A task has a folder in `running/`, which this process has locked, so folders of earlier attempts may be
        # removed; the command `doctor` has no such folder.
        if (base_dir / "running" / uuid).is_dir():
            self._clear()
        who = f"user {os.geteuid() if self.uid is None else self.uid}"
        self.reason = f"{NONE_REASON}, they run as {who} with everything it can reach"
        self.advice = "Remove sandbox.kind: none to have commands isolated again."

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
        del network  # without isolation every host is reachable
        own = self.uid not in (None, sandbox_user.NOBODY)
        argv = environment.limited(command, self.limits, timeout, processes=own, shell_path=self.shell)
        mark = uuid4().hex
        path = environment.search_path(str(self.interpreter) if self.interpreter else None)
        ending = _strays_ended() if streams is None else _server_strays_ended()
        with ending, self.folders(mounts.home, mark) as (home, tmp):
            inside = environment.inside(self.uuid, home=home, tmp=tmp, path=path, shell_path=self.shell, extra=env)
            inside[MARK] = mark
            try:
                finished = proc.run(
                    argv,
                    env=inside,
                    cwd=mounts.work,
                    timeout=timeout,
                    cap=cap,
                    spool=spool,
                    stop=stop,
                    user=self.uid,
                    foreign=True,
                    streams=None if streams is None else streams.ends,
                    started=None if streams is None else streams.started,
                )
            except OSError as error:
                raise SandboxUnavailable(f"the command cannot be started in {mounts.work}: {error}") from error
            finally:
                proc.end_tree(mark, name=MARK, own=True)
        if finished.returncode < 0 and not finished.timed_out:
            return replace(finished, returncode=128 - finished.returncode)
        return finished

    def _clear(self) -> None:
        """Remove the temporary folders of killed attempts. A folder of another user is not removed, even if it has the
        name of such a temporary folder."""
        with suppress(OSError):
            for entry in os.scandir(tempfile.gettempdir()):
                if entry.name.startswith(f"makimono-{self.uuid}-"):
                    with suppress(OSError):
                        if entry.stat(follow_symlinks=False).st_uid in (os.geteuid(), self.uid):
                            filetree.remove(entry.path)

    @contextmanager
    def folders(self, home: Path | None, mark: str) -> Iterator[tuple[str, str]]:
        """The path of the home, and the path of a new folder for temporary files, which is also the home if `home` is
        None.

        The folder for temporary files is removed with its content at the end.  The name of this folder cannot be
        guessed; if a folder of that name exists, an error is raised.
        """
        tmp = f"{tempfile.gettempdir()}/makimono-{self.uuid}-{mark}"
        os.mkdir(tmp, 0o700)  # noqa: PTH102 - `os.mkdir` takes the path as text
        try:
            if self.uid is not None:
                os.chown(tmp, self.uid, self.uid)
            yield tmp if home is None else str(home), tmp
        finally:
            try:  # `os.rmdir` suffices if the folder is empty, as it mostly is
                os.rmdir(tmp)  # noqa: PTH106 - `os.rmdir` takes the path as text  # ours
            except OSError:
                with suppress(OSError):
                    filetree.remove(tmp)
