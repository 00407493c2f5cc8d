"""What a client knows of its server: where it is, who it is, which models and which window it has, how it is reached.

One half of `ChatClient` (`client.py`), which sets the attributes that are declared here.
"""

from __future__ import annotations

from abc import abstractmethod
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import orjson

from agent.config.base import PROVIDERS
from agent.config.window import assumed_window, configured_window
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
    from agent.llm.base import Announce
    from agent.llm.dialects import Dialect
    from agent.values import Control

MOST = 8_192
"""Tokens of an answer where neither the configuration nor a plan says."""
PROBE = 10.0  # seconds for a question about the server


class Server:
    """Address, connections and questions of a client."""

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
    events: Announce | None
    most_output: int
    base: int
    _asked_output: int
    _window: int | None
    _input_limit: int
    _transport: Transport | None
    _idle: list[Transport]
    _taking: threading.Lock
    _taken: bool
    _heard_of: set[str]

    @contextmanager
    def connection(self) -> Iterator[Transport]:
        """A transport that nobody else uses meanwhile: the first one, another when that is taken."""
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
        """Connections, opened when first used (after a fork)."""
        if self._transport is None:
            self._transport = self._connect()
        return self._transport

    def _connect(self) -> Transport:
        keys = self.keys
        return Transport(self.who, self.headers(), idle=keys.idle_timeout, whole=keys.timeout, control=self.control)

    @property
    def base_url(self) -> str:
        """The configured address, or the provider's own."""
        return self.keys.base_url or self.default_url

    @property
    def bases(self) -> tuple[str, ...]:
        """The addresses below which the calls may be, the likeliest first."""
        return urls.bases(self.base_url, self.call, self.dialect.base_path)

    def at(self, path: str) -> str:
        """The address of one call, with the query of the configured one."""
        return urls.join(self.base_url, self.bases[min(self.base, len(self.bases) - 1)], path)

    def next_base(self) -> bool:
        """Take the next form of the address, after a 404; False when there is none."""
        if self.base + 1 >= len(self.bases):
            return False
        self.base += 1
        return True

    @property
    def api_key(self) -> str:
        """The key, "" when none is configured."""
        return self.keys.api_key.get_secret_value().strip() if self.keys.api_key is not None else ""

    @property
    def address(self) -> str:
        """The address under which what is learnt is kept: no password and no query in it."""
        return urls.shown(urls.clean(self.base_url))

    @property
    def who(self) -> str:
        """The server in a message."""
        return f"{self.provider} at {urls.shown(urls.clean(self.base_url))}"

    def output(self, wanted: int) -> int:
        """The most tokens of an answer: the less of what the plan reserves and what is configured.  Without a plan's
        word (summaries) what is configured may be more than has room beside a prompt."""
        most = self.keys.max_output_tokens or 0
        if wanted <= 0:
            wanted = min(most or MOST, self.quarter)
        self._asked_output = min(wanted, most or wanted, self.most_output or wanted)
        return self._asked_output

    @cached_property
    def configured(self) -> int:
        """The window of this model as configured."""
        return configured_window(self.settings, self.provider, self.model)[0]

    @cached_property
    def assumed(self) -> bool:
        """Whether `configured` is only assumed: what the server tells is the window then, whatever it is."""
        return assumed_window(self.settings, self.provider, self.model)

    @property
    def quarter(self) -> int:
        """A quarter of the window, as far as it is known without asking: what `window/limits.py` keeps for an answer at
        most.  A third of what the input may be is less than that."""
        configured = 0 if self.assumed and self._window else self.configured
        known = [size // 4 for size in (configured, self._window or 0) if size]
        return max(1, min([*known, self._input_limit // 3] if self._input_limit else known))

    def fetch(self, method: str, url: str, *, json: Any = None, seconds: float = PROBE) -> Any:
        """One question about the server: its JSON, None when the answer is not JSON.  Raises ModelError."""
        with self.connection() as transport:
            body = transport.fetch(method, url, json=json, seconds=seconds)
        try:
            return orjson.loads(body)
        except orjson.JSONDecodeError:
            return None

    def ask_below(self, path: str, more: str = "") -> Any:
        """One question below the base of the address; a 404 takes the next form of it.  Raises ModelError."""
        tried = self.base
        while True:
            url = self.at(path)
            try:
                return self.fetch("GET", url + (f"{'&' if '?' in url else '?'}{more}" if more else ""))
            except ModelNotFound:
                if not urls.path(self.base_url) or not self.next_base():
                    self.base = tried  # nowhere: a server without this call says nothing about the address
                    raise

    def describe(self) -> str:
        return f"{self.model} ({self.who})"

    def check(self) -> Check:
        try:
            models = self.models()
        except ModelNotFound as error:
            if not self.is_there():
                return Check(False, str(error))
            models = self._models_or_none()
        except ModelError as error:
            return Check(False, str(error))
        if not models:
            return Check(True, f"{self.who} answers; it lists no models, so {self.model!r} could not be looked for")
        if not any(same_model(self.model, known) for known in models):
            if not self.dialect.lists_names:
                said = f"it lists no deployments, so {self.model!r} could not be looked for"
                return Check(True, f"{self.who} answers; {said}")
            shown = ", ".join(sorted(models)[:12])
            key = f"llm.{self.provider if self.provider in PROVIDERS else 'plugin'}.model"
            found = f"{self.who} answers, but has no model {self.model!r}; it has {shown}"
            return Check(False, f"{found}. Set {key} to one of them, or get it")
        window = self.loaded_window()
        text = f"{self.describe()} answers{f', window {window} tokens' if window else ''}"
        if self.abilities.get("tools") is False and self.keys.tool_calls != "text":
            ways = {"auto": "tools are called in its text", "native": "set tool_calls to auto, or take another model"}
            text += f"; it has no tool calls: {ways[self.keys.tool_calls]}"
        return Check(self.keys.tool_calls != "native" or self.abilities.get("tools") is not False, text)

    def _models_or_none(self) -> list[str]:
        """The list, now that the right form of the address is known."""
        try:
            return self.models()
        except ModelError:
            return []

    def is_there(self) -> bool:
        """Whether the call for chats is there, on a server that has no list of models: a request without messages is
        refused by every server, and with 404 where there is no such path."""
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
        """Authentication and what is configured; of two that are the same the configured one counts."""
        named = self.keys.api_key_header or self.dialect.key_header or self.key_header
        value = f"Bearer {self.api_key}" if named.lower() == "authorization" else self.api_key
        found = {**self.wire_headers, **({named: value} if self.api_key else {})}
        configured = {name: secret.get_secret_value() for name, secret in self.keys.headers.items()}
        own = {name.lower() for name in configured}
        return {name: value for name, value in found.items() if name.lower() not in own} | configured

    @property
    def url(self) -> str:
        """Where chat requests go."""
        return self.at(self.call)

    def recognise(self, dialect: Dialect | None) -> None:
        """Take what the server says of itself: a dialect that neither the configuration nor the address has named."""
        if dialect is not None and self.dialect is self.own_dialect and not self.keys.dialect:
            self.dialect = dialect
            self.recognised = "by what it says of itself"

    def emit(self, name: str, **fields: Any) -> None:
        """Announce."""
        if self.events is not None:
            self.events.emit(name, provider=self.provider, model=self.model, **fields)

    def _who_answered(self, name: str) -> None:
        """Say it once when it was another model: a server with a single one loaded passes over the name it is given."""
        if name and name not in self._heard_of and not answers_as(self.model, name):
            self.emit("model_differs", answered=name)
        self._heard_of.add(name)

    def loaded_window(self) -> int | None:
        return None

    @abstractmethod
    def models(self) -> list[str]:
        """Names of the models that the server has."""


def same_model(wanted: str, known: str) -> bool:
    """Whether two names mean one model; a missing tag is `latest`."""
    return known in (wanted, f"{wanted}:latest") or wanted == f"{known}:latest"


def answers_as(wanted: str, answered: str) -> bool:
    """Whether a model of this name may have answered for the wanted one: with a date or a tag behind it, with or
    without the name of who made it before it."""
    one, other = (name.lower().rpartition("/")[2] for name in (wanted, answered))
    return one.startswith(other) or other.startswith(one)
