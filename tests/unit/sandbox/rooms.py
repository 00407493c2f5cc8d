"""A task's folder and sandbox for this room's tests."""

import os
from pathlib import Path
from types import SimpleNamespace

from agent.plugin_guard import PluginGuard
from agent.sandbox import Mounts, make_sandbox

TRIED = """
import socket
def tried(family, kind, address):
    s = socket.socket(family, kind)
    s.settimeout(3)
    try:
        s.connect(address)
        if kind == socket.SOCK_DGRAM:
            s.send(b"x")
    except OSError as error:
        return "refused"
    return "reached"
"""
"""The start of a program inside that tries to reach something."""


def settings(kind="auto", read_only=(), seccomp=True, allow=(), network=(), **limits):
    every = {"memory": None, "file_size": 4 << 20, "tmp_size": 2 << 20, "home_size": 1 << 20, "processes": 64}
    sandbox = SimpleNamespace(
        kind=kind,
        read_only=read_only,
        seccomp=seccomp,
        allow=allow,
        network=network,
        limits=SimpleNamespace(**{**every, **limits}),
    )
    return SimpleNamespace(sandbox=sandbox, plugin_guard=PluginGuard(Path("/nowhere")))


class Room:
    """A sandbox and a work tree below `folder`."""

    def __init__(self, folder, uuid, configured=None):
        self.folder = folder
        self.sandbox = make_sandbox(configured or settings(), uuid=uuid, base_dir=folder)
        self.work = self.made("work")

    def made(self, name):
        path = self.folder / name
        path.mkdir()
        if self.sandbox.uid is not None:
            os.chown(path, self.sandbox.uid, self.sandbox.uid)
        return path

    def run(self, command, mounts=None, **options):
        return self.sandbox.run(command, mounts or Mounts(self.work), **{"timeout": 60, **options})

    def says(self, command, mounts=None, **options):
        return self.run(command, mounts, **options).output.decode("utf-8", "replace").strip()
