"""The one way in which this program starts git: hardened, without a terminal, with nothing of the user's set-up.

It is not a git library: it knows no repository layout, only how a git process may be started beside a hostile work
tree (security facts: section 4.4).  No system, user or discovered configuration is read, no hook and no monitor runs,
no prompt appears, `ext::` and other helpers are refused, paths are literal and unquoted.  The caller names the git
directory and the work tree; git is started in `/` and never discovers one.  Who writes a commit is given per call.
Beside a work tree git runs under limits: the files that it reads as rules are looked at before (`git_guard.py`), its
memory is bounded, and it ends when the task is told to stop (`step.hearing`).
A credential travels in an anonymous file that only that one git and its credential helper can read: it is in no
argument list, no address, no environment and no file of a repository.  Called by `work` and by `doctor`.
"""

from __future__ import annotations

import os
import re
import shutil
from dataclasses import dataclass, field
from functools import cache, wraps
from pathlib import Path
from typing import TYPE_CHECKING, ParamSpec, Self, cast
from urllib.parse import urlsplit

from agent import clock, git_guard, git_locks, proc, step
from agent.errors import DiskError, GitError, GitKilled, GitStarved, StopHeard, SurroundingsError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from agent.values import Finished

MINIMUM = (2, 34)
"""The oldest git that has every option used here (Ubuntu 22.04 has 2.34, Debian 12 has 2.39)."""

CAP = 256 << 20
"""Bytes of output that are kept.  More is an error, never a silently shortened answer."""

FATAL = 128
"""What git ends with when it can do nothing more (usage.c, `die`)."""

MEMORY = 2 << 30
SHARE = 4
LEAST = 512 << 20
"""Bytes that a git beside a work tree may write to: a quarter of the machine's, within these two.  Counted is what it
allocates (RLIMIT_DATA).  Its maps of packs are no part: they are pages of files, which the kernel drops when it needs
them, and RLIMIT_AS would end git in every large repository."""

STDERR_LINES = 12
STDERR_BYTES = 16 << 10

HARDENING = (
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "core.untrackedCache=false",
    "core.quotepath=false",
    "core.autocrlf=false",
    "core.safecrlf=false",
    "core.symlinks=true",
    "core.protectHFS=true",
    "core.protectNTFS=true",
    "safe.bareRepository=explicit",
    "protocol.ext.allow=never",
    "submodule.recurse=false",
    "fetch.recurseSubmodules=false",
    "gc.auto=0",
    "maintenance.auto=false",
    "advice.detachedHead=false",
    "credential.helper=",  # empty: forget every helper that was named before
    "http.lowSpeedLimit=1",
    "http.lowSpeedTime=120",
)

ENVIRONMENT = {
    "HOME": "/nonexistent",  # no ~/.gitconfig, ~/.config/git/{ignore,attributes}, ~/.netrc
    "LC_ALL": "C",
    "TZ": "UTC",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_ASKPASS": "",
    "GIT_EDITOR": ":",
    "GIT_PAGER": "cat",
    "GIT_LITERAL_PATHSPECS": "1",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_ALLOW_PROTOCOL": "file:git:http:https:ssh",
    "GIT_SSH_COMMAND": "ssh -o BatchMode=yes",
}

_USERINFO = re.compile(r"(?<=://)[^/\s@'\"]+@")
_FULL = re.compile(
    r"^(?!remote:).*(No space left on device|Out of diskspace|unable to write new.index.file|Disk quota exceeded"
    r"|File too large)",
    re.MULTILINE,
)
_MEMORY = re.compile(r"^(fatal|error): .*(out of memory|cannot allocate memory)", re.IGNORECASE | re.MULTILINE)
_STARVED = re.compile(
    r"^(?!remote:).*(cannot allocate memory|out of memory|resource temporarily unavailable|too many open files"
    r"|cannot fork|fork failed|unable to create (?:\w+ )*thread|unable to create threaded|cannot start (?:\w+ )*thread"
    r"|mmap failed)",
    re.IGNORECASE | re.MULTILINE,
)
"""What git says where the host refuses it something: strerror(3) of ENOMEM, EAGAIN, EMFILE and ENFILE, and git's own
words (wrapper.c, run-command.c, builtin/pack-objects.c, builtin/index-pack.c).  A line of the other side is not
ours."""
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\x80-\x9f]")


