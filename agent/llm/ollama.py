"""Ollama by its own API: a constant window in every request, no silent cutting, and a look whether it was cut anyway.

`/v1` of Ollama cannot set the window, so `/api/chat` is used (facts on wires, section 2).  Seed 002, section 5.3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, BinaryIO, ClassVar

import orjson

from agent.config.window import SMALLEST, window_cap
from agent.errors import ModelError
from agent.llm import silent, urls, windows, wire_ollama, wire_openai
from agent.llm.client import ChatClient
from agent.llm.dialects import DIALECTS
from agent.llm.server import same_model
from agent.llm.wording import NO_MEMORY

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from agent.errors import HistoryRefused, ModelNotFound, RequestRefused
    from agent.llm.base import Aside
    from agent.llm.draft import Draft
    from agent.llm.spans import Shape
    from agent.llm.transport import Stream
    from agent.values import Answer, Json, Plan, Span


class OllamaClient(ChatClient):
    """`(config, message_store, context_dir)`."""

    name = "ollama"
    default_url = "http://localhost:11434"
    call = "/api/chat"
    learns: ClassVar[tuple[str, ...]] = (*ChatClient.learns, "most_window")
    own_dialect = DIALECTS["ollama"]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.most_window = 0  # learnt: what the machine's memory has room for

    @property
    def root(self) -> str:
        """The server without `/v1` or `/api`."""
        return urls.root(self.base_url)

    @property
    def bases(self) -> tuple[str, ...]:
        return (self.root,)

    # --- request ----------------------------------------------------------------------------------------------

    def ready(self) -> None:
        self.loaded_window()

    def loaded_window(self) -> int:
        """`num_ctx` of every request: the configured window, at most what the model was trained for; where none is
        configured what the model's file sets, else what it was trained for.  It never changes, because another value
        makes the server load the model again."""
        if self._window is None:
            own, trained = self._shown()
            if self.assumed:
                told = own or trained or self.configured
                self._window = min(told, window_cap(self.settings) or told, self.most_window or told)
            else:
                self._window = min(self.configured, trained or self.configured)
        return self._window

    def amend(self, error: RequestRefused | HistoryRefused | ModelNotFound) -> bool:
        """Beside what every client learns: a window that nobody has configured is halved when the machine has too
        little memory for it."""
        window = self.loaded_window()
        if self.assumed and window > SMALLEST and NO_MEMORY.search(error.quote):
            self.most_window = self._window = max(SMALLEST, window // 2)
            return True
        return super().amend(error)

    def _shown(self) -> tuple[int | None, int | None]:
        try:
            answer = self.fetch("POST", self.at("/api/show"), json={"model": self.model})
        except ModelError:
            return None, None
        self.abilities |= windows.abilities(answer)
        return windows.shown(answer)

    def header(self, output: int, tools: Sequence[Json]) -> bytes:
        """Everything before the first message."""
        options: Json = {"num_ctx": self.loaded_window(), "num_predict": output}
        fields = {"model": self.model, "stream": True, "truncate": False, "shift": False}
        left: Json = {name: value for name, value in fields.items() if name not in self.dropped}
        left["options"] = {name: value for name, value in options.items() if name not in self.dropped}
        return wire_openai.header(left, wire_openai.offered(tools) if tools else b"")

    def optional(self) -> Collection[str]:
        return (*super().optional(), "truncate", "shift", "num_ctx", "num_predict")

    def encode(
        self, out: BinaryIO, spans: Sequence[Span], shape: Shape, output: int, aside: Aside | None = None
    ) -> None:
        if aside is None and (texts := self.in_text(spans)) is not None:
            out.write(self.header(output, ()))
            wire_openai.join(out, (orjson.dumps(message) for message in texts))
            out.write(b"]}")
            return
        tools: Sequence[Json] | None = None
        if aside is not None:  # `/api/chat` knows no `tool_choice`
            tools = () if aside.choice == "none" else aside.alone()
        out.write(self.header(output, self.offers(tools)))
        wire_openai.join(out, wire_ollama.messages(spans, shape, alternate=self.alternate, change=self.outgoing(shape)))
        out.write(b"]}")

    # --- answer -----------------------------------------------------------------------------------------------

    def read(self, stream: Stream) -> Draft:
        draft = wire_ollama.read_answer(stream, self.who)
        if draft.usage is not None and draft.usage.prompt + draft.usage.completion >= self.loaded_window():
            draft.finish = "length"  # a server without `shift` forgot the oldest half meanwhile, and says `stop`
        return draft

    def judge(self, answer: Answer, plan: Plan | None) -> None:
        window = self.loaded_window()
        why = f"Its window is smaller than num_ctx {window}; see OLLAMA_CONTEXT_LENGTH and `ollama ps`"
        silent.judge(answer, plan, self.reports, window, self._allocated, self.who, why)

    def _allocated(self) -> int | None:
        """The window that the server has allocated, which may be less than `num_ctx`; None where it does not say."""
        try:
            answer = self.fetch("GET", self.at("/api/ps"))
        except ModelError:
            return None
        self.allocated = silent.allocated_of(answer, self.model, same_model)
        return self.allocated

    # --- server -----------------------------------------------------------------------------------------------

    def models(self) -> list[str]:
        answer = self.fetch("GET", self.at("/api/tags"))
        listed = answer.get("models") if isinstance(answer, dict) else None
        return [str(entry.get("model") or entry.get("name")) for entry in listed or () if isinstance(entry, dict)]
