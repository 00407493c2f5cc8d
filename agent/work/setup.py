"""Installs the dependencies of a repository on its base commit; the result is cached, and copied into each task.

The set-up command `workspace.setup.command` runs in a scratch tree that holds only the base commit. The caller passes a
function `run`, which isolates the set-up command; the command never receives a secret. The results of the set-up
command (its home folder and untracked files) are cached under `base_dir/setup/{key}/` and *copied*, so that no task can
change the dependencies of another task. A failed set-up is reported and not cached. Without a sandbox, the command runs
in the task's own tree instead, and nothing is cached. docs/security.md, "What tasks share", has the reasons.
"""

from __future__ import annotations

import fnmatch
import hashlib
import os
import platform
import posixpath
import stat
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from agent import clock, durable_files, filetree, treecopy
from agent.config import host_allowlist
from agent.config.url_passwords import shown_command
from agent.errors import ConfigError, RulesRefused, SetupFailed, WorkError
from agent.gitcmd import fields_of, git
from agent.sandbox import sandbox_user
from agent.work import gitdir, setup_outage, untrusted_tree
from agent.work.verify import tail

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from agent.config.host_allowlist import AllowedHost
    from agent.config.sections import Setup
    from agent.config.settings import Settings
    from agent.filetree import WalkedEntry
    from agent.values import Finished
    from agent.work.checkout import Checkout
    from agent.work.mirror import Mirror
    from agent.work.workspace import Workspace

    _Names = dict[str, "_Names"]
    Run = Callable[[str, Path, Path, tuple[AllowedHost, ...], Mapping[str, str], float], Finished]

VERSION = 3
"""The version of the content of cached set-ups; it must be increased when the meaning of that content changes."""

OS_RELEASE = Path("/etc/os-release")

MANY = 1000


@dataclass(frozen=True, slots=True)
class SetupReport:
    """The result of a set-up.

    - `ok`: False if the command failed, or left a tree that git must not read.
    - `cached`: whether the result came from the cache or was in the task already, so that no command ran.
    - `note`: one line for a person about the result.
    - `output`: the end of the command's output.
    - `changed`: tracked files that the command changed; these changes are not copied into the task.
    - `passing`: whether the failure is temporary: the network was unavailable, or this host lacked a resource.
    """

    ok: bool
    note: str
    cached: bool = False
    command: str = ""
    duration: float = 0.0
    output: str = ""
    changed: tuple[str, ...] = ()
    passing: bool = False


def prepare(
    settings: Settings,
    mirror: Mirror,
    workspace: Workspace,
    run: Run,
    *,
    home: Path,
    relocatable: bool = True,
    secrets: Sequence[str] = (),
) -> SetupReport:
    """Install the repository's dependencies into the workspace and `home`.

    `run(command, tree, home, network, env, timeout)` runs an isolated set-up command, with `tree` and `home` mounted at
    the paths of a task's own tree and home, and with access to the hosts of `network`. `relocatable` is False if the
    task's commands see the tree and home at other paths (no sandbox): then the command runs in the task's own tree and
    nothing is cached, because installed files contain the path of their folder. Raises ConfigError if
    `workspace.setup.env` contains one of `secrets`.
    """
    section = settings.workspace.setup
    if section is None:
        return SetupReport(ok=True, note="no set-up is configured")
    leaked = sorted(name for name, value in section.env.items() if any(secret in value for secret in secrets if secret))
    if leaked:
        raise ConfigError(f"workspace.setup.env: {', '.join(leaked)} holds a declared secret; a set-up never gets one")
    if workspace.base_commit is None:
        return SetupReport(ok=True, note="the repository is empty: nothing to set up")
    if workspace.state.setup:
        return SetupReport(ok=True, note="the set-up is in place", cached=True, command=section.command)
    if not relocatable:
        return _in_place(section, workspace, run, home)
    hosts = settings.setup_hosts(section)
    key = cache_key(section, mirror, workspace, hosts)
    entry, report = _cached(section, workspace, run, key, hosts)
    if report.ok:
        _copy(entry, workspace.tree, home, workspace)
        _exclude(workspace, _unknown_in(entry))
        durable_files.sync_tree(workspace.context_dir)
        workspace.update_state(setup=key)
    return report


