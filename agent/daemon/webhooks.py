"""The endpoint for webhooks of GitHub, GitLab, Forgejo and Gitea: `POST /poke` makes the daemon poll at once.

A webhook request is accepted only if its raw body is signed with `poke.secret`, or if it has that secret as GitLab's
token. A request that was received before causes no second poll. The body of a webhook request starts no task: it may
only name the project, from which the sources to poll are chosen, and the account that caused the event. An event about
an issue, a pull request or a comment leads to no poll if the program itself has caused it, since its comments and
labels would otherwise use up the polls that `pokes.py` allows. Only the poll determines which tasks to start, with the
same checks as in every other poll. A stolen secret can thus only cause polls, and `pokes.py` limits their number.
`daemon.py` starts the endpoint; docs/forges.md, "At once: webhooks", says how people set it up.

Documentation of the hosts about the headers of webhook requests:
- GitHub: https://docs.github.com/en/webhooks/webhook-events-and-payloads ("Delivery headers": `X-Hub-Signature-256`,
  `X-GitHub-Delivery`; a payload has at most 25 MB) and "Validating webhook deliveries"
- GitLab: https://docs.gitlab.com/user/project/integrations/webhooks/ ("Delivery headers": `X-Gitlab-Token`,
  `Idempotency-Key`, `X-Gitlab-Event-UUID`); the signing token:
  https://gitlab.com/gitlab-org/gitlab/-/merge_requests/230944 (`webhook-signature`, by the Standard Webhooks
  specification) and /231325 (`whsec_` and base64)
- Forgejo and Gitea: https://forgejo.org/docs/latest/user/webhooks/ and https://docs.gitea.com/usage/webhooks
  (`X-Forgejo-Signature`, `X-Gitea-Signature`: HMAC-SHA256 of the body as hexadecimal digits)
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from collections import OrderedDict
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING, Any

import orjson

from agent import clock
from agent.forge.markers import is_signed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    Environ = Mapping[str, Any]

PATH = "/poke"
MOST_BYTES = 25 << 20
READ_BYTES = 1 << 20
"""If the body of a webhook request has more than READ_BYTES, it is not searched for the name of the project, and all
sources of the sender's kind are polled."""
CHUNK = 1 << 16
MOST_CONNECTIONS = 16
SECONDS = 10.0
"""The maximum time in seconds for one webhook request; if the body is not complete by then, the request is refused."""
REMEMBERED = 4096
"""The number of signatures and ids of webhook requests that the daemon remembers, so that a repeated request causes no
second poll; a request has one signature and at most one id.  The daemon stores the signatures and ids only in memory,
so a webhook request that is repeated after a restart causes one more poll."""
TIMELY_SECONDS = 300.0
"""The maximum difference in seconds between now and the signed time of a webhook request; only requests with GitLab's
signing token have such a time (Standard Webhooks specification)."""
SAID_SECONDS = 60.0

SIGNATURES = (
    ("forgejo", "HTTP_X_FORGEJO_SIGNATURE"),
    ("forgejo", "HTTP_X_GITEA_SIGNATURE"),
    ("github", "HTTP_X_HUB_SIGNATURE_256"),
    ("gitlab", "HTTP_WEBHOOK_SIGNATURE"),
    ("gitlab", "HTTP_X_GITLAB_TOKEN"),
)
"""The headers with a webhook's signature, as (kind of host, WSGI name of the header), strongest first. Forgejo sends
the signature headers of Gitea and GitHub too. If a request has several signature headers, only the first one in
SIGNATURES counts."""

DELIVERIES = {
    "forgejo": ("HTTP_X_FORGEJO_DELIVERY", "HTTP_X_GITEA_DELIVERY"),
    "github": ("HTTP_X_GITHUB_DELIVERY",),
    "gitlab": ("HTTP_WEBHOOK_ID", "HTTP_IDEMPOTENCY_KEY", "HTTP_X_GITLAB_EVENT_UUID"),
}
"""The headers with the id of a webhook delivery; a repetition of the same delivery has the same id."""


TALK = re.compile(r"issues?|issue_\w+|note|work_item|merge_request|pull_request\w*")
"""The webhook events about issues, pull requests and comments, by the names that all hosts use. Only events of TALK
that the program has caused itself lead to no poll: a result of CI for a push of the program is news."""
EVENTS = ("HTTP_X_FORGEJO_EVENT", "HTTP_X_GITEA_EVENT", "HTTP_X_GITHUB_EVENT")
"""The headers with the name of the webhook event; GitLab has the name in the body (`object_kind`)."""


