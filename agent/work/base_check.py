"""Provides the result of the check on the base commit, computed once and cached for every task that starts from that
commit.

A check that fails after a change may also fail on the base commit without the change. The verdict on a base commit is
one file, `base_dir/checks/{key}.json`. The key of a cached verdict covers everything on which the verdict depends:
repository, commit, command, its time-out, the set-up, the kind of sandbox and the hosts that it may reach. A verdict
without an exit code proves nothing about the commit (no sandbox, no set-up), so it is not cached. A cached verdict may
be removed at any time.
"""

from __future__ import annotations

import hashlib
from contextlib import suppress
from typing import TYPE_CHECKING

import orjson

from agent import clock, durable_files
from agent.errors import LockHeld
from agent.work.verify import Verdict

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from agent.config import Settings
    from agent.work.workspace import Workspace

FOLDER = "checks"
VERSION = 2
"""The version of the content of cached verdicts; it must be increased when the meaning of that content changes."""

LOOK_SECONDS = 0.5


def base_verdict(
    settings: Settings,
    workspace: Workspace,
    run: Callable[[str], Verdict],
    *,
    sandbox: str,
    waiting: Callable[[], None] = lambda: None,
) -> Verdict:
    """The verdict of the base commit, from the cache or by `run(commit)`.

    If another task is computing the verdict, this call waits for it, and repeatedly calls `waiting`, which may raise an
    error.
    """
    base = workspace.base_commit
    assert base is not None, "an empty repository has no base"
    top = durable_files.make_dir(workspace.mirror.base_dir / FOLDER)
    name = _key(settings, workspace, base, sandbox)
    path = top / f"{name}.json"
    while True:
        if (known := _read(path)) is not None:
            return known
        try:
            held = durable_files.lock(top / f".{name}.lock")
        except LockHeld:
            waiting()
            clock.sleep(LOOK_SECONDS)
            continue
        try:
            if (known := _read(path)) is not None:
                return known
            verdict = run(base)
            if verdict.exit_code is not None:
                durable_files.write_file(path, orjson.dumps(verdict.to_dict()))
            return verdict
        finally:
            with suppress(FileNotFoundError):
                (top / f".{name}.lock").unlink()  # ours
            durable_files.unlock(held)


def _key(settings: Settings, workspace: Workspace, base: str, sandbox: str) -> str:
    section = settings.workspace.setup
    facts = {
        "version": VERSION,
        "repository": str(workspace.mirror.path.relative_to(workspace.mirror.base_dir)),
        "base": base,
        "command": settings.verify.command,
        "timeout": settings.verify.timeout,
        "sandbox": sandbox,
        "setup": [workspace.state.setup, section.model_dump(mode="json")] if section is not None else None,
    }
    if hosts := sorted(settings.sandbox.network):  # the hosts that the check may reach are part of the verdict's key
        facts["network"] = hosts
    return hashlib.sha256(orjson.dumps(facts, option=orjson.OPT_SORT_KEYS)).hexdigest()[:32]


def _read(path: Path) -> Verdict | None:
    """Read a cached verdict; None for a missing or damaged file, after which the verdict is computed again."""
    try:
        return Verdict.from_dict(orjson.loads(path.read_bytes()))
    except (FileNotFoundError, orjson.JSONDecodeError, KeyError, TypeError):
        return None
