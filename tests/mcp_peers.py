"""Servers of MCP for tests: packages of node, a server over HTTP, and a server that misbehaves on request.

A sandbox cannot show a path below its own /work, so packages are copied to a folder of the test run.
"""

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
from ports import free_port

PEERS = Path(__file__).resolve().parent / "peers"
NODE = shutil.which("node")
SCOPE = "@modelcontextprotocol"
HOSTILE = Path(__file__).resolve().parent / "mcp_hostile.py"
SDK_SERVER = Path(__file__).resolve().parent / "mcp_sdk_server.py"


def package(name, folder):
    """The script of a package of npm, copied with its dependencies to `folder`; skips where it is not installed."""
    modules = PEERS / "node_modules"
    if NODE is None or not (modules / SCOPE / name).is_dir():
        if os.environ.get("CI"):
            pytest.fail(f"{name} is not installed; scripts/test-peers installs it")
        pytest.skip(f"{name} is not installed; scripts/test-peers installs it")
    target = Path(folder) / name / "node_modules"
    if not target.exists():
        known = json.loads((PEERS / "package-lock.json").read_text())["packages"]
        for one in closure(f"{SCOPE}/{name}", known):
            shutil.copytree(modules / one, target / one, symlinks=True, copy_function=link)
        for path in (target.parent, *target.rglob("*")):
            if path.is_dir():
                path.chmod(0o755)
    return target / SCOPE / name / "dist" / "index.js"


def link(source, target):
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def closure(name, known, found=None):
    """The package and everything that it depends on."""
    found = {} if found is None else found
    if name not in found:
        found[name] = True
        for other in known.get(f"node_modules/{name}", {}).get("dependencies", {}):
            closure(other, known, found)
    return list(found)


@contextmanager
def over_http(argv, **variables):
    """A server that listens on the port in PORT; yields its port."""
    port = free_port()
    env = {"PATH": os.environ["PATH"], "PORT": str(port), **variables}
    child = subprocess.Popen(
        argv, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        until = time.monotonic() + 60
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                assert child.poll() is None, "the server ended"
                assert time.monotonic() < until, "the server does not listen"
                time.sleep(0.05)
        yield port
    finally:
        child.kill()
        child.wait()


def python(script, *args):
    """(command, args) of a server in Python with this interpreter's packages, without a sandbox."""
    return sys.executable, [str(script), *args]
