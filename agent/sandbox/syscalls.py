"""System calls that a command may not make: data for `seccomp`.

Numbers are those of Linux's tables (arch/x86/entry/syscalls/syscall_64.tbl, include/uapi/asm-generic/unistd.h for
aarch64); the kernel never changes one.  A call is on this list because its state or its reach is not bounded by the
namespaces of the sandbox, or because it is a wide way into the kernel that builds and test suites do without.

The error is the one that a program meets elsewhere, too, so that it falls back: ENOSYS where a kernel may be built
without the call, EPERM where an ordinary user may be refused it, EAFNOSUPPORT for a socket family that is not there.
"""

from __future__ import annotations

import errno
import socket
from dataclasses import dataclass

EM_X86_64 = 62
EM_AARCH64 = 183
IS_64_BIT = 0x8000_0000
IS_LITTLE_ENDIAN = 0x4000_0000

ARCHITECTURES = {
    "x86_64": EM_X86_64 | IS_64_BIT | IS_LITTLE_ENDIAN,
    "aarch64": EM_AARCH64 | IS_64_BIT | IS_LITTLE_ENDIAN,
}
"""What `platform.machine()` says → AUDIT_ARCH_* of linux/audit.h, which tells the ABI of a call.  The 32-bit ABI of the
same machine has another one, and is refused whole: its numbers differ, and its `socketcall` hides the family."""

X32 = 0x4000_0000
"""Bit of a number on x86_64 that makes it a call of the x32 ABI, which has the arch value of the 64-bit one."""

FAMILIES = (socket.AF_UNIX, socket.AF_INET, socket.AF_INET6, socket.AF_NETLINK)
"""Families that programs use: names and interfaces are asked by netlink.  AF_VSOCK reaches a hypervisor from any
network namespace; AF_ALG and the others are kernel modules that are loaded on demand."""


@dataclass(frozen=True, slots=True)
class Call:
    """One refused system call.

    `group` is its purpose, and the word of `sandbox.allow` where that knows it.  `numbers` is by the order of
    `ARCHITECTURES`.  With `argument` (0 to 5) the call is made when the low 32 bits of that argument are one of
    `permitted`, and refused otherwise.
    """

    group: str
    name: str
    numbers: tuple[int, int]
    error: int
    argument: int | None = None
    permitted: tuple[int, ...] = ()


ALLOWABLE = ("ptrace", "perf", "io_uring", "userfaultfd")
"""Groups that `sandbox.allow` can give back: debuggers, profilers, and suites that test these calls themselves."""

CALLS = (
    # Keys: a keyring belongs to a user, not to a namespace; the session's is inherited from the daemon.
    Call("keys", "add_key", (248, 217), errno.ENOSYS),
    Call("keys", "request_key", (249, 218), errno.ENOSYS),
    Call("keys", "keyctl", (250, 219), errno.ENOSYS),
    # Sockets to a hypervisor or into rarely used kernel modules.
    Call("families", "socket", (41, 198), errno.EAFNOSUPPORT, 0, FAMILIES),
    Call("families", "socketpair", (53, 199), errno.EAFNOSUPPORT, 0, FAMILIES),
    # A ring does file and socket calls past this filter.
    Call("io_uring", "io_uring_setup", (425, 425), errno.ENOSYS),
    Call("io_uring", "io_uring_enter", (426, 426), errno.ENOSYS),
    Call("io_uring", "io_uring_register", (427, 427), errno.ENOSYS),
    # Wide ways into the kernel.
    Call("userfaultfd", "userfaultfd", (323, 282), errno.EPERM),
    Call("bpf", "bpf", (321, 280), errno.EPERM),
    Call("perf", "perf_event_open", (298, 241), errno.EPERM),
    # Other processes' memory, registers and descriptors.
    Call("ptrace", "ptrace", (101, 117), errno.EPERM),
    Call("ptrace", "process_vm_readv", (310, 270), errno.EPERM),
    Call("ptrace", "process_vm_writev", (311, 271), errno.EPERM),
    Call("ptrace", "pidfd_getfd", (438, 438), errno.EPERM),
    # The host's kernel log, readable where kernel.dmesg_restrict is 0.
    Call("log", "syslog", (103, 116), errno.EPERM),
)

TITLES = {
    "keys": "kernel keys",
    "families": "socket families but unix, inet and netlink",
    "io_uring": "io_uring",
    "userfaultfd": "userfaultfd",
    "bpf": "bpf",
    "perf": "performance counters",
    "ptrace": "ptrace",
    "log": "the kernel's log",
}
"""Group → its name for a person."""
