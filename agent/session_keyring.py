"""Gives each foreign command a new, empty session keyring of the kernel (keyrings(7)).

A process inherits the session keyring of the thread that forks it, and may use every key in it: the daemon's Kerberos
tickets, fscrypt keys, keys of its service manager or login. No namespace prevents the inheritance of a session keyring.
A thread cannot return to a keyring that it has left, and no code of this program runs between fork and exec. To start a
command, a separate thread therefore joins a new keyring and forks the command, and the other threads keep the old
keyring.
"""

from __future__ import annotations

import ctypes
import platform
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from agent.durable_files import libc

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

KEYCTL = {"x86_64": 250, "aarch64": 219, "riscv64": 219, "loongarch64": 219}
"""The numbers of the system call keyctl(2), which the C library does not wrap."""

JOIN_SESSION_KEYRING = 1


def machine() -> str:
    """The architecture of this process's system calls.

    `platform.machine()` names the architecture of the kernel, which differs for 32-bit programs.
    """
    return platform.machine() if sys.maxsize > 1 << 32 else f"32-bit programs on {platform.machine()}"


def join_new() -> bool:
    """Give the calling thread a new, empty session keyring.

    Returns False if the kernel has no keyrings or refuses the call, or if KEYCTL lacks the architecture. In the first
    two cases the command cannot use the old keyring either: a kernel without keyrings has nothing to inherit, and a
    container's filter that refuses keyctl(2) to this process also refuses keyctl(2) to the command.
    """
    number = KEYCTL.get(machine())
    if number is None:
        return False
    joined = libc().syscall(ctypes.c_long(number), ctypes.c_long(JOIN_SESSION_KEYRING), ctypes.c_void_p(None))
    return bool(joined != -1)


def is_supported() -> bool:
    """Whether `join_new` works on this machine; the check does not change the keyring of the calling thread."""
    with ThreadPoolExecutor(max_workers=1) as thread:
        return thread.submit(join_new).result()


@contextmanager
def in_own_keyring() -> Iterator[Callable[[Callable[[], Any]], Any]]:
    """Yield a function that calls its argument in a thread with a new session keyring and returns the result.

    The thread that starts a command lives until the block ends, because a process with PR_SET_PDEATHSIG dies with the
    thread that forked it (prctl(2)).
    """
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="keyring", initializer=join_new) as thread:
        yield lambda call: thread.submit(call).result()
