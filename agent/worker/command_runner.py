"""Runs commands in the sandbox of a task: commands of the model, `workspace.setup`, the verify command, and MCP
servers.

A command runs until it ends, its time is up, the run of the task must end (a stop or a limit, for example), or the
command uses too much memory (`memory_limits.py`). An MCP server runs until it ends, its caller stops it, or it uses too
much memory. `preparation.py` makes the CommandRunner.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from agent import durable_files
from agent.config import configured_commands
from agent.config.host_allowlist import parse_all
from agent.config.url_passwords import shown_command
from agent.errors import SandboxUnavailable, SetupFailed
from agent.llm.base import Interrupted
from agent.sandbox.base import Mounts, traits_of
from agent.work import setup
from agent.work.checkout import checked_out
from agent.worker.memory_limits import ServerMemory

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from agent.config.host_allowlist import AllowedHost
    from agent.sandbox.base import Sandbox, Streams
    from agent.values import Finished
    from agent.work.workspace import Workspace
    from agent.worker.task_run import TaskRun

REFUSAL = "commands"
"""Name of the receipt that records whether commands of the model can be run."""


SERVER_STDERR = 1 << 16
"""Maximum bytes of an MCP server's stderr that are stored, half of them from its beginning and half from its end."""


class CommandRunner:
    """Runs the commands of one task.

    `refusal` is the reason why all commands of the model so far were refused: "" once a command has run, None before
    the first command. A process that only publishes usually runs no command of the model; then `refusal` is the value
    that an earlier process of the task recorded. `home` is the home folder that the model's commands see, None for an
    empty one."""

    def __init__(self, run: TaskRun, sandbox: Sandbox, workspace: Workspace) -> None:
        self.run = run
        self.settings = run.settings
        self.sandbox = sandbox
        self.workspace = workspace
        self.home: Path | None = None
        known = run.effects.receipt(REFUSAL)
        self.refusal: str | None = known["why"] if known else None
        self._network = parse_all(self.settings.sandbox.network)

    def run_for_model(self, command: str, timeout: float, spool: Path | None = None) -> Finished:
        """Run a command of the model (`tools.base.Run`).

        Raises SandboxUnavailable if the command is refused, or DiskError if its files cannot be synced.
        """
        mounts = Mounts(**self.workspace.mounts(self.home))
        try:
            done = self._run(command, mounts, timeout=timeout, spool=spool, network=self._network)
        except SandboxUnavailable:
            if self.refusal is None:
                self._record(self.sandbox.reason)
            raise
        if self.refusal != "":
            self._record("")
        self.flush_files()
        return done

    def run_server(
        self,
        command: str,
        streams: Streams,
        *,
        network: Sequence[AllowedHost],
        env: Mapping[str, str],
        stop: Callable[[], bool],
    ) -> Finished:
        """Run the command of an MCP server until the server ends (`tools.mcp.base.RunServer`); may be called in any
        thread.

        Raises SandboxUnavailable if the command is refused.
        """
        memory = ServerMemory(self.settings)

        def started(pid: int) -> None:
            memory.pid = pid
            if streams.started is not None:
                streams.started(pid)

        done = self.sandbox.run(
            command,
            Mounts(**self.workspace.mounts(self.home)),
            timeout=math.inf,
            network=network,
            env=env,
            cap=SERVER_STDERR,
            stop=lambda: stop() or memory(),
            streams=replace(streams, started=started),
        )
        self._announce(done)
        return replace(done, why=memory.why) if memory.why else done

    def flush_files(self) -> None:
        """Free disk space if the task must end because the disk is full, then sync the files that a command wrote,
        unless `context_storage.durability` is "none"."""
        # Without free space, the output of the command could not be recorded.
        self.run.reports.extend(self.run.disk_overuse.free_space())
        if self.settings.context_storage.durability != "none":
            durable_files.sync_tree(self.workspace.tree)  # the files of the command must be on disk before its record

    def set_up(self) -> None:
        """Run `workspace.setup`, if it is configured, or copy the stored result of an earlier run of it; `self.home` is
        then the home folder that the set-up wrote, None if there is none.

        Raises SetupFailed, CommandRefused if other users can write the file that contains the command, or Interrupted
        if the run must end (`TaskControl.poll`) and the command was ended therefore.
        """
        wanted = self.settings.workspace.setup
        if wanted is None:
            return
        home = self.run.context.context_dir / "home"
        configured_commands.check(self.settings, configured_commands.SETUP)
        self.run.events.emit("setup_started", command=shown_command(wanted.command))
        report = setup.prepare(
            self.settings,
            self.workspace.mirror,
            self.workspace,
            self._run_setup,
            home=home,
            relocatable=traits_of(self.sandbox).isolates,
            secrets=self.run.redact.secrets,
        )
        self.run.events.emit("setup_finished", ok=report.ok, cached=report.cached)
        if report.changed:
            self.run.reports.append(f"{report.note}: {', '.join(report.changed[:5])}")
        if not report.ok:
            message = f"`workspace.setup` did not work: {report.note}\n\n{report.output}"
            raise SetupFailed(message, passing=report.passing)
        self.home = home if home.is_dir() else None

    def check(self, command: str, commit: str, timeout: float) -> Finished:
        """Run the verify command on a clean check-out of `commit`, so that the commit that is checked is the one that
        is published.

        Raises CommandRefused if other users can write the file that contains the command, SandboxUnavailable,
        SetupFailed if the set-up for the check-out fails, or Interrupted if the run must end (`TaskControl.poll`) and
        the command was ended therefore, because its result then proves nothing about the work.
        """
        configured_commands.check(self.settings, configured_commands.VERIFY)
        with checked_out(self.workspace, commit) as place:
            isolates = traits_of(self.sandbox).isolates
            setup.copy_setup(self.settings, self.workspace, self._run_setup, place, commit, relocatable=isolates)
            home = place.home if self.settings.workspace.setup is not None else None
            mounts = Mounts(**{**self.workspace.mounts(home), "work": place.tree, "git": place.git_dir})
            done = self._run(command, mounts, timeout=timeout, network=self._network)
        return self._unless_stopped(done)

    def check_stop(self) -> None:
        """Raise Interrupted, with the reason, if the run must end (`TaskControl.poll`)."""
        if (outcome := self.run.control.poll()) is not None:
            raise Interrupted(outcome)

    def _unless_stopped(self, done: Finished) -> Finished:
        if done.timed_out:
            self.check_stop()
        return done

    def _run_setup(
        self,
        command: str,
        tree: Path,
        home: Path,
        network: Sequence[AllowedHost],
        env: Mapping[str, str],
        timeout: float,
    ) -> Finished:
        mounts = Mounts(**{**self.workspace.mounts(home), "work": tree})
        return self._unless_stopped(self._run(command, mounts, timeout=timeout, network=network, env=env))

    def _run(self, command: str, mounts: Mounts, **options: Any) -> Finished:
        control = self.run.control
        is_too_large = self.run.memory.watch_command()
        done = self.sandbox.run(command, mounts, stop=lambda: control.poll() is not None or is_too_large(), **options)
        self._announce(done)
        return replace(done, why=is_too_large.why) if is_too_large.why else done

    def _announce(self, done: Finished) -> None:
        """Emit an event for each host that a command contacted, or that the sandbox did not let it contact."""
        events = self.run.events
        for contact in done.contacts:
            said = {"host": contact.host, "port": contact.port, "connections": contact.connections}
            if contact.refused:
                events.emit("network_refused", **said, why=contact.refused)
            else:
                events.emit("network_used", **said, sent=contact.sent, received=contact.received)

    def _record(self, why: str) -> None:
        """Record whether commands of the model can be run; `why` is the reason of a refusal, "" once a command has
        run."""
        self.refusal = why
        self.run.effects.done(REFUSAL, {"why": why})
