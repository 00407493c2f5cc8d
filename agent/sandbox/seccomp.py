"""The system call filter of a command, generated from `syscalls` in the format that `bwrap --seccomp` reads.

A filter is a classic BPF program that the kernel runs at every system call (seccomp(2), struct sock_filter of
linux/filter.h): eight bytes per instruction, only forward jumps.  The filter of this module loads the ABI and the
number of a system call, compares the number with the number of each refused call, and permits all other calls.  This
module generates the filter of system calls; bubblewrap installs it.
"""

from __future__ import annotations

import errno
import struct
from functools import lru_cache
from typing import TYPE_CHECKING

from agent import session_keyring
from agent.sandbox.syscalls import ALLOWABLE, ARCHITECTURES, CALLS, TITLES, X32

if TYPE_CHECKING:
    from agent.sandbox.base import Settings

LOAD_WORD = 0x20  # BPF_LD | BPF_W | BPF_ABS
JUMP_IF_EQUAL = 0x15  # BPF_JMP | BPF_JEQ | BPF_K
JUMP_IF_AT_LEAST = 0x35  # BPF_JMP | BPF_JGE | BPF_K
RETURN = 0x06  # BPF_RET | BPF_K

# Byte offsets in struct seccomp_data of linux/seccomp.h.
NUMBER, ARCH, ARGUMENTS, ARGUMENT_SIZE = 0, 4, 16, 8

PERMIT = 0x7FFF_0000  # SECCOMP_RET_ALLOW
FAIL = 0x0005_0000  # SECCOMP_RET_ERRNO, the error in the low bits


def instruction(code: int, value: int, when_true: int = 0, when_false: int = 0) -> bytes:
    """One `struct sock_filter`: u16 code, u8 jt, u8 jf, u32 k, in the byte order of this machine.

    `when_true` and `when_false` are the numbers of BPF instructions to skip.
    """
    return struct.pack("=HBBI", code, when_true, when_false, value)


@lru_cache(maxsize=8)
def program(machine: str, allow: frozenset[str] = frozenset()) -> bytes | None:
    """The filter for `machine`, which lets the groups of system calls in `allow` pass; None for a machine that
    `syscalls` does not cover."""
    if machine not in ARCHITECTURES:
        return None
    column = list(ARCHITECTURES).index(machine)
    refused_abi = instruction(RETURN, FAIL | errno.ENOSYS)
    lines = [
        instruction(LOAD_WORD, ARCH),
        instruction(JUMP_IF_EQUAL, ARCHITECTURES[machine], 1, 0),
        refused_abi,
        instruction(LOAD_WORD, NUMBER),
    ]
    if machine == "x86_64":
        lines += [instruction(JUMP_IF_AT_LEAST, X32, 0, 1), refused_abi]
    for call in CALLS:
        if call.group in allow:
            continue
        body = [instruction(RETURN, FAIL | call.error)]
        if call.argument is not None:
            # The low word of an argument of a system call is first, since both supported machine types are
            # little-endian.  A permitted value jumps over the remaining comparisons and the refusal, to the instruction
            # that loads the call's number for the next entry.
            count = len(call.permitted)
            found = [instruction(JUMP_IF_EQUAL, value, count - place, 0) for place, value in enumerate(call.permitted)]
            load = instruction(LOAD_WORD, ARGUMENTS + ARGUMENT_SIZE * call.argument)
            body = [load, *found, *body, instruction(LOAD_WORD, NUMBER)]
        lines += [instruction(JUMP_IF_EQUAL, call.numbers[column], 0, len(body)), *body]
    lines.append(instruction(RETURN, PERMIT))
    return b"".join(lines)


def make_filter(settings: Settings) -> bytes | None:
    """The filter for this configuration on this machine; None if the configuration disables the filter, or if this
    machine type has no filter."""
    if not settings.sandbox.seccomp:
        return None
    return program(session_keyring.machine(), frozenset(settings.sandbox.allow))


def describe(settings: Settings, machine: str = "") -> tuple[bool, str]:
    """(whether system calls are filtered, a description of the filter in force), for a person."""
    machine = machine or session_keyring.machine()
    if not settings.sandbox.seccomp:
        return False, "system calls are not filtered: sandbox.seccomp is false"
    if machine not in ARCHITECTURES:
        return False, f"system calls are not filtered: no numbers are known for {machine}"
    allow = [word for word in ALLOWABLE if word in settings.sandbox.allow]
    groups = [group for group in dict.fromkeys(call.group for call in CALLS) if group not in allow]
    given = f"; sandbox.allow gives {', '.join(allow)}" if allow else ""
    return True, f"refused to commands: {', '.join(TITLES[group] for group in groups)}, 32-bit programs{given}"


def environment(settings: Settings) -> dict[str, str]:
    """Environment variables for programs that cannot adapt to the system call filter by themselves.

    LeakSanitizer, a part of every program built with -fsanitize=address, stops its own threads with ptrace at the end,
    and makes the program fail if that is not possible. The filter refuses ptrace, so the environment variables switch
    LeakSanitizer off; the rest of AddressSanitizer works.
    """
    if make_filter(settings) is None or "ptrace" in settings.sandbox.allow:
        return {}
    return {"LSAN_OPTIONS": "detect_leaks=0"}
