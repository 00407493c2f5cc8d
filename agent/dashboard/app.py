"""The web application: routes, checks of each request, answers as HTML or JSON, and server-sent events.

Each page is made in one of a few threads, and the server waits for it at most PAGE_SECONDS (HELPER_SECONDS if a helper
process makes it), so that a disk, a ledger or a server that hangs leads to an answer with the reason. `app.py` imports
starlette, so only `server.py` imports `app.py`.
"""

from __future__ import annotations

import asyncio
import gc
import secrets
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

import orjson
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect
from starlette.responses import RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from agent.dashboard import access as rules
from agent.dashboard import connections, helper_process, memory_pages, rendering, task_list
from agent.dashboard.health_page import HealthPage
from agent.dashboard.ledger_reader import LedgerReader
from agent.dashboard.pages import PARTS, Pages, public, whole_number
from agent.dashboard.watcher import ChangeWatcher
from agent.errors import HostError, MakimonoError, UsageError
from agent.observe import log
from agent.security.redact import masker_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping

    from starlette.requests import Request
    from starlette.types import ASGIApp, Receive, Scope, Send

    from agent.config import Settings
    from agent.dashboard.access import Access
    from agent.values import Json

    Endpoint = Callable[[Request], Awaitable[Response]]

THREADS = 4
LARGE_THREADS = 2
"""The number of threads for pages that may be large; many requests for them must not delay the other pages."""
LARGE = ("change", "log", "messages", "compactions")
"""The parts of a task that may be large; LARGE_THREADS threads of their own read them, so that they delay no other
page."""
PAGE_SECONDS = 8.0
CLOSE_SECONDS = 2.0
"""The maximum number of seconds that the site, when it closes, waits for the end of the detection of changes."""
LAST_SECONDS = 1.5
"""Seconds after the server has begun to end during which an answer is still made; fewer than `server.END_SECONDS`."""
HELPER_SECONDS = helper_process.SECONDS + helper_process.WAIT_SECONDS
ORDERS = ("stop", "pause", "resume", "retry")
EVENT_SECONDS = 15.0
"""Seconds without an event after which a stream of events sends a comment line, so that proxies keep the connection
open."""
LEAST_PAUSE = 1.0
MOST_BODY = 16 << 10
STATIC = {"style.css": "text/css; charset=utf-8", "page.js": "text/javascript; charset=utf-8"}
JSON, HTML = "application/json", "text/html"


