"""OpenAI, and every server that speaks its chat completions: llama.cpp, vLLM, OpenRouter, Azure and others.

The limit of the answer has two names; which one is right is known by host, and a refusal swaps it once.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, BinaryIO, ClassVar

import orjson

from agent.errors import HistoryRefused, ModelError, RequestRefused
from agent.llm import urls, wire_openai
from agent.llm.client import ChatClient
from agent.llm.tidy import tidied

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from agent.llm.draft import Draft
    from agent.llm.spans import Shape
    from agent.llm.transport import Stream
    from agent.values import Json, Span

NOT_TAKEN = re.compile(r"unsupported|not supported|unrecogni[sz]ed|unknown|not permitted|unexpected|extra|not allowed")
MOST_OUTPUT = re.compile(r"(?:supports at most|max_tokens.{0,80}<=|at most) ?(\d+) ?(?:completion |output )?tokens")


class OpenAIClient(ChatClient):
    """`(config, message_store, context_dir)`; seed 002, section 5.2."""

    name = "openai"
    default_url = "https://api.openai.com/v1"
    official: ClassVar[tuple[str, ...]] = ("api.openai.com", ".openai.azure.com")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        host = urls.host(self.base_url)
        self.local = not any(host == known or host.endswith(known) for known in self.official)
        self.limit_key = "max_tokens" if self.local else "max_completion_tokens"
        self.asks_usage = True
        self.most_output = 0  # learnt: what the model can write at most
        self._swapped = False
        self._asked_window = False
        self._window: int | None = None

    @property
    def api(self) -> str:
        """The address with its version."""
        return urls.versioned(self.base_url)

    @property
    def url(self) -> str:
        return f"{self.api}/chat/completions"

    def headers(self) -> Mapping[str, str]:
        return {"Authorization": f"Bearer {self.api_key}"} if self.api_key else {}

    # --- request ----------------------------------------------------------------------------------------------

    def parameters(self, output: int) -> Json:
        """What stands before the tools, always in this order."""
        fields: Json = {"model": self.model, "stream": True}
        if self.asks_usage:
            fields["stream_options"] = {"include_usage": True}
        if output:
            fields[self.limit_key] = min(output, self.most_output or output)
        return fields

    def encode(self, out: BinaryIO, spans: Sequence[Span], shape: Shape, output: int) -> None:
        wire_openai.check_tools(self.tools)
        out.write(wire_openai.header(self.parameters(output), self.tools))
        if self.alternate or shape.empty or (self.local and not shape.tidy):
            messages = tidied(spans, shape, merge=self.local, alternate=self.alternate)
            wire_openai.join(out, (orjson.dumps(message) for message in messages))
        else:
            wire_openai.copy(out, spans)
        out.write(b"]}")

    def encode_summary(self, out: BinaryIO, text: Iterator[bytes]) -> None:
        out.write(wire_openai.header(self.parameters(self.output(0)), ()))
        out.write(b'{"role":"user","content":"')
        out.writelines(text)
        out.write(b'"}]}')

    def amend(self, error: RequestRefused | HistoryRefused) -> bool:
        words = str(error).lower()
        if isinstance(error, RequestRefused):
            if self.asks_usage and "stream_options" in words:
                self.asks_usage = False
                return True
            if not self._swapped and NOT_TAKEN.search(words) and re.search(rf"\b{self.limit_key}\b", words):
                self.limit_key = "max_tokens" if self.limit_key == "max_completion_tokens" else "max_completion_tokens"
                self._swapped = True
                return True
            if not self.most_output and "max_" in words and (found := MOST_OUTPUT.search(words)):
                self.most_output = int(found.group(1))
                return True
        return super().amend(error)

    # --- answer -----------------------------------------------------------------------------------------------

    def read(self, stream: Stream) -> Draft:
        return wire_openai.read_answer(stream, self.who)

    # --- server -----------------------------------------------------------------------------------------------

    def models(self) -> list[str]:
        return [entry["id"] for entry in self._listed() if isinstance(entry.get("id"), str)]

    def loaded_window(self) -> int | None:
        """llama.cpp's `n_ctx` of one slot, else what `/models` says of this model; OpenAI itself does not tell."""
        if not self._asked_window and self.local:
            self._asked_window = True
            self._window = self._slot() or self._stated()
        return self._window

    def _slot(self) -> int | None:
        try:
            props = self.fetch("GET", f"{urls.root(self.base_url)}/props")
        except ModelError:
            return None
        generation = props.get("default_generation_settings") if isinstance(props, dict) else None
        return whole(generation.get("n_ctx")) if isinstance(generation, dict) else None

    def _stated(self) -> int | None:
        try:
            listed = self._listed()
        except ModelError:
            return None
        for entry in listed:
            if entry.get("id") == self.model:
                for key in ("max_model_len", "context_length", "context_window", "max_context_length"):
                    if number := whole(entry.get(key)):
                        return number
        return None

    def _listed(self) -> list[Json]:
        answer = self.fetch("GET", f"{self.api}/models")
        data = answer.get("data") if isinstance(answer, dict) else None
        return [entry for entry in data or () if isinstance(entry, dict)]


def whole(value: Any) -> int | None:
    """A positive whole number, else None."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None
