"""The system calls that a command must not make, as data for `seccomp`.

The numbers come from Linux's tables (arch/x86/entry/syscalls/syscall_64.tbl, include/uapi/asm-generic/unistd.h for
aarch64); the kernel never changes a number. A system call is on this list for one of two reasons: the sandbox's
namespaces do not bound its state or its effect, or it exposes much kernel code that builds and test suites do not need.

Each refused system call returns an error that programs also get on other systems, so that they fall back to another
way: ENOSYS for a call that a kernel may lack, EPERM for a call that an ordinary user may be denied, EAFNOSUPPORT for a
missing socket family, EPROTONOSUPPORT for a missing protocol.
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
"""`platform.machine()` → AUDIT_ARCH_* of linux/audit.h, which identifies the ABI of a call.

The 32-bit ABI of the same machine has another AUDIT_ARCH value.  The filter refuses the 32-bit ABI completely, because
its numbers differ and its `socketcall` hides the socket family.
"""

X32 = 0x4000_0000
"""The bit in a call number on x86_64 that selects the x32 ABI; the AUDIT_ARCH value of the x32 ABI is that of the
64-bit ABI."""

FAMILIES = (socket.AF_UNIX, socket.AF_INET, socket.AF_INET6, socket.AF_NETLINK)
"""Socket families that programs use; netlink serves look-ups of names and interfaces.

Other socket families are refused: AF_VSOCK reaches a hypervisor from any network namespace; AF_ALG and most others are
kernel modules that are loaded on demand.
"""


PROTOCOLS = (0, 1, 4, 6, 15, 16, 17, 58, 262)
"""Permitted third arguments of socket(2), for every family.

For the internet families the permitted values are the default, ICMP, TCP, UDP, ICMPv6 and MPTCP; for netlink they are
routes, socket diagnostics, device events and generic. Excluded are SCTP, DCCP, L2TP and UDP-Lite, which are modules
loaded on demand, and the netlink protocols for administrators, such as packet filter, audit and process events. Only
netlink's protocol for IPsec (NETLINK_XFRM) is not excluded, since it has the number of TCP.
"""


@dataclass(frozen=True, slots=True)
class RefusedSyscall:
    """One refused system call.

    `group` is the purpose of the refused call, and the name by which `sandbox.allow` can permit it, if that key accepts
    it. `numbers` has one number for each machine type, in the order of `ARCHITECTURES`. With `argument` (0 to 5), the
    system call is refused only if the low 32 bits of that argument are not in `permitted`; several entries may check
    several arguments of one call.
    """

    group: str
    name: str
    numbers: tuple[int, int]
    error: int
    argument: int | None = None
    permitted: tuple[int, ...] = ()


ALLOWABLE = ("ptrace", "perf", "io_uring", "userfaultfd")
"""Groups that `sandbox.allow` can permit, for debuggers, profilers, and test suites of these calls themselves."""

CALLS = (
    # Kernel keys: a keyring belongs to a user, not to a namespace; if no new session keyring could be made
    # (`session_keyring`), a command has that of the daemon.
    RefusedSyscall("keys", "add_key", (248, 217), errno.ENOSYS),
    RefusedSyscall("keys", "request_key", (249, 218), errno.ENOSYS),
    RefusedSyscall("keys", "keyctl", (250, 219), errno.ENOSYS),
    # Sockets to a hypervisor or of rarely used kernel modules are refused.
    RefusedSyscall("families", "socket", (41, 198), errno.EAFNOSUPPORT, 0, FAMILIES),
    RefusedSyscall("families", "socketpair", (53, 199), errno.EAFNOSUPPORT, 0, FAMILIES),
    RefusedSyscall("protocols", "socket", (41, 198), errno.EPROTONOSUPPORT, 2, PROTOCOLS),
    # An io_uring performs file and socket operations that bypass this filter.
    RefusedSyscall("io_uring", "io_uring_setup", (425, 425), errno.ENOSYS),
    RefusedSyscall("io_uring", "io_uring_enter", (426, 426), errno.ENOSYS),
    RefusedSyscall("io_uring", "io_uring_register", (427, 427), errno.ENOSYS),
    # The calls userfaultfd, bpf and perf_event_open expose much kernel code.
    RefusedSyscall("userfaultfd", "userfaultfd", (323, 282), errno.EPERM),
    RefusedSyscall("bpf", "bpf", (321, 280), errno.EPERM),
    RefusedSyscall("perf", "perf_event_open", (298, 241), errno.EPERM),
    # Memory of memfd_secret that is no longer mapped is counted for no process and no file system, so no limit covers
    # it.
    RefusedSyscall("secret memory", "memfd_secret", (447, 447), errno.ENOSYS),
    # ptrace and similar calls reach the memory, registers and descriptors of other processes.
    RefusedSyscall("ptrace", "ptrace", (101, 117), errno.EPERM),
    RefusedSyscall("ptrace", "process_vm_readv", (310, 270), errno.EPERM),
    RefusedSyscall("ptrace", "process_vm_writev", (311, 271), errno.EPERM),
    RefusedSyscall("ptrace", "pidfd_getfd", (438, 438), errno.EPERM),
    # syslog(2) reads the host's kernel log, if kernel.dmesg_restrict is 0.
    RefusedSyscall("log", "syslog", (103, 116), errno.EPERM),
)

TITLES = {
    "keys": "kernel keys",
    "families": "socket families but unix, inet and netlink",
    "protocols": "rare protocols",
    "io_uring": "io_uring",
    "userfaultfd": "userfaultfd",
    "bpf": "bpf",
    "perf": "performance counters",
    "secret memory": "memfd_secret",
    "ptrace": "ptrace",
    "log": "the kernel's log",
}
"""Group of refused system calls → its name for a person."""
