"""The HTTP client of the GitHub adapter: rate limiter, token, conditional requests, retries; it translates errors of
GitHub and PyGithub into errors of this program.

The adapter sends its requests to the API through `GitHubWire`, and PyGithub transmits them (`api_session.py`). This
module knows GitHub's rate limits, pages, tokens and errors; it does not interpret issues, labels or pull requests.

GET requests are conditional: an answer with an ETag is stored, compressed, and the next request for the same resource
sends that ETag as `If-None-Match`.  An answer 304 does not count against the rate limit, and then the stored answer is
used.  Except inside a block of `SingleReads.scope`, each read sends a request, so an outdated answer is not used.
"""

from __future__ import annotations

import threading
from itertools import count
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import requests

from agent import clock
from agent.errors import AnswerOdd, ForgeLimited, ForgeRefused, ForgeUnreachable
from agent.forge import http
from agent.forge.etag_cache import HttpAnswer, condition
from agent.forge.github import errors as answers
from agent.forge.github.answer_shapes import SHAPES
from agent.forge.github.auth import AppToken, SettingsToken, private_key
from agent.forge.host_client import AGENT, LIMITED_TRIES, TRIES, HostClient
from agent.forge.rate_limiter import EVERYTHING

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
    from pathlib import Path

    from agent.forge.github.auth import Tokens

API = "application/vnd.github+json"
VERSION = "2022-11-28"


