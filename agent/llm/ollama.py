"""The client for Ollama's own API: the requests name the context window and switch truncation off; nevertheless the
client checks whether the prompt was truncated.

A request to Ollama's `/v1` cannot set the context window, so `OllamaClient` uses `/api/chat` (docs/wire.md, "The
request"; docs/design/context.md, 5.3).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, BinaryIO, ClassVar

import orjson

from agent.config.configured_window import SMALLEST, window_cap
from agent.errors import ModelError
from agent.llm import model_info, truncation_detector, urls, wire_ollama, wire_openai
from agent.llm.client import ChatClient
from agent.llm.dialects import DIALECTS
from agent.llm.error_wordings import NO_MEMORY
from agent.llm.server_info import same_model

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from agent.errors import HistoryRefused, ModelNotFound, RequestRefused
    from agent.llm.base import SideRequest
    from agent.llm.stream_accumulator import StreamAccumulator
    from agent.llm.transport import Stream
    from agent.message_list_check import Shape
    from agent.values import Answer, Json, Plan, Span


class OllamaClient(ChatClient):
    """A client for Ollama; its positional arguments are `(config, message_store, context_dir)`."""

    name = "ollama"
    lists_every_model = True
    start_advice = "start it (`ollama serve`), get the model (`ollama pull`), or set llm.ollama"
    default_url = "http://localhost:11434"
    call = "/api/chat"
    learns: ClassVar[tuple[str, ...]] = (*ChatClient.learns, "most_window")
    own_dialect = DIALECTS["ollama"]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.most_window = 0  # learnt: the largest context window that fits into the memory of the server; 0 if unknown

    @property
    def root(self) -> str:
        """The configured address of the server without a path `/v1` or `/api` at its end."""
        return urls.root(self.base_url)

    @property
    def bases(self) -> tuple[str, ...]:
        return (self.root,)

    # --- request ----------------------------------------------------------------------------------------------

    def prepare(self) -> None:
        self.loaded_window()

    def loaded_window(self) -> int:
        """The context window, in tokens, that the requests name as `num_ctx`.

        `num_ctx` is the configured window, limited to the window with which the model was trained. If no window is
        configured, `num_ctx` is the window that the Modelfile sets, or the trained window if the Modelfile sets none,
        or the assumed window if both are unknown, limited to the maximum that the settings allow and to `most_window`.
        `num_ctx` stays the same, unless the memory of the server does not suffice, since another number makes the
        server reload the model.
        """
        if self._window is None:
            own, trained = self._read_windows()
            if self.is_window_assumed:
                told = own or trained or self.configured_window
                self._window = min(told, window_cap(self.settings) or told, self.most_window or told)
            else:
                self._window = min(self.configured_window, trained or self.configured_window)
        return self._window

    def adapt_to_refusal(self, error: RequestRefused | HistoryRefused | ModelNotFound) -> bool:
        """If no context window is configured and the server's memory does not suffice, halve the window; else learn
        from the refusal as every client does. Returns True when the next request will differ from the refused one."""
        window = self.loaded_window()
        if self.is_window_assumed and window > SMALLEST and NO_MEMORY.search(error.quote):
            self.most_window = self._window = max(SMALLEST, window // 2)
            return True
        return super().adapt_to_refusal(error)

    def _read_windows(self) -> tuple[int | None, int | None]:
        try:
            answer = self.fetch("POST", self.url_of("/api/show"), json={"model": self.model})
        except ModelError:
            return None, None
        self.abilities |= model_info.abilities(answer)
        return model_info.ollama_windows(answer)

    def header(self, output: int, tools: Sequence[Json]) -> bytes:
        """The bytes of a request that precede the first message."""
        options: Json = {"num_ctx": self.loaded_window(), "num_predict": output}
        fields = {"model": self.model, "stream": True, "truncate": False, "shift": False}
        left: Json = {name: value for name, value in fields.items() if name not in self.dropped}
        left["options"] = {name: value for name, value in options.items() if name not in self.dropped}
        return wire_openai.header(left, wire_openai.offered(tools) if tools else b"")

    def optional(self) -> Collection[str]:
        return (*super().optional(), "truncate", "shift", "num_ctx", "num_predict")

    def encode(
        self, out: BinaryIO, spans: Sequence[Span], shape: Shape, output: int, aside: SideRequest | None = None
    ) -> None:
        if aside is None and (texts := self.in_text(spans)) is not None:
            out.write(self.header(output, ()))
            wire_openai.join(out, (orjson.dumps(message) for message in texts))
            out.write(b"]}")
            return
        tools: Sequence[Json] | None = None
        # The tool choice decides which tools the request offers, since `/api/chat` has no `tool_choice`.
        if aside is not None:
            tools = () if aside.choice == "none" else aside.alone()
        out.write(self.header(output, self.offered_tools(tools)))
        wire_openai.join(
            out, wire_ollama.messages(spans, shape, alternate=self.alternate, change=self.message_change(shape))
        )
        out.write(b"]}")

    # --- answer -----------------------------------------------------------------------------------------------

    def read(self, stream: Stream) -> StreamAccumulator:
        draft = wire_ollama.read_answer(stream, self.label)
        if draft.usage is not None and draft.usage.prompt + draft.usage.completion >= self.loaded_window():
            # a server that does not know the parameter `shift` drops the older half of the prompt when the window is
            # full, and reports `stop`; the answer then counts as cut off
            draft.finish = "length"
        return draft

    def validate(self, answer: Answer, plan: Plan | None) -> None:
        window = self.loaded_window()
        why = f"Its window is smaller than num_ctx {window}; see OLLAMA_CONTEXT_LENGTH and `ollama ps`"
        truncation_detector.check_not_truncated(answer, plan, self.reports, window, self._allocated, self.label, why)

    def _allocated(self) -> int | None:
        """The context window that the server has allocated for the model, which may be less than the requested
        `num_ctx`; None if the server does not report it."""
        try:
            answer = self.fetch("GET", self.url_of("/api/ps"))
        except ModelError:
            return None
        self.allocated = truncation_detector.allocated_of(answer, self.model, same_model)
        return self.allocated

    # --- server -----------------------------------------------------------------------------------------------

    def models(self) -> list[str]:
        answer = self.fetch("GET", self.url_of("/api/tags"))
        listed = answer.get("models") if isinstance(answer, dict) else None
        return [str(entry.get("model") or entry.get("name")) for entry in listed or () if isinstance(entry, dict)]
