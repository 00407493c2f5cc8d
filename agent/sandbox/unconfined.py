"""`sandbox.kind: none`: the same interface without isolation, for those who set it on purpose.

A command can do what its user can.  What is kept of a sandbox: a made environment, an empty stdin, limits, a session
of its own, the time-out, and that nothing it started is alive afterwards: what has left its session and thrown its
environment away is a child of this process, which becomes a subreaper.
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
from agent.sandbox import account, base, surroundings
from agent.sandbox.bubblewrap import interpreter
from agent.sandbox.probe import NONE_REASON

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from agent.config.reach import Reach
    from agent.sandbox.base import Mounts, Settings
    from agent.values import Finished

MARK = "MAKIMONO_COMMAND"
"""Told apart from the task's mark: another command of the same task may be running."""

_running = 0
_before: set[int] = set()
"""Children of this process when the first of the commands that run now was started."""
_counting = threading.Lock()


@contextmanager
def _strays_ended() -> Iterator[None]:
    """Around a command: at the end of the last that runs, whatever any of them left behind is ended."""
    global _running, _before  # noqa: PLW0603 - of the process, as its children are
    with _counting:
        proc.become_subreaper()
        if _running == 0:
            _before = set(process_tree.children())
        _running += 1
    try:
        yield
    finally:
        with _counting:  # no command is started meanwhile
            _running -= 1
            if _running == 0:
                process_tree.end_strays(_before)


class Unconfined:
    """Commands as plain processes.

    As root they run under the task's own uid if that can reach `base_dir`, so that they do not read this process's
    environment or other tasks' folders; else, and always for an ordinary user, as this process's user.
    """

    kind = "none"

    def __init__(self, settings: Settings, *, uuid: str, base_dir: Path) -> None:
        self.uuid = uuid
        self.limits = settings.sandbox.limits
        own = account.own_uid(uuid)
        usable = own is not None and account.reachable(base_dir / "x", own)
        self.uid = own if usable else None
        self.interpreter = interpreter(base_dir)
        if self.interpreter is not None and not account.reachable(self.interpreter / "x", self.uid):
            self.interpreter = None
        self.shell = surroundings.shell()
        who = f"user {os.geteuid() if self.uid is None else self.uid}"
        self.reason = f"{NONE_REASON}, they run as {who} with everything it can reach"
        self.advice = "Remove sandbox.kind: none to have commands isolated again."

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
        del network  # there is always one
        own = self.uid not in (None, account.NOBODY)
        argv = surroundings.limited(command, self.limits, timeout, processes=own, shell_path=self.shell)
        mark = uuid4().hex
        path = surroundings.search_path(str(self.interpreter) if self.interpreter else None)
        with _strays_ended(), self.folders(mounts.home, mark) as (home, tmp):
            inside = surroundings.inside(self.uuid, home=home, tmp=tmp, path=path, shell_path=self.shell, extra=env)
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
                )
            except OSError as error:
                raise SandboxUnavailable(f"the command cannot be started in {mounts.work}: {error}") from error
            finally:
                proc.end_tree(mark, name=MARK, own=True)
        if finished.returncode < 0 and not finished.timed_out:
            return replace(finished, returncode=128 - finished.returncode)
        return finished

    @contextmanager
    def folders(self, home: Path | None, mark: str) -> Iterator[tuple[str, str]]:
        """A home and a folder for temporary files, which is the home too where there is no other; it is removed with
        all that is in it.  Its name nobody can guess, and one that is there is refused."""
        tmp = f"{tempfile.gettempdir()}/makimono-{mark}"
        os.mkdir(tmp, 0o700)  # noqa: PTH102 - a text is all that is needed
        try:
            if self.uid is not None:
                os.chown(tmp, self.uid, self.uid)
            yield tmp if home is None else str(home), tmp
        finally:
            try:  # most commands leave nothing
                os.rmdir(tmp)  # noqa: PTH106 - a text is all that is needed  # ours
            except OSError:
                with suppress(OSError):
                    filetree.remove(tmp)
