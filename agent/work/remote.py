"""Accesses the remote of a repository: one address for `ls-remote`, fetch and push.

`remote.py` knows the forms of an address (a folder, `file://`, `http(s)://`, ssh), gets the credentials for each call,
and interprets git's errors. `remote.py` stores nothing.

The token for a remote is read for each call, and once more after a refusal (docs/forges.md, "What users of such agents
report", row 16).
"""

from __future__ import annotations

import os
import re
import shutil
import stat
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn
from urllib.parse import unquote, urlsplit, urlunsplit

from agent import filetree, gitcmd, proc
from agent.config.proxies import in_the_way
from agent.errors import GitError, GitKilled, GitStarved, RemoteAway, RemoteRefused, RepositoryMissing, WorkError
from agent.work import push_errors

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from agent.values import Finished

Login = tuple[str, str]

_MISSING = re.compile(
    r"does not appear to be a git repository|repository (?:(?!repository ).)*?not found"
    r"|project (?:(?!project ).)*?could not be found"
    r"|returned error: 404|not a git repository|invalid gitfile format",
    re.IGNORECASE,
)
_REFUSED = re.compile(
    r"authentication failed|could not read (username|password)|returned error: 40[13]|access denied"
    r"|permission denied|invalid credentials|HTTP Basic",
    re.IGNORECASE,
)
# matches the line that git prints for a refused ref; git prints such a line only after a successful login
_ANSWERED = re.compile(r"^ *! \[", re.MULTILINE)
_SETTLED = re.compile(
    r"couldn't find remote ref|bad object|not a valid (?:object|ref)|invalid refspec|src refspec|dubious ownership"
    r"|transport '\S+' not allowed|unable to find remote helper|unsupported protocol|returned error: 4(?!29)"
    r"|failed to push some refs|protected|declined|archived|read-only|stale info",
    re.IGNORECASE,
)
"""Matches messages of git that belong to permanent errors.

If a message about a remote host matches none of the patterns of errors, the host is assumed to be unreachable, since
there is no complete list of the messages of curl, ssh and TLS libraries.
"""

_PAGE = re.compile(
    r"bad line length character|git-http-push failed|info/refs not valid|protocol error: (?:bad|expected|unexpected)"
    r"|invalid content-type text/html",
    re.IGNORECASE,
)
"""Matches the messages of git for an HTTP server that sends a web page in place of git's protocol (pkt-line.c,
remote-curl.c); a push to such a server also fails with "failed to push some refs", like a push that was refused."""

_LOGIN = re.compile(r"[^/\\][^/\\@]*+@[^/]+:")
"""Matches an address of ssh in the form `user@host:path`."""
_TOO_LARGE = re.compile(push_errors.TOO_LARGE)


@dataclass(frozen=True, slots=True)
class Listing:
    """The refs of the remote: `head` is the branch that HEAD names, `head_commit` its commit, `refs` maps name →
    object."""

    head: str | None = None
    head_commit: str | None = None
    refs: Mapping[str, str] = field(default_factory=dict)

    def branches(self) -> dict[str, str]:
        """Name of a branch → its commit."""
        start = "refs/heads/"
        return {name[len(start) :]: commit for name, commit in self.refs.items() if name.startswith(start)}


