"""The bubblewrap profile: which parts of the host a command sees, as an argument list.

Pure but for looking at which paths exist; starts nothing.  It is the profile measured in the security facts (5.2)
with the changes of the design (section 10).  A minimal root beats a list of what is forbidden: what is not named
here is not there.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from agent.sandbox import base, surroundings
from agent.sandbox.network import opener

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
"""Where the outer stage shows sources to the uid; an empty folder on every Linux, and only this command sees it."""

TAKEN = (base.WORK, base.GIT, base.HOME, "/proc", "/dev", "/etc")
"""Places of the sandbox's own: a host path below one of them cannot stand at its own place inside."""

MIRROR = "/mirror.git"

ROOT_FOLDERS = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")


@dataclass(slots=True)
class Sources:
    """Names of host paths as bubblewrap can open them.

    Not staged they are the paths themselves.  Staged, root's outer bubblewrap binds each at /mnt/N first, because
    the uid that the inner one runs as cannot pass a folder on the way (`/root`, a 0700 temporary folder).
    """

    staged: bool
    outer: list[str] = field(default_factory=list)
    count: int = 0

    def of(self, path: Path | str, *, writable: bool = False) -> str:
        """The name of `path` for the inner bubblewrap."""
        if not self.staged:
            return str(path)
        name = f"{STAGE}/{self.count}"
        self.count += 1
        self.outer += ["--bind" if writable else "--ro-bind", str(path), name]
        return name


def stage(bwrap: str, setpriv: str, uid: int, groups: Sequence[int], sources: Sources, status: int) -> list[str]:
    """The outer command, run by root: bind the sources, become `uid` with `groups` for good, run what follows.

    It has processes of its own, so that all of it dies with its first: the signal that ends a child with its parent
    (PR_SET_PDEATHSIG) is checked like any other, and root without capabilities may not send it to another uid.  So it
    has a /proc of its own, too: the inner bubblewrap looks its child up there, by the number that it has in here, while
    the host's shows other numbers and may hide processes (hidepid).  bubblewrap covers parts of what it mounts; since
    Linux lets a user namespace mount /proc only where one is there whole, the host's stands at /mnt/proc.
    """
    others = f"--groups={','.join(map(str, groups))}" if groups else "--clear-groups"
    become = [f"--reuid={uid}", f"--regid={uid}", others, "--no-new-privs", "--inh-caps=-all"]
    binds = ["--dev-bind", "/", "/", "--proc", "/proc", "--perms", "0755", "--tmpfs", STAGE]
    binds += ["--dev-bind", "/proc", f"{STAGE}/proc", *sources.outer]
    flags = ["--unshare-pid", "--die-with-parent", "--json-status-fd", str(status)]
    return [bwrap, *flags, *binds, "--", setpriv, *become, "--bounding-set=-all", "--"]


def clashes(path: Path | str) -> str | None:
    """The place of the sandbox's own that `path` lies at or below, or that lies below it; None when there is none."""
    wanted = Path(path)
    for place in TAKEN:
        if wanted.is_relative_to(place) or Path(place).is_relative_to(wanted):
            return place
    return None


def system(network: bool) -> list[str]:
    """The read-only system: /usr, the links into it, the few public files of /etc, with `network` certificates."""
    found = ["--ro-bind", "/usr", "/usr"]
    for name in ROOT_FOLDERS:
        path = Path("/", name)
        if path.is_symlink():
            found += ["--symlink", str(path.readlink()), str(path)]
        elif path.is_dir():
            found += ["--ro-bind", str(path), str(path)]
    names = [*surroundings.ETC_ALWAYS, *(surroundings.ETC_TRUST if network else ())]
    # bubblewrap makes missing parents 0700; these two folders are made the way other users may pass.
    found += ["--perms", "0755", "--dir", "/etc"]
    for path in [Path("/etc", name) for name in names] + sorted(Path("/etc").glob("java-*-openjdk")):
        # Resolved: a link may lead to where nothing is inside.
        if path.exists():
            found += ["--ro-bind", str(path.resolve()), str(path)]
    return found