_BY_HAND = re.compile(
    r"(Another git process seems to be running|an editor opened by 'git commit'|are terminated then try again"
    r"|may have crashed in this repository earlier|remove the file manually to continue)"
)
"""Git's advice about a lock (lockfile.c), which is not for the people who read our messages."""

_DIED = re.compile(
    r"died of signal \d+|unexpected disconnect while reading|the remote end hung up unexpectedly|early eof"
    r"|invalid index-pack output|index-pack failed|error reading section header|could not read from remote repository",
    re.IGNORECASE,
)
_ANSWERED = re.compile(r"denied|does not appear|not found|host key|remote: ", re.IGNORECASE)
"""What git says when a child of its own, or the other half of a transfer, was killed."""

REPEATABLE = frozenset(
    (
        *("add", "cat-file", "check-attr", "check-ignore", "check-ref-format", "checkout-index", "commit-tree"),
        *("diff", "diff-files", "diff-index", "diff-tree", "fetch", "for-each-ref", "hash-object", "init", "log"),
        *("ls-files", "ls-remote", "ls-tree", "merge-base", "merge-tree", "read-tree", "repack", "rev-list"),
        *("rev-parse", "show-ref", "status", "symbolic-ref", "update-index", "version", "write-tree"),
    )
)
"""Commands that a second run does no harm to, wherever the first was cut off.  Not `push` and `update-ref`: the first
may have happened; whoever calls them looks."""

PAUSES = (0.1, 1.0)
"""Seconds before a second and a third try."""

_P = ParamSpec("_P")


@dataclass(frozen=True, slots=True)
class Credentials:
    """A user name and a password or token, for one address (scheme, host and port) and for no other."""

    url: str
    username: str
    password: str = field(repr=False)

    def scope(self) -> str:
        """`https://host:port`, what git compares; a redirect to another host gets nothing."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"

    def lines(self) -> bytes:
        """What a credential helper answers."""
        if any(sign in self.username + self.password for sign in "\r\n\0"):
            raise GitError(f"the credentials for {self.scope()} contain a line break or NUL; correct the token")
        return f"username={self.username}\npassword={self.password}\n".encode()


@dataclass(frozen=True, slots=True)
class Identity:
    """Who writes a commit."""

    name: str
    email: str

    def environment(self, when: float) -> dict[str, str]:
        """GIT_AUTHOR_* and GIT_COMMITTER_*; `when` is seconds since 1970.  Signs that git refuses are taken out."""
        name = re.sub(r"[<>\s\x00-\x1f\x7f]+", " ", self.name).strip(" .,:;\"'\\") or "makimono"
        email = re.sub(r"[<>\s\x00-\x1f\x7f]+", "", self.email) or "makimono@localhost"
        values = {"NAME": name, "EMAIL": email, "DATE": f"@{int(when)} +0000"}
        return {f"GIT_{role}_{key}": value for role in ("AUTHOR", "COMMITTER") for key, value in values.items()}


@cache
def program() -> str:
    """The absolute path of git."""
    found = shutil.which("git") or shutil.which("git", path="/usr/local/bin:/usr/bin:/bin")
    if found is None:
        raise SurroundingsError("git is not installed or not on PATH; install it, for example: apt-get install git")
    return os.path.abspath(found)  # noqa: PTH100 - a symlink must stay one


@cache
def version() -> tuple[int, ...]:
    """The version of git, like (2, 39, 5)."""
    text = git("version").output.decode("utf-8", "replace")
    match = re.search(r"\d+(\.\d+)+", text)
    if match is None:
        raise GitError(f"git version answered {text.strip()!r}, which has no version in it")
    return tuple(int(part) for part in match[0].split("."))


def _tried_again(once: Callable[_P, Finished]) -> Callable[_P, Finished]:
    """`git`, with its tries after one that was killed or met a dead one's lock."""

    @wraps(once)
    def tried(*args: _P.args, **options: _P.kwargs) -> Finished:
        git_dir = cast("Path | None", options.get("git_dir"))
        for pause in (*PAUSES, None):
            try:
                return once(*args, **options)
            except GitError as error:
                if pause is None or not _again(cast("tuple[str, ...]", args), error, git_dir):
                    raise
                clock.sleep(pause)
        raise AssertionError  # the last try returns or raises

    return tried


