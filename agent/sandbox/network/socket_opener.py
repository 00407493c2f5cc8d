"""Provides the program that runs inside the sandbox before the command: it creates a listening socket and passes it to
the worker.

A socket belongs to the network namespace of the process that creates it, even if another process uses it later.
Therefore a program of about 200 bytes, the opener, creates the listening socket on 127.0.0.1 inside the sandbox, sends
the socket through the inherited descriptor (SCM_RIGHTS, unix(7)), and executes the command. The opener takes well below
a millisecond; an interpreter would take ten milliseconds or more for each command. On machine types other than x86_64,
a Python program does the same as the opener, if the sandbox has Python.
"""

from __future__ import annotations

import socket
import struct
from typing import TYPE_CHECKING

from agent.sandbox.syscalls import EM_X86_64

if TYPE_CHECKING:
    from collections.abc import Sequence

PORT = 31280
"""The port of the proxy inside each sandbox; it is below the default range of the kernel's ephemeral ports, and no
common service uses it."""

BACKLOG = 128
FAILED = 125
"""The exit code of the opener if it cannot create the socket or pass it on. The opener's executable also exits with
this code if it cannot execute the command."""

PLACE = "/etc/makimono-network"
"""The path of the opener inside the sandbox."""

ADDRESS = struct.pack("=HHI", socket.AF_INET, socket.htons(PORT), socket.htonl(0x7F00_0001))
"""The first eight bytes of a struct sockaddr_in with the proxy's address and port."""

FIXED = 0x40_0000
HEADERS = 64 + 2 * 56


def code(descriptor: int) -> bytes:
    """The machine code for x86_64, with its assembly in the comments; the numbers of system calls are those of Linux's
    syscall_64.tbl."""
    where = struct.pack("=I", descriptor)
    lines = [
        bytes.fromhex("bf02000000"),  # mov edi, AF_INET
        bytes.fromhex("be01000800"),  # mov esi, SOCK_STREAM | SOCK_CLOEXEC
        bytes.fromhex("31d2"),  # xor edx, edx
        bytes.fromhex("b829000000 0f05"),  # socket
        bytes.fromhex("85c0 0f88aa000000"),  # test eax, eax; js failed
        bytes.fromhex("4189c4"),  # mov r12d, eax
        bytes.fromhex("48b8") + ADDRESS,  # movabs rax, the address
        bytes.fromhex("6a00 50"),  # push 0; push rax: struct sockaddr_in
        bytes.fromhex("4489e7 4889e6 ba10000000"),  # mov edi, r12d; mov rsi, rsp; mov edx, 16
        bytes.fromhex("b831000000 0f05"),  # bind
        bytes.fromhex("85c0 0f8880000000"),  # test eax, eax; js failed
        bytes.fromhex("4489e7 be") + struct.pack("=I", BACKLOG),  # mov edi, r12d; mov esi, BACKLOG
        bytes.fromhex("b832000000 0f05"),  # listen
        bytes.fromhex("85c0 786d"),  # test eax, eax; js failed
        bytes.fromhex("4154"),  # push r12: the descriptor that is sent
        bytes.fromhex("48b80100000001000000 50"),  # movabs rax, SOL_SOCKET | SCM_RIGHTS << 32; push rax
        bytes.fromhex("6a14 4989e0"),  # push 20: cmsg_len; mov r8, rsp: struct cmsghdr
        bytes.fromhex("6a00 4989e1"),  # push 0; mov r9, rsp: the one byte of data that is sent with the descriptor
        bytes.fromhex("6a01 4151 4989e1"),  # push 1; push r9; mov r9, rsp: struct iovec
        bytes.fromhex("6a00 6a18 4150"),  # msg_flags; msg_controllen 24; msg_control
        bytes.fromhex("6a01 4151 6a00 6a00"),  # msg_iovlen; msg_iov; msg_namelen; msg_name: struct msghdr
        bytes.fromhex("bf") + where,  # mov edi, the descriptor to the worker
        bytes.fromhex("4889e6 ba00400000"),  # mov rsi, rsp; mov edx, MSG_NOSIGNAL
        bytes.fromhex("b82e000000 0f05"),  # sendmsg
        bytes.fromhex("83f801 7528"),  # cmp eax, 1; jne failed
        bytes.fromhex("bf") + where + bytes.fromhex("b803000000 0f05"),  # close
        bytes.fromhex("4883c478"),  # add rsp, 120: argc is at the top of the stack again
        bytes.fromhex("488b0c24 488d742410 488b3e"),  # mov rcx, [rsp]; lea rsi, [rsp+16]; mov rdi, [rsi]
        bytes.fromhex("488d54cc10"),  # lea rdx, [rsp+rcx*8+16]: the environment
        bytes.fromhex("b83b000000 0f05"),  # execve
        bytes.fromhex("bf7d000000"),  # failed: mov edi, FAILED
        bytes.fromhex("b8e7000000 0f05"),  # exit_group
    ]
    return b"".join(lines)


def program(descriptor: int, machine: str) -> bytes | None:
    """The content of the opener's executable file (elf(5)); None for a machine type other than x86_64."""
    if machine != "x86_64":
        return None
    body = code(descriptor)
    size = HEADERS + len(body)
    ident = b"\x7fELF\x02\x01\x01" + bytes(9)
    head = struct.pack("=HHIQQQIHHHHHH", 2, EM_X86_64, 1, FIXED + HEADERS, 64, 0, 0, 64, 56, 2, 0, 0, 0)
    # the segment PT_LOAD, which is readable and executable
    load = struct.pack("=IIQQQQQQ", 1, 5, 0, FIXED, FIXED, size, size, 0x1000)
    # the segment PT_GNU_STACK, which is not executable
    stack = struct.pack("=IIQQQQQQ", 0x6474_E551, 6, 0, 0, 0, 0, 0, 16)
    return ident + head + load + stack + body


SCRIPT = f"""\
import os, socket, sys
try:
    made = socket.socket()
    made.bind(("127.0.0.1", {PORT}))
    made.listen({BACKLOG})
    with socket.socket(fileno=int(sys.argv[1])) as worker:
        socket.send_fds(worker, [b"\\0"], [made.fileno()])
except OSError:
    os._exit({FAILED})
os.execv(sys.argv[2], sys.argv[2:])
"""


def with_python(python: str, descriptor: int) -> list[str]:
    """An argument list that runs the opener as a Python program; the arguments of the command must be appended to
    it."""
    return [python, "-I", "-S", "-c", SCRIPT, str(descriptor)]


def variables() -> dict[str, str]:
    """Environment variables from which programs in the sandbox (curl, npm, Yarn, Maven and others) take the proxy's
    address."""
    address = f"http://127.0.0.1:{PORT}"
    direct = "localhost,127.0.0.1,::1,sandbox"
    names: Sequence[str] = ("http_proxy", "https_proxy", "all_proxy")
    java = f"-Dhttp.proxyHost=127.0.0.1 -Dhttp.proxyPort={PORT} -Dhttps.proxyHost=127.0.0.1 -Dhttps.proxyPort={PORT}"
    return {
        **{form: address for name in names for form in (name, name.upper())},
        "no_proxy": direct,
        "NO_PROXY": direct,
        "npm_config_proxy": address,
        "npm_config_https_proxy": address,
        "npm_config_noproxy": direct,
        "YARN_HTTP_PROXY": address,
        "YARN_HTTPS_PROXY": address,
        "NODE_USE_ENV_PROXY": "1",
        "MAVEN_OPTS": java,
        "GRADLE_OPTS": java,
    }