class Site:
    """The web site about one base_dir. With `has_actions`, pages have buttons that stop, pause, resume and retry
    tasks."""

    def __init__(self, settings: Settings, access: Access, *, has_actions: bool = False) -> None:
        self.settings = settings
        self.access = access
        self.has_actions = has_actions
        self.redact = masker_of(settings)
        self.reader = LedgerReader(settings)
        self.pages = Pages(settings, self.reader)
        self.health_page = HealthPage(settings, self.reader)
        self.threads = ThreadPoolExecutor(THREADS, thread_name_prefix="page")
        # pages that wait for a helper process, and large pages, must not take the threads of the other pages
        self.waiting_threads = ThreadPoolExecutor(THREADS, thread_name_prefix="helper")
        self.large_threads = ThreadPoolExecutor(LARGE_THREADS, thread_name_prefix="large")
        self.watcher = ChangeWatcher(settings, self.reader, self.run)
        self.is_closing = asyncio.Event()

    def app(self) -> ASGIApp:
        """The ASGI application for the server."""
        task = "/tasks/{uuid}"
        routes = [
            Route("/", self.front),
            Route("/login", self.login, methods=["GET", "POST"]),
            Route("/logout", self.logout, methods=["POST"]),
            Route("/static/{name}", self.static),
            Route("/events", self.events),
            Route("/tasks", self.tasks),
            Route(task, partial(self.task, part="timeline")),
            *(Route(f"{task}/{part}", partial(self.task, part=part)) for part in PARTS if part != "timeline"),
            *(Route(f"{task}/{order}", partial(self.order, word=order), methods=["POST"]) for order in ORDERS),
            Route("/memory", self.memory),
            Route("/memory/{record_id}", self.memory_record),
            Route("/health", self.health),
            Route("/health/machine", self.machine),
            Route(f"{task}/messages/{{number}}", partial(self.record, part="messages")),
            Route(f"{task}/compactions/{{number}}", partial(self.record, part="compactions")),
        ]
        handlers: dict[Any, Any] = {
            404: self.missing,
            405: self.missing,
            500: self.broken,
            ClientDisconnect: self.client_gone_response,
        }
        return RequestChecks(Starlette(routes=routes, exception_handlers=handlers), self)

    async def warm(self) -> None:
        """Load the modules and templates that the first page needs; they live as long as the process, so the garbage
        collector need not look at them again."""
        rendering.warm()
        await self.run(lambda: self.pages.tasks(task_list.TaskListQuery()))
        gc.collect()
        gc.freeze()

    async def close(self) -> None:
        """End the streams of events and the threads of the site."""
        self.is_closing.set()
        # the watcher closes its ledger in a thread of the pool, and the wait times out if all these threads hang
        with suppress(TimeoutError):
            await asyncio.wait_for(self.watcher.close(), CLOSE_SECONDS)
        for pool in (self.threads, self.waiting_threads, self.large_threads):
            pool.shutdown(wait=False, cancel_futures=True)
        self.reader.close()

    async def run(self, call: Callable[[], Any], pool: ThreadPoolExecutor | None = None) -> Any:
        """The result of a blocking function, which runs in a thread of `pool`, or of `self.threads` without `pool`."""
        return await asyncio.get_running_loop().run_in_executor(pool or self.threads, call)

    async def _limited(self, work: Coroutine[Any, Any, Any], seconds: float) -> Any:
        """The result of the coroutine `work`. Raises TimeoutError after `seconds`, and HostError LAST_SECONDS after the
        server has begun to end: uvicorn would cancel the request, and log the cancellation as an error of this
        program."""
        job, end = asyncio.ensure_future(work), asyncio.ensure_future(self._end_of_answers())
        try:
            await asyncio.wait((job, end), timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            if job.done():
                return job.result()
            if end.done():
                raise HostError("the server of this page ends, and this answer was not made in time")
            raise TimeoutError
        finally:
            job.cancel()
            end.cancel()

    async def _end_of_answers(self) -> None:
        """Wait until LAST_SECONDS have passed since the server began to end."""
        await self.is_closing.wait()
        await asyncio.sleep(LAST_SECONDS)

    # --- pages --------------------------------------------------------------------------------------------------

    async def front(self, request: Request) -> Response:
        """Redirects `/` to the list of tasks."""
        return RedirectResponse(request.url.replace(path="/tasks").path, status_code=303)

    async def tasks(self, request: Request) -> Response:
        """Answers `/tasks`: the list of tasks."""
        given = dict(request.query_params)
        return await self.page(
            request, "tasks", lambda: self.pages.tasks(task_list.TaskListQuery.from_parameters(given))
        )

    async def task(self, request: Request, part: str) -> Response:
        """Answers `/tasks/UUID` and the addresses of the task's parts."""
        uuid, given = request.path_params["uuid"], dict(request.query_params)
        pool = self.waiting_threads if part == "request" else self.large_threads if part in LARGE else None
        return await self.page(request, "task", lambda: self.pages.task(uuid, part, given), pool)

    async def record(self, request: Request, part: str) -> Response:
        """Answers `/tasks/UUID/messages/SEQ` and `/tasks/UUID/compactions/ID`."""
        uuid, number = request.path_params["uuid"], whole_number(request.path_params["number"])
        if number is None:
            return await self.missing(request, None)
        given = dict(request.query_params)
        build = partial(self.pages.record, uuid, part, number, given)
        return await self.page(request, "task", build, self.large_threads)

    async def memory(self, request: Request) -> Response:
        """Answers `/memory`: the list of memory records, or a search in them."""
        given = dict(request.query_params)
        return await self.page(request, "memory", lambda: memory_pages.matching_records(self.settings, given))

    async def memory_record(self, request: Request) -> Response:
        """Answers `/memory/ID`: one memory record."""
        record_id = request.path_params["record_id"]
        return await self.page(request, "memory", lambda: memory_pages.record(self.settings, record_id))

    async def health(self, request: Request) -> Response:
        """Answers `/health`: the health of this host."""
        return await self.page(request, "health", self.health_page.view)

    async def machine(self, request: Request) -> Response:
        """Answers `/health/machine`: the local checks of `doctor`."""
        return await self.page(request, "health", self.health_page.doctor, self.waiting_threads)

    async def page(
        self,
        request: Request,
        template: str,
        build: Callable[[], Json | None],
        pool: ThreadPoolExecutor | None = None,
    ) -> Response:
        """The HTTP answer with the page's value, which `build` returns; None from `build` means that the page does not
        exist. A MakimonoError or OSError of `build`, or a time-out, leads to a page that names the problem. `build`
        runs in a thread of `pool`, or of `self.threads` without `pool`."""
        seconds = HELPER_SECONDS if pool is self.waiting_threads else PAGE_SECONDS
        try:
            return await self._limited(self._render(request, template, build, pool), seconds)  # type: ignore[no-any-return]
        except TimeoutError:
            problem = f"this part took longer than {seconds:.0f} s; its disk or server may hang. Try it again"
            return self._problem(request, 503, problem)
        except UsageError as error:
            return self._problem(request, 400, str(error))
        except (MakimonoError, OSError) as error:
            return self._problem(request, 503, str(error))

    async def _render(
        self, request: Request, template: str, build: Callable[[], Json | None], pool: ThreadPoolExecutor | None
    ) -> Response:
        view = await self.run(build, pool)
        if view is None:
            return await self.missing(request, None)
        # in a thread, since masking and escaping a large page take so long that other requests would wait
        making = self.large_threads if pool is self.large_threads else None
        return await self.run(partial(self.answer, request, template, view), making)  # type: ignore[no-any-return]

    def answer(self, request: Request, template: str, view: Json, status: int = 200) -> Response:
        """The HTTP answer with the value of a page, as JSON if the request accepts JSON and not HTML, else as HTML."""
        shown = rendering.inert(public(view), self.redact)
        if wants_json(request.headers.get("accept", "")):
            return Response(orjson.dumps(shown), status, media_type=JSON)
        form = request.scope.get("form_token", "")
        more = {"has_actions": self.has_actions, "form_token": form, "has_login": bool(self.access.token)}
        try:
            text = rendering.render(template, shown, **more)
        except rendering.TemplateValuesError as error:  # values from another host's dashboard may not fit the template
            problem = {"page": "problem", "problems": [rendering.inert(str(error), self.redact)]}
            text, status = rendering.render("problem", problem, **more), 502
        return Response(text, status, media_type=HTML)

    async def missing(self, request: Request, error: Any) -> Response:
        """The answer to a request for an address without a page, or with a method that the address does not take."""
        status = getattr(error, "status_code", 404)
        why = "this address takes other methods" if status == 405 else "there is no such page or task"
        return self.answer(request, "problem", {"page": "problem", "problems": [why]}, status)

    async def broken(self, request: Request, _error: Exception) -> Response:
        """The answer to a request for which this program raised an unexpected error; uvicorn logs the traceback."""
        problem = "this page cannot be made: a mistake of this program; the log of the command has the traceback"
        return self.answer(request, "problem", {"page": "problem", "problems": [problem]}, 500)

    async def client_gone_response(self, _request: Request, _error: Exception) -> Response:
        """The answer to a client of which the connection ended before its form had come; nobody reads the answer."""
        return Response(status_code=408)

    async def static(self, request: Request) -> Response:
        """Answers the addresses of the style sheet and the script."""
        name = request.path_params["name"]
        if name not in STATIC:
            return await self.missing(request, None)
        return Response(rendering.static(name), media_type=STATIC[name], headers={"Cache-Control": "no-cache"})

    # --- orders -------------------------------------------------------------------------------------------------

    async def order(self, request: Request, word: str) -> Response:
        """Answers `POST /tasks/UUID/stop`, `pause`, `resume` or `retry`."""
        if not self.has_actions:
            return self._problem(request, 403, "this page gives no orders; `dashboard --actions` does")
        form = {} if request.scope.get("is_bearer") else await form_of(request)
        if not self._may_change(request, form):
            return self._problem(request, 403, "the form is too old, or another site sent it; load the page again")
        uuid = request.path_params["uuid"]
        try:
            job = partial(helper_process.run, self.settings, "order", uuid, word, self.who(request))
            done = await self._limited(self.run(job, self.waiting_threads), HELPER_SECONDS)
        except TimeoutError:
            return self._problem(request, 503, "the order was given, and showing it on the issue takes long")
        except UsageError as error:
            return self._problem(request, 409, str(error))
        except MakimonoError as error:
            return self._problem(request, 503, str(error))
        if wants_json(request.headers.get("accept", "")):
            return Response(orjson.dumps(rendering.inert(done, self.redact)), media_type=JSON)
        return RedirectResponse(f"/tasks/{done['uuid']}", status_code=303)

    def who(self, request: Request) -> str:
        """Where a command to a task comes from: the page or its token, and the IP address of the client."""
        address = request.client.host if request.client else ""
        how = "dashboard.token" if self.access.token else "dashboard"
        return f"{how} from {address}" if address else how

    def _may_change(self, request: Request, form: Mapping[str, str]) -> bool:
        """Whether a POST comes from a page of this process, or has the token in its header, which no browser adds by
        itself."""
        if request.scope.get("is_bearer"):
            return True
        has_origin = request.headers.get("origin") is not None  # `RequestChecks` refuses other sites' requests
        cookie = request.scope.get("form_cookie", "")
        return has_origin and self.access.is_form_token(cookie, form.get(rules.FORM_FIELD, ""))

    def _problem(self, request: Request, status: int, why: str) -> Response:
        return self.answer(request, "problem", {"page": "problem", "problems": [why]}, status)

    # --- events -------------------------------------------------------------------------------------------------

    async def events(self, request: Request) -> Response:
        """A stream that sends the event `changed` after a change of any row, and after a change of the files of the
        task that the parameter `task` names; between two events are LEAST_PAUSE seconds or more."""
        uuid = request.query_params.get("task", "")[:36]
        return StreamingResponse(self._stream(uuid), media_type="text/event-stream")

    async def _stream(self, uuid: str) -> AsyncIterator[bytes]:
        async with self.watcher.page(uuid) as changed:
            if changed is None:
                yield b"retry: 60000\n\n"
                return
            yield b"retry: 5000\n: open\n\n"
            while not self.is_closing.is_set():
                if await _set_within(changed, self.is_closing, EVENT_SECONDS):
                    changed.clear()
                    yield b"event: changed\ndata: 1\n\n"
                    await _set_within(self.is_closing, self.is_closing, LEAST_PAUSE)
                elif not self.is_closing.is_set():
                    yield b": quiet\n\n"

    # --- login --------------------------------------------------------------------------------------------------

    async def login(self, request: Request) -> Response:
        """Answers `/login`: GET with the form for the token, POST with a session if the token is right."""
        if request.method != "POST":
            return self.answer(request, "login", {"page": "login", "problems": []})
        address = request.client.host if request.client else ""
        if self.access.is_blocked(address):
            problem = "too many wrong tokens came from here; wait a minute"
            return self.answer(request, "login", {"page": "login", "problems": [problem]}, 429)
        form = await form_of(request)
        if not self.access.is_token(form.get("token", "")):
            self.access.note_failure(address)
            log.get("dashboard").warning("login_refused", address=address)
            return self.answer(request, "login", {"page": "login", "problems": ["this is not the token"]}, 403)
        answer = RedirectResponse("/tasks", status_code=303)
        cookie = rules.cookie_header(rules.COOKIE, self.access.begin_session(), is_encrypted=is_encrypted(request))
        answer.headers.append("Set-Cookie", cookie)
        return answer

    async def logout(self, request: Request) -> Response:
        """End the session of this browser."""
        self.access.end_session(request.scope.get("session", ""))
        answer = RedirectResponse("/login", status_code=303)
        cookie = rules.cookie_header(rules.COOKIE, "", is_encrypted=is_encrypted(request), seconds=0)
        answer.headers.append("Set-Cookie", cookie)
        return answer


class RequestChecks:
    """The checks of each request before it reaches a page, and the headers of each answer."""

    def __init__(self, app: ASGIApp, site: Site) -> None:
        self.app = app
        self.site = site
        self.access = site.access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or refuse it."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        given = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        cookies = rules.cookies_of(given.get("cookie", ""))
        more: list[tuple[bytes, bytes]] = [(name.encode(), value.encode()) for name, value in rules.HEADERS.items()]
        scope["session"] = cookies.get(rules.COOKIE, "")
        form_cookie = cookies.get(rules.FORM_COOKIE, "")
        if not form_cookie and scope["method"] == "GET":
            form_cookie = secrets.token_urlsafe(24)
            is_secure = given.get("x-forwarded-proto") == "https"
            header = rules.cookie_header(rules.FORM_COOKIE, form_cookie, is_encrypted=is_secure)
            more.append((b"set-cookie", header.encode()))
        scope["form_cookie"] = form_cookie
        scope["form_token"] = self.access.form_token(form_cookie)

        async def sent(message: Any) -> None:
            if message["type"] == "http.response.start":
                names = {name.lower() for name, _ in message["headers"]}
                message["headers"] = [
                    *message["headers"],
                    *(one for one in more if one[0].lower() not in names or one[0] == b"set-cookie"),
                ]
            await send(message)

        refusal = self._refusal(scope, given)
        if refusal is None:
            if not self._is_open(scope["path"]):
                connections.note_allowed(scope)
            await self.app(scope, receive, sent)
        else:
            await refusal(scope, receive, sent)

    def _refusal(self, scope: Scope, given: Mapping[str, str]) -> Response | None:
        """The answer to a request that is refused, None for a request that may be served."""
        host, origin = given.get("host", ""), given.get("origin")
        if not self.access.is_known_host(host):
            return _text_response(
                421, "this page is not asked under this name; dashboard.hosts has the names of a page"
            )
        if origin is not None and not self.access.is_same_origin(origin, host):
            return _text_response(403, "a request of another site is not answered")
        if not self.access.token or self._is_open(scope["path"]):
            return None
        if bearer := self.access.bearer(given.get("authorization", "")):
            return self._judged(scope, bearer)
        if self.access.is_session(scope["session"]):
            return None
        if wants_json(given.get("accept", "")) or scope["method"] != "GET" or scope["path"] == "/events":
            return _text_response(401, "a token is needed: Authorization: Bearer TOKEN", {"WWW-Authenticate": "Bearer"})
        return RedirectResponse("/login", status_code=303)

    @staticmethod
    def _is_open(path: str) -> bool:
        """Whether a request for this path needs no token."""
        return path == "/login" or path.startswith("/static/")

    def _judged(self, scope: Scope, bearer: str) -> Response | None:
        address = scope["client"][0] if scope.get("client") else ""
        if self.access.is_blocked(address):
            return _text_response(429, "too many wrong tokens came from here; wait a minute")
        if self.access.is_token(bearer):
            scope["is_bearer"] = True
            return None
        self.access.note_failure(address)
        log.get("dashboard").warning("login_refused", address=address)
        return _text_response(401, "this is not the token", {"WWW-Authenticate": "Bearer"})


def wants_json(accept: str) -> bool:
    """Whether a request prefers JSON: its `Accept` header names JSON and not HTML."""
    return JSON in accept and HTML not in accept


def is_encrypted(request: Request) -> bool:
    """Whether the browser uses TLS, by the scheme of the request or by the header `X-Forwarded-Proto` of a proxy."""
    return request.url.scheme == "https" or request.headers.get("x-forwarded-proto") == "https"


async def form_of(request: Request) -> dict[str, str]:
    """The fields of a form in a request; {} if its body has more than MOST_BODY bytes, is not ASCII, or has more than
    20 fields. Of a repeated field the first value is used."""
    data = bytearray()
    async for chunk in request.stream():
        data += chunk
        if len(data) > MOST_BODY:
            return {}
    try:
        found = parse_qs(data.decode("ascii"), keep_blank_values=True, max_num_fields=20)
    except ValueError:
        return {}
    return {name: values[0] for name, values in found.items()}


def _text_response(status: int, text: str, headers: Mapping[str, str] | None = None) -> Response:
    return Response(text + "\n", status, media_type="text/plain", headers=dict(headers or {}))


async def _set_within(event: asyncio.Event, closing: asyncio.Event, seconds: float) -> bool:
    """Wait until `event` or `closing` is set, or `seconds` have passed; returns whether `event` is set."""
    waits = {asyncio.ensure_future(one.wait()) for one in {event, closing}}
    try:
        await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for one in waits:
            one.cancel()
    return event.is_set()