@_tried_again
def git(
    *args: str,
    git_dir: Path | None = None,
    work_tree: Path | None = None,
    env: Mapping[str, str] | None = None,
    stdin: bytes | None = None,
    timeout: float = 120,
    check: bool = True,
    cap: int = CAP,
    config: Sequence[str] = (),
    credentials: Credentials | None = None,
    spool: Path | None = None,
    pass_fds: Sequence[int] = (),
    paths: Iterable[str] | None = None,
    hears: bool | None = None,
) -> Finished:
    """Run git; `output` of the result is its standard output alone.

    `env` is added to the fixed environment (identity, proxies, GIT_INDEX_FILE), `config` are more `key=value`, `spool`
    gets the whole output when it is longer than what is kept (`dropped`).  GitError with the last lines of standard
    error when it fails (unless `check` is False), when it ran longer than `timeout` seconds or was stopped, or when it
    printed more than `cap` bytes and no `spool` holds the rest.  With a `work_tree` RulesRefused when git must not
    look at it (`paths`: it looks at the rules above these only), and GitStarved when git wants too much memory,
    whatever `check` is.  StopHeard when the task was told to stop while a git that `hears` ran (None: one with a work
    tree does).  GitKilled when a signal from outside ended it, and GitStarved when this host refused it memory, a
    process or a file, whatever `check` is.  DiskError when the disk is full here.

    A git that was killed, itself or its children, is run again where that does no harm (REPEATABLE), and so is one that
    met the lock of a dead one inside `git_dir`.
    """
    binary = program()
    settings = [*HARDENING, *config]
    stop = step.told if hears or (hears is None and work_tree is not None) else None
    if work_tree is not None:
        git_guard.judge(work_tree, paths=paths, stop=stop)
    with _Anonymous() as errors, _Anonymous() as secret:
        if credentials is not None:
            proc_fd = f"/dev/fd/{secret.descriptor}"
            # Reopening by /dev/fd starts at the beginning, so that a second question is answered too.
            helper = f'!f() {{ test "$1" != get || cat {proc_fd}; }}; f'
            secret.write(credentials.lines())
            settings.append(f"credential.{credentials.scope()}.helper={helper}")
            pass_fds = (*pass_fds, secret.descriptor)
        argv = [binary]
        for setting in settings:
            argv += ["-c", setting]
        if git_dir is not None:
            argv.append(f"--git-dir={git_dir}")
        if work_tree is not None:
            argv.append(f"--work-tree={work_tree}")
        path = f"{os.path.dirname(binary)}:/usr/local/bin:/usr/bin:/bin"  # noqa: PTH120 - a string is wanted
        try:
            done = proc.run(
                [*argv, *args],
                env={**ENVIRONMENT, "PATH": path, **(env or {})},
                timeout=timeout,
                cwd="/",
                stdin=stdin,
                cap=2 * cap,  # proc keeps half at each end; the head must be whole up to `cap`
                spool=spool,
                spool_cap=1 << 50,
                errors=errors.descriptor,
                pass_fds=pass_fds,
                stop=stop,
                memory=memory() if work_tree is not None else None,
            )
        except OSError as error:
            raise SurroundingsError(f"git cannot be started: {error}") from error
        stderr = _last_lines(errors.tail(STDERR_BYTES), credentials)
    what = f"git {_subcommand(args)}"
    if done.timed_out:
        _unlock(git_dir, env)
        if stop is not None and done.duration < timeout:
            raise StopHeard(f"{what} was ended after {done.duration:.0f} s, because the task was told to stop")
        raise GitError(
            f"{what} was ended after {done.duration:.0f} s (limit {timeout:.0f} s): {stderr or 'no message'}"
        )
    if done.returncode < 0:  # also without `check`: no answer is not a negative one
        raise GitKilled(
            f"{what} was killed by signal {-done.returncode} (out of memory? see the system's log)",
            returncode=done.returncode,
        )
    if done.dropped and spool is None:
        raise GitError(f"{what} printed more than {cap} bytes")
    if done.returncode == FATAL and work_tree is not None and _MEMORY.search(stderr):
        raise GitStarved(
            f"{what} wanted more than the {memory() >> 20:,} MiB that it may have beside a work tree: {stderr}",
            returncode=done.returncode,
            stderr=stderr,
        )
    if done.returncode != 0 and _STARVED.search(stderr):  # nor is this an answer
        raise GitStarved(
            f"{what} was refused what it needs by this host (code {done.returncode}): {stderr}",
            returncode=done.returncode,
            stderr=stderr,
        )
    locked = done.returncode != 0 and git_dir is not None and git_locks.named(stderr, git_dir) is not None
    if (check or locked) and done.returncode != 0:
        if _FULL.search(stderr):
            why = (
                "a file may not become that large here (ulimit -f)"
                if "File too large" in stderr
                else "the disk is full"
            )
            raise DiskError(f"{what} failed, {why}; mend that and resume the task: {stderr}")
        raise GitError(
            f"{what} failed with code {done.returncode}: {stderr or 'no message'}",
            returncode=done.returncode,
            stderr=stderr,
        )
    return done


