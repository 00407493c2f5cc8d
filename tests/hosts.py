"""Pretended hosts: a process with a host name of its own, on this machine."""

import os
import shutil


def named(name):
    """What gives the rest of a command line a host name of its own; [] where that is not allowed (it needs root)."""
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        return []
    return ["unshare", "--uts", "sh", "-c", 'hostname "$0" && exec "$@"', name]