def copy_setup(
    settings: Settings, workspace: Workspace, run: Run, place: Checkout, commit: str, *, relocatable: bool = True
) -> None:
    """Copy the set-up into a clean checkout of `commit`, in the state in which the set-up command left it, without
    later changes by the task's commands. Raises SetupFailed if the set-up must be built again and that fails.

    In a sandbox, the copied set-up comes from the cache. Without a sandbox no set-up is cached, so the command runs
    again, on the base commit.
    """
    section = settings.workspace.setup
    if section is None or workspace.base_commit is None:
        return
    if not relocatable:
        place.switch(workspace.base_commit)
        done = run(section.command, place.tree, place.home, (), dict(section.env), section.timeout)
        _must_be_ok(_report(section, done, [], online=True))
        place.switch(commit)
        return
    hosts = settings.setup_hosts(section)
    key = workspace.state.setup
    if not (_place(workspace) / key / "done.json").exists():  # `cleanup` has removed this set-up
        key = cache_key(section, workspace.mirror, workspace, hosts)
    entry, report = _cached(section, workspace, run, key, hosts)
    _must_be_ok(report)
    _copy(entry, place.tree, place.home, workspace)


def _place(workspace: Workspace) -> Path:
    return workspace.mirror.base_dir / "setup"


def _cached(section: Setup, workspace: Workspace, run: Run, key: str, hosts: Sequence[str]) -> tuple[Path, SetupReport]:
    """(path of the cached set-up, report); the set-up is built if the cache does not have it."""
    top = durable_files.make_dir(_place(workspace), durable_files.passable())
    entry = top / key
    with durable_files.locked(top / f".{key}.lock"):
        if not (entry / "done.json").exists():
            return entry, _build(section, workspace, run, entry, hosts)
        os.utime(entry / "done.json")  # the time of use, by which `cleanup` keeps this set-up
    note = "the set-up was copied from the cache"
    return entry, SetupReport(ok=True, note=note, cached=True, command=section.command)


def _must_be_ok(report: SetupReport) -> None:
    if not report.ok:
        message = f"`workspace.setup`, which the check needs, did not work: {report.note}\n\n{report.output}"
        raise SetupFailed(message, passing=report.passing)


def cache_key(section: Setup, mirror: Mirror, workspace: Workspace, hosts: Sequence[str] = ()) -> str:
    """A hash of everything that a cached set-up depends on, as 32 hex digits: repository, command, reachable `hosts`,
    environment, operating system, and the base commit or, in its place, the files that `cache_key_files` names.

    The base commit is included because a command may read any file of the tree (`sh setup.sh`), and metadata of the
    commit (a version made of tags, its message).  With `cache_key_files` the user declares that the command reads only
    the files that match these patterns.  The program trusts the declaration by `cache_key_files` only for the newest
    commit of the default branch: anyone with push access may have written any other commit, even one of a merged
    branch, since nobody reviews each single commit.
    """
    facts: dict[str, Any] = {
        "version": VERSION,
        "machine": platform.machine(),
        "system": _system(),
        "repository": str(mirror.path.relative_to(mirror.base_dir)),
        "command": section.command,
        "network": sorted(hosts) or False,
        "env": dict(section.env),
    }
    default = mirror.default_branch() if section.cache_key_files else None
    if default is not None and workspace.base_commit == mirror.commit_of(default):
        facts |= {"branch": default, "files": _key_files(section.cache_key_files, workspace)}
    else:
        facts["commit"] = workspace.base_commit
    return hashlib.sha256(orjson.dumps(facts, option=orjson.OPT_SORT_KEYS)).hexdigest()[:32]


def _key_files(patterns: Sequence[str], workspace: Workspace) -> list[list[str]]:
    """[path in hexadecimal, mode and object name] of each file of the base commit that matches a pattern."""
    done = git("ls-tree", "-r", "-z", str(workspace.base_commit), git_dir=workspace.git_dir)
    files = []
    for line in fields_of(done.output):
        meta, _, path = line.partition("\t")
        if any(_matches(path, pattern) for pattern in patterns):
            files.append([path.encode("utf-8", "surrogateescape").hex(), meta])
    return files


def _system() -> str:
    """The operating system and Python version, since installed files may be built for the libraries of this system and
    for this Python."""
    try:
        release = OS_RELEASE.read_text("utf-8", "replace")
    except OSError:
        release = ""
    return f"{sys.base_prefix} {platform.python_version()}\n{release}"


def _matches(path: str, pattern: str) -> bool:
    return fnmatch.fnmatchcase(path if "/" in pattern else posixpath.basename(path), pattern.lstrip("/"))


