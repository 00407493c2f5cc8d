"""A cache of answers for conditional requests (`If-None-Match`): each answer is stored compressed under its request,
and the total size is limited.

A stored answer is used only after the host has answered 304 to a request.  Before a request the HTTP clients of the
forges call `find`, and add the header that `condition` makes from the stored answer; they pass each successful answer
to `decode`.
"""

from __future__ import annotations

import json
import re
import threading
import zlib
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from agent.errors import AnswerOdd, ForgeUnreachable
from agent.forge.http import describe_answer, is_page
from agent.store.storable_text import fit_json

if TYPE_CHECKING:
    from collections.abc import Mapping

KEPT_BYTES = 4 << 20
_UNFIT = re.compile(rb"\\u(?:0000|[dD][89a-fA-F])")
HEADERS = ("link", "x-next-page", "x-total-count", "x-oauth-scopes", "github-authentication-token-expiration")
"""The headers of an answer that are stored with it: the links to the next page, the length of the list, and facts about
the token."""


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """A successful answer: status, headers with lower-case names, decoded JSON (None if there is no body)."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    data: Any = None


def request_name(path: str, query: Mapping[str, Any] | None) -> str:
    """The cache key of a request; two requests with the same path and query have the same key."""
    return f"{path} {json.dumps(dict(query or {}), sort_keys=True)}"


@dataclass(frozen=True, slots=True)
class CachedAnswer:
    """A stored answer: its ETag, the headers of `HEADERS`, and the compressed body."""

    etag: str
    headers: Mapping[str, str]
    packed: bytes


class EtagCache:
    """Cache key of a request (`request_name`) → `CachedAnswer`.  Thread-safe."""

    def __init__(self, size: int = KEPT_BYTES) -> None:
        self.size = size
        self.used = 0
        self._kept: OrderedDict[str, CachedAnswer] = OrderedDict()
        self._lock = threading.Lock()

    def find(self, verb: str, path: str, query: Mapping[str, Any] | None) -> CachedAnswer | None:
        """The stored answer from which `condition` makes the header of a conditional GET; None for a request without a
        stored answer, and for every verb except GET.

        The caller passes the stored answer that it got from `find` to `decode` when the host has answered, since
        another thread may replace or evict the stored answer meanwhile, and a 304 refers to the answer with the ETag
        that was sent.
        """
        name = request_name(path, query)
        with self._lock:
            found = self._kept.get(name) if verb == "GET" else None
            if found is not None:
                self._kept.move_to_end(name)
        return found

    def decode(
        self,
        verb: str,
        path: str,
        query: Mapping[str, Any] | None,
        kept: CachedAnswer | None,
        status: int,
        headers: Mapping[str, str],
        body: bytes,
        what: str,
        *,
        advice: str = "",
    ) -> HttpAnswer:
        """The decoded answer of a successful request (`status` below 400).

        The answer to a GET is stored under the name of its request if it has an ETag. `kept` is the stored answer from
        which this request sent the ETag; if the status is 304, `kept` is decoded.

        Raises AnswerOdd, which names the request (`what`), when the body is not JSON (with `advice` about the likely
        cause), or for a 304 to a request without a condition; ForgeUnreachable when the body is an HTML page.
        """
        if status == 304:
            if kept is None:
                raise AnswerOdd(f"{what}: 304 without having been asked with a condition")
            return HttpAnswer(304, kept.headers, _loaded(zlib.decompress(kept.packed)))
        try:
            data = _loaded(body) if body else None
        except (ValueError, RecursionError) as error:
            kind = headers.get("content-type", "")
            said = f"{what}: {describe_answer(status, kind, body)}, which is not JSON{advice}"
            # an HTML page instead of JSON counts as an unavailable host: a proxy sends one while the host is down
            meant = ForgeUnreachable if is_page(kind) else AnswerOdd
            raise meant(said, maybe=verb != "GET") from error
        if verb == "GET" and (etag := headers.get("etag")):
            told = {key: headers[key] for key in HEADERS if key in headers}
            self.put(request_name(path, query), CachedAnswer(etag, told, zlib.compress(body, 1)))
        return HttpAnswer(status, headers, data)

    def put(self, name: str, kept: CachedAnswer) -> None:
        """Store an answer; if the cache is full, the least recently used answers are evicted. An answer larger than the
        whole cache is not stored."""
        with self._lock:
            self._drop(name)
            if len(kept.packed) > self.size:
                return  # an answer above the maximum size of the cache would evict all other answers, and itself
            self._kept[name] = kept
            self.used += len(kept.packed)
            while self.used > self.size:
                self._drop(next(iter(self._kept)))

    def clear(self) -> None:
        """Remove all stored answers."""
        with self._lock:
            self._kept.clear()
            self.used = 0

    def _drop(self, name: str) -> None:
        if (old := self._kept.pop(name, None)) is not None:
            self.used -= len(old.packed)


def _loaded(body: bytes) -> Any:
    """The decoded JSON of an answer's body.  Unpaired surrogates and NUL in the JSON's texts are replaced, since the
    stores of a task cannot write them."""
    data = json.loads(body)
    return fit_json(data) if _UNFIT.search(body) else data


def condition(kept: CachedAnswer | None) -> dict[str, str]:
    """The header that makes a request conditional; {} if there is no stored answer."""
    return {} if kept is None else {"If-None-Match": kept.etag}
