"""The HTTP client of a forge with a token in the settings: rate limiter, conditional requests, retries, pages; it
translates the errors of the host and of libraries into errors of this program.

The adapters of GitLab and Forgejo send their requests with the token through `RestClient.call`. `rest_client.py` knows
only HTTP; it does not interpret issues, labels or pull requests. GitLab's and Forgejo's clients are subclasses
(`gitlab/http.py`, `forgejo/http.py`); GitHub's client (`github/http.py`) is not a subclass, since GitHub has more kinds
of tokens and of rate limits. The base class of all three is `HostClient` (`host_client.py`)."""

from __future__ import annotations

from abc import abstractmethod
from itertools import count
from typing import TYPE_CHECKING, Any, ClassVar

import requests

from agent import clock
from agent.errors import AnswerOdd, ForgeLimited, ForgeUnreachable
from agent.forge import http
from agent.forge.etag_cache import HttpAnswer, condition, request_name
from agent.forge.host_client import LIMITED_TRIES, TRIES, HostClient
from agent.forge.rate_limiter import EVERYTHING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from agent.errors import ForgeError
    from agent.forge.answer_reader import Shapes
    from agent.forge.base_session import BaseSession

BUCKET = "api"


class RestClient(HostClient):
    """Sends requests to the API of the host at `base_url` (scheme, host, port, sub-path), as the account of
    `section.token`.

    `api` is the path of the API below `base_url`, `shapes` has the shapes of its answers, `advice` is the text of error
    messages about the likely cause of an answer that is not JSON, and `page_size` is the query parameter with the
    number of items per page.
    """

    api: ClassVar[str]
    shapes: ClassVar[Shapes]
    advice: ClassVar[str]
    page_size: ClassVar[dict[str, Any]]

    def __init__(self, section: Any, base_url: str, base_dir: Path, host: str) -> None:
        super().__init__(section, base_url, base_dir, host)
        self._session: BaseSession | None = None

    def token(self) -> str:
        """The token of the section, which is read at each request and each git call."""
        return str(self.section.token.get_secret_value())

    def call(
        self,
        verb: str,
        path: str,
        *,
        query: Mapping[str, Any] | None = None,
        body: Any = None,
        again: bool | None = None,
        patience: float | None = None,
        reserve: float | None = None,
        checked: bool = True,
        plain: bool = False,
    ) -> HttpAnswer:
        """Send one request, and repeat the request if it fails and a repetition is safe.

        `again`: the request may be sent a second time although the first may have been executed (the default for all
        verbs but POST); without `again`, ForgeUnreachable with `maybe` is raised when the first may have been executed.
        If `patience` or `reserve` is None, the value of the surrounding context `hurried` is used. `checked`: the shape
        of the answer is checked, and AnswerOdd is raised when the shape is wrong. `plain`: the answer is text and not
        JSON, and is not stored. The other errors of `call` are ForgeLimited, ForgeUnreachable, and the errors that
        `_error_of` of the subclass makes. In a scope of `reads`, a repeated GET of this thread gets the stored answer
        until the thread sends a change; failures and `plain` answers are not stored.
        """
        if (earlier := self.reads.find(verb, path, query)) is not None:
            return earlier
        again = verb != "POST" if again is None else again
        usual = self.patience
        patience = usual[0] if patience is None else patience
        reserve = usual[1] if reserve is None else reserve
        what = f"{self.host}: {verb} {path}"
        change = verb != "GET"
        for attempt in count(1):
            patience -= self.limiter.wait(BUCKET, change=change, patience=patience, reserve=reserve)
            kept = None if plain else self.kept.find(verb, path, query)
            try:
                status, headers, content = self._send(verb, path, query or {}, body, condition(kept))
            except requests.exceptions.RequestException as error:
                unsent = http.was_not_sent(error)
                if attempt < TRIES and (again or unsent) and http.may_pass(error):
                    clock.sleep(4.0 ** (attempt - 1))
                    continue
                raise ForgeUnreachable(f"{what}: {http.failure_text(error)}", maybe=change and not unsent) from error
            self.answered_at = clock.monotonic()
            self.pause = http.poll_interval(headers) or self.pause
            if (known := self._budget(headers)) is not None:
                self.limiter.note_budget(BUCKET, remaining=known[0], limit=known[1], reset_in=known[2])
            if status < 400:
                self.limiter.went_well()
                if plain:
                    return HttpAnswer(status, headers, content.decode("utf-8", "replace"))
                answer = self.kept.decode(verb, path, query, kept, status, headers, content, what, advice=self.advice)
                if checked:
                    self.shapes.check(verb, path, answer.data, what)
                self.reads.put(verb, path, query, answer)
                return answer
            kind = headers.get("content-type", "")
            page = http.describe_answer(status, kind, content) if http.is_page(kind) else ""
            reasons = self._reasons(content)
            if status == 429:
                pause = self.limiter.slow_down(EVERYTHING, self._retry_delay(headers), "it asks to slow down (429)")
                if pause > patience or attempt > LIMITED_TRIES:
                    raise ForgeLimited(f"{what}: 429 {'; '.join(reasons)}", retry_after=pause)
                continue
            if status >= 500 and attempt < TRIES and again:
                clock.sleep(4.0 ** (attempt - 1))
                continue
            if page and (status >= 500 or status in http.OF_A_PROXY):
                raise ForgeUnreachable(f"{what}: {page}{self.advice}", maybe=change)
            raise self._error_of(what, verb, status, reasons)
        raise AssertionError  # Not reached, since the loop of attempts ends only with a return or an error.

    def get(
        self,
        path: str,
        *,
        query: Mapping[str, Any] | None = None,
        patience: float | None = None,
        reserve: float | None = None,
    ) -> Any:
        """Send one GET and return the JSON of the answer."""
        return self.call("GET", path, query=query, patience=patience, reserve=reserve).data

    def pages(
        self,
        path: str,
        *,
        query: Mapping[str, Any] | None = None,
        patience: float | None = None,
        reserve: float | None = None,
        odd: Callable[[AnswerOdd], None] | None = None,
    ) -> Iterator[dict[str, Any]]:
        """Every item of a list of the forge; `pages` requests all pages up to the last one. Invalid items of the list
        are left out and passed to `odd`; if `odd` is None, an invalid item raises AnswerOdd, and so does a page with
        invalid items only."""
        following: tuple[str, dict[str, Any]] | None = (path, self.page_size | dict(query or {}))
        seen: set[str] = set()
        what = f"{self.host}: GET {path}"
        number = 0
        while following is not None and (name := request_name(*following)) not in seen:
            seen.add(name)
            http.a_page_more(len(seen), what)
            asked, params = following
            answer = self.call("GET", asked, query=params, patience=patience, reserve=reserve, checked=False)
            if not isinstance(answer.data, list):
                raise AnswerOdd(f"{what}: a list was expected, got {type(answer.data).__name__}")
            number += len(answer.data)
            yield from self.shapes.items(path, answer.data, what, odd)
            if (link := self._next(answer.headers.get("link", ""))) is not None:
                following = link, {}
            else:
                following = self._following(path, params, answer, number)

    def _account(self) -> str:
        return self.token()

    def _send(
        self, verb: str, path: str, query: Mapping[str, Any], body: Any, extra: Mapping[str, str]
    ) -> tuple[int, dict[str, str], bytes]:
        """Send one request and return (status, headers with lower-case names, body); `extra` are additional headers of
        the request.

        Raises the exceptions of the library `requests` when the host does not answer.
        """
        ca_file = self.ca_file()
        if self._session is None:
            self._session = self._open_session(ca_file)
        return self._session.send(verb, path, self.token(), query=query, body=body, headers=extra)

    def _disconnect(self) -> None:
        if self._session is not None:
            self._session.close()
            self._session = None

    def _next(self, link: str) -> str | None:
        """Path and query of the next page of a list, from the `Link` header: the path without the prefix of the API;
        None after the last page. The host and sub-path in the `Link` header are ignored."""
        for one in requests.utils.parse_header_links(link) if link else ():
            if one.get("rel") == "next":
                parts = http.parts_of(one["url"], f"{self.host}: Link")
                _, found, path = parts.path.partition(self.api)
                if found and path.startswith("/"):
                    return f"{path}?{parts.query}"
        return None

    # --- what the host decides --------------------------------------------------------------------------------

    @abstractmethod
    def _open_session(self, ca_file: Path | None) -> BaseSession:
        """A session for the API of the host. The subclass imports the library for its requests only here, so a process
        that sends no request does not load that library."""

    @abstractmethod
    def _reasons(self, content: bytes) -> tuple[str, ...]:
        """The messages in the body of the host's error, one sentence for each."""

    @abstractmethod
    def _error_of(self, what: str, verb: str, status: int, reasons: tuple[str, ...]) -> ForgeError:
        """The program's error for an answer with a status of 400 or above, except for a rate limit."""

    @abstractmethod
    def _retry_delay(self, headers: Mapping[str, str]) -> float | None:
        """Seconds to wait after the host answered 429, None if the headers of the answer name no time."""

    def _budget(self, headers: Mapping[str, str]) -> tuple[int, int, float] | None:
        """The rate limit in the headers of an answer: (remaining requests, limit, seconds until the reset), None if the
        headers contain no rate limit."""
        del headers
        return None

    @abstractmethod
    def _following(
        self, path: str, params: dict[str, Any], answer: HttpAnswer, number: int
    ) -> tuple[str, dict[str, Any]] | None:
        """(path, query) of the next page of a list if the answer has no `Link` header, None after the last page.
        `number` is the number of items of the list that were read so far."""