def _build(section: Setup, workspace: Workspace, run: Run, entry: Path, hosts: Sequence[str]) -> SetupReport:
    """Run the set-up command on the base commit in a scratch folder; a successful result becomes the folder `entry` by
    a rename."""
    temporary = entry.with_name(f".{entry.name}.tmp")
    untrusted_tree.remove(temporary)
    sandbox_user.share(durable_files.make_dir(temporary), workspace.owner_uid)
    scratch, home = durable_files.make_dir(temporary / "tree"), durable_files.make_dir(temporary / "home")
    index = {"GIT_INDEX_FILE": str(temporary / "index")}
    places: dict[str, Any] = {"git_dir": workspace.git_dir, "work_tree": scratch, "env": index}
    try:
        git("read-tree", "--reset", "-u", str(workspace.base_commit), timeout=1800, **places)
        untrusted_tree.write_gitfile(scratch)
        if workspace.owner_uid is not None:
            untrusted_tree.change_owner(scratch, workspace.owner_uid)
            untrusted_tree.change_owner(home, workspace.owner_uid)
        network = host_allowlist.parse_all(hosts)
        done = run(section.command, scratch, home, network, dict(section.env), section.timeout)
        try:
            report = _report(section, done, _changed(scratch, workspace, index), online=bool(hosts))
        except RulesRefused as refused:
            return _unfit(section, done, refused)
        if report.ok:
            tracked = _by_folder(fields_of(git("ls-files", "-z", **places).output))
            unknown = [name for name in _unknown(scratch, workspace, index) if not _holds(tracked, name)]
            facts = {
                "command": shown_command(section.command),
                "base_commit": workspace.base_commit,
                "created_at": clock.stamp(),
                "unknown": [name.encode("utf-8", "surrogateescape").hex() for name in unknown],
            }
            try:
                _sift(scratch, tracked)
                _sift(home, {})
            except OSError as error:
                raise WorkError(f"what `workspace.setup` left cannot be cleared up: {error}") from error
            (temporary / "index").unlink()  # ours
            durable_files.write_file(temporary / "done.json", orjson.dumps(facts))
            durable_files.sync_tree(temporary)
            untrusted_tree.remove(entry)
            durable_files.move_dir(temporary, entry)
            entry.chmod(0o700)
        return report
    finally:
        untrusted_tree.remove(temporary)


def _in_place(section: Setup, workspace: Workspace, run: Run, home: Path) -> SetupReport:
    """Run the set-up command in the task's own tree, since there is no sandbox. The command is skipped if the tree no
    longer equals the base commit. Tracked files that the command changed are put back."""
    if workspace.head() != workspace.base_commit or workspace.uncommitted():
        note = "the set-up runs on the base commit only, and this work tree holds other work: skipped"
        return SetupReport(ok=True, note=note, command=section.command)
    durable_files.make_dir(home)
    done = run(section.command, workspace.tree, home, (), dict(section.env), section.timeout)
    try:
        changed = _changed(workspace.tree, workspace, {})
    except RulesRefused as refused:
        return _unfit(section, done, refused)
    report = _report(section, done, changed, online=True)
    if changed:
        names = b"".join(os.fsencode(name) + b"\0" for name in changed)
        places: dict[str, Any] = {"git_dir": workspace.git_dir, "work_tree": workspace.tree}
        git("checkout-index", "-f", "-u", "-z", "--stdin", stdin=names, **places)
    if report.ok:
        _exclude(workspace, _unknown(workspace.tree, workspace, {}))
        workspace.update_state(setup="in place")
    return report


def _report(section: Setup, done: Finished, changed: list[str], *, online: bool) -> SetupReport:
    """The report of a finished set-up command; `online`: the command had network access, so a retry may help."""
    if done.why:
        note = f"the set-up was {done.why}"
    elif done.timed_out:
        note = f"the set-up was ended after {done.duration:.0f} s (workspace.setup.timeout)"
    elif done.returncode != 0:
        note = f"the set-up failed with exit code {done.returncode}"
    else:
        note = f"the set-up ran in {done.duration:.1f} s"
    if changed:
        note += f"; it changed {len(changed)} tracked file(s), which are not carried over"
    ok = done.returncode == 0 and not done.timed_out
    refused = tuple(one.refused for one in done.contacts if one.refused)
    network = not ok and online and not refused and setup_outage.is_of_the_network(done.output)
    starved = not ok and setup_outage.is_of_the_host(done.output)
    if network:
        note += ": somebody on the network was not reached"
    elif refused and not ok:
        note += f": {'; '.join(refused[:5])}; name what it needs in workspace.setup.network"
    elif starved:
        note += ": this host had no memory, process or open file for it"
    return SetupReport(
        ok=ok,
        note=note,
        passing=network or starved,
        command=section.command,
        duration=done.duration,
        output=tail(done.output),
        changed=tuple(untrusted_tree.shown(name) for name in changed),
    )


def _unfit(section: Setup, done: Finished, refused: RulesRefused) -> SetupReport:
    """The report of a set-up that left a tree which git must not read."""
    note = f"what the set-up left is refused: {refused}"
    return SetupReport(ok=False, note=note, command=section.command, duration=done.duration, output=tail(done.output))


def _changed(work_tree: Path, workspace: Workspace, env: Mapping[str, str]) -> list[str]:
    """Tracked files that the set-up command changed or removed."""
    places: dict[str, Any] = {"git_dir": workspace.git_dir, "work_tree": work_tree, "env": env}
    git("update-index", "-q", "--really-refresh", "--ignore-submodules", check=False, timeout=600, **places)
    done = git("diff-files", "-z", "--name-only", "--no-renames", "--ignore-submodules=all", timeout=600, **places)
    return fields_of(done.output)


