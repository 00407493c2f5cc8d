"""Runs git for the whole program: hardened, without a terminal, and without the configuration of the user.

`gitcmd.py` runs git safely on a hostile work tree (docs/security.md, "Git beside a work tree"); it does not know the
layout of a repository. Git is run so that it reads no system or user configuration, runs no hook and no file system
monitor, does not prompt, refuses `ext::` and other helpers, and treats paths literally. The caller of `gitcmd` names
the git directory and the work tree; git is started in `/` and does not search for a repository. The author of a commit
comes from the caller too, not from the configuration of git. On a work tree git runs under limits: the rules files are
checked first (`git_guard.py`), git's memory is bounded, and git is ended when the task shall stop
(`deadline.listening`). A credential is passed to git in an anonymous file that only this git process and its credential
helper can read. A credential for git is in no argument list, URL, environment or file of a repository.
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

from agent import cgroups, clock, deadline, git_guard, proc, stale_git_locks
from agent.errors import DiskError, GitError, GitKilled, GitStarved, HostError, StopHeard

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from agent.values import Finished

MINIMUM = (2, 34)
"""The oldest version of git that has every option that this program uses (Ubuntu 22.04 has 2.34, Debian 12 has
2.39)."""

WHOLE = 1 << 50
"""A maximum size, for a file that receives the whole output of git, that no output of git reaches."""
CAP = 256 << 20
"""The maximum number of bytes of git's output, if the caller of `git` gives no other maximum. More output of git than
the maximum is an error or goes to the file `spool`; output is not cut silently."""

FATAL = 128
"""The exit code of git after a fatal error (usage.c, `die`)."""

MEMORY = 2 << 30
SHARE = 4
LEAST = 512 << 20
MOST_SHARE = 2
"""The memory limit of git on a work tree is a quarter of the memory for this process (`cgroups.machine_memory`), but at
most MEMORY, at least LEAST, and not more than half of the memory for this process.

