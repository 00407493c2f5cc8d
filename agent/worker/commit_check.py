"""Runs the verify command on the commit of a delivery; if the command fails there, runs it on the base commit too.

The result on the base commit shows whether the change is the cause of the failure (`delivery_report.Report.was_red`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from agent.config.url_passwords import shown_command
from agent.errors import CommandRefused, SandboxUnavailable, SetupFailed
from agent.security.sanitise import output
from agent.work.base_check import base_verdict
from agent.work.verify import Verdict, verdict_of

if TYPE_CHECKING:
    from agent.worker.command_runner import CommandRunner
    from agent.worker.delivery_report import Report
    from agent.worker.task_run import TaskRun


def check_commit(run: TaskRun, commands: CommandRunner, report: Report, command: str) -> Report:
    """Returns `report` with the result of the verify command on its commit; if the command ran and failed there, also
    with the result on the base commit, if the repository had one.

    Raises Interrupted if a stop or a drain ends the verify command.
    """
    run.events.emit("verify_started", command=shown_command(command))
    verdict = _verify(run, commands, command, report.commit or "")
    run.events.emit("verify_finished", command=verdict.command, exit_code=verdict.exit_code, ok=verdict.ok)
    report = replace(report, verdict=verdict)
    base = commands.workspace.base_commit
    if verdict.ok or verdict.exit_code is None or base is None:
        return report
    before = base_verdict(
        run.settings,
        commands.workspace,
        lambda commit: _verify(run, commands, command, commit),
        sandbox=commands.sandbox.kind,
        waiting=commands.check_stop,
    )
    report = replace(report, before=before)
    run.events.emit(
        "base_checked",
        command=verdict.command,
        commit=base,
        exit_code=before.exit_code,
        ok=before.ok,
        same=report.was_red,
    )
    return report


def _verify(run: TaskRun, commands: CommandRunner, command: str, commit: str) -> Verdict:
    """The result of the verify command on one commit; the result has no exit code if the command cannot be run."""
    try:
        done = commands.check(command, commit, run.settings.verify.timeout)
    except (SandboxUnavailable, SetupFailed, CommandRefused) as error:
        return Verdict(shown_command(command), None, ok=False, duration=0.0, tail=run.redact(output(str(error))))
    return verdict_of(command, done, clean=lambda text: run.redact(output(text)))