def _unknown(work_tree: Path, workspace: Workspace, env: Mapping[str, str]) -> list[str]:
    """New files of the set-up that no ignore rule matches: a commit must not include them as work of the task. If there
    are more than MANY such files, the path of a wholly new folder replaces the paths of its files."""
    places: dict[str, Any] = {"git_dir": workspace.git_dir, "work_tree": work_tree, "env": env}
    done = git("ls-files", "-z", "--others", "--exclude-standard", check=False, timeout=600, **places)
    names = fields_of(done.output)
    if len(names) > MANY:
        done = git(
            "ls-files", "-z", "--others", "--exclude-standard", "--directory", check=False, timeout=600, **places
        )
        names = fields_of(done.output)
    return [name for name in names if name != ".git"]


def _exclude(workspace: Workspace, names: Iterable[str]) -> None:
    gitdir.write_ignored(workspace.git_dir, [gitdir.exclude_line(name) for name in names if "\n" not in name])


def _sift(top: Path, tracked: _Names) -> None:
    """Remove everything from a set-up's result that may not be copied: tracked files, any `.git`, and FIFOs, sockets
    and devices.

    The set-up command wrote the tree, so the tree is untrusted. A symlink in place of a tracked folder is removed and
    not followed.
    """
    known: list[_Names | None] = [tracked]
    for entry in filetree.walk(top, repair=True):
        here = known[entry.depth]
        below = here.get(entry.name) if here is not None else None
        if entry.left:
            _leave(entry, tracked=bool(below))
        elif untrusted_tree.is_git_name(entry.name):
            entry.enter = False
            filetree.remove(entry.name, within=entry.folder)
        elif entry.is_folder:
            known[entry.depth + 1 :] = [below]
        elif below is not None or not (entry.is_file or entry.is_link):
            os.unlink(entry.name, dir_fd=entry.folder)
        elif entry.is_file and not entry.status.st_mode & stat.S_IRUSR:
            filetree.grant(entry.name, entry.folder, stat.S_IRUSR, seen=entry.status)


def _leave(entry: WalkedEntry, *, tracked: bool) -> None:
    """Finish a folder after its entries: a folder that the repository also has is removed if it is empty now; any other
    folder gets its old mode back, with read and search permission for its owner added."""
    with suppress(OSError):  # `rmdir` fails if the folder has files of the set-up; then the folder stays
        if tracked:
            os.rmdir(entry.name, dir_fd=entry.folder)
            return
    mode = stat.S_IMODE(entry.status.st_mode)
    if mode & stat.S_IRWXU != stat.S_IRWXU:
        mode |= stat.S_IRUSR | stat.S_IXUSR
        filetree.grant(entry.name, entry.folder, mode, only=True, seen=entry.status)


def _by_folder(paths: Iterable[str]) -> _Names:
    """Paths as nested dicts: the value for a folder is the dict of its entries, the value for a file an empty dict."""
    top: _Names = {}
    for path in paths:
        here = top
        for part in path.split("/"):
            here = here.setdefault(part, {})
    return top


def _holds(tracked: _Names, path: str) -> bool:
    """Whether the repository has a file or folder at the path `path`."""
    here: _Names | None = tracked
    for part in path.rstrip("/").split("/"):
        here = here.get(part) if here is not None else None
    return here is not None


def _copy(entry: Path, work_tree: Path, home: Path, workspace: Workspace) -> None:
    """Copy a cached set-up to a temporary folder of the task, then move it into `work_tree` and `home`; existing files
    are never overwritten. Raises WorkError if a file cannot be copied."""
    staging = workspace.context_dir / ".setup.tmp"
    untrusted_tree.remove(staging)
    durable_files.make_dir(staging)
    durable_files.make_dir(home)
    copy = treecopy.Copy(workspace.owner_uid)
    for name in ("tree", "home"):
        copy.tree(entry / name, staging / name)
    if copy.missed:
        raise WorkError(f"the set-up cannot be copied from {entry}: {'; '.join(copy.missed[:5])}")
    if workspace.owner_uid is not None:
        untrusted_tree.change_owner(home, workspace.owner_uid)
    treecopy.merge(staging / "tree", work_tree)
    treecopy.merge(staging / "home", home)
    untrusted_tree.remove(staging)
    os.utime(entry / "done.json")


def _unknown_in(entry: Path) -> list[str]:
    """The files of a cached set-up that no ignore rule of the repository matches."""
    facts = orjson.loads((entry / "done.json").read_bytes())
    return [bytes.fromhex(name).decode("utf-8", "surrogateescape") for name in facts["unknown"]]
