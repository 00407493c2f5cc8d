"""The sandbox for commands that a model, a repository or its dependencies wrote. The contract of a sandbox is in
`base.py`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.errors import SandboxUnavailable
from agent.sandbox.base import SANDBOXES, Mounts, Refused, Sandbox, Streams, Traits, traits_of
from agent.sandbox.probe import ProbeResult, probe

if TYPE_CHECKING:
    from pathlib import Path

    from agent.sandbox.base import Settings

__all__ = [
    "SANDBOXES",
    "Mounts",
    "ProbeResult",
    "Refused",
    "Sandbox",
    "Streams",
    "Traits",
    "make_sandbox",
    "probe",
    "traits_of",
]


def make_sandbox(settings: Settings, *, uuid: str, base_dir: Path) -> Sandbox:
    """Make the sandbox of one task, according to `sandbox.kind`.

    If commands cannot be isolated, `make_sandbox` returns a sandbox that refuses every command, so that a task that
    needs no command can continue. A sandbox never isolates less than the configuration demands. Raises ConfigError for
    an unknown kind or an invalid `sandbox.read_only`.
    """
    verdict = probe(settings)
    if not verdict.ok:
        return Refused(verdict.reason, verdict.advice)
    try:
        kind = settings.sandbox.kind
        guard = None if kind in SANDBOXES.entries else settings.plugin_guard
        made: Sandbox = SANDBOXES.load(kind, guard)(settings, uuid=uuid, base_dir=base_dir)
    except SandboxUnavailable as error:
        reason, _, advice = str(error).partition("\n")
        return Refused(reason, advice)
    return made