class Remote:
    """One address of a repository, with the git calls to it.

    `credentials` is called before each git call to an http address and may return None. After a refused login, the
    function `renew` is called, then `credentials` once more. `env` is added to git's environment; it has the proxies,
    if any.
    """

    def __init__(
        self,
        url: str,
        *,
        credentials: Callable[[], Login | None] | None = None,
        renew: Callable[[], object] | None = None,
        ca_file: Path | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        if not url.strip() or "\0" in url:
            raise RepositoryMissing("the address of the repository is empty; give a folder or an https:// address")
        self.url, own = _without_userinfo(url)
        self._credentials = credentials or (lambda: own)
        self._renew = renew or (lambda: None)
        self._env = dict(env or {})
        if ca_file is not None:  # git prefers the variable GIT_SSL_CAINFO to its configuration
            self._env["GIT_SSL_CAINFO"] = str(ca_file)
        self.path = _local_path(self.url)
        if self.path is not None:
            self.url = str(self.path)
        elif not re.match(r"^(https?|ssh|git)://[^-/]|^[^-/:\s][^/:\s]*:[^/]", self.url):
            raise RepositoryMissing(
                f"{self.url!r} is not the address of a git repository; give a folder, file://, https:// or ssh://"
            )

    def login(self) -> Login | None:
        """The present user name and password, for clients other than git that use the same address; None without a
        login."""
        return self._credentials()

    def renew(self) -> None:
        """Report to the source of the credentials that a login was refused, so that the next call uses new
        credentials."""
        self._renew()

    @property
    def ca_file(self) -> str | None:
        """The file with the CA certificates for the remote's host; None means the certificates of the system."""
        return self._env.get("GIT_SSL_CAINFO")

    def is_ours(self) -> bool:
        """Whether the remote is a local folder, and no other user is its owner; True also if the folder does not
        exist."""
        return self.path is not None and self._foreign_owner() is None

    def list(self, more: Sequence[str] = ()) -> Listing:
        """HEAD, branches and tags of the remote, and those of the refs named in `more` that exist on the remote.

        Raises RepositoryMissing if there is no repository, and the other errors of `git`.
        """
        head = head_commit = None
        refs: dict[str, str] = {}
        for line in self._listed().splitlines():
            value, _, name = line.partition("\t")
            if name == "HEAD" and value.startswith("ref: refs/heads/"):
                head = value.removeprefix("ref: refs/heads/")
            elif name == "HEAD":
                head_commit = value
            elif (name in more or name.startswith(("refs/heads/", "refs/tags/"))) and not name.endswith("^{}"):
                refs[name] = value
        return Listing(head, head_commit, refs)

    def commit_of(self, branch: str) -> str | None:
        """The commit of one branch on the remote, None if the branch does not exist."""
        name = f"refs/heads/{branch}"
        found = self._listed(name, "HEAD")
        for line in (found or self._listed()).splitlines():  # if even HEAD is missing, read all refs
            commit, _, ref = line.partition("\t")
            if ref == name:
                return commit
        return None

    def _listed(self, *names: str) -> str:
        """The output of `ls-remote`, "" only if no ref of the remote matches `names`.

        Raises RemoteAway if the server answers with a page that git takes for an empty repository
        (`http_server_check.py`).
        """
        for _ in range(2):
            options = (*self._serve("upload-pack"), *(() if names else ("--symref",)))
            done = self.git("ls-remote", *options, "--", self.url, *names, timeout=300, hears=True)
            if done.output or not self.url.startswith("http"):
                return done.output.decode("utf-8", "surrogateescape")
            # `http_server_check` imports `requests` (6 MiB), so it is imported only where it is used
            from agent.work import http_server_check

            answer = http_server_check.request_refs(self.url, self._credentials(), self.ca_file)
            if not answer.is_git:
                raise RemoteAway(f"{self.url} is not answered by a git server: {answer.came}")
            if names or not answer.has_refs:
                return ""
        raise RemoteAway(f"{self.url} is answered by a git server only at some requests")

    def fetch(self, git_dir: Path, refspecs: tuple[str, ...], *, pass_fds: tuple[int, ...] = ()) -> None:
        """Fetch `refspecs` into the bare repository `git_dir`; no ref is removed, and no object."""
        self.git(
            *("fetch", "--quiet", "--force", "--no-prune", "--no-tags", "--update-shallow", "--no-write-fetch-head"),
            *("--no-auto-maintenance", "--no-recurse-submodules"),
            *self._serve("upload-pack"),
            "--",
            self.url,
            *refspecs,
            git_dir=git_dir,
            timeout=3600,
            config=("fetch.unpackLimit=1", "fetch.writeCommitGraph=false"),
            pass_fds=pass_fds,
            hears=True,
        )

    def push(self, git_dir: Path, commit: str, branch: str, lease: str) -> None:
        """Set `branch` on the remote to `commit`, but only if it is at `lease` now ("" means that it must not exist).

        Raises GitError if the push is refused.
        """
        self._push(git_dir, f"--force-with-lease=refs/heads/{branch}:{lease}", f"{commit}:refs/heads/{branch}")

    def push_objects(self, git_dir: Path, commit: str, ref: str) -> None:
        """Upload the objects of `commit` to the remote: a push sets `ref`, a ref of this program that is no branch, to
        `commit`.

        Raises GitError if the push is refused.
        """
        self._push(git_dir, "--force", f"{commit}:{ref}")

    def remove_ref(self, git_dir: Path, ref: str) -> None:
        """Remove `ref`, a ref of this program that is no branch.

        Raises GitError if `ref` does not exist, or the removal is refused.
        """
        self.push_objects(git_dir, "", ref)

    def delete(self, git_dir: Path, branch: str, lease: str) -> None:
        """Remove `branch` on the remote, but only if it is at `lease` now.

        Raises GitError if the removal is refused; `git_dir` may be any repository.
        """
        self._push(git_dir, f"--force-with-lease=refs/heads/{branch}:{lease}", f":refs/heads/{branch}", timeout=300)

    def _push(self, git_dir: Path, force: str, refspec: str, timeout: float = 1800) -> None:
        self.git(
            *("push", "--no-progress", "--no-signed", "--recurse-submodules=no", "--no-follow-tags", force),
            *self._serve("receive-pack"),
            "--",
            self.url,
            refspec,
            git_dir=git_dir,
            timeout=timeout,
        )
        self._give_to_owner()

    def git(self, *args: str, **options: Any) -> Finished:
        """Make one git call to the remote; after a refused login the call is repeated once with new credentials. Raises
        RepositoryMissing, RemoteRefused (the login), RemoteAway (no answer), and GitError for any other failure."""
        try:
            return self._run_once(args, options)
        except GitError as error:
            if not self._was_refused(error):
                self._fail(error)
        self._renew()
        try:
            return self._run_once(args, options)
        except GitError as error:
            self._fail(error)

    def _run_once(self, args: tuple[str, ...], options: Mapping[str, Any]) -> Finished:
        login = self._credentials() if self.url.startswith("http") else None
        credentials = gitcmd.Credentials(self.url, *login) if login else None
        return gitcmd.git(*args, credentials=credentials, env=self._env, **options)

    def _fail(self, error: GitError) -> NoReturn:
        """Raise the error that corresponds to git's message; if `error` already has the right type, it is raised
        itself, and never as its own cause."""
        meant = self._translated(error)
        raise meant from (error.__cause__ if meant is error else error)

    def _translated(self, error: GitError) -> GitError | WorkError:
        if _MISSING.search(error.stderr):
            return RepositoryMissing(f"there is no git repository at {self.url}{self._hint()}")
        if self._was_refused(error):
            return RemoteRefused(
                f"access to {self.url} was refused; check the token and what it may do: {error.stderr}",
                stderr=error.stderr,
            )
        settled = any(one.search(error.stderr) for one in (_ANSWERED, _SETTLED, _TOO_LARGE))
        page = self._page(error)
        if self.path is None and (page or not settled) and not isinstance(error, GitKilled | GitStarved):
            way = in_the_way(self.url, self._env)
            words = f"{self.url} cannot be reached{f' by way of {way.description}' if way else ''}: {error}{page}"
            return RemoteAway(
                f"{words}; {way.advice}" if way else words, returncode=error.returncode, stderr=error.stderr
            )
        return error

    def _page(self, error: GitError) -> str:
        """A text about the web page that an HTTP server sent in place of git's protocol; "" if git's message is about
        something else."""
        if not self.url.startswith("http") or not _PAGE.search(error.stderr) or _ANSWERED.search(error.stderr):
            return ""
        try:
            from agent.work import http_server_check

            answer = http_server_check.request_refs(self.url, self._credentials(), self.ca_file)
        except RemoteAway:
            return "; no git server answers there"
        return "; no git server answered" if answer.is_git else f"; it answers {answer.came}"

    def _was_refused(self, error: GitError) -> bool:
        """Whether the remote host refused the login; False if the login succeeded and the host then refused a ref."""
        refused = self.path is None and _REFUSED.search(error.stderr)
        return bool(refused) and not _ANSWERED.search(error.stderr)

    def _hint(self) -> str:
        """The end of the message that the repository was not found: the probable cause, or what the user can do."""
        if self.path is None:
            return ", or the token may not see it; check the address and the token's rights"
        if not self.path.exists():
            return ": the folder does not exist"
        if not self.path.is_dir():
            return ": that is a file; give the repository's folder"
        for parent in self.path.parents:
            if (parent / ".git").exists():
                return f": the folder is a part of the repository {parent}; give that one"
        return "; the folder is there, so run `git init` in it, or give another one"

    def _serve(self, service: str) -> tuple[str, ...]:
        """Options that start git's server side for a folder on this machine; () for a network address.

        For a push into a local repository, `git receive-pack` runs without the variable `proc.MARK`, by which the
        processes of a task are found and killed. When the processes of a dead attempt are killed, the process of `git
        receive-pack` survives and rolls back its unfinished work, as a server on another machine would. If git's server
        process were killed, the branch would stay locked.

        To read a folder of another user, git needs only the setting `safe.directory`, which is set for git's server
        process alone. A write to a repository folder that belongs to another user runs *as* the owner of the folder if
        possible, so that root neither runs the owner's hooks nor leaves files of root in the owner's repository.
        """
        option = f"--{service}"
        owner = self._foreign_owner()
        unmarked = f"env -u {proc.MARK} " if service == "receive-pack" else ""
        if self.path is None:
            return ()
        if owner is None:
            return (f"{option}={unmarked}git {service}",) if unmarked else ()
        quiet = "-c safe.directory=* -c receive.autogc=false"
        if service == "receive-pack":
            if self._as_owner(owner):
                uid, gid = owner
                return (f"{option}={unmarked}setpriv --reuid={uid} --regid={gid} --clear-groups git {quiet} {service}",)
            if os.geteuid() == 0:  # root must not run the hooks of another user
                quiet += " -c core.hooksPath=/dev/null"
        return (f"{option}={unmarked}git {quiet} {service}",)

    def _foreign_owner(self) -> tuple[int, int] | None:
        """(uid, gid) of the owner of the local repository if that is another user, else None."""
        if self.path is None:
            return None
        for candidate in (self.path / ".git", self.path):
            try:
                status = candidate.stat()
            except OSError:
                continue
            if status.st_uid != os.geteuid():
                return status.st_uid, status.st_gid
        return None

    def _as_owner(self, owner: tuple[int, int]) -> bool:
        """Whether git can run as the owner of the repository: this process is root, `setpriv` is installed, and the
        owner can reach the folder."""
        if os.geteuid() != 0 or self.path is None or shutil.which("setpriv", path="/usr/bin:/bin") is None:
            return False
        uid, gid = owner
        for folder in self.path.resolve().parents:
            status = folder.stat()
            bit = stat.S_IXOTH
            if status.st_uid == uid:
                bit = stat.S_IXUSR
            elif status.st_gid == gid:
                bit = stat.S_IXGRP
            if not status.st_mode & bit:
                return False
        return True

    def _give_to_owner(self) -> None:
        """After a push by root into another user's repository, make that user the owner of the files that git wrote,
        unless git ran as that user."""
        owner = self._foreign_owner()
        if self.path is None or owner is None or os.geteuid() != 0 or self._as_owner(owner):
            return
        top = self.path / ".git" if (self.path / ".git").is_dir() else self.path
        if owner[0] != 0:
            filetree.change_owner(top, *owner, only_from=0)


def _without_userinfo(url: str) -> tuple[str, Login | None]:
    """(the address without `user:password@`, user and password or None); addresses appear in messages and logs, so they
    must have no password."""
    parts = urlsplit(url) if re.match(r"^https?://", url) else None
    if parts is None or "@" not in parts.netloc:
        return url, None
    userinfo, _, host = parts.netloc.rpartition("@")
    user, _, password = userinfo.partition(":")
    login = (unquote(user), unquote(password)) if password else ("x-access-token", unquote(user))
    return urlunsplit(parts._replace(netloc=host)), login


def _local_path(url: str) -> Path | None:
    """The absolute path of the folder that `url` names, or None for a network address. Raises RepositoryMissing for a
    `file://` address of another machine."""
    if url.startswith("file://"):
        parts = urlsplit(url)
        if parts.netloc not in ("", "localhost"):
            raise RepositoryMissing(f"{url!r} names another machine; write file:///folder")
        return Path(unquote(parts.path)).absolute()
    if re.match(r"^[a-z][a-z0-9+.-]*::?//?", url, re.IGNORECASE) or _LOGIN.match(url):
        return None
    path = Path(url).expanduser()
    if path.exists() or url.startswith(("/", "./", "../", "~")) or ":" not in url:
        return path.absolute()
    return None
