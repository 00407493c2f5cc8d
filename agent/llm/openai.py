"""OpenAI, and every server that speaks its chat completions: llama.cpp, vLLM, OpenRouter, Azure and others.

The limit of the answer has two names; which one is right is known by host, and a refusal swaps it once.
"""

from __future__ import annotations

import re
from functools import cached_property
from typing import TYPE_CHECKING, Any, BinaryIO

import orjson

from agent.errors import HistoryRefused, ModelError, ModelNotFound, RequestRefused
from agent.llm import urls, wire_openai
from agent.llm.client import ChatClient, same_model
from agent.llm.dialects import by_owner
from agent.llm.silent import SilentCuts
from agent.llm.spans import sized
from agent.llm.tidy import tidied
from agent.values import Span

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from agent.llm.draft import Draft
    from agent.llm.spans import Shape
    from agent.llm.transport import Stream
    from agent.values import Answer, Json, Plan

NOT_TAKEN = re.compile(r"unsupported|not supported|unrecogni[sz]ed|unknown|not permitted|unexpected|extra|not allowed")
WINDOW_KEYS = ("max_model_len", "context_length", "context_window", "max_context_length")
KNOWN_OWNERS = ("vllm", "sglang", "replay")
"""What `/models` calls its owner on servers that state a window there or nowhere."""
NO_NULL = re.compile(r"expected a string, got null|content type: <nil>|'content' field must be a string")


class OpenAIClient(ChatClient):
    """`(config, message_store, context_dir)`; seed 002, section 5.2."""

    name = "openai"
    default_url = "https://api.openai.com/v1"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.limit_key = self.dialect.limit_key
        self.asks_usage = "stream_options" not in self.dialect.refused
        self._swapped = False
        self._written: wire_openai.Written | None = None
        self._asked_window = False
        self.cuts: SilentCuts | None = None  # for a server that is known to cut prompts
        self.no_null = False  # learnt: this server wants text beside calls too

    # --- request ----------------------------------------------------------------------------------------------

    def parameters(self, output: int) -> Json:
        """What stands before the tools, always in this order."""
        fields: Json = {"model": self.model, "stream": True}
        if self.asks_usage:
            fields["stream_options"] = {"include_usage": True}
        if self.limit_key:
            fields[self.limit_key] = output
        return fields

    @cached_property
    def offered(self) -> bytes:
        """The tools on this wire."""
        return wire_openai.offered(self.tools)

    def encode(self, out: BinaryIO, spans: Sequence[Span], shape: Shape, output: int) -> None:
        """A request that only goes on from the last one, which `out` still holds, is written from there."""
        wire_openai.check_tools(self.tools)
        header = wire_openai.header(self.parameters(output), self.offered)
        before, self._written = self._written, None  # until all of it is written
        roles, change = self.dialect.roles, self.outgoing(shape)
        alternate = self.alternate or (roles.no_user_after_tool and shape.user_after_tool)
        no_null = self.no_null or roles.text_beside_calls
        if change or alternate or no_null or shape.empty or (roles.no_neighbours and not shape.tidy):
            out.write(header)
            messages = tidied(spans, shape, merge=roles.no_neighbours, alternate=alternate, change=change)
            if no_null:
                messages = (message | {"content": message["content"] or ""} for message in messages)
            wire_openai.join(out, (orjson.dumps(message) for message in messages))
        else:
            parts = sized(spans)
            rest = before.rest(out, header, parts, shape) if before is not None else None
            if rest is None:
                out.write(header)
            if wire_openai.copy(out, [Span(*part) for part in parts] if rest is None else [rest]):
                self._written = wire_openai.Written(header, shape, parts, out.tell())
        out.write(b"]}")

    def encode_summary(self, out: BinaryIO, text: Iterator[bytes]) -> None:
        out.write(wire_openai.header(self.parameters(self.output(0))))
        out.write(b'{"role":"user","content":"')
        out.writelines(text)
        out.write(b'"}]}')

    def amend(self, error: RequestRefused | HistoryRefused | ModelNotFound) -> bool:
        words = str(error).lower()
        if isinstance(error, RequestRefused):
            if self.asks_usage and "stream_options" in words:
                self.asks_usage = False
                return True
            if self.limit_key and NOT_TAKEN.search(words) and re.search(rf"\b{self.limit_key}\b", words):
                others = {"max_tokens": "max_completion_tokens", "max_completion_tokens": "max_tokens"}
                self.limit_key = "" if self._swapped else others.get(self.limit_key, "")
                self._swapped = True
                return True
        elif isinstance(error, HistoryRefused) and not self.no_null and NO_NULL.search(words):
            self.no_null = True
            return True
        return super().amend(error)

    # --- answer -----------------------------------------------------------------------------------------------

    def read(self, stream: Stream) -> Draft:
        return wire_openai.read_answer(stream, self.who)

    def judge(self, answer: Answer, plan: Plan | None) -> None:
        if self.cuts is not None:
            why = "Ollama's /v1 takes no window: set OLLAMA_CONTEXT_LENGTH there, or llm.provider to ollama"
            self.cuts.judge(answer, plan, self._window or self.configured, self.who, why)

    # --- server -----------------------------------------------------------------------------------------------

    def models(self) -> list[str]:
        return [entry["id"] for entry in self._listed() if isinstance(entry.get("id"), str)]

    def loaded_window(self) -> int | None:
        """llama.cpp's `n_ctx` of one slot, else what `/models` says of this model, else what Ollama has allocated; a
        server that is known by its owner is not asked what it does not know.  OpenAI itself does not tell."""
        if not self._asked_window and self.dialect.tells_window:
            self._asked_window = True
            owner, stated = self._stated()
            self.recognise(by_owner(owner))
            if owner in KNOWN_OWNERS:
                self._window = stated
            else:
                self._window = self._slot() or stated or self._allocated()
        return self._window

    def _slot(self) -> int | None:
        try:
            props = self.fetch("GET", urls.join(self.base_url, urls.root(self.base_url), "/props"))
        except ModelError:
            return None
        generation = props.get("default_generation_settings") if isinstance(props, dict) else None
        return whole(generation.get("n_ctx")) if isinstance(generation, dict) else None

    def _stated(self) -> tuple[str, int | None]:
        """(whose models these are, "" where nobody says; the window of ours)."""
        try:
            listed = self._listed()
        except ModelError:
            return "", None
        entry = next((one for one in listed if one.get("id") == self.model), listed[0] if listed else {})
        owner = entry.get("owned_by")
        numbers = [whole(entry.get(key)) for key in WINDOW_KEYS] if entry.get("id") == self.model else []
        return owner if isinstance(owner, str) else "", next((number for number in numbers if number), None)

    def _allocated(self) -> int | None:
        """What Ollama has allocated for the model, None before it is loaded.  Its `/v1` takes no window and cuts a
        prompt without a word (case 37), so from here on its counts are looked at."""
        try:
            answer = self.fetch("GET", urls.join(self.base_url, urls.root(self.base_url), "/api/ps"))
        except ModelError:
            return None
        running = answer.get("models") if isinstance(answer, dict) else None
        if not isinstance(running, list):
            return None
        self.cuts = SilentCuts()
        for entry in running:
            if isinstance(entry, dict) and same_model(self.model, str(entry.get("model") or entry.get("name"))):
                return whole(entry.get("context_length"))
        return None

    def _listed(self) -> list[Json]:
        answer = self.ask_below("/models")
        data = answer.get("data") if isinstance(answer, dict) else None
        return [entry for entry in data if isinstance(entry, dict)] if isinstance(data, list) else []


def whole(value: Any) -> int | None:
    """A positive whole number, else None."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None
