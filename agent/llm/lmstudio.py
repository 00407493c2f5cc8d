"""The client for LM Studio, which implements OpenAI's API: the client finds out with which context window the model is
loaded (docs/wire.md, "The window").

In LM Studio's list of models `max_context_length` is the largest context window of the model, not the window with which
the model is loaded. If the model is not loaded, the client asks LM Studio to load the model, with the configured window
if there is one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from agent.errors import ModelError
from agent.llm import urls
from agent.llm.dialects import DIALECTS
from agent.llm.model_info import abilities, entries, positive_int
from agent.llm.openai import OpenAIClient
from agent.llm.server_info import same_model

if TYPE_CHECKING:
    from agent.llm.dialects import Dialect
    from agent.values import Json


class LMStudioClient(OpenAIClient):
    """A client for LM Studio; its positional arguments are `(config, message_store, context_dir)`; see
    docs/design/context.md, 5.4."""

    name = "lmstudio"
    lists_every_model = True
    start_advice = "start LM Studio's server and get the model, or set llm.lmstudio"
    default_url = "http://localhost:1234"
    own_dialect: ClassVar[Dialect] = DIALECTS["lmstudio"]

    @property
    def bases(self) -> tuple[str, ...]:
        return (f"{self.root}/v1",)

    @property
    def root(self) -> str:
        """The configured address of the server without a path `/v1`, `/api/v0` or `/api/v1` at its end."""
        return urls.root(self.base_url)

    def prepare(self) -> None:
        """Load the model if LM Studio has not loaded it, since the first request would load it with LM Studio's default
        window and not with the configured one."""
        self.loaded_window()

    def loaded_window(self) -> int | None:
        if not self._asked_window:
            self._asked_window = True
            self._window = self._loaded_v1() or self._loaded_v0()
        return self._window

    def _loaded_v1(self) -> int | None:
        try:
            answer = self.fetch("GET", urls.join(self.base_url, self.root, "/api/v1/models"))
            entry = next((one for one in entries(answer, "models") if self._is_ours(one)), None)
            if entry is None:
                return None
            self.abilities |= abilities(entry)
            return _instance_window(entry, self.model) or self._load(entry)
        except ModelError:
            return None

    def _load(self, entry: Json) -> int | None:
        """Ask LM Studio to load the model, with the configured window, if there is one, limited to the model's largest
        window; returns the window of the loaded model, None if it is unknown."""
        wanted = min(self.configured_window, positive_int(entry.get("max_context_length")) or self.configured_window)
        length = (
            {} if self.is_window_assumed else {"context_length": wanted}
        )  # If no window is configured, LM Studio uses its own setting for the window.
        answer = self.fetch(
            "POST",
            urls.join(self.base_url, self.root, "/api/v1/models/load"),
            json={"model": entry.get("key") or self.model, **length, "echo_load_config": True},
            seconds=self.keys.timeout,
        )
        if not isinstance(answer, dict) or answer.get("error") or answer.get("status") not in (None, "loaded"):
            return None
        config = answer.get("load_config")
        return (positive_int(config.get("context_length")) if isinstance(config, dict) else None) or (
            None if self.is_window_assumed else wanted
        )

    def _loaded_v0(self) -> int | None:
        try:
            answer = self.fetch("GET", urls.join(self.base_url, self.root, "/api/v0/models"))
        except ModelError:
            return None
        for entry in entries(answer, "data"):
            if self._is_ours(entry) and entry.get("state") in (None, "loaded"):
                return positive_int(entry.get("loaded_context_length"))
        return None

    def _is_ours(self, entry: Json) -> bool:
        names = [entry.get("key"), entry.get("id"), *(one.get("id") for one in entries(entry, "loaded_instances"))]
        return any(isinstance(name, str) and same_model(self.model, name) for name in names)


def _instance_window(entry: Json, model: str) -> int | None:
    """The context window of the loaded instance with the id `model`; if there is no such instance, or it names no
    window, the window of the first loaded instance that names one. The result is None if no instance names a window."""
    instances = sorted(entries(entry, "loaded_instances"), key=lambda one: one.get("id") != model)
    for instance in instances:
        config = instance.get("config")
        if isinstance(config, dict) and (window := positive_int(config.get("context_length"))):
            return window
    return None
