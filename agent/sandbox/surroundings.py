"""What a command finds around it: the environment, the shell that sets its limits, and the small files of /etc.

Pure; used by every kind of sandbox.  Nothing here is read from this process's own environment.
"""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import TYPE_CHECKING

from agent.errors import ToolError
from agent.proc import MARK

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agent.sandbox.base import Limits

LONGEST = 128 * 1024 - 1
"""Bytes of one argument that Linux passes on (MAX_ARG_STRLEN, 32 pages of 4 KiB)."""

CORES = os.cpu_count() or 1
"""Looked up once: the kernel is asked by a file."""

QUIET = {
    "LANG": "C.UTF-8",
    "TERM": "dumb",
    "CI": "1",
    # A command that asks a question hangs for ever: stdin is empty, and nothing may open a pager or an editor.
    "PAGER": "cat",
    "GIT_PAGER": "cat",
    "GIT_EDITOR": "true",
    "EDITOR": "true",
    "VISUAL": "true",
    "GIT_TERMINAL_PROMPT": "0",
    "DEBIAN_FRONTEND": "noninteractive",
    "PIP_NO_INPUT": "1",
    "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    # What was printed before a time-out must be there, and a test run must not leave __pycache__ to be committed.
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
"""The work tree belongs to another user than /git does; git refuses that unless it is told.  A test that commits in a
repository of its own needs a name; no commit of the task is made there."""

USER = "agent"


def accounts(uid: int, gid: int, home: str, shell_path: str) -> dict[str, bytes]:
    """/etc/passwd and /etc/group with the one user there is: `getpwuid`, `whoami`, `os.userInfo()` ask for it."""
    lines = {f"{USER}:x:{uid}:{gid}:{USER}:{home}:{shell_path}": uid, "root:x:0:0:root:/root:/bin/sh": 0}
    # Other groups that the user is in have no number inside and show as this one; `id` fails over one without a name.
    groups = {f"{USER}:x:{gid}:": gid, "root:x:0:": 0} | ({"nogroup:x:65534:": 65534} if gid != 65534 else {})
    return {
        "/etc/passwd": _known(lines, uid),
        "/etc/group": _known(groups, gid),
    }


def _known(lines: Mapping[str, int], own: int) -> bytes:
    """The lines as a file; root's only where it is somebody else."""
    return "".join(f"{line}\n" for line, number in lines.items() if number == own or own != 0).encode()


ETC_OFFLINE = {
    "/etc/hosts": b"127.0.0.1\tlocalhost sandbox\n::1\tlocalhost\n",
    "/etc/nsswitch.conf": b"passwd: files\ngroup: files\nhosts: files\n",
}
"""`localhost` still has a name, and any other name fails at once instead of after a time-out: the proxy of the
sandbox looks names up."""

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
"""Public files that ordinary programs look up by their fixed names (security facts 5.2 has the first two)."""


def inside(
    uuid: str, *, home: str, tmp: str, path: str, shell_path: str, extra: Mapping[str, str] | None = None
) -> dict[str, str]:
    """The whole environment of a command; `extra` is the caller's and wins, except over the mark."""
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
    """The shell that command lines are written for: bash where there is one."""
    for candidate in ("/bin/bash", "/usr/bin/bash", "/usr/local/bin/bash"):
        if Path(candidate).exists():
            return candidate
    return "/bin/sh"


def search_path(interpreter: str | None) -> str:
    """PATH: what an administrator put into /usr/local first, then the interpreter outside /usr, then the system's."""
    middle = [f"{interpreter}/bin"] if interpreter else []
    return ":".join(["/usr/local/bin", *middle, "/usr/bin", "/bin", "/usr/local/sbin", "/usr/sbin", "/sbin"])


def limited(command: str, limits: Limits, timeout: float, *, processes: bool, shell_path: str) -> list[str]:
    """The argument list that sets the limits and becomes `shell -c command`.

    The limits are set by `ulimit` of /bin/sh, *inside*: so they bind neither bubblewrap nor this process, need no
    code between fork and exec, and since Linux 5.14 the number of processes counts within the sandbox's own user
    namespace.  `-d` (RLIMIT_DATA) counts memory that can be written; `-v` would end every program that reserves
    address space it never touches (node, Go, the JVM).  CPU is what all cores can burn until the time-out.
    ToolError for a command line that no kernel passes on.
    """
    size = len(command.encode("utf-8", "surrogateescape"))
    if size > LONGEST:
        raise ToolError(
            f"the command line has {size} bytes, at most {LONGEST} can be run; "
            "write a script with write_file and run that"
        )
    if "\0" in command:
        raise ToolError("the command line holds a NUL byte; take it out")
    wanted = {"-c": 0, "-t": math.ceil(timeout) * CORES + 1}
    if isinstance(limits.memory, int) and limits.memory:
        wanted["-d"] = max(1, limits.memory // 1024)
    if limits.file_size:
        wanted["-f"] = max(1, limits.file_size // 512)
    lines = [_ulimit(flag, value) for flag, value in wanted.items()]
    if processes and limits.processes:
        # bash and ash say -u, dash says -p.
        lines.append(f"{{ {_ulimit('-u', limits.processes)} || {_ulimit('-p', limits.processes)}; }}")
    script = " && ".join(lines) + ' && exec "$@"'
    return ["/bin/sh", "-c", script, "sh", shell_path, "-c", command]


def _ulimit(flag: str, value: int) -> str:
    """Set one limit; where that fails a lower one must be in force already, else the command is not run."""
    lower = f'[ "$(ulimit -H {flag} 2>/dev/null || echo unlimited)" != unlimited ]'
    return f"{{ ulimit {flag} {value} 2>/dev/null || {lower}; }}"
