"""Exchanges content with the remote store of Git LFS: content is uploaded before a push and downloaded into a new work
tree.

The address of the repository determines the address of its Git LFS store (`<address>.git/info/lfs`). The file
`.lfsconfig` of the *base* commit may change the store's address only within the same scheme, host and port: a file of
the repository must not send a login elsewhere. The answer of the Git LFS store gives an address for each object; the
program trusts the forge for these addresses. A request to the address of an object has the headers from the server's
answer; it has the login only if the address is on the forge itself. For a repository in a folder of this machine, Git
LFS objects are stored as the transfer of git-lfs for `file://` stores them.

git-lfs/git-lfs docs/api/{server-discovery,batch,basic-transfers}.md describe the requests.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urljoin, urlsplit

import orjson

from agent.errors import ContentWrong, LfsRefused, RemoteAway
from agent.gitcmd import git
from agent.work.lfs import BLOCK, Objects, Pointer
from agent.work.untrusted_tree import shown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    import requests

    from agent.work.remote import Remote

JSON = "application/vnd.git-lfs+json"
BATCH = 100
ANSWER = 8 << 20
TIMEOUT = (10, 60)
REDIRECTS = 3
SECONDS = 480
"""The maximum number of seconds of a download of Git LFS content; a work tree then starts with the content that was
received so far."""
KEYS = {"upload": ("lfs.pushurl", "lfs.url"), "download": ("lfs.url",)}
LATER = (408, 429, 500, 502, 503, 504)

Link = tuple[str, dict[str, str]]


class LfsServer:
    """The Git LFS store of one repository.  `config` returns the content of `.lfsconfig` in the base commit."""

    def __init__(self, remote: Remote, config: Callable[[], bytes | None]) -> None:
        self.remote = remote
        self.config = config

    def is_reachable(self) -> bool:
        """Whether content can be sent to the address of the repository, which must be an HTTP server or a folder of
        this user."""
        return self.remote.url.startswith(("http://", "https://")) or self._folder() is not None

    def upload(self, wanted: Mapping[Pointer, str], objects: Objects, branch: str) -> None:
        """Upload the content of the Git LFS pointers in `wanted` (pointer → path).

        Raises LfsRefused if the server refuses the content, or if the server lacks content that is missing on this host
        too; RemoteAway if the server cannot be reached.
        """
        if (folder := self._folder()) is not None:
            self._into(folder, wanted, objects)
            return
        for part in _parts(list(wanted)):
            for pointer, entry in self._batch("upload", part, branch):
                path = shown(wanted[pointer])
                if error := entry.get("error"):
                    raise LfsRefused(f"{self._host()} does not take the content of {path}: {_words(error)}")
                if (link := _link(entry, "upload")) is None:
                    continue  # the server already has this content
                if not objects.has(pointer):
                    raise LfsRefused(_nowhere(path))
                self._upload(path, link, pointer, objects)
                if (link := _link(entry, "verify")) is not None:
                    self._checked(path, self._post(link, {"oid": pointer.oid, "size": pointer.size}))

    def download(self, wanted: Sequence[Pointer], objects: Objects) -> list[str]:
        """Download Git LFS content into `objects`; returns the reasons for missing content, one line each."""
        problems: dict[str, None] = {}
        if not self.is_reachable():
            return [f"nothing can be asked of {self._host()} by its address"]
        try:
            if (folder := self._folder()) is not None:
                for pointer in wanted:
                    with self._wrong_content_in(problems):
                        _copy(pointer, Objects(folder), objects)
                return list(problems)
            deadline = time.monotonic() + SECONDS
            for part in _parts(wanted):
                for pointer, entry in self._batch("download", part):
                    link = _link(entry, "download")
                    if link is None:
                        problems[f"{self._host()}: {_words(entry.get('error') or {})}"] = None
                    elif time.monotonic() > deadline:
                        problems["it took too long"] = None
                    else:
                        with self._wrong_content_in(problems):
                            objects.store_content(pointer, self._get(link, deadline))
        except (LfsRefused, RemoteAway) as error:
            problems[str(error)] = None
        return list(problems)

    @contextmanager
    def _wrong_content_in(self, problems: dict[str, None]) -> Iterator[None]:
        """A context manager: if content does not match its pointer, a reason is added to `problems`, the reasons for
        missing content."""
        try:
            yield
        except ContentWrong as error:
            problems[f"{self._host()} sent something else: {error}"] = None

    # --- location of the store ----------------------------------------------------------------------------------------

    def _endpoint(self, operation: str) -> str:
        own = self.remote.url.rstrip("/")
        own = f"{own if own.endswith('.git') else f'{own}.git'}/info/lfs"
        named = next((value for key in KEYS[operation] if (value := self._setting(key))), "")
        if not named:
            return own
        if _origin(named) != _origin(own):
            host = shown(urlsplit(named).hostname or named[:80])
            raise LfsRefused(
                f".lfsconfig of the repository keeps the content of Git LFS on {host}, which is not the repository's "
                "own host; nothing is sent there. Let a person add such files"
            )
        return named.rstrip("/")

    def _setting(self, key: str) -> str:
        data = self.config()
        if data is None:
            return ""
        done = git("config", "--file", "-", "--no-includes", "--get", key, stdin=data, check=False)
        return done.output.decode("utf-8", "replace").strip()

    def _folder(self) -> Path | None:
        """The git directory of a repository on this machine, if it belongs to this user; else None."""
        path = self.remote.path
        if path is None or not self.remote.is_ours():
            return None
        return path / ".git" if (path / ".git").is_dir() else path

    def _host(self) -> str:
        return shown(urlsplit(self.remote.url).hostname or self.remote.url)

    def _into(self, folder: Path, wanted: Mapping[Pointer, str], objects: Objects) -> None:
        there = Objects(folder)
        if (named := self._setting("lfs.url")) and not named.startswith("file:"):
            raise LfsRefused(f".lfsconfig of the repository keeps the content of Git LFS at {shown(named[:80])}")
        for pointer, path in wanted.items():
            if not there.has(pointer) and not objects.has(pointer):
                raise LfsRefused(_nowhere(shown(path)))
        for pointer, path in wanted.items():
            try:
                _copy(pointer, objects, there)
            except ContentWrong as error:
                raise LfsRefused(
                    f"the copy of {shown(path)} on this machine is damaged, and is not published: {error}. Change the "
                    "file, or start the task anew"
                ) from error

    # --- requests ------------------------------------------------------------------------------------------------

    def _batch(
        self, operation: str, wanted: Sequence[Pointer], branch: str = ""
    ) -> Iterator[tuple[Pointer, dict[str, Any]]]:
        body: dict[str, Any] = {
            "operation": operation,
            "transfers": ["basic"],
            "objects": [{"oid": pointer.oid, "size": pointer.size} for pointer in wanted],
            "hash_algo": "sha256",
        }
        if branch:
            body["ref"] = {"name": f"refs/heads/{branch}"}
        link: Link = (f"{self._endpoint(operation)}/objects/batch", {})
        answer = self._post(link, body)
        if answer.status in (401, 403):
            self.remote.renew()
            answer = self._post(link, body)
        if answer.status != 200 or answer.page:
            if answer.status in LATER or answer.page:
                raise RemoteAway(f"Git LFS at {self._host()} cannot be asked: {answer}")
            raise LfsRefused(
                f"Git LFS at {self._host()} refuses the request: {answer}. It may be off for the repository, or the "
                "account may not use it; a person can switch it on or add the files"
            )
        by_oid = {pointer.oid: pointer for pointer in wanted}
        found = answer.body.get("objects")
        if not isinstance(found, list) or answer.body.get("transfer", "basic") != "basic":
            raise LfsRefused(f"Git LFS at {self._host()} answered with something else than a list of objects")
        for entry in found:
            pointer = by_oid.pop(str(entry.get("oid")), None) if isinstance(entry, dict) else None
            if pointer is not None:
                yield pointer, entry
        for pointer in by_oid.values():  # pointers that the server's answer lacks
            yield pointer, {"error": {"message": "the server says nothing of it"}}

    def _checked(self, path: str, answer: LfsResponse) -> None:
        if answer.status in LATER or answer.page:
            raise RemoteAway(f"the content of {path} cannot be brought to {self._host()}: {answer}")
        if not 200 <= answer.status < 300:
            raise LfsRefused(f"{self._host()} does not take the content of {path}: {answer}")

    def _upload(self, path: str, link: Link, pointer: Pointer, objects: Objects) -> None:
        with objects.path(pointer).open("rb") as content:
            headers = {"Content-Type": "application/octet-stream", **link[1]}
            self._checked(path, self._send("PUT", link[0], headers, content))

    def _post(self, link: Link, body: Mapping[str, Any]) -> LfsResponse:
        return self._send("POST", link[0], {"Content-Type": JSON, "Accept": JSON, **link[1]}, orjson.dumps(body))

    def _send(self, method: str, url: str, headers: Mapping[str, str], data: Any) -> LfsResponse:
        from agent.forge import http

        with self._session() as session, self._send_request(session, method, url, headers, data) as answer:
            text = answer.raw.read(ANSWER, decode_content=True)
        try:
            said = orjson.loads(text)
        except orjson.JSONDecodeError:
            said = {}
        kind = answer.headers.get("content-type", "")
        page = http.describe_answer(answer.status_code, kind, text) if http.is_page(kind) else ""
        return LfsResponse(answer.status_code, said if isinstance(said, dict) else {}, page)

    def _get(self, link: Link, deadline: float) -> Iterator[bytes]:
        url, headers = link
        with self._session() as session:
            for _ in range(REDIRECTS + 1):
                with self._send_request(
                    session, "GET", url, {"Accept-Encoding": "identity", **headers}, None
                ) as answer:
                    if answer.is_redirect:
                        target = urljoin(url, answer.headers["location"])
                        headers = headers if _origin(target) == _origin(url) else {}
                        url = target
                        continue
                    if answer.status_code != 200:
                        raise LfsRefused(f"{self._host()}: status {answer.status_code}")
                    for block in answer.iter_content(BLOCK):
                        yield block
                        if time.monotonic() > deadline:
                            raise LfsRefused("it took too long")
                    return
        raise LfsRefused(f"{self._host()}: more than {REDIRECTS} redirects")

    def _session(self) -> requests.Session:
        import requests  # `requests` takes 6 MiB, which only a process needs that contacts a server

        session = requests.Session()
        session.auth = lambda request: request  # keeps the library `requests` from reading ~/.netrc
        return session

    def _send_request(
        self, session: requests.Session, method: str, url: str, headers: Mapping[str, str], data: Any
    ) -> requests.Response:
        import requests

        from agent.forge import http

        own = _origin(self.remote.url)
        if _origin(url)[0] not in ("https", own[0]):
            raise LfsRefused(f"{self._host()} names an address for content that is not https")
        login = self.remote.login() if _origin(url) == own else None
        given = any(name.lower() == "authorization" for name in headers)
        ca_file = self.remote.ca_file if _origin(url) == own else None
        try:
            return session.request(
                method,
                url,
                headers={"User-Agent": "makimono", **headers},
                data=data,
                auth=login if login is not None and not given else None,
                stream=True,
                timeout=TIMEOUT,
                allow_redirects=False,
                verify=ca_file or True,
            )
        except (requests.exceptions.RequestException, ValueError) as error:
            raise RemoteAway(f"Git LFS at {self._host()} cannot be reached: {http.failure_text(error)}") from error


class LfsResponse(NamedTuple):
    """The HTTP response of the Git LFS store. `page` describes a page for people that a proxy sent in place of the
    answer; "" if there was no such page."""

    status: int
    body: dict[str, Any]
    page: str = ""

    def __str__(self) -> str:
        if self.page:
            return shown(self.page)
        message = self.body.get("message")
        words = f": {shown(message[:300])}" if isinstance(message, str) else ""
        return f"status {self.status}{words}"


def _parts(wanted: Sequence[Pointer]) -> Iterator[Sequence[Pointer]]:
    return (wanted[at : at + BATCH] for at in range(0, len(wanted), BATCH))


def _link(entry: Mapping[str, Any], action: str) -> Link | None:
    """The address and headers of an action (upload, download) in the store's answer; None if the answer does not
    contain the action."""
    try:
        found = entry["actions"][action]
        href, headers = found["href"], found.get("header") or {}
        if isinstance(href, str):
            return href, {str(name): str(value) for name, value in headers.items()}
    except (KeyError, TypeError, AttributeError):
        pass
    return None


def _copy(pointer: Pointer, source: Objects, target: Objects) -> None:
    """Copy content that `source` has and `target` lacks; raises ContentWrong when it does not match the pointer."""
    if source.has(pointer) and not target.has(pointer):
        with source.path(pointer).open("rb") as content:
            target.store_content(pointer, iter(lambda: content.read(BLOCK), b""))


def _words(error: Any) -> str:
    code, message = (error.get("code"), error.get("message")) if isinstance(error, dict) else (None, error)
    return f"{shown(str(message or 'no reason given')[:300])}{f' ({code})' if code else ''}"


def _nowhere(path: str) -> str:
    return (
        f"{path} is a pointer of Git LFS to content that is neither here nor on the other side; write the content "
        "itself into the file, or leave the file as it was"
    )


def _origin(url: str) -> tuple[str, str, int | None]:
    try:
        parts = urlsplit(url)
        port = parts.port or {"http": 80, "https": 443}.get(parts.scheme)
        return parts.scheme.lower(), (parts.hostname or "").lower(), port
    except ValueError:
        raise LfsRefused(f"{shown(url[:80])} is no address") from None