def _again(args: Sequence[str], error: GitError, git_dir: Path | None) -> bool:
    """Whether a git that failed is to be run again; the lock of a dead one is removed before."""
    lock = git_locks.named(error.stderr, git_dir) if git_dir is not None else None
    if lock is not None:
        return git_locks.remove(lock)
    return has_died(error) and _subcommand(args) in REPEATABLE


def has_died(error: GitError) -> bool:
    """Whether a git failed since it, a child of it, or the other half of a transfer was killed."""
    if isinstance(error, GitKilled):
        return True
    return _DIED.search(error.stderr) is not None and _ANSWERED.search(error.stderr) is None


@cache
def memory() -> int:
    """Bytes that a git beside a work tree may write to."""
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return max(LEAST, min(MEMORY, machine // SHARE))


def _unlock(git_dir: Path | None, env: Mapping[str, str] | None) -> None:
    """Remove the lock of the index that a git left which was ended here: the next one would refuse to work."""
    index = (env or {}).get("GIT_INDEX_FILE") or (git_dir / "index" if git_dir is not None else None)
    if index is not None:
        Path(f"{index}.lock").unlink(missing_ok=True)  # ours


class _Anonymous:
    """A file without a name, gone with its descriptor."""

    def __enter__(self) -> Self:
        self.descriptor = os.memfd_create("makimono", os.MFD_CLOEXEC)
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.descriptor)

    def write(self, data: bytes) -> None:
        os.write(self.descriptor, data)

    def tail(self, size: int) -> bytes:
        length = os.fstat(self.descriptor).st_size
        return os.pread(self.descriptor, size, max(0, length - size))


def _subcommand(args: Sequence[str]) -> str:
    return next((arg for arg in args if not arg.startswith("-")), "")


def _last_lines(data: bytes, credentials: Credentials | None) -> str:
    """The end of standard error, fit to be shown: no secret, no control sign, no progress."""
    text = data.decode("utf-8", "replace").replace("\r", "\n")
    text = _USERINFO.sub("***@", text)
    if credentials is not None and credentials.password:
        text = text.replace(credentials.password, "***")
    lines = [line.rstrip() for line in _CONTROL.sub("", text).split("\n") if line.strip() and not _BY_HAND.match(line)]
    return "\n".join(lines[-STDERR_LINES:])
