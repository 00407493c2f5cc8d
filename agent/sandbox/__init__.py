"""Where commands run that a model, a repository or its dependencies wrote.  The contract is `base.py`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.errors import SandboxUnavailable
from agent.sandbox.base import SANDBOXES, Mounts, Refused, Sandbox
from agent.sandbox.probe import Verdict, probe

if TYPE_CHECKING:
    from pathlib import Path

    from agent.sandbox.base import Settings

__all__ = ["SANDBOXES", "Mounts", "Refused", "Sandbox", "Verdict", "make_sandbox", "probe"]


def make_sandbox(settings: Settings, *, uuid: str, base_dir: Path) -> Sandbox:
    """The sandbox of one task, as `sandbox.kind` says.

    Where commands cannot be isolated it is one that refuses each of them: a task that needs none goes on.  Never one
    that isolates less than was asked for.  ConfigError for an unknown kind or a bad `sandbox.read_only`.
    """
    verdict = probe(settings)
    if not verdict.ok:
        return Refused(verdict.reason, verdict.advice)
    try:
        made: Sandbox = SANDBOXES.load(settings.sandbox.kind)(settings, uuid=uuid, base_dir=base_dir)
    except SandboxUnavailable as error:
        reason, _, advice = str(error).partition("\n")
        return Refused(reason, advice)
    return made