@dataclass(frozen=True, slots=True)
class Hook:
    """An accepted webhook request: the kind of its host, and the project that it names, "" if it names none.

    `sender` is the login of the account that caused an event of TALK, "" if the request does not say.  `is_ours`: the
    event is about a comment with the sign of this program (`markers.is_signed`)."""

    kind: str
    project: str
    sender: str = ""
    is_ours: bool = False


class RefusedError(Exception):
    """The error of a webhook request that is not accepted: the status of the answer, and the reason."""

    def __init__(self, status: str, why: str) -> None:
        super().__init__(why)
        self.status = status


class Webhooks:
    """The WSGI application.

    `poke` is called for each accepted request that was not received before and has no sign of this program, and returns
    the names of the sources that are polled. `emit` announces events.
    """

    def __init__(self, secret: str, poke: Callable[[Hook], Iterable[str]], emit: Callable[..., object]) -> None:
        self._secret = secret.encode()
        self._poke = poke
        self._emit = emit
        self._lock = Lock()
        self._seen: OrderedDict[bytes, None] = OrderedDict()
        self._said: dict[str, float] = {}

    def __call__(self, environ: Environ, start_response: Callable[..., object]) -> list[bytes]:
        """Answer one webhook request: 202 when a poll follows, 200 when the request was received before or the program
        has caused it, else 4xx."""
        try:
            hook = self._checked(environ)
        except RefusedError as refused:
            self._refuse(str(refused))
            return _answer(start_response, refused.status, {"error": str(refused)})
        if hook is None:
            return _answer(start_response, "200 OK", {"polled": [], "why": "this delivery was received before"})
        polled = [] if hook.is_ours else list(self._poke(hook))
        if not polled:
            return _answer(start_response, "200 OK", {"polled": [], "why": "the program has caused this event itself"})
        self._emit("poked", by=f"webhook of {hook.kind}", project=hook.project, sources=polled)
        return _answer(start_response, "202 Accepted", {"polled": polled})

    def _checked(self, environ: Environ) -> Hook | None:
        """The webhook request, if it is accepted; None if it was received before. Raises RefusedError."""
        if environ.get("PATH_INFO") != PATH:
            raise RefusedError("404 Not Found", f"no such path; webhooks go to {PATH}")
        if environ.get("REQUEST_METHOD") != "POST":
            raise RefusedError("405 Method Not Allowed", "only POST is answered")
        kind, header = next((one for one in SIGNATURES if environ.get(one[1])), ("", ""))
        if not kind:
            raise RefusedError("401 Unauthorized", "no signature; set the secret of the webhook to that of poke.secret")
        check = _Check(header, environ, self._secret)
        body = _read(environ, check)
        tag = check.tag()
        if tag is None:
            raise RefusedError("403 Forbidden", "the signature does not fit poke.secret and this body")
        if self._is_known(tag, environ, kind):
            return None
        return _hook(kind, body, environ)

    def _is_known(self, tag: bytes, environ: Environ, kind: str) -> bool:
        """Whether a delivery with this signature or this id was received before; afterwards the daemon remembers
        signature and id."""
        found = next((str(environ[name]) for name in DELIVERIES[kind] if environ.get(name)), "")
        keys = [hashlib.sha256(tag).digest()]
        if found:
            keys.append(hashlib.sha256(f"{kind} {found}".encode()).digest())
        with self._lock:
            known = any(key in self._seen for key in keys)
            for key in keys:
                self._seen[key] = None
                self._seen.move_to_end(key)
            while len(self._seen) > REMEMBERED:
                self._seen.popitem(last=False)
        return known

    def _refuse(self, why: str) -> None:
        """Announce that a webhook request was refused, at most once in SAID_SECONDS for each reason."""
        now = clock.monotonic()
        with self._lock:
            if now - self._said.get(why, now - SAID_SECONDS) < SAID_SECONDS:
                return
            self._said[why] = now
        self._emit("poke_refused", why=why)


