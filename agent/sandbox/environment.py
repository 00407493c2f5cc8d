"""Provides the surroundings of a command: its environment, the shell that sets its limits, and the small files of /etc.

No function of `environment.py` writes a file, changes this process, or reads this process's own environment.
"""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import TYPE_CHECKING

from agent.errors import ToolError
from agent.proc import MARK

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from agent.sandbox.base import Limits

LONGEST = 128 * 1024 - 1
"""The maximum number of bytes of one argument that Linux accepts (MAX_ARG_STRLEN, 32 pages of 4 KiB)."""

CORES = os.cpu_count() or 1
"""The number of cores of this machine; it is read only once, because reading it opens a file of the kernel."""

QUIET = {
    "LANG": "C.UTF-8",
    "TERM": "dumb",
    "CI": "1",
    # An interactive command would hang for ever: stdin is empty, and no pager or editor may open.
    "PAGER": "cat",
    "GIT_PAGER": "cat",
    "GIT_EDITOR": "true",
    "EDITOR": "true",
    "VISUAL": "true",
    "GIT_TERMINAL_PROMPT": "0",
    "DEBIAN_FRONTEND": "noninteractive",
    "PIP_NO_INPUT": "1",
    "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    # Output before a time-out must not be lost in a buffer; a test run must not leave __pycache__ for a commit.
    "PYTHONUNBUFFERED": "1",
    "PYTHONDONTWRITEBYTECODE": "1",
}

GITCONFIG = b"""\
[safe]
\tdirectory = *
[user]
\tname = agent
\temail = agent@localhost
"""
"""The work tree and /git belong to different users; git refuses such a repository without `safe.directory`.

A test that commits in a repository of its own needs a name and a mail address; the task's own commits are not made with
this name.
"""

USER = "agent"


def accounts(uid: int, gid: int, home: str, shell_path: str) -> dict[str, bytes]:
    """The content of /etc/passwd and /etc/group with only the user that runs commands and root: `getpwuid`, `whoami`
    and `os.userInfo()` read these files."""
    lines = (f"{USER}:x:{uid}:{gid}:{USER}:{home}:{shell_path}", "root:x:0:0:root:/root:/bin/sh")
    # Groups of the user other than the main one are not mapped inside and appear as nogroup; `id` fails for a group
    # without a name.
    groups = (f"{USER}:x:{gid}:", "root:x:0:", *(("nogroup:x:65534:",) if gid != 65534 else ()))
    return {"/etc/passwd": _file_content(lines), "/etc/group": _file_content(groups)}


def _file_content(lines: Iterable[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()


ETC_OFFLINE = {
    "/etc/hosts": b"127.0.0.1\tlocalhost sandbox\n::1\tlocalhost\n",
    "/etc/nsswitch.conf": b"passwd: files\ngroup: files\nhosts: files\n",
}
"""With these files of /etc, `localhost` still resolves in the sandbox, and any other name fails at once instead of
after a time-out: only the proxy of the sandbox resolves names."""

ETC_TRUST = (
    "ssl/certs",
    "ssl/cert.pem",
    "ssl/ca-bundle.pem",
    "pki/tls/certs",
    "pki/tls/cert.pem",
    "pki/ca-trust/extracted",
    "ca-certificates",
)

ETC_ALWAYS = ("ld.so.cache", "alternatives", "localtime", "mime.types", "protocols", "services", "ssl/openssl.cnf")
"""Public files of /etc that ordinary programs open by their fixed names (docs/security.md, "Commands")."""


def inside(
    uuid: str, *, home: str, tmp: str, path: str, shell_path: str, extra: Mapping[str, str] | None = None
) -> dict[str, str]:
    """The whole environment of a command; the caller's `extra` overrides every variable except `MAKIMONO_UUID`."""
    return {
        **QUIET,
        "PATH": path,
        "HOME": home,
        "TMPDIR": tmp,
        "SHELL": shell_path,
        "USER": USER,
        "LOGNAME": USER,
        **(extra or {}),
        MARK: uuid,
    }


def shell() -> str:
    """The shell that runs command lines: bash if it exists."""
    for candidate in ("/bin/bash", "/usr/bin/bash", "/usr/local/bin/bash"):
        if Path(candidate).exists():
            return candidate
    return "/bin/sh"


def search_path(interpreter: str | None) -> str:
    """The value of PATH: first /usr/local, where administrators install programs, then the interpreter outside /usr,
    then the folders of the system."""
    middle = [f"{interpreter}/bin"] if interpreter else []
    return ":".join(["/usr/local/bin", *middle, "/usr/bin", "/bin", "/usr/local/sbin", "/usr/sbin", "/sbin"])


def limited(command: str, limits: Limits, timeout: float, *, processes: bool, shell_path: str) -> list[str]:
    """The argument list that sets the limits and then executes `shell -c command`.

    `ulimit` of /bin/sh sets the limits *inside* the sandbox. Limits that are set inside the sandbox affect neither
    bubblewrap nor this process, and no code runs between fork and exec. Since Linux 5.14, the number of processes is
    counted within the sandbox's own user namespace. `-d` (RLIMIT_DATA) counts writable memory; `-v` would kill every
    program that reserves address space without using it (node, Go, the JVM). RLIMIT_CPU is set to the time-out
    multiplied by the number of cores; with an infinite time-out it is not set. Raises ToolError for a command line that
    the kernel does not accept.
    """
    size = len(command.encode("utf-8", "surrogateescape"))
    if size > LONGEST:
        raise ToolError(
            f"the command line has {size} bytes, at most {LONGEST} can be run; "
            "write a script with write_file and run that"
        )
    if "\0" in command:
        raise ToolError("the command line holds a NUL byte; take it out")
    wanted = {"-c": 0}
    if math.isfinite(timeout):
        wanted["-t"] = math.ceil(timeout) * CORES + 1
    if isinstance(limits.memory, int) and limits.memory:
        wanted["-d"] = max(1, limits.memory // 1024)
    if limits.file_size:
        wanted["-f"] = max(1, limits.file_size // 512)
    lines = [_ulimit(flag, value) for flag, value in wanted.items()]
    if processes and limits.processes:
        # `ulimit` limits the number of processes by -u in bash and ash, by -p in dash.
        lines.append(f"{{ {_ulimit('-u', limits.processes)} || {_ulimit('-p', limits.processes)}; }}")
    script = " && ".join(lines) + ' && exec "$@"'
    return ["/bin/sh", "-c", script, "sh", shell_path, "-c", command]


def _ulimit(flag: str, value: int) -> str:
    """A shell command that sets one limit with `ulimit`.

    If the limit cannot be set, a hard limit must already hold; otherwise the command does not run.
    """
    lower = f'[ "$(ulimit -H {flag} 2>/dev/null || echo unlimited)" != unlimited ]'
    return f"{{ ulimit {flag} {value} 2>/dev/null || {lower}; }}"