def scratch(limits: Limits, sources: Sources, home: Path | None) -> list[str]:
    """/proc, /dev and what is writable beside the work tree; `--size` belongs to the tmpfs after it."""

    def tmpfs(path: str, size: int | None) -> list[str]:
        return [*(["--size", str(size)] if size else []), "--perms", "0700", "--tmpfs", path]

    found = ["--proc", "/proc", "--dev", "/dev", *tmpfs("/dev/shm", limits.tmp_size), *tmpfs("/tmp", limits.tmp_size)]  # noqa: S108
    found += ["--perms", "0755", "--dir", "/var", "--symlink", "../tmp", "/var/tmp"]  # noqa: S108 - the same tmpfs
    if home is None:
        return found + tmpfs(base.HOME, limits.home_size)
    return [*found, "--bind", sources.of(home, writable=True), base.HOME]


def repository(mounts: Mounts, sources: Sources, data: Mapping[str, int]) -> list[str]:
    """The work tree, its git directory and the mirror that this borrows from."""
    found = ["--bind", sources.of(mounts.work, writable=True), base.WORK]
    if mounts.git is not None:
        found += ["--ro-bind", sources.of(mounts.git), base.GIT]
    if mounts.mirror is not None:
        place = str(mounts.mirror)
        if "alternates" in data:
            place = MIRROR
            found += ["--ro-bind-data", str(data["alternates"]), f"{base.GIT}/objects/info/alternates"]
        found += ["--ro-bind", sources.of(mounts.mirror), place]
    return found


def files(mounts: Mounts, opening: bytes | None = None) -> dict[str, bytes]:
    """The small files that are made for each command, by their place inside; `opening` is the program that opens the
    way to the network.

    A mirror whose own path is taken inside (a base_dir below /work) is shown at /mirror.git, and the file of the git
    directory that names it is covered by one that says so.
    """
    found = {"/etc/gitconfig": surroundings.GITCONFIG, **surroundings.ETC_OFFLINE}
    if opening is not None:
        found[opener.PLACE] = opening
    if mounts.git is not None and mounts.mirror is not None and clashes(mounts.mirror):
        found["alternates"] = f"{MIRROR}/objects\n".encode()
    return found


def arguments(
    bwrap: str,
    argv: Sequence[str],
    *,
    mounts: Mounts,
    limits: Limits,
    read_only: Sequence[Path],
    sources: Sources,
    data: Mapping[str, int],
    env: Mapping[str, str],
    network: bool,
    status: int,
    seccomp: int | None = None,
) -> list[str]:
    """The whole inner command.  `data` are descriptors of what `files` said, `status` takes bubblewrap's own report,
    from `seccomp` it reads the filter of system calls.  `network`: certificates are of use."""
    filtered = [] if seccomp is None else ["--seccomp", str(seccomp)]
    made: list[str] = []
    for place, descriptor in data.items():
        if place.startswith("/"):
            made += ["--perms", "0755" if place == opener.PLACE else "0644", "--ro-bind-data", str(descriptor), place]
    bound: list[str] = []
    for path in dict.fromkeys((*read_only, *mounts.read_only)):
        bound += ["--ro-bind", sources.of(path), os.fspath(path)]
    variables = [word for name, value in env.items() for word in ("--setenv", name, value)]
    return [
        *(bwrap, *ISOLATION, *filtered, "--json-status-fd", str(status)),
        *system(network),
        *made,
        *scratch(limits, sources, mounts.home),
        *bound,
        *repository(mounts, sources, data),
        *("--chdir", base.WORK, "--remount-ro", "/dev", "--remount-ro", "/", "--clearenv"),
        *variables,
        *("--", *argv),
    ]
