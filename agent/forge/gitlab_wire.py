"""One polite request to GitLab: limiter, token, condition, retry, and every foreign error as one of ours.

Everything the adapter sends goes through `GitLabWire.call`.  python-gitlab puts it on the wire
(`gitlab_requester.py`); here is what is done around it.  It knows HTTP's and GitLab's manners and no issue, label or
merge request.
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import requests

from agent import __version__, clock
from agent.errors import AnswerOdd, ForgeLimited, ForgeRefused, ForgeUnreachable
from agent.forge import gitlab_answers as answers
from agent.forge import http
from agent.forge.gitlab_shapes import SHAPES
from agent.forge.kept import Answer, KeptAnswers, condition, request_name
from agent.forge.limiter import EVERYTHING, Limiter
from agent.forge.trust import trust_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from agent.forge.gitlab_requester import Requester

TRIES = 3
LIMITED_TRIES = 5
QUICK = 5.0  # the patience of what is asked again soon anyway
PATIENT = 900.0  # … and of what must not be lost
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
        self.limiter = Limiter(base_dir / "limits", host)
        self.trust = trust_of(base_dir, section.ca_file)
        self.kept = KeptAnswers()
        self.pause = 0.0  # seconds between two looks, as the host asked last
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
        checked: bool = True,
    ) -> Answer:
        """One request, repeated where that is right.

        `again`: it may be sent a second time although the first may have been carried out (all but POST by default);
        else ForgeUnreachable with `maybe`.  `checked`: the answer has its shape (`gitlab_shapes.py`), else AnswerOdd.
        Raises ForgeLimited, ForgeUnreachable, ForgeAccessRefused, ForgeRefused only.
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
                unsent = http.unsent(error)
                if attempt < TRIES and (again or unsent) and http.may_pass(error):
                    clock.sleep(4.0 ** (attempt - 1))
                    continue
                raise ForgeUnreachable(f"{what}: {http.why(error)}", maybe=change and not unsent) from error
            self.pause = http.poll_interval(headers) or self.pause
            if (known := answers.budget(headers)) is not None:
                self.limiter.heard(BUCKET, remaining=known[0], limit=known[1], reset_in=known[2])
            if status < 400:
                self.limiter.went_well()
                answer = self.kept.answer(verb, path, query, kept, status, headers, content, what, advice=NO_JSON)
                if checked:
                    SHAPES.check(verb, path, answer.data, what)
                return answer
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
        self,
        path: str,
        *,
        query: Mapping[str, Any] | None = None,
        patience: float = PATIENT,
        reserve: float = 0.0,
        odd: Callable[[AnswerOdd], None] | None = None,
    ) -> Iterator[dict[str, Any]]:
        """Every item of a list, following `Link: rel="next"` to the end; with `x-next-page` where a proxy drops it.
        `odd` hears of items that are left out since they are not what they must be; without it AnswerOdd is raised."""
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
        """Whom the host may be certified by, brought up to date; None: whom everybody trusts."""
        return None if self.trust is None else self.trust.file()

    def close(self) -> None:
        """Give connections and kept answers back."""
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
            from agent.forge.gitlab_requester import Requester

            self._requester = Requester(self.base_url, ca_file, AGENT)
        headers = {"Accept": "application/json", **extra}
        return self._requester.send(verb, path, self.token(), query=query or {}, body=body, headers=headers)

    def _next(self, link: str) -> str | None:
        """Path and query of the next page, without the API's own prefix; host and sub-path in it are not trusted."""
        for one in requests.utils.parse_header_links(link) if link else ():
            if one.get("rel") == "next":
                parts = http.parts_of(one["url"], f"{self.host}: Link")
                _, found, path = parts.path.partition(API)
                if found and path.startswith("/"):
                    return f"{path}?{parts.query}"
        return None


def is_missing(error: ForgeRefused) -> bool:
    """404: not there, or not to be seen."""
    return error.status == 404