The memory limit of git counts allocations only (RLIMIT_DATA). The memory limit does not count maps of packs, since the
kernel can reclaim those pages; with a limit of the address space (RLIMIT_AS) git would fail in a large repository."""

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
    "credential.helper=",  # an empty value resets the list of credential helpers
    "http.lowSpeedLimit=1",
    "http.lowSpeedTime=120",
)

ENVIRONMENT = {
    # The value prevents git from reading ~/.gitconfig, ~/.config/git/{ignore,attributes} or ~/.netrc.
    "HOME": "/nonexistent",
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
    r"|cannot fork|fork failed|unable to create (?:\w+ ){0,4}thread|unable to create threaded"
    r"|cannot start (?:\w+ ){0,4}thread"
    r"|mmap failed)",
    re.IGNORECASE | re.MULTILINE,
)
"""Git's error texts for a lack of resources on this host: those of strerror(3) for ENOMEM, EAGAIN, EMFILE and ENFILE,
and git's own (wrapper.c, run-command.c, builtin/pack-objects.c, builtin/index-pack.c).  Lines that the remote host
sends (`remote: …`) do not count as git's error texts."""
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\x80-\x9f]")
_QUOTED = re.compile(r'"[^"\\]*+(?>(?:\\(?:[abfnrtv"\\]|[0-3][0-7]{2})[^"\\]*+)*)"')
_ESCAPE = re.compile(rb"\\([0-7]{3}|.)")
_SIGNS = {b"a": b"\a", b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t", b"v": b"\v"}


_BY_HAND = re.compile(
    r"(?:remote: )?(Another git process seems to be running|an editor opened by 'git commit'"
    r"|are terminated then try again|may have crashed in this repository earlier|remove the file manually to continue)"
)
"""Git's advice about a lock (lockfile.c), which does not apply to the readers of this program's messages."""

_DIED = re.compile(
    r"died of signal \d+|unexpected disconnect while reading|the remote end hung up unexpectedly|early eof"
    r"|invalid index-pack output|index-pack failed|error reading section header|could not read from remote repository",
    re.IGNORECASE,
)
_ANSWERED = re.compile(r"denied|does not appear|not found|host key|remote: ", re.IGNORECASE)
"""Texts in git's errors: `_DIED` matches after a child process, or the other end of a transfer, was killed; `_ANSWERED`
matches if the other end has answered."""

REPEATABLE = frozenset(
    (
        *("add", "cat-file", "check-attr", "check-ignore", "check-ref-format", "checkout-index", "commit-tree"),
        *("diff", "diff-files", "diff-index", "diff-tree", "fetch", "for-each-ref", "hash-object", "init", "log"),
        *("ls-files", "ls-remote", "ls-tree", "merge-base", "merge-tree", "read-tree", "repack", "rev-list"),
        *("rev-parse", "show-ref", "status", "symbolic-ref", "update-index", "version", "write-tree"),
    )
)
"""Git commands that can safely be run again after an interruption at any point.

`push` and `update-ref` are not in REPEATABLE: an interrupted `push` or `update-ref` may have taken effect, so its
caller checks that.
"""

WRITES_TREE = frozenset(("checkout-index", "read-tree"))
"""Git commands of this program that may write rules files of a commit into the work tree (`git_guard.py`)."""

PAUSES = (0.1, 1.0)
"""Seconds to wait before the second and the third attempt to run a git command."""

_P = ParamSpec("_P")


@dataclass(frozen=True, slots=True)
class Credentials:
    """A user name and a password or token, valid for one origin (scheme, host and port) only."""

    url: str
    username: str
    password: str = field(repr=False)

    def scope(self) -> str:
        """The origin for which the credential is valid, in the form `https://host:port` that git compares; after a
        redirect to another host no credential is sent."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"

    def lines(self) -> bytes:
        """The answer of git's credential helper, in the form that git reads. Raises GitError if the user name or
        password contains a line break or NUL."""
        if any(sign in self.username + self.password for sign in "\r\n\0"):
            raise GitError(f"the credentials for {self.scope()} contain a line break or NUL; correct the token")
        return f"username={self.username}\npassword={self.password}\n".encode()


@dataclass(frozen=True, slots=True)
class Identity:
    """The name and address of the author of a commit."""

    name: str
    email: str

    def environment(self, when: float) -> dict[str, str]:
        """The variables GIT_AUTHOR_* and GIT_COMMITTER_* for git; `when` is the time of the commit in seconds since
        1970.

        Characters that git refuses in the name or address of an author are removed.
        """
        name = re.sub(r"[<>\s\x00-\x1f\x7f]+", " ", self.name).strip(" .,:;\"'\\") or "makimono"
        email = re.sub(r"[<>\s\x00-\x1f\x7f]+", "", self.email) or "makimono@localhost"
        values = {"NAME": name, "EMAIL": email, "DATE": f"@{int(when)} +0000"}
        return {f"GIT_{role}_{key}": value for role in ("AUTHOR", "COMMITTER") for key, value in values.items()}


@cache
def program() -> str:
    """The absolute path of the program `git`. Raises HostError if git is not installed."""
    found = shutil.which("git") or shutil.which("git", path="/usr/local/bin:/usr/bin:/bin")
    if found is None:
        raise HostError("git is not installed or not on PATH; install it, for example: apt-get install git")
    return os.path.abspath(found)  # noqa: PTH100 - the path of git is not resolved, since a symbolic link must stay one


@cache
def version() -> tuple[int, ...]:
    """The version of git as a tuple, like (2, 39, 5). Raises GitError if git prints no version."""
    text = git("version").output.decode("utf-8", "replace")
    match = re.search(r"\d+(\.\d+)+", text)
    if match is None:
        raise GitError(f"git version answered {text.strip()!r}, which has no version in it")
    return tuple(int(part) for part in match[0].split("."))


def _tried_again(once: Callable[_P, Finished]) -> Callable[_P, Finished]:
    """`git` with retries after a git process was killed or found a stale lock."""

    @wraps(once)
    def tried(*args: _P.args, **options: _P.kwargs) -> Finished:
        git_dir = cast("Path | None", options.get("git_dir"))
        for pause in (*PAUSES, None):
            try:
                return once(*args, **options)
            except GitError as error:
                if pause is None or not _may_retry(cast("tuple[str, ...]", args), error, git_dir):
                    raise
                clock.sleep(pause)
        raise AssertionError  # not reached, since the last attempt returns or raises an error

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
    negative: int = 0,
    cap: int = CAP,
    config: Sequence[str] = (),
    credentials: Credentials | None = None,
    spool: Path | None = None,
    spool_cap: int = WHOLE,
    pass_fds: Sequence[int] = (),
    paths: Iterable[str] | None = None,
    hears: bool | None = None,
) -> Finished:
    """Run a git command; `output` of the result is the standard output of git, without its standard error.

    `env` is added to the fixed environment of git (for example identity, proxies, GIT_INDEX_FILE). `config` are further
    settings of git in the form `key=value`. `spool` is a file that receives the complete output of git if the output
    exceeds the limit (`dropped`); a little after `spool_cap` bytes the file ends. `paths`: the only paths of the work
    tree at which the command looks, so that git reads the rules files in the folders above them alone. `hears`: whether
    git is ended when the task shall stop; None means True if there is a work tree, else False. `negative` is an exit
    code by which this git command answers "no", which is not a failure.

    Raises GitError, with the last lines of standard error, if git failed (with `check` False only if a lock inside
    `git_dir` was the cause), ran longer than `timeout` seconds, or printed more than `cap` bytes without a `spool`.
    Raises StopHeard if the task shall stop while git runs. Raises DiskError in place of GitError if the disk of this
    host is full, or if a file may not become that large. Raises HostError if git cannot be started. Raises RulesRefused
    if git must not read the `work_tree`, even if `check` is False. Raises GitStarved, even if `check` is False, if git
    needed more than its memory limit, or this host refused it memory, a process or a file. Raises GitKilled, even if
    `check` is False, if a signal from outside ended git.

    If git, a child of it or the other end of a transfer was killed, a command in REPEATABLE is run again.  A git
    command that found a stale lock inside `git_dir` is also run again.
    """
    binary = program()
    settings = [*HARDENING, *config]
    stop = deadline.is_stopping if hears or (hears is None and work_tree is not None) else None
    if work_tree is not None:
        git_guard.check_tree(work_tree, paths=paths, stop=stop)
    with _Anonymous() as errors, _Anonymous() as secret:
        if credentials is not None:
            proc_fd = f"/dev/fd/{secret.descriptor}"
            # Opening /dev/fd again starts at the beginning of the file, so the helper answers a second query of git as
            # well.
            helper = f'!f() {{ test "$1" != get || cat {proc_fd}; }}; f'
            secret.write(credentials.lines())
            settings.append(f"credential.{credentials.scope()}.helper={helper}")
            pass_fds = (*pass_fds, secret.descriptor)
        path = f"{os.path.dirname(binary)}:/usr/local/bin:/usr/bin:/bin"  # noqa: PTH120 - PATH must be a string
        try:
            done = proc.run(
                [binary, *_options(settings, git_dir, work_tree), *args],
                env={**ENVIRONMENT, "PATH": path, **(env or {})},
                timeout=timeout,
                cwd="/",
                stdin=stdin,
                # `proc.run` stores half of its cap at each end of the output, and the head must be complete up to `cap`
                cap=2 * cap,
                spool=spool,
                spool_cap=spool_cap,
                errors=errors.descriptor,
                pass_fds=pass_fds,
                stop=stop,
                memory=memory() if work_tree is not None else None,
            )
        except OSError as error:
            raise HostError(f"git cannot be started: {error}") from error
        stderr = _last_lines(errors.tail(STDERR_BYTES), credentials)
    what = f"git {_subcommand(args)}"
    if work_tree is not None and _subcommand(args) in WRITES_TREE:
        git_guard.forget_checks()
    if done.timed_out:
        _unlock(git_dir, env)
        if stop is not None and done.duration < timeout:
            raise StopHeard(f"{what} was ended after {done.duration:.0f} s, because the task was told to stop")
        raise GitError(
            f"{what} was ended after {done.duration:.0f} s (limit {timeout:.0f} s): {stderr or 'no message'}"
        )
    if done.returncode < 0:  # also with `check` False, since a killed git has not answered "no"
        raise GitKilled(
            f"{what} was killed by signal {-done.returncode} (out of memory? see the system's log)",
            returncode=done.returncode,
        )
    if done.dropped and spool is None:
        raise GitError(f"{what} printed more than {cap} bytes")
    if (starved := _starved(what, done, stderr, beside_tree=work_tree is not None)) is not None:
        raise starved
    if done.returncode in (0, negative):
        return done
    if check or (git_dir is not None and stale_git_locks.lock_in_error(stderr, git_dir) is not None):
        raise _failure(what, done, stderr)
    return done


def _options(settings: Sequence[str], git_dir: Path | None, work_tree: Path | None) -> list[str]:
    """The options of git before the name of its command."""
    options = [word for setting in settings for word in ("-c", setting)]
    if git_dir is not None:
        options.append(f"--git-dir={git_dir}")
    if work_tree is not None:
        options.append(f"--work-tree={work_tree}")
    return options


def _starved(what: str, done: Finished, stderr: str, *, beside_tree: bool) -> GitStarved | None:
    """The error of a git that lacked memory, a process or a file; None if it had all.

    The caller raises the returned error even with `check` False, since a git that lacked a resource has not answered
    "no". `beside_tree`: git ran on a work tree, where its memory is limited.
    """
    if done.returncode == FATAL and beside_tree and _MEMORY.search(stderr):
        why = f"{what} wanted more than the {memory() >> 20:,} MiB that it may have beside a work tree: {stderr}"
    elif done.returncode != 0 and _STARVED.search(stderr):
        why = f"{what} was refused what it needs by this host (code {done.returncode}): {stderr}"
    else:
        return None
    return GitStarved(why, returncode=done.returncode, stderr=stderr)


def _failure(what: str, done: Finished, stderr: str) -> DiskError | GitError:
    """The error of a git that failed with an exit code."""
    if _FULL.search(stderr):
        large = "File too large" in stderr
        why = "a file may not become that large here (ulimit -f)" if large else "the disk is full"
        return DiskError(f"{what} failed, {why}; mend that and resume the task: {stderr}")
    text = f"{what} failed with code {done.returncode}: {stderr or 'no message'}"
    return GitError(text, returncode=done.returncode, stderr=stderr)


def fields_of(output: bytes) -> list[str]:
    """The fields of an output that git was asked to end with NUL (`-z`), for example paths."""
    return [field for field in output.decode("utf-8", "surrogateescape").split("\0") if field]


def _may_retry(args: Sequence[str], error: GitError, git_dir: Path | None) -> bool:
    """Whether to run a failed git command again; if it failed because of a stale lock, that lock is removed."""
    lock = stale_git_locks.lock_in_error(error.stderr, git_dir) if git_dir is not None else None
    if lock is not None:
        return stale_git_locks.remove(lock)
    return has_died(error) and _subcommand(args) in REPEATABLE


def has_died(error: GitError) -> bool:
    """Whether git failed because git, a child of it, or the other end of a transfer was killed."""
    if isinstance(error, GitKilled):
        return True
    return _DIED.search(error.stderr) is not None and _ANSWERED.search(error.stderr) is None


@cache
def memory() -> int:
    """The memory limit of git on a work tree, in bytes."""
    has = cgroups.machine_memory()
    return min(max(LEAST, min(MEMORY, has // SHARE)), has // MOST_SHARE)


def _unlock(git_dir: Path | None, env: Mapping[str, str] | None) -> None:
    """Remove the lock of the index after this program killed git, since the next git command would fail because of the
    lock."""
    index = (env or {}).get("GIT_INDEX_FILE") or (git_dir / "index" if git_dir is not None else None)
    if index is not None:
        Path(f"{index}.lock").unlink(missing_ok=True)  # ours


class _Anonymous:
    """A file in memory without a name, which the kernel removes when its descriptor is closed."""

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
    """The last lines of git's standard error, without secrets, control characters and git's advice about locks."""
    text = data.decode("utf-8", "replace").replace("\r", "\n")
    text = _USERINFO.sub("***@", text)
    if credentials is not None and credentials.password:
        text = text.replace(credentials.password, "***")
    lines = [line.rstrip() for line in _CONTROL.sub("", text).split("\n") if line.strip() and not _BY_HAND.match(line)]
    return "\n".join(lines[-STDERR_LINES:])


def unquoted(path: str) -> str:
    r"""A path in git's quoted form for unusual characters, `"caf\303\251.txt"`, without the quotes and escapes.

    See `core.quotePath` in git-config(1); a text that is not in the quoted form is returned unchanged.
    """
    if "\\" not in path or not _QUOTED.fullmatch(path):
        return path

    def sign(match: re.Match[bytes]) -> bytes:
        code = match.group(1)
        return bytes([int(code, 8)]) if len(code) == 3 else _SIGNS.get(code, code)

    return os.fsdecode(_ESCAPE.sub(sign, os.fsencode(path[1:-1])))
