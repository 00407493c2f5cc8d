"""A tree so deep that no path reaches its bottom."""

import os

DEEP = 1200  # above the limit of recursion, and of a path: 4096 bytes


def make_deep(top, depth=DEEP):
    """A tree `depth` folders deep with a file at its bottom; its paths are longer than the kernel takes."""
    here = os.open(top, os.O_RDONLY | os.O_DIRECTORY)
    for _ in range(depth):
        os.mkdir("deep", 0o755, dir_fd=here)
        below = os.open("deep", os.O_RDONLY | os.O_DIRECTORY, dir_fd=here)
        os.close(here)
        here = below
    bottom = os.open("bottom", os.O_WRONLY | os.O_CREAT, 0o644, dir_fd=here)
    os.write(bottom, b"x" * 5000)
    os.close(bottom)
    os.close(here)