class GitHubWire(HostClient):
    """Sends requests to the API at `section.base_url`, as the account of the section.

    `projects` are used to find the installation of a GitHub App. `learn` is called with each secret that is not in the
    settings, so that logs and texts mask the secret (`Redactor.learn`).
    """

    cache_bytes = 8 << 20

    def __init__(
        self,
        section: Any,
        base_dir: Path,
        host: str,
        projects: tuple[str, ...] = (),
        *,
        learn: Callable[..., None],
    ) -> None:
        super().__init__(section, str(section.base_url).rstrip("/"), base_dir, host)
        self.learn = learn
        self.projects = projects
        self.prefix = urlsplit(self.base_url).path
        self.tokens: Tokens = (
            SettingsToken(section)
            if section.app is None
            else AppToken(section, self._as_app, projects, learn, self.facts)
        )
        self._requesters = threading.local()  # PyGithub's Requester mixes up the requests of threads that share it

    def _account(self) -> str:
        """The token of a person; for an App, which gets a new token each hour, the names of the App and of its
        installation."""
        app = self.section.app
        if app is None:
            return self.tokens.current()
        return f"app {app.id} {app.installation_id or ''} {self.section.owner or ''} {' '.join(self.projects[:1])}"

    def call(
        self,
        verb: str,
        path: str,
        *,
        query: Mapping[str, Any] | None = None,
        body: Any = None,
        again: bool | None = None,
        checked: bool = True,
    ) -> HttpAnswer:
        """Send one request, and repeat the request if it fails and a repetition is safe.

        `again`: the request may be sent a second time although the first may have been executed (the default for all
        verbs but POST). If GitHub may have executed a failed request that is no GET, ForgeUnreachable is raised with
        `maybe` True. `checked`: the shape of the answer is checked (`answer_shapes.py`), and AnswerOdd is raised when
        the shape is wrong. The other errors of `call` are ForgeLimited, ForgeUnreachable, ForgeAccessRefused,
        ForgeRefused, and IssueUnreadable for an archived repository. In a scope of `reads` the same GET is sent to
        GitHub only once until a change is sent.
        """
        if (known := self.reads.find(verb, path, query)) is not None:
            return known
        again = verb != "POST" if again is None else again
        patience, reserve = self.patience
        bucket = _bucket(path)
        what = f"{self.host}: {verb} {path}"
        refreshed = False
        for attempt in count(1):
            patience -= self.limiter.wait(bucket, change=verb != "GET", patience=patience, reserve=reserve)
            kept = self.kept.find(verb, path, query)
            try:
                status, headers, text = self._send("user", verb, path, query, body, condition(kept))
            except requests.exceptions.RequestException as error:
                unsent = http.was_not_sent(error)
                if attempt < TRIES and (again or unsent) and http.may_pass(error):
                    clock.sleep(4.0 ** (attempt - 1))
                    continue
                raise ForgeUnreachable(
                    f"{what}: {http.failure_text(error)}", maybe=not unsent and verb != "GET"
                ) from error
            self.answered_at = clock.monotonic()
            self._note(bucket, headers)
            if status < 400:
                self.limiter.went_well()
                answer = self.kept.decode(verb, path, query, kept, status, headers, text.encode(), what)
                if checked:
                    SHAPES.check(verb, path, answer.data, what)
                self.reads.put(verb, path, query, answer)
                return answer
            kind = headers.get("content-type", "")
            page = http.describe_answer(status, kind, text.encode()) if http.is_page(kind) else ""
            message, reasons = answers.parse_error(text)
            if status == 401 and not page and not refreshed and self.tokens.refresh():
                refreshed = True
                continue
            if (pause := self._limited(bucket, status, headers, message)) is not None:
                if pause > patience or attempt > LIMITED_TRIES:
                    raise ForgeLimited(f"{what}: {status} {message}", retry_after=pause)
                continue
            if status >= 500 and attempt < TRIES and again:
                clock.sleep(4.0 ** (attempt - 1))
                continue
            if page and (status >= 500 or status in http.OF_A_PROXY):
                raise ForgeUnreachable(f"{what}: {page}", maybe=verb != "GET")
            raise answers.error_of(what, verb, status, message, reasons)
        raise AssertionError  # Not reached, since the loop of attempts ends only with a return or an error.

    def get(self, path: str, *, query: Mapping[str, Any] | None = None) -> Any:
        """Send one GET and return the JSON of the answer."""
        return self.call("GET", path, query=query).data

    def rendered(self, path: str) -> Any:
        """Send one GET and return the JSON of the answer, in which each text is HTML as well as Markdown; the answer is
        not stored in the cache.

        Raises ForgeError.
        """
        try:
            headers = {"Accept": "application/vnd.github.full+json"}
            status, _, text = self._send("user", "GET", path, None, None, headers)
        except requests.exceptions.RequestException as error:
            raise ForgeUnreachable(f"{self.host}: GET {path}: {http.failure_text(error)}") from error
        if status != 200:
            raise ForgeUnreachable(f"{self.host}: GET {path}: {status}")
        return self.kept.decode("GET", path, None, None, status, {}, text.encode(), f"{self.host}: GET {path}").data

    def pages(
        self,
        path: str,
        *,
        query: Mapping[str, Any] | None = None,
        odd: Callable[[AnswerOdd], None] | None = None,
        part: str = "items",
    ) -> Iterator[dict[str, Any]]:
        """Every item of a list; `pages` follows `Link: rel="next"` to the last page (the path of a page may be
        `/repositories/{id}/…`).  If the answer is an object, the list is the object's field `part`.  Invalid items of
        the list are left out and passed to `odd`; if `odd` is None, an invalid item raises AnswerOdd.
        """
        following: str | None = path
        params: Mapping[str, Any] | None = {"per_page": 100} | dict(query or {})
        seen = set()
        while following is not None and following not in seen:
            seen.add(following)
            http.a_page_more(len(seen), f"{self.host}: GET {path}")
            answer = self.call("GET", following, query=params, checked=False)
            params = None
            items = answer.data.get(part) if isinstance(answer.data, dict) else answer.data
            what = f"{self.host}: GET {following}"
            if not isinstance(items, list):
                raise AnswerOdd(f"{what}: a list was expected, got {type(items).__name__}")
            yield from SHAPES.items(path, items, what, odd)
            following = self._next(answer.headers.get("link", ""))

    def mutations(
        self, wanted: Sequence[tuple[str, Mapping[str, Any], str]], *, may_fail: Collection[str] = ()
    ) -> tuple[dict[str, Any], dict[str, ForgeRefused]]:
        """Execute GraphQL mutations, each (name, input, schema of the answer), with one request: (name → the answer,
        name → the refusal of a mutation in `may_fail`).

        All mutations that this program sends are idempotent, so a failed request is repeated like a PUT. GraphQL
        executes the mutations of a request one after the other, and the refusal of one ends none of the others; an
        error names its mutation in `path` (spec.graphql.org, "Mutation" and "Errors"). Raises ForgeRefused (422) with
        the message for a refusal of a mutation that is not in `may_fail`. Raises AnswerOdd if the answer lacks the
        result of a mutation that was not refused.
        """
        heads = ", ".join(f"${name}: {name[0].upper()}{name[1:]}Input!" for name, _, _ in wanted)
        parts = " ".join(f"{name}(input: ${name}) {{ {schema} }}" for name, _, schema in wanted)
        inputs = {name: dict(variables) for name, variables, _ in wanted}
        last, *_ = reversed(inputs)
        refused: dict[str, ForgeRefused] = {}
        data = self._executed(last, f"mutation Do({heads}) {{ {parts} }}", inputs, may_fail, refused)
        if lost := [name for name in inputs if name not in refused and data.get(name) is None]:
            raise AnswerOdd(f"{self.host}: {lost[0]}: the answer of GraphQL has no `data.{lost[0]}`", maybe=True)
        return data, refused

    def graph(self, name: str, query: str, variables: Mapping[str, Any]) -> Any:
        """The value `data.{name}` in the answer to a GraphQL query.

        Raises ForgeRefused (422) when GraphQL answers with errors.
        """
        data = self._executed(name, query, variables)
        if name not in data:
            raise AnswerOdd(f"{self.host}: {name}: the answer of GraphQL has neither errors nor `data.{name}`")
        return data[name]

    def _executed(
        self,
        name: str,
        query: str,
        variables: Mapping[str, Any],
        may_fail: Collection[str] = (),
        refused: dict[str, ForgeRefused] | None = None,
    ) -> dict[str, Any]:
        """The field `data` of the answer to a GraphQL request; an error of a mutation or field that `may_fail` names is
        put into `refused` under that name.

        Raises ForgeLimited, or ForgeRefused (422) for the other errors.
        """
        body = {"query": query, "variables": dict(variables)}
        answer = self.call("POST", self._requester("user").graphql_url, body=body, again=True).data
        errors = answer.get("errors") or ()
        if any(error.get("type") == "RATE_LIMITED" for error in errors):
            pause = self.limiter.slow_down("graphql", None, "its budget of GraphQL is used up")
            raise ForgeLimited(f"{self.host}: {name}: rate limit", retry_after=pause)
        by_part: dict[str, list[str]] = {}
        for error in errors:
            part = str(next(iter(error.get("path") or ()), ""))
            by_part.setdefault(part if part in may_fail else "", []).append(str(error.get("message")))
        for part, reasons in by_part.items():
            said = f"{self.host}: {part or name}: {'; '.join(reasons)}"
            refusal = ForgeRefused(said, status=422, reasons=tuple(reasons))
            if not part or refused is None:
                raise refusal
            refused[part] = refusal
        return dict(answer.get("data") or {})

    # --- one request ------------------------------------------------------------------------------------------

    def _disconnect(self) -> None:
        """Close this thread's connections to GitHub."""
        if self._requesters.__dict__:
            from agent.forge.github import api_session

            api_session.close_sessions()
        self._requesters.__dict__.clear()

    def _requester(self, kind: str) -> Any:
        ca_file = self.ca_file()
        mine: dict[str, Any] = self._requesters.__dict__  # the Requesters of this thread
        if kind not in mine:
            from agent.forge.github import api_session

            def as_app() -> str:
                key = private_key(self.section)
                self.learn(key)
                token = api_session.app_token(self.section.app.id, key)
                # the redactor masks the app's JSON web token for longer than the ten minutes in which the token is
                # valid
                self.learn(token, until=clock.now())
                return token

            current = self.tokens.current if kind == "user" else as_app
            mine[kind] = api_session.make(self.base_url, current, ca_file, AGENT)
        return mine[kind]

    def _send(
        self,
        kind: str,
        verb: str,
        path: str,
        query: Mapping[str, Any] | None,
        body: Any,
        extra: Mapping[str, str] | None = None,
    ) -> tuple[int, dict[str, str], str]:
        headers = {"Accept": API, "X-GitHub-Api-Version": VERSION, **(extra or {})}
        status, answered, text = self._requester(kind).requestJson(verb, path, dict(query or {}), headers, body)
        return status, answered, text

    def _as_app(self, verb: str, path: str) -> Any:
        """Send a request as the GitHub App itself, for example to create an installation token."""
        what = f"{self.host}: {verb} {path}"
        for attempt in count(1):
            try:
                status, headers, text = self._send("app", verb, path, None, {} if verb == "POST" else None)
            except requests.exceptions.RequestException as error:
                if attempt == TRIES or not http.may_pass(error):
                    raise ForgeUnreachable(f"{what}: {http.failure_text(error)}") from error
                status, headers, text = 599, {}, ""
            kind = headers.get("content-type", "")
            if status < 400:
                kinds = {"content-type": kind}
                answer = self.kept.decode(verb, path, None, None, status, kinds, text.encode(), what)
                SHAPES.check(verb, path, answer.data, what)
                return answer.data
            if status >= 500 and attempt < TRIES:
                clock.sleep(4.0 ** (attempt - 1))
                continue
            if http.is_page(kind) and (status >= 500 or status in http.OF_A_PROXY):
                raise ForgeUnreachable(f"{what}: {http.describe_answer(status, kind, text.encode())}")
            message, reasons = answers.parse_error(text)
            raise answers.error_of(what, verb, status, message, reasons)
        raise AssertionError  # Not reached, since the loop of attempts ends only with a return or an error.

    def _next(self, link: str) -> str | None:
        """The path of the next page of a list, without the prefix of the API, None after the last page; the host in the
        `Link` header is ignored."""
        for one in requests.utils.parse_header_links(link) if link else ():
            if one.get("rel") == "next":
                parts = http.parts_of(one["url"], f"{self.host}: Link")
                path = parts.path.removeprefix(self.prefix)
                if not path.startswith("/"):
                    raise AnswerOdd(f"{self.host}: Link: {one['url'][:80]!r} is no address of this API")
                return f"{path}?{parts.query}"
        return None

    # --- limits -----------------------------------------------------------------------------------------------

    def _note(self, bucket: str, headers: Mapping[str, str]) -> None:
        self.pause = http.poll_interval(headers) or self.pause
        try:
            remaining, limit = int(headers["x-ratelimit-remaining"]), int(headers["x-ratelimit-limit"])
            reset = float(headers["x-ratelimit-reset"])
        except (KeyError, ValueError):
            return
        named = headers.get("x-ratelimit-resource") or bucket
        self.limiter.note_budget(named, remaining=remaining, limit=limit, reset_in=reset - http.server_now(headers))

    def _limited(self, bucket: str, status: int, headers: Mapping[str, str], message: str) -> float | None:
        """Seconds to wait when the answer is a refusal by a rate limit, None when the answer is another error.

        An error with `x-ratelimit-remaining: 0` and without Retry-After, or with the message "rate limit exceeded" and
        no other sign, means GitHub's primary rate limit; only requests of the same bucket wait, until the limit's
        reset. An error with Retry-After, with GitHub's message about a secondary rate limit, or with the status 429 but
        not with `x-ratelimit-remaining: 0`, means the secondary rate limit; requests of all buckets wait. A 403 without
        a sign of a rate limit is another error, such as a missing permission.
        """
        if status not in (403, 429):
            return None
        wait = http.retry_after(headers)
        if headers.get("x-ratelimit-remaining") == "0" and wait is None:
            try:
                wait = max(1.0, float(headers["x-ratelimit-reset"]) - http.server_now(headers) + 1.0)
            except (KeyError, ValueError):
                wait = 60.0
            named = headers.get("x-ratelimit-resource") or bucket
            return self.limiter.slow_down(named, wait, "its budget of requests is used up")
        words = message.lower()
        if status == 429 or wait is not None or "secondary rate limit" in words or "abuse detection" in words:
            return self.limiter.slow_down(EVERYTHING, wait, "it asks to slow down (secondary rate limit)")
        if "rate limit exceeded" in words:
            return self.limiter.slow_down(bucket, wait, "its budget of requests is used up")
        return None


def _bucket(path: str) -> str:
    if path.endswith("/graphql"):
        return "graphql"
    return "search" if path.startswith("/search/") else "core"
