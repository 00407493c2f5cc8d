"""A port for a program that takes a number and does not choose one itself."""

import random
import socket
from pathlib import Path

RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")


def free_port():
    """A TCP port of loopback on which nobody listens, below those that the kernel gives to whoever binds port 0.

    A program listens on it a second or two later.  A port of the kernel's range could by then belong to a server of
    another test, which would get the requests.
    """
    first = int(RANGE.read_text().split()[0]) if RANGE.exists() else 32_768
    while True:
        port = random.SystemRandom().randrange(min(10_240, first // 2), first)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port
