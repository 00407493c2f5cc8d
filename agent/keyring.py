"""Session keyrings of the kernel (keyrings(7)): a command starts in a new, empty one.

A process inherits the session keyring of the thread that forks it, and with it the right to use every key in there: the
daemon's Kerberos tickets, fscrypt keys, whatever its service manager or login put there.  No namespace bounds that.
The keyring of a thread cannot be given back once it is left, and no code of ours runs between fork and exec; so the
command is started by a thread of its own, which alone leaves the keyring.
"""

from __future__ import annotations

import ctypes
import platform
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from agent.disk import libc

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

KEYCTL = {"x86_64": 250, "aarch64": 219, "riscv64": 219, "loongarch64": 219}
"""The number of keyctl(2), for which the C library has no function."""

JOIN_SESSION_KEYRING = 1


def machine() -> str:
    """Whose table of system calls this process uses: `platform.machine()` is the kernel's, also for 32-bit programs."""
    return platform.machine() if sys.maxsize > 1 << 32 else f"32-bit programs on {platform.machine()}"


def join_new() -> bool:
    """Give the calling thread a new session keyring with nothing in it.

    False where the kernel has no keys or refuses: without keys there is nothing to inherit, and a container's filter
    that refuses this call refuses the command's, too.
    """
    number = KEYCTL.get(machine())
    if number is None:
        return False
    joined = libc().syscall(ctypes.c_long(number), ctypes.c_long(JOIN_SESSION_KEYRING), ctypes.c_void_p(None))
    return bool(joined != -1)


def works() -> bool:
    """Whether `join_new` does what it says here; this thread's keyring stays."""
    with ThreadPoolExecutor(max_workers=1) as thread:
        return thread.submit(join_new).result()


@contextmanager
def apart() -> Iterator[Callable[[Callable[[], Any]], Any]]:
    """A function that calls its argument in a thread with a session keyring of its own, and returns what that returns.

    The thread lives until the block ends: a process that asked to die with its parent dies with the thread that forked
    it (PR_SET_PDEATHSIG of prctl(2)).
    """
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="keyring", initializer=join_new) as thread:
        yield lambda call: thread.submit(call).result()
