"""Builds the profile of bubblewrap as an argument list: the parts of the host that a command sees.

The functions of `profile.py` are pure, apart from looking at paths of the host; they start no process.
docs/security.md, "Commands" has the profile as a table. The root of the sandbox is minimal: a path that is not in the
profile does not exist inside. A minimal root is safer than a list of forbidden paths.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from agent.sandbox import base, environment
from agent.sandbox.network import socket_opener

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from agent.sandbox.base import Limits, Mounts

ISOLATION = (
    "--unshare-all",
    "--unshare-user",
    "--disable-userns",
    "--cap-drop",
    "ALL",
    "--die-with-parent",
    "--new-session",
    "--hostname",
    "sandbox",
)

STAGE = "/mnt"
"""The folder where the outer stage mounts the sources for the uid; this folder is part of every Linux, and only the one
command sees the mounts."""

TAKEN = (base.WORK, base.GIT, base.HOME, "/proc", "/dev", "/etc")
"""Paths that the sandbox itself uses: a host path that equals, contains or lies below one of these paths cannot be
mounted at its own path inside."""

MIRROR = "/mirror.git"

ROOT_FOLDERS = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")


@dataclass(slots=True)
class Sources:
    """Names under which the inner bubblewrap can open paths of the host.

    Without an outer bubblewrap (`staged` is False), the name of a path is the path itself. With staging, root's outer
    bubblewrap first binds each path at /mnt/N, because the uid of the inner bubblewrap has no access to a folder on the
    way (`/root`, a 0700 temporary folder).
    """

    staged: bool
    outer: list[str] = field(default_factory=list)
    count: int = 0

    def bind(self, path: Path | str, *, writable: bool = False) -> str:
        """The name under which the inner bubblewrap can open `path`."""
        if not self.staged:
            return str(path)
        name = f"{STAGE}/{self.count}"
        self.count += 1
        self.outer += ["--bind" if writable else "--ro-bind", str(path), name]
        return name


def stage(bwrap: str, setpriv: str, uid: int, groups: Sequence[int], sources: Sources, status: int) -> list[str]:
    """The outer command, which root runs: bind the sources, change permanently to `uid` with `groups`, run the command
    that follows.

    The outer command has a pid namespace of its own, so that all its processes die with its first process.
    PR_SET_PDEATHSIG is not enough: the kernel checks permissions for that signal, too, and root without capabilities
    may not send it to another uid. A pid namespace needs its own /proc: the inner bubblewrap looks up its child in
    /proc by the pid in this namespace, while the host's /proc shows other pids and may hide processes (hidepid).
    bubblewrap covers parts of the /proc that it mounts, and Linux lets a user namespace mount /proc only where a
    completely visible one exists. For the inner bubblewrap, the outer one therefore also mounts the host's /proc, which
    is completely visible, at /mnt/proc.
    """
    others = f"--groups={','.join(map(str, groups))}" if groups else "--clear-groups"
    become = [f"--reuid={uid}", f"--regid={uid}", others, "--no-new-privs", "--inh-caps=-all"]
    binds = ["--dev-bind", "/", "/", "--proc", "/proc", "--perms", "0755", "--tmpfs", STAGE]
    binds += ["--dev-bind", "/proc", f"{STAGE}/proc", *sources.outer]
    flags = ["--unshare-pid", "--die-with-parent", "--json-status-fd", str(status)]
    return [bwrap, *flags, *binds, "--", setpriv, *become, "--bounding-set=-all", "--"]


def clashes(path: Path | str) -> str | None:
    """The path of the sandbox itself that `path` equals, contains or lies below; None if `path` clashes with none."""
    wanted = Path(path)
    for place in TAKEN:
        if wanted.is_relative_to(place) or Path(place).is_relative_to(wanted):
            return place
    return None


def system(network: bool) -> list[str]:
    """The read-only parts of the system: /usr, the links into it, and a few public files of /etc; with `network` also
    the certificates."""
    found = ["--ro-bind", "/usr", "/usr"]
    for name in ROOT_FOLDERS:
        path = Path("/", name)
        if path.is_symlink():
            found += ["--symlink", str(path.readlink()), str(path)]
        elif path.is_dir():
            found += ["--ro-bind", str(path), str(path)]
    names = [*environment.ETC_ALWAYS, *(environment.ETC_TRUST if network else ())]
    # bubblewrap creates a missing parent folder with mode 0700; /etc must be accessible to other users.
    found += ["--perms", "0755", "--dir", "/etc"]
    for path in [Path("/etc", name) for name in names] + sorted(Path("/etc").glob("java-*-openjdk")):
        # The resolved path is mounted, because the target of a symlink may be missing inside the sandbox.
        if path.exists():
            found += ["--ro-bind", str(path.resolve()), str(path)]
    return found


def scratch(limits: Limits, sources: Sources, home: Path | None) -> list[str]:
    """The mounts of /proc, /dev and the writable folders beside the work tree; bubblewrap applies `--size` to the next
    `--tmpfs`."""

    def tmpfs(path: str, size: int | None) -> list[str]:
        return [*(["--size", str(size)] if size else []), "--perms", "0700", "--tmpfs", path]

    found = ["--proc", "/proc", "--dev", "/dev", *tmpfs("/dev/shm", limits.tmp_size), *tmpfs("/tmp", limits.tmp_size)]  # noqa: S108
    found += ["--perms", "0755", "--dir", "/var", "--symlink", "../tmp", "/var/tmp"]  # noqa: S108 - /var/tmp is a link to the tmpfs /tmp
    if home is None:
        return found + tmpfs(base.HOME, limits.home_size)
    return [*found, "--bind", sources.bind(home, writable=True), base.HOME]


def repository(mounts: Mounts, sources: Sources, data: Mapping[str, int]) -> list[str]:
    """The mounts of the work tree, its git directory and the mirror from which the git directory borrows objects."""
    found = ["--bind", sources.bind(mounts.work, writable=True), base.WORK]
    if mounts.git is not None:
        found += ["--ro-bind", sources.bind(mounts.git), base.GIT]
    if mounts.mirror is not None:
        place = str(mounts.mirror)
        if "alternates" in data:
            place = MIRROR
            found += ["--ro-bind-data", str(data["alternates"]), f"{base.GIT}/objects/info/alternates"]
        found += ["--ro-bind", sources.bind(mounts.mirror), place]
    return found


def files(mounts: Mounts, opening: bytes | None = None) -> dict[str, bytes]:
    """Small files that are created for each command, by their path inside the sandbox; `opening` is the opener program
    for network access.

    A mirror at a path that the sandbox itself uses (a base_dir below /work) is mounted at /mirror.git. In this case a
    small file that contains the path `/mirror.git/objects` covers the `alternates` file of the git directory.
    """
    found = {"/etc/gitconfig": environment.GITCONFIG, **environment.ETC_OFFLINE}
    if opening is not None:
        found[socket_opener.PLACE] = opening
    if mounts.git is not None and mounts.mirror is not None and clashes(mounts.mirror):
        found["alternates"] = f"{MIRROR}/objects\n".encode()
    return found


def variables(env: Mapping[str, str]) -> bytes:
    """The options that set the whole environment, in the form that bubblewrap reads from a descriptor (`--args`)."""
    words = [word for name, value in env.items() for word in ("--setenv", name, value)]
    return "".join(f"{word}\0" for word in words).encode("utf-8", "surrogateescape")


def arguments(
    bwrap: str,
    argv: Sequence[str],
    *,
    mounts: Mounts,
    limits: Limits,
    read_only: Sequence[Path],
    sources: Sources,
    data: Mapping[str, int],
    variables: int,
    network: bool,
    status: int,
    seccomp: int | None = None,
) -> list[str]:
    """The argument list for the whole inner command of the sandbox.

    `data` maps the paths of `files` to descriptors with their content.  bubblewrap writes its report to `status`, and
    reads the system call filter from `seccomp`, and the options of `variables(env)` from `variables`.  With `network`
    the certificates of this host are mounted too.
    """
    filtered = [] if seccomp is None else ["--seccomp", str(seccomp)]
    made: list[str] = []
    for place, descriptor in data.items():
        if place.startswith("/"):
            made += [
                "--perms",
                "0755" if place == socket_opener.PLACE else "0644",
                "--ro-bind-data",
                str(descriptor),
                place,
            ]
    bound: list[str] = []
    for path in dict.fromkeys((*read_only, *mounts.read_only)):
        bound += ["--ro-bind", sources.bind(path), os.fspath(path)]
    return [
        *(bwrap, *ISOLATION, *filtered, "--json-status-fd", str(status)),
        *system(network),
        *made,
        *scratch(limits, sources, mounts.home),
        *bound,
        *repository(mounts, sources, data),
        *("--chdir", base.WORK, "--remount-ro", "/dev", "--remount-ro", "/", "--clearenv"),
        *("--args", str(variables)),
        *("--", *argv),
    ]
