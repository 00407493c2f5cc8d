"""Answers that are asked for again with `If-None-Match`: kept compressed, by request, up to a size.

Not a cache: the forge is asked each time, and only its "304, as before" gives the kept one.  The wires of the forges
`find` what is kept before each request, put its `condition` into the headers and give each good answer to `answer`.
"""

from __future__ import annotations

import json
import re
import threading
import zlib
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from agent.errors import AnswerOdd
from agent.store.text import fit_json

if TYPE_CHECKING:
    from collections.abc import Mapping

KEPT_BYTES = 4 << 20
_UNFIT = re.compile(rb"\\u(?:0000|[dD][89a-fA-F])")
HEADERS = ("link", "x-next-page", "x-oauth-scopes", "github-authentication-token-expiration")
"""What is kept of an answer's headers: how it goes on, and what it says of the token."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A good answer: status, headers with lower-case names, decoded JSON (None for no body)."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    data: Any = None


def request_name(path: str, query: Mapping[str, Any] | None) -> str:
    """What two requests have in common that ask for the same."""
    return f"{path} {json.dumps(dict(query or {}), sort_keys=True)}"


@dataclass(frozen=True, slots=True)
class Kept:
    """An answer as it is kept: its ETag, the headers that matter, the body compressed."""

    etag: str
    headers: Mapping[str, str]
    packed: bytes


class KeptAnswers:
    """Request name → Kept.  For any number of threads."""

    def __init__(self, size: int = KEPT_BYTES) -> None:
        self.size = size
        self.used = 0
        self._kept: OrderedDict[str, Kept] = OrderedDict()
        self._lock = threading.Lock()

    def find(self, verb: str, path: str, query: Mapping[str, Any] | None) -> Kept | None:
        """What a GET is to be asked for again with (`condition`); None for what was not asked before, and for changes.

        The caller holds it until the answer is there: in the meantime another thread may put a newer one in its place,
        or push it out, and a 304 is about this one.
        """
        name = request_name(path, query)
        with self._lock:
            found = self._kept.get(name) if verb == "GET" else None
            if found is not None:
                self._kept.move_to_end(name)
        return found

    def answer(
        self,
        verb: str,
        path: str,
        query: Mapping[str, Any] | None,
        kept: Kept | None,
        status: int,
        headers: Mapping[str, str],
        body: bytes,
        what: str,
        *,
        advice: str = "",
    ) -> Answer:
        """The decoded answer of a request that went well (`status` below 400); one with an ETag is kept, and found for
        the next request of its name.  `kept`: what this one was asked with, and what a 304 gives.

        AnswerOdd, naming the request (`what`), when the body is not JSON (with `advice` of what to look at), or
        for a 304 that nobody asked for.
        """
        if status == 304:
            if kept is None:
                raise AnswerOdd(f"{what}: 304 without having been asked with a condition")
            return Answer(304, kept.headers, _loaded(zlib.decompress(kept.packed)))
        try:
            data = _loaded(body) if body else None
        except (ValueError, RecursionError) as error:
            start = body[:80].decode("utf-8", "replace")
            said = f"{what}: {status}, and the body is not JSON: {start!r}{advice}"
            raise AnswerOdd(said, maybe=verb != "GET") from error
        if verb == "GET" and (etag := headers.get("etag")):
            told = {key: headers[key] for key in HEADERS if key in headers}
            self.put(request_name(path, query), Kept(etag, told, zlib.compress(body, 1)))
        return Answer(status, headers, data)

    def put(self, name: str, kept: Kept) -> None:
        """Keep an answer; the ones that were not asked for longest go."""
        with self._lock:
            self._drop(name)
            if len(kept.packed) > self.size:
                return  # it would push out everything, and itself
            self._kept[name] = kept
            self.used += len(kept.packed)
            while self.used > self.size:
                self._drop(next(iter(self._kept)))

    def clear(self) -> None:
        """Forget all."""
        with self._lock:
            self._kept.clear()
            self.used = 0

    def _drop(self, name: str) -> None:
        if (old := self._kept.pop(name, None)) is not None:
            self.used -= len(old.packed)


def _loaded(body: bytes) -> Any:
    """The JSON of a body.  Halves of signs, and NUL, which nothing here could write, are made fit."""
    data = json.loads(body)
    return fit_json(data) if _UNFIT.search(body) else data


def condition(kept: Kept | None) -> dict[str, str]:
    """The header that makes a request conditional; {} for nothing kept."""
    return {} if kept is None else {"If-None-Match": kept.etag}
