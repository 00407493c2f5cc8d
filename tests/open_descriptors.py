"""Descriptors of this process that lead into a folder.

A test that counts all descriptors of its process also counts those that the garbage collector closes meanwhile, or that a
thread of an earlier test opens; these do not lead into its own folder.
"""

import errno
import os


def open_below(folder):
    """The paths of open descriptors at or below `folder`, in order; those longer than PATH_MAX count as below it."""
    top = os.path.realpath(folder)
    found = []
    for name in os.listdir("/proc/self/fd"):
        try:
            path = os.readlink(f"/proc/self/fd/{name}")
        except OSError as error:
            if error.errno == errno.ENAMETOOLONG:
                found.append(f"{top}/…")
            continue  # ENOENT: the descriptor of the listing itself
        if f"{path.removesuffix(' (deleted)')}/".startswith(f"{top}/"):
            found.append(path)
    return sorted(found)
