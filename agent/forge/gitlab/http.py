"""The HTTP client of GitLab: rate limiter, token, conditional requests, retries; it translates every foreign error into
an error of this program.

The adapter sends every request through `GitLabWire.call`, and python-gitlab transmits it (`requester.py`).  This module
knows HTTP and GitLab's rules for clients, but no issue, label or merge request.
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import requests

from agent import __version__, clock
from agent.errors import AnswerOdd, ForgeLimited, ForgeRefused, ForgeUnreachable
from agent.forge import http
from agent.forge.ca_bundle import ca_bundle_of
from agent.forge.etag_cache import Answer, EtagCache, condition, request_name
from agent.forge.gitlab import errors as answers
from agent.forge.gitlab.answer_shapes import SHAPES
from agent.forge.rate_limiter import EVERYTHING, RateLimiter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from agent.forge.gitlab.requester import Requester

TRIES = 3
LIMITED_TRIES = 5
QUICK = 5.0  # longest wait in seconds before requests that are repeated soon anyway
PATIENT = 900.0  # longest wait in seconds before requests that must not be lost
BUCKET = "api"
API = "/api/v4"
AGENT = f"makimono/{__version__}"
NO_JSON = "; is base_url the address of GitLab, with its sub-path?"


class GitLabWire:
    """The API of the GitLab at `base_url` (host, port, sub-path) as the account of `section.token`."""

    def __init__(self, section: Any, base_url: str, base_dir: Path, host: str) -> None:
        self.section = section
        self.base_url = base_url
        self.prefix = urlsplit(base_url).path + API
        self.host = host
        self.limiter = RateLimiter(base_dir / "limits", host)
        self.trust = ca_bundle_of(base_dir, section.ca_file)
        self.kept = EtagCache()
        self.answered_at: float | None = None  # time of the monotonic clock of the last answer
        self.pause = 0.0  # seconds between two polls, as the host's last answer demanded
        self._requester: Requester | None = None

    def token(self) -> str:
        """The token, which is read at each request and each git call."""
        return str(self.section.token.get_secret_value())

    def call(
        self,
        verb: str,
        path: str,
        *,
        query: Mapping[str, Any] | None = None,
        body: Any = None,
        again: bool | None = None,
        patience: float = PATIENT,
        reserve: float = 0.0,
        checked: bool = True,
    ) -> Answer:
        """Send one request, and repeat it where that is safe.

        `again`: the request may be sent a second time although the first may have been executed (the default for all
        verbs but POST); otherwise ForgeUnreachable with `maybe` is raised.  `checked`: the shape of the answer is
        checked (`answer_shapes.py`), and AnswerOdd is raised when it is wrong.  Raises no other errors than
        ForgeLimited, ForgeUnreachable, ForgeAccessRefused and ForgeRefused.
        """
        again = verb != "POST" if again is None else again
        what = f"{self.host}: {verb} {path}"
        change = verb != "GET"
        for attempt in count(1):
            patience -= self.limiter.wait(BUCKET, change=change, patience=patience, reserve=reserve)
            kept = self.kept.find(verb, path, query)
            try:
                status, headers, content = self._send(verb, path, query, body, condition(kept))
            except requests.exceptions.RequestException as error:
                unsent = http.was_not_sent(error)
                if attempt < TRIES and (again or unsent) and http.may_pass(error):
                    clock.sleep(4.0 ** (attempt - 1))
                    continue
                raise ForgeUnreachable(f"{what}: {http.failure_text(error)}", maybe=change and not unsent) from error
            self.answered_at = clock.monotonic()
            self.pause = http.poll_interval(headers) or self.pause
            if (known := answers.budget(headers)) is not None:
                self.limiter.note_budget(BUCKET, remaining=known[0], limit=known[1], reset_in=known[2])
            if status < 400:
                self.limiter.went_well()
                answer = self.kept.decode(verb, path, query, kept, status, headers, content, what, advice=NO_JSON)
                if checked:
                    SHAPES.check(verb, path, answer.data, what)
                return answer
            kind = headers.get("content-type", "")
            page = http.came(status, kind, content) if http.is_page(kind) else ""
            reasons = answers.parse_error(content)
            if status == 429:
                pause = self.limiter.slow_down(EVERYTHING, answers.retry_delay(headers), "it asks to slow down (429)")
                if pause > patience or attempt > LIMITED_TRIES:
                    raise ForgeLimited(f"{what}: 429 {'; '.join(reasons)}", retry_after=pause)
                continue
            if status >= 500 and attempt < TRIES and again:
                clock.sleep(4.0 ** (attempt - 1))
                continue
            if page and (status >= 500 or status in http.OF_A_PROXY):
                raise ForgeUnreachable(f"{what}: {page}{NO_JSON}", maybe=change)
            raise answers.error_of(what, verb, status, reasons)
        raise AssertionError  # the loop ends only with a return or an error

    def get(
        self, path: str, *, query: Mapping[str, Any] | None = None, patience: float = PATIENT, reserve: float = 0.0
    ) -> Any:
        """The JSON from one GET."""
        return self.call("GET", path, query=query, patience=patience, reserve=reserve).data

    def pages(
        self,
        path: str,
        *,
        query: Mapping[str, Any] | None = None,
        patience: float = PATIENT,
        reserve: float = 0.0,
        odd: Callable[[AnswerOdd], None] | None = None,
    ) -> Iterator[dict[str, Any]]:
        """Every item of a list; the method follows `Link: rel="next"` to the last page, or `x-next-page` if a proxy
        removes the links.  Invalid items are left out and passed to `odd`; if `odd` is None, AnswerOdd is raised."""
        following: str | None = path
        params: dict[str, Any] = {"per_page": 100} | dict(query or {})
        seen = set()
        what = f"{self.host}: GET {path}"
        while following is not None and (name := request_name(following, params)) not in seen:
            seen.add(name)
            http.a_page_more(len(seen), what)
            answer = self.call("GET", following, query=params, patience=patience, reserve=reserve, checked=False)
            if not isinstance(answer.data, list):
                raise AnswerOdd(f"{what}: a list was expected, got {type(answer.data).__name__}")
            yield from SHAPES.items(path, answer.data, what, odd)
            if (link := self._next(answer.headers.get("link", ""))) is not None:
                following, params = link, {}
            elif (page := answer.headers.get("x-next-page", "")).isdigit() and "link" not in answer.headers:
                following, params = path, {**params, "page": page}
            else:
                following = None

    def ca_file(self) -> Path | None:
        """An up-to-date file of CA certificates for the host; None means the default certificates."""
        return None if self.trust is None else self.trust.file()

    def close(self) -> None:
        """Close the connections and remove the stored answers."""
        if self._requester is not None:
            self._requester.close()
            self._requester = None
        self.kept.clear()

    # --- one request ------------------------------------------------------------------------------------------

    def _send(
        self, verb: str, path: str, query: Mapping[str, Any] | None, body: Any, extra: Mapping[str, str]
    ) -> tuple[int, dict[str, str], bytes]:
        ca_file = self.ca_file()
        if self._requester is None:
            from agent.forge.gitlab.requester import Requester

            self._requester = Requester(self.base_url, ca_file, AGENT)
        headers = {"Accept": "application/json", **extra}
        return self._requester.send(verb, path, self.token(), query=query or {}, body=body, headers=headers)

    def _next(self, link: str) -> str | None:
        """Path and query of the next page, without the prefix of the API; the host and sub-path in the link are
        ignored."""
        for one in requests.utils.parse_header_links(link) if link else ():
            if one.get("rel") == "next":
                parts = http.parts_of(one["url"], f"{self.host}: Link")
                _, found, path = parts.path.partition(API)
                if found and path.startswith("/"):
                    return f"{path}?{parts.query}"
        return None


def is_missing(error: ForgeRefused) -> bool:
    """Whether the status is 404: the resource is missing, or the token may not see it."""
    return error.status == 404
