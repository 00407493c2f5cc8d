"""A task of 400 turns, results of 9 KB each, against mini-swe-agent: CPU of the worker a turn, and its peak memory.

Both ask the same loopback server and get the same answers (the tool has each one's own name), both run the same
commands without a sandbox, neither compacts.  Ours is a whole task of the local tracker by the worker's own path, with
mirror, work tree, files and heartbeat; mini's is DefaultAgent, LitellmModel and LocalEnvironment with the templates of
its `mini` configuration.  CPU is that of the process and its threads, without imports, children and the server.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
from typing import TYPE_CHECKING, Any

from benchmarks import children, machine, project
from benchmarks.figures import at_most
from benchmarks.server import Server

if TYPE_CHECKING:
    from pathlib import Path

TURNS = 400
SIZE = 9_000
VENV = children.ROOT / ".venv-bench"
LOCK = children.ROOT / "requirements-bench.lock"


def measure() -> dict[str, Any]:
    python = environment()
    with children.workplace() as place:
        ours, theirs = recordings(place)
        ran: dict[str, list[dict[str, float]]] = {"ours": [], "mini": []}
        for number, who in enumerate(("ours", "mini", "ours")):
            machine.say(f"{TURNS} turns, {who}")
            folder = place / f"{number}-{who}"
            folder.mkdir()
            with Server(ours, theirs) as server:
                url = server.urls[who == "mini"]
                if who == "ours":
                    uuid = children.run("peer_ours", "queue", folder, url)
                    done = children.run("peer_ours", "work", folder, url, uuid)
                else:
                    project.make(folder)
                    done = children.run("peer_mini", folder, url, python=str(python), **quiet(folder))
                asked = len(server.seen()[who == "mini"])
            if asked != TURNS + 1:
                raise RuntimeError(f"{who} asked {asked} times, not {TURNS + 1}: {done}")
            ran[who].append(done)
    best = {who: {name: min(one[name] for one in runs) for name in ("cpu", "peak")} for who, runs in ran.items()}
    return {
        "peer.cpu": at_most(
            best["ours"]["cpu"] / TURNS * 1e3,
            best["mini"]["cpu"] / TURNS * 1e3,
            0.2,
            "ms of CPU a turn",
            f"a turn in a task of {TURNS}, against mini-swe-agent",
        ),
        "peer.memory": at_most(
            best["ours"]["peak"] / machine.MIB,
            best["mini"]["peak"] / machine.MIB,
            0.25,
            "MiB",
            f"peak RSS of a task of {TURNS} turns, against mini-swe-agent",
        ),
    }


def recordings(place: Path) -> tuple[Path, Path]:
    """The same answers for both."""
    commands = [f"head -c {SIZE + 37 * number} data.txt | tail -c {SIZE}" for number in range(TURNS)]
    finish = {"title": "Round the sum once", "summary": "Nothing had to be changed."}
    ours = [("run_command", {"command": command}) for command in commands]
    theirs = [("bash", {"command": command}) for command in commands]
    submit = ("bash", {"command": "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"})
    return (
        project.record(place / "ours.jsonl", [*ours, ("finish", finish)]),
        project.record(place / "mini.jsonl", [*theirs, submit]),
    )


def quiet(folder: Path) -> dict[str, str]:
    """No network, no banner, no configuration of the user's."""
    return {
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "MSWEA_SILENT_STARTUP": "1",
        "MSWEA_GLOBAL_CONFIG_DIR": str(folder / "config"),
        "MSWEA_COST_TRACKING": "ignore_errors",
    }


def environment() -> Path:
    """The interpreter of .venv-bench, made from the lock file when it is missing or of another lock."""
    want, marker = hashlib.sha256(LOCK.read_bytes()).hexdigest(), VENV / "lock.sha256"
    python = VENV / "bin" / "python"
    if python.exists() and marker.exists() and marker.read_text(encoding="ascii") == want:
        return python
    machine.say("making .venv-bench")
    subprocess.run([sys.executable, "-m", "venv", VENV], check=True, stdout=sys.stderr)
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--require-hashes", "-r", LOCK]
    subprocess.run(pip, check=True, stdout=sys.stderr)
    marker.write_text(want, encoding="ascii")
    return python
