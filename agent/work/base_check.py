"""What the check says of the base commit, run once and kept for every task that starts from there.

A check that is red may have been red before anybody changed anything.  The verdict of the base is one file,
`base_dir/checks/{key}.json`; the key is all that it depends on: repository, commit, command, its time-out, the set-up
and the kind of sandbox.  A verdict that says nothing of the commit (no sandbox, no set-up) is not kept.  The file may
be removed at any time.  Called by `run/task_run.py`.
"""

from __future__ import annotations

import hashlib
from contextlib import suppress
from typing import TYPE_CHECKING

import orjson

from agent import clock, disk
from agent.errors import LockHeld
from agent.work.verify import Verdict

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from agent.config import Settings
    from agent.work.workspace import Workspace

FOLDER = "checks"
VERSION = 1
"""Raised when what a kept verdict holds changes its meaning."""

LOOK_SECONDS = 0.5


def base_verdict(
    settings: Settings,
    workspace: Workspace,
    run: Callable[[str], Verdict],
    *,
    sandbox: str,
    waiting: Callable[[], None] = lambda: None,
) -> Verdict:
    """The verdict of the base commit, kept or made with `run(commit)`.

    Another task that makes it just now is waited for; `waiting` is called meanwhile and may raise.
    """
    base = workspace.base_commit
    assert base is not None, "an empty repository has no base"
    top = disk.make_dir(workspace.mirror.base_dir / FOLDER)
    name = _key(settings, workspace, base, sandbox)
    path = top / f"{name}.json"
    while True:
        if (known := _read(path)) is not None:
            return known
        try:
            held = disk.lock(top / f".{name}.lock")
        except LockHeld:
            waiting()
            clock.sleep(LOOK_SECONDS)
            continue
        try:
            if (known := _read(path)) is not None:
                return known
            verdict = run(base)
            if verdict.exit_code is not None:
                disk.write_file(path, orjson.dumps(verdict.to_dict()))
            return verdict
        finally:
            with suppress(FileNotFoundError):
                (top / f".{name}.lock").unlink()  # ours
            disk.unlock(held)


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
    if hosts := sorted(settings.sandbox.network):  # what the check may reach
        facts["network"] = hosts
    return hashlib.sha256(orjson.dumps(facts, option=orjson.OPT_SORT_KEYS)).hexdigest()[:32]


def _read(path: Path) -> Verdict | None:
    """None for a file that is not there, or that nobody can read: it is made again."""
    try:
        return Verdict.of(orjson.loads(path.read_bytes()))
    except (FileNotFoundError, orjson.JSONDecodeError, KeyError, TypeError):
        return None