class _Check:
    """The check of one signature, which is computed while the body is read."""

    def __init__(self, header: str, environ: Environ, secret: bytes) -> None:
        self.header = header
        self.given = str(environ[header])
        self.secret = secret
        self.body = hashlib.sha256()
        self.signed: hmac.HMAC | None = None
        self.timely = True
        if header == "HTTP_WEBHOOK_SIGNATURE":
            stamp = str(environ.get("HTTP_WEBHOOK_TIMESTAMP", ""))
            self.timely = stamp.isascii() and stamp.isdigit() and _age(stamp) <= TIMELY_SECONDS
            head = f"{environ.get('HTTP_WEBHOOK_ID', '')}.{stamp}."
            self.signed = hmac.new(_signing_key(secret), head.encode("latin-1"), hashlib.sha256)
        elif header != "HTTP_X_GITLAB_TOKEN":
            self.signed = hmac.new(secret, b"", hashlib.sha256)

    def update(self, chunk: bytes) -> None:
        """Add a part of the request's body to the computation of the signature."""
        self.body.update(chunk)
        if self.signed is not None:
            self.signed.update(chunk)

    def tag(self) -> bytes | None:
        """A tag that identifies the request if its signature is right, else None. Signatures are compared in constant
        time."""
        given = self.given.encode("latin-1", "replace")
        if self.signed is None:  # GitLab's token is the secret itself, so the digest of the body is the tag
            return self.body.digest() if hmac.compare_digest(given, self.secret) else None
        if self.header == "HTTP_WEBHOOK_SIGNATURE":
            right = b"v1," + base64.b64encode(self.signed.digest())
            fits = [hmac.compare_digest(one, right) for one in given.split(b" ")[:8]]
            return self.signed.digest() if any(fits) and self.timely else None
        right = self.signed.hexdigest().encode()
        if self.header == "HTTP_X_HUB_SIGNATURE_256":
            right = b"sha256=" + right
        return self.signed.digest() if hmac.compare_digest(given, right) else None


def _signing_key(secret: bytes) -> bytes:
    """The key in a signing token `whsec_…`; a secret of any other form is the key itself."""
    if not secret.startswith(b"whsec_"):
        return secret
    try:
        return base64.b64decode(secret.removeprefix(b"whsec_"), validate=True)
    except binascii.Error:
        return secret


def _age(stamp: str) -> float:
    """Seconds between now and a time in Unix seconds, in either direction."""
    return abs(clock.now().timestamp() - int(stamp[:15]))


def _read(environ: Environ, check: _Check) -> bytes:
    """The body of a webhook request, b"" if it has more than READ_BYTES; every byte of it goes through `check`. Raises
    RefusedError."""
    length = str(environ.get("CONTENT_LENGTH") or "")
    if not (length.isascii() and length.isdigit()):
        raise RefusedError("411 Length Required", "the request has no Content-Length")
    left = int(length[:12])
    if left > MOST_BYTES:
        raise RefusedError("413 Content Too Large", f"the body has more than {MOST_BYTES} bytes")
    parts: list[bytes] = []
    keeps = left <= READ_BYTES
    while left:
        try:
            chunk = environ["wsgi.input"].read(min(CHUNK, left))
        except OSError:
            chunk = b""
        if not chunk:
            raise RefusedError("408 Request Timeout", "the body did not arrive whole, or not in time")
        check.update(chunk)
        left -= len(chunk)
        if keeps:
            parts.append(chunk)
    return b"".join(parts)


def _hook(kind: str, body: bytes, environ: Environ) -> Hook:
    """The facts in the body of a webhook request: the project, and for an event of TALK also the sender and whether the
    program has signed the comment; a fact that the body does not have under the keys of a known host is ""."""
    try:
        data = orjson.loads(body)
    except orjson.JSONDecodeError:
        data = None
    project = _text(data, "repository", "full_name") or _text(data, "project", "path_with_namespace")
    event = next((str(environ[name]) for name in EVENTS if environ.get(name)), "") or _text(data, "object_kind")
    if TALK.fullmatch(event) is None:
        return Hook(kind, project[:300])
    names = (("sender", "login"), ("sender", "username"), ("user", "username"))
    sender = next(filter(None, (_text(data, *one) for one in names)), "")
    comment = _text(data, "comment", "body") or _text(data, "object_attributes", "note")
    return Hook(kind, project[:300], sender[:300], is_signed(comment))


def _text(data: object, *names: str) -> str:
    """The text in a body under the nested keys `names`, "" if there is none."""
    for name in names:
        data = data.get(name) if isinstance(data, dict) else None
    return data if isinstance(data, str) else ""


def _answer(start_response: Callable[..., object], status: str, value: object) -> list[bytes]:
    data = orjson.dumps(value)
    start_response(status, [("Content-Type", "application/json"), ("Content-Length", str(len(data)))])
    return [data]
