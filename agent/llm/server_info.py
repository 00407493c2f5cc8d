"""Finds out and stores facts about the model server of a client: the address, kind, models and context window of the
server; also holds the connections to it.

`Server` is a base class of `ChatClient` (`client.py`), which sets the attributes that `Server` declares.
"""

from __future__ import annotations

from abc import abstractmethod
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import orjson

from agent.config.base import PROVIDERS
from agent.config.configured_window import assumed_window, configured_window
from agent.errors import (
    ModelError,
    ModelNotFound,
)
from agent.llm import urls
from agent.llm.base import Check
from agent.llm.transport import Transport

if TYPE_CHECKING:
    import threading
    from collections.abc import Iterator, Mapping

    from agent.config import Settings
    from agent.config.settings import ProviderSettings
    from agent.llm.dialects import Dialect
    from agent.observe.events import EventSink
    from agent.values import Control

MOST = 8_192
"""The maximum number of tokens of an answer if neither the configuration nor a request plan sets a maximum and a
quarter of the context window is not less."""
ONE_SLOT = frozenset(("ollama", "lmstudio", "llamacpp"))
"""Dialects of model servers that answer one request after another unless they are configured otherwise."""
PROBE = 10.0  # time limit in seconds of a request that asks for facts about the server


class Server:
    """The part of a model client that knows the server's address, holds the connections and requests facts about the
    server."""

    name: ClassVar[str]
    default_url: ClassVar[str]
    call: ClassVar[str]
    key_header: ClassVar[str]
    wire_headers: ClassVar[Mapping[str, str]]
    own_dialect: ClassVar[Dialect]
    settings: Settings
    provider: str
    keys: ProviderSettings
    model: str
    dialect: Dialect
    recognised: str
    abilities: dict[str, bool]
    control: Control | None
    events: EventSink | None
    most_output: int
    base: int
    _asked_output: int
    _window: int | None
    input_limit: int
    _transport: Transport | None
    _idle: list[Transport]
    _taking: threading.Lock
    _taken: bool
    _heard_of: set[str]
    told_slots: int

    @contextmanager
    def connection(self) -> Iterator[Transport]:
        """A context manager with a transport that no other thread uses: the main transport, or an additional transport
        while the main one is in use."""
        with self._taking:
            taken = self._taken
            self._taken = True
            mine = self.transport if not taken else self._idle.pop() if self._idle else self._connect()
        try:
            yield mine
        finally:
            with self._taking:
                if taken:
                    self._idle.append(mine)
                else:
                    self._taken = False

    @property
    def transport(self) -> Transport:
        """The main transport, which is opened on first use: a process forked before that opens a transport of its
        own."""
        if self._transport is None:
            self._transport = self._connect()
        return self._transport

    def _connect(self) -> Transport:
        keys = self.keys
        return Transport(self.label, self.headers(), idle=keys.idle_timeout, whole=keys.timeout, control=self.control)

    @property
    def base_url(self) -> str:
        """The configured address of the model server, or the default address of the provider."""
        return self.keys.base_url or self.default_url

    @property
    def bases(self) -> tuple[str, ...]:
        """The possible base URLs of the API, the likeliest first."""
        return urls.bases(self.base_url, self.call, self.dialect.base_path)

    def url_of(self, path: str) -> str:
        """The full URL of the API's path `path`, with the query of the configured address."""
        return urls.join(self.base_url, self.bases[min(self.base, len(self.bases) - 1)], path)

    def next_base(self) -> bool:
        """Switch to the next possible base URL, after a request was answered with 404 or 405; returns False when there
        is no further base URL."""
        if self.base + 1 >= len(self.bases):
            return False
        self.base += 1
        return True

    @property
    def api_key(self) -> str:
        """The API key of the provider, "" when none is configured."""
        return self.keys.api_key.get_secret_value().strip() if self.keys.api_key is not None else ""

    @property
    def address(self) -> str:
        """The address of the server, without password and query, under which learnt facts about the server are
        stored."""
        return urls.displayable(urls.clean(self.base_url))

    @property
    def label(self) -> str:
        """The name of the server in messages for people."""
        return f"{self.provider} at {urls.displayable(urls.clean(self.base_url))}"

    @property
    def slots(self) -> int | None:
        """The number of requests that the server processes at the same time; None if the server's dialect is not in
        ONE_SLOT.

        Ollama, LM Studio and llama.cpp queue the requests for which they have no free slot.  llama.cpp reports the
        number of its slots; for Ollama and LM Studio the default of one slot is assumed.
        """
        return (self.told_slots or 1) if self.dialect.name in ONE_SLOT else None

    def output_limit(self, wanted: int) -> int:
        """The maximum number of tokens of an answer: the tokens that the request plan reserves for the answer
        (`wanted`), or the configured or learnt maximum if that is smaller.

        For a request without a request plan (such as one for a summary) the maximum is at most a quarter of the context
        window, since the configured maximum may leave no room for the prompt.
        """
        most = self.keys.max_output_tokens or 0
        if wanted <= 0:
            wanted = min(most or MOST, self.quarter_of_window)
        self._asked_output = min(wanted, most or wanted, self.most_output or wanted)
        return self._asked_output

    @cached_property
    def configured_window(self) -> int:
        """The context window, in tokens, that is configured for the client's model."""
        return configured_window(self.settings, self.provider, self.model)[0]

    @cached_property
    def is_window_assumed(self) -> bool:
        """Whether `configured_window` is only an assumption, since no window is configured; if so, the window that the
        server reports replaces the assumption."""
        return assumed_window(self.settings, self.provider, self.model)

    @property
    def quarter_of_window(self) -> int:
        """A quarter of the smaller of the configured and the reported context window, as far as known without a new
        request; an assumed window counts only if the server has reported none.

        `window/limits.py` reserves at most a quarter of the context window for an answer. If the maximum of input
        tokens is known, `quarter_of_window` is also at most a third of that maximum.
        """
        configured = 0 if self.is_window_assumed and self._window else self.configured_window
        known = [size // 4 for size in (configured, self._window or 0) if size]
        return max(1, min([*known, self.input_limit // 3] if self.input_limit else known))

    def fetch(self, method: str, url: str, *, json: Any = None, seconds: float = PROBE) -> Any:
        """Send one request that asks for facts about the server; returns the decoded JSON, None when the answer is not
        JSON.  Raises ModelError."""
        with self.connection() as transport:
            body = transport.fetch(method, url, json=json, seconds=seconds)
        try:
            return orjson.loads(body)
        except orjson.JSONDecodeError:
            return None

    def ask_below(self, path: str, more: str = "") -> Any:
        """Send a GET of the path `path` below the server's base URL; after a 404 the next possible base URL is tried,
        if the configured address has a path.

        Raises ModelError.
        """
        tried = self.base
        while True:
            url = self.url_of(path)
            try:
                return self.fetch("GET", url + (f"{'&' if '?' in url else '?'}{more}" if more else ""))
            except ModelNotFound:
                if not urls.path(self.base_url) or not self.next_base():
                    # if no base URL works, the first one stays selected: a missing endpoint does not show that the URL
                    # is wrong
                    self.base = tried
                    raise

    def describe(self) -> str:
        return f"{self.model} ({self.label})"

    def check(self) -> Check:
        try:
            models = self.models()
        except ModelNotFound as error:
            if not self.is_there():
                return Check(False, str(error), answers=False)
            models = self._models_or_none()
        except ModelError as error:
            return Check(False, str(error), answers=False)
        if not models:
            return Check(True, f"{self.label} answers; it lists no models, so {self.model!r} could not be looked for")
        if not any(same_model(self.model, known) for known in models):
            self.loaded_window()  # `loaded_window` also recognises the kind of server
            if self.dialect.any_name and len(models) == 1:
                return self._fit(f"{self.label} answers with {models[0]}, its only model, whatever name is sent")
            if not self.dialect.lists_names:
                said = f"it lists no deployments, so {self.model!r} could not be looked for"
                return Check(True, f"{self.label} answers; {said}")
            shown = ", ".join(sorted(models)[:12])
            key = f"llm.{self.provider if self.provider in PROVIDERS else 'plugin'}.model"
            found = f"{self.label} answers, but has no model {self.model!r}; it has {shown}"
            return Check(False, f"{found}. Set {key} to one of them, or get it")
        return self._fit(f"{self.describe()} answers")

    def _fit(self, text: str) -> Check:
        """The result of the `doctor` check of a server that has the model: `text`, the context window, and whether the
        model has tool calls."""
        window = self.loaded_window()
        text += f", window {window} tokens" if window else ""
        if self.abilities.get("tools") is False and self.keys.tool_calls != "text":
            ways = {"auto": "tools are called in its text", "native": "set tool_calls to auto, or take another model"}
            text += f"; it has no tool calls: {ways[self.keys.tool_calls]}"
        return Check(self.keys.tool_calls != "native" or self.abilities.get("tools") is not False, text)

    def _models_or_none(self) -> list[str]:
        """The names of the server's models; [] after an error, which is ignored since the address of the server is
        known to be right."""
        try:
            return self.models()
        except ModelError:
            return []

    def is_there(self) -> bool:
        """Whether the chat endpoint exists, on a server without a list of models.

        `is_there` sends a chat request without messages, which every known server refuses: status 404 means that the
        path does not exist, any other status that the path exists. Without any answer the result is False.
        """
        while True:
            try:
                self.fetch("POST", self.url, json={"model": self.model, "messages": []})
            except ModelNotFound:
                if not self.next_base():
                    return False
            except ModelError as error:
                return error.status is not None
            else:
                return True

    def headers(self) -> Mapping[str, str]:
        """The HTTP headers of every request: the headers of the API, the authentication, and the configured headers; a
        configured header replaces any other header of the same name."""
        named = self.keys.api_key_header or self.dialect.key_header or self.key_header
        value = f"Bearer {self.api_key}" if named.lower() == "authorization" else self.api_key
        found = {**self.wire_headers, **({named: value} if self.api_key else {})}
        configured = {name: secret.get_secret_value() for name, secret in self.keys.headers.items()}
        own = {name.lower() for name in configured}
        return {name: value for name, value in found.items() if name.lower() not in own} | configured

    @property
    def url(self) -> str:
        """The URL to which chat requests are sent."""
        return self.url_of(self.call)

    def recognise(self, dialect: Dialect | None) -> None:
        """Use `dialect`, which the server's answers indicate, unless the configuration, the address or an earlier
        answer has already selected a dialect."""
        if dialect is not None and self.dialect is self.own_dialect and not self.keys.dialect:
            self.dialect = dialect
            self.recognised = "by what it says of itself"

    def emit(self, name: str, **fields: Any) -> None:
        """Emit an event with the fields provider and model added."""
        if self.events is not None:
            self.events.emit(name, provider=self.provider, model=self.model, **fields)

    def _who_answered(self, name: str) -> None:
        """Report once if the answer is from another model than the requested one, since a server with a single loaded
        model may ignore the requested name."""
        if name and name not in self._heard_of and not answers_as(self.model, name):
            self.emit("model_differs", answered=name)
        self._heard_of.add(name)

    def loaded_window(self) -> int | None:
        return None

    @abstractmethod
    def models(self) -> list[str]:
        """The names of the models that the model server lists."""


def same_model(wanted: str, known: str) -> bool:
    """Whether two names mean the same model; a name without a tag means the tag `latest`."""
    return known in (wanted, f"{wanted}:latest") or wanted == f"{known}:latest"


def answers_as(wanted: str, answered: str) -> bool:
    """Whether `answered`, the name of a model in an answer, may mean the requested model `wanted`: one of the names may
    have a date or tag at its end, and the vendor's prefix may differ."""
    one, other = (name.lower().rpartition("/")[2] for name in (wanted, answered))
    return one.startswith(other) or other.startswith(one)
