"""One polite request to GitLab: limiter, token, condition, retry, and every foreign error as one of ours.

Everything the adapter sends goes through `GitLabWire.call`.  python-gitlab puts it on the wire
(`gitlab_requester.py`); here is what is done around it.  It knows HTTP's and GitLab's manners and no issue, label or
merge request.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import requests

from agent import __version__, clock
from agent.errors import ForgeLimited, ForgeRefused, ForgeUnreachable
from agent.forge import gitlab_answers as answers
from agent.forge import http
from agent.forge.kept import KeptAnswers
from agent.forge.limiter import EVERYTHING, Limiter

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from agent.forge.gitlab_requester import Requester

TRIES = 3
LIMITED_TRIES = 5
QUICK = 5.0  # the patience of what is asked again soon anyway
PATIENT = 900.0  # … and of what must not be lost
BUCKET = "api"
API = "/api/v4"
AGENT = f"makimono/{__version__}"


@dataclass(frozen=True, slots=True)
class Answer:
    """A good answer: status, headers with lower-case names, decoded JSON (None for no body)."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    data: Any = None


class GitLabWire:
    """The API of the GitLab at `base_url` (host, port, sub-path) as the account of `section.token`."""

    def __init__(self, section: Any, base_url: str, limits: Path, host: str) -> None:
        self.section = section
        self.base_url = base_url
        self.prefix = urlsplit(base_url).path + API
        self.host = host
        self.limiter = Limiter(limits, host)
        self.kept = KeptAnswers()
        self._requester: Requester | None = None

    def token(self) -> str:
        """The token, read at each request and each git call."""
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
    ) -> Answer:
        """One request, repeated where that is right.

        `again`: it may be sent a second time although the first may have been carried out (all but POST by default);
        else ForgeUnreachable with `maybe`.  Raises ForgeLimited, ForgeUnreachable, ForgeAccessRefused, ForgeRefused.
        """
        again = verb != "POST" if again is None else again
        what = f"{self.host}: {verb} {path}"
        change = verb != "GET"
        for attempt in count(1):
            patience -= self.limiter.wait(BUCKET, change=change, patience=patience, reserve=reserve)
            try:
                status, headers, content = self._send(verb, path, query, body)
            except requests.exceptions.RequestException as error:
                unsent = http.unsent(error)
                if attempt < TRIES and (again or unsent) and _may_pass(error):
                    clock.sleep(4.0 ** (attempt - 1))
                    continue
                maybe = change and not unsent and not _is_redirect(error)
                raise ForgeUnreachable(f"{what}: {_why(error)}", maybe=maybe) from error
            if (known := answers.budget(headers)) is not None:
                self.limiter.heard(BUCKET, remaining=known[0], limit=known[1], reset_in=known[2])
            if status < 400:
                self.limiter.went_well()
                return self._good(verb, path, query, status, headers, content, what)
            reasons = answers.said(content)
            if status == 429:
                pause = self.limiter.slow_down(EVERYTHING, answers.pause(headers), "it asks to slow down (429)")
                if pause > patience or attempt > LIMITED_TRIES:
                    raise ForgeLimited(f"{what}: 429 {'; '.join(reasons)}", retry_after=pause)
                continue
            if status >= 500 and attempt < TRIES and again:
                clock.sleep(4.0 ** (attempt - 1))
                continue
            raise answers.refusal(what, verb, status, reasons)
        raise AssertionError  # the loop never ends by itself

    def get(
        self, path: str, *, query: Mapping[str, Any] | None = None, patience: float = PATIENT, reserve: float = 0.0
    ) -> Any:
        """The JSON of one GET."""
        return self.call("GET", path, query=query, patience=patience, reserve=reserve).data

    def pages(
        self, path: str, *, query: Mapping[str, Any] | None = None, patience: float = PATIENT, reserve: float = 0.0
    ) -> Iterator[dict[str, Any]]:
        """Every item of a list, following `Link: rel="next"` to the end; with `x-next-page` where a proxy drops it."""
        following: str | None = path
        params: dict[str, Any] = {"per_page": 100} | dict(query or {})
        seen = set()
        while following is not None and (name := _name(following, params)) not in seen:
            seen.add(name)
            answer = self.call("GET", following, query=params, patience=patience, reserve=reserve)
            if not isinstance(answer.data, list):
                raise ForgeUnreachable(
                    f"{self.host}: GET {path}: a list was expected, got {type(answer.data).__name__}"
                )
            yield from answer.data
            if (link := self._next(answer.headers.get("link", ""))) is not None:
                following, params = link, {}
            elif (page := answer.headers.get("x-next-page", "")).isdigit() and "link" not in answer.headers:
                following, params = path, {**params, "page": page}
            else:
                following = None

    def close(self) -> None:
        """Give connections and kept answers back."""
        if self._requester is not None:
            self._requester.close()
            self._requester = None
        self.kept.clear()

    # --- one request ------------------------------------------------------------------------------------------

    def _send(
        self, verb: str, path: str, query: Mapping[str, Any] | None, body: Any
    ) -> tuple[int, dict[str, str], bytes]:
        if self._requester is None:
            from agent.forge.gitlab_requester import Requester

            self._requester = Requester(self.base_url, self.section.ca_file, AGENT)
        headers = {"Accept": "application/json"}
        if verb == "GET" and (etag := self.kept.etag(_name(path, query))):
            headers["If-None-Match"] = etag
        return self._requester.send(verb, path, self.token(), query=query or {}, body=body, headers=headers)

    def _good(
        self,
        verb: str,
        path: str,
        query: Mapping[str, Any] | None,
        status: int,
        headers: dict[str, str],
        content: bytes,
        what: str,
    ) -> Answer:
        name = _name(path, query)
        if status == 304:
            kept = self.kept.get(name)
            if kept is None:
                raise ForgeUnreachable(f"{what}: 304 without having been asked with a condition")
            return Answer(304, kept[0], json.loads(kept[1]))
        try:
            data = json.loads(content) if content else None
        except ValueError as error:
            start = content[:80].decode("utf-8", "replace")
            raise ForgeUnreachable(
                f"{what}: {status}, and the body is not JSON: {start!r}; is base_url the address of GitLab, with its "
                f"sub-path?",
                maybe=verb != "GET",
            ) from error
        if verb == "GET" and (etag := headers.get("etag")):
            self.kept.put(name, etag, {key: headers[key] for key in ("link", "x-next-page") if key in headers}, content)
        return Answer(status, headers, data)

    def _next(self, link: str) -> str | None:
        """Path and query of the next page, without the API's own prefix; host and sub-path in it are not trusted."""
        for one in requests.utils.parse_header_links(link) if link else ():
            if one.get("rel") == "next":
                parts = urlsplit(one["url"])
                _, found, path = parts.path.partition(API)
                if found:
                    return f"{path}?{parts.query}"
        return None


def _is_redirect(error: requests.exceptions.RequestException) -> bool:
    """Whether the host sent us elsewhere: then nothing was carried out, and asking again is no use."""
    return type(error).__name__ == "Moved"  # by name: python-gitlab is not imported here


def _may_pass(error: requests.exceptions.RequestException) -> bool:
    """Whether the same request may be answered in a moment."""
    lasting = requests.exceptions.SSLError | requests.exceptions.InvalidURL | requests.exceptions.TooManyRedirects
    return not isinstance(error, lasting) and not _is_redirect(error)


def _why(error: requests.exceptions.RequestException) -> str:
    return str(error) if _is_redirect(error) else http.why(error)


def _name(path: str, query: Mapping[str, Any] | None) -> str:
    return f"{path} {json.dumps(dict(query or {}), sort_keys=True)}"


def is_missing(error: ForgeRefused) -> bool:
    """404: not there, or not to be seen."""
    return error.status == 404
