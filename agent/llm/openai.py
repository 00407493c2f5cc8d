"""OpenAI, and every server that speaks its chat completions: llama.cpp, vLLM, OpenRouter, Azure and others.

The limit of the answer has two names; which one is right is known by host, and a refusal swaps it once.
"""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, BinaryIO, ClassVar

import orjson

from agent.errors import HistoryRefused, ModelError, ModelNotFound, RequestRefused
from agent.llm import silent, urls, windows, wire_openai
from agent.llm.client import ChatClient
from agent.llm.dialects import DIALECTS, by_headers, by_owner
from agent.llm.server import same_model
from agent.llm.spans import sized
from agent.llm.tidy import tidied
from agent.llm.windows import whole
from agent.values import Span

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from agent.llm.base import Aside
    from agent.llm.draft import Draft
    from agent.llm.spans import Shape
    from agent.llm.transport import Stream
    from agent.values import Answer, Json, Plan

OTHER_LIMIT = {"max_tokens": "max_completion_tokens", "max_completion_tokens": "max_tokens"}
BAD = (400, 422)
CACHE_CONTROL = "cache_control"
LIMIT = "limit"  # of the answer, whatever it is called
PLAINER = (("stream_options",), (LIMIT,), ("stream_options", LIMIT, LIMIT))
"""What a first request is tried without; the limit first loses its name, then all of it."""
KNOWN_OWNERS = ("vllm", "sglang", "replay")
"""What `/models` calls its owner on servers that state a window there or nowhere."""
NO_NULL = re.compile(r"expected a string, got null|content type: <nil>|'content' field must be a string")


class OpenAIClient(ChatClient):
    """`(config, message_store, context_dir)`; seed 002, section 5.2."""

    name = "openai"
    learns: ClassVar[tuple[str, ...]] = (*ChatClient.learns, "swapped", "no_null")
    default_url = "https://api.openai.com/v1"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.swapped = False  # learnt: the limit of the answer has its other name
        self._offered: tuple[set[str], bytes] | None = None
        self._written: wire_openai.Written | None = None
        self._asked_window = False
        self.cuts = False  # a server that is known to cut prompts
        self.no_null = False  # learnt: this server wants text beside calls too
        self._plainer = list(PLAINER)  # what is still to be tried without
        self._untried: tuple[set[str], bool] | None = None  # `dropped` and `swapped` as they were before

    # --- request ----------------------------------------------------------------------------------------------

    def parameters(self, output: int) -> Json:
        """What stands before the tools, always in this order."""
        fields: Json = {"model": self.model, "stream": True}
        if "stream" not in self.dropped:
            fields["stream_options"] = {"include_usage": True}
        fields[self.limit_key] = output
        left_out = self.dropped | self.dialect.refused
        return {name: value for name, value in fields.items() if name not in left_out}

    def caching(self) -> Json:
        """What the prompt cache wants of a request of the conversation (docs/wire.md, "Prompt caches")."""
        fields: Json = {}
        if self.dialect.cache_key:
            fields[self.dialect.cache_key] = f"makimono-{self.conversation}"
        if any(fnmatchcase(self.model.lower(), pattern) for pattern in self.dialect.cache_marks):
            fields[CACHE_CONTROL] = {"type": "ephemeral"}
        return {name: value for name, value in fields.items() if name not in self.dropped}

    @property
    def limit_key(self) -> str:
        """What the limit of the answer is called here."""
        return OTHER_LIMIT[self.dialect.limit_key] if self.swapped else self.dialect.limit_key

    def optional(self) -> Collection[str]:
        return (*super().optional(), "stream_options", self.limit_key, *self.caching())

    def try_plainer(self, error: ModelError) -> bool:
        """A first request that is refused without a known reason is sent without what not every server takes; what is
        answered stands, and is learnt.  When none is, all is as it was.  Not with pictures, which are refused more
        often (`_another_way`)."""
        pictures = self.shape is not None and self.shape.images > 0
        unexplained = isinstance(error, RequestRefused) and error.unexplained and not error.params and not pictures
        if self._untried is not None:
            self.dropped, self.swapped = set(self._untried[0]), self._untried[1]
        if not (unexplained and error.status in BAD and self.tools and self.calling.is_first and self._plainer):
            self._untried = None
            return False
        self.calling.begin_try(error)
        self._untried = self._untried or (set(self.dropped), self.swapped)
        for name in self._plainer.pop(0):
            self.drop(self.limit_key if name == LIMIT else name)
        return True

    def drop(self, name: str) -> None:
        if name == self.limit_key and not self.swapped:
            self.swapped = True
        else:
            super().drop(name)

    @property
    def offered(self) -> bytes:
        """The tools on this wire, made once for all requests."""
        if self._offered is None or self._offered[0] != self.dropped:
            self._offered = set(self.dropped), wire_openai.offered(self.offers())
        return self._offered[1]

    def encode(
        self, out: BinaryIO, spans: Sequence[Span], shape: Shape, output: int, aside: Aside | None = None
    ) -> None:
        """A request that only goes on from the last one, which `out` still holds, is written from there."""
        if aside is None and (texts := self.in_text(spans)) is not None:
            self._written = None
            out.write(wire_openai.header(self.parameters(output) | self.caching()))
            wire_openai.join(out, (orjson.dumps(message) for message in texts))
            out.write(b"]}")
            return
        if aside is None:
            wire_openai.check_tools(self.tools)
            header = wire_openai.header(self.parameters(output) | self.caching(), self.offered)
            before, self._written = self._written, None  # until all of it is written
        else:
            header, before = self._header_aside(output, aside), None
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
            whole = wire_openai.copy(out, [Span(*part) for part in parts] if rest is None else [rest])
            if whole and aside is None:
                self._written = wire_openai.Written(header, shape, parts, out.tell())
        out.write(b"]}")

    def _header_aside(self, output: int, aside: Aside) -> bytes:
        tools, named = aside.tools, bool(aside.named)
        fields = self.parameters(output)
        if tools and named and not self.dialect.names_tool:
            tools, fields = aside.alone(), fields | self.chosen({"tool_choice": "required"})
        elif tools and aside.choice:
            choice = {"type": "function", "function": {"name": aside.named}} if named else aside.choice
            fields |= self.chosen({"tool_choice": choice})
        wire_openai.check_tools(tools)
        return wire_openai.header(fields, wire_openai.offered(self.offers(tools)))

    def amend(self, error: RequestRefused | HistoryRefused | ModelNotFound) -> bool:
        words = str(error).lower()
        if isinstance(error, HistoryRefused) and not self.no_null and NO_NULL.search(words):
            self.no_null = True
            return True
        return super().amend(error)

    # --- answer -----------------------------------------------------------------------------------------------

    def read(self, stream: Stream) -> Draft:
        return wire_openai.read_answer(stream, self.who)

    def judge(self, answer: Answer, plan: Plan | None) -> None:
        if self.cuts:
            why = "Ollama's /v1 takes no window: set OLLAMA_CONTEXT_LENGTH there, or llm.provider to ollama"
            window = self._window or self.configured
            silent.judge(answer, plan, self.reports, window, self._allocated, self.who, why)

    # --- server -----------------------------------------------------------------------------------------------

    def models(self) -> list[str]:
        return [entry["id"] for entry in self._listed() if isinstance(entry.get("id"), str)]

    def loaded_window(self) -> int | None:
        """llama.cpp's `n_ctx` of one slot, else what `/models` says of this model, else what Ollama, LM Studio, TGI or
        LiteLLM say by questions of their own; a server that is recognised is not asked what it does not know.  OpenAI
        itself does not tell."""
        if not self._asked_window and self.dialect.tells_window:
            self._asked_window = True
            self._window = self._told()
        return self._window

    def _told(self) -> int | None:
        owner, stated = self._stated()
        self.recognise(by_owner(owner) or by_headers(self.transport.heard))
        name = self.dialect.name
        if not self.dialect.local or owner in KNOWN_OWNERS:
            return stated
        if name == "litellm":
            return stated or self._of(self._answer("/model/info"), "data", "model_name")
        if name == "lmstudio":
            return self._of(self._answer("/api/v0/models"), "data", "id", "loaded_context_length") or stated
        return self._slot() or stated or self._allocated() or self._total() or self._routed()

    def _answer(self, path: str) -> Any:
        """What the server answers to a question of its own kind, beside the API; None for an error."""
        try:
            return self.fetch("GET", urls.join(self.base_url, urls.root(self.base_url), path))
        except ModelError:
            return None

    def _slot(self) -> int | None:
        props = self._answer("/props")
        window = windows.slot(props)
        if window is not None:
            self.recognise(DIALECTS["llamacpp"])
            self.abilities |= windows.abilities(props)
        return window

    def _stated(self) -> tuple[str, int | None]:
        """(whose models these are, "" where nobody says; the window of ours)."""
        try:
            listed = self._listed()
        except ModelError:
            return "", None
        ours = next((one for one in listed if self._is_ours(one.get("id"))), None)
        entry = ours or (listed[0] if listed else {})
        owner = entry.get("owned_by")
        self.abilities |= windows.abilities(ours)
        return owner if isinstance(owner, str) else "", windows.stated(ours) if ours is not None else None

    def _is_ours(self, name: Any) -> bool:
        return isinstance(name, str) and (name == self.model or name.removeprefix("models/") == self.model)

    def _of(self, answer: Any, key: str, name: str, size: str = "") -> int | None:
        """The window of our model in a list of another form."""
        entry = next((one for one in windows.entries(answer, key) if self._is_ours(one.get(name))), {})
        self.abilities |= windows.abilities(entry)
        return whole(entry.get(size)) if size else windows.stated(entry)

    def _allocated(self) -> int | None:
        """What Ollama has allocated for the model, None before it is loaded.  Its `/v1` takes no window and cuts a
        prompt without a word (case 37), so from here on its counts are looked at."""
        answer = self._answer("/api/ps")
        running = answer.get("models") if isinstance(answer, dict) else None
        if not isinstance(running, list):
            return None
        self.recognise(DIALECTS["ollama"])
        self.cuts = True
        self.allocated = silent.allocated_of(answer, self.model, same_model)
        return self.allocated

    def _routed(self) -> int | None:
        """LiteLLM's `/model/info`."""
        if self.dialect.name != "compatible":
            return None
        answer = self._answer("/model/info")
        if any("litellm_params" in entry for entry in windows.entries(answer, "data")):
            self.recognise(DIALECTS["litellm"])
        return self._of(answer, "data", "model_name")

    def _total(self) -> int | None:
        """TGI's `/info`: prompt and answer together."""
        if self.dialect.name not in ("compatible", "tgi"):
            return None
        info = self._answer("/info")
        window = whole(info.get("max_total_tokens")) if isinstance(info, dict) else None
        if window is not None:
            self.recognise(DIALECTS["tgi"])
        return window

    def _listed(self) -> list[Json]:
        path = self.dialect.models_path
        origin = urls.origin(self.base_url)
        answer = self.fetch("GET", f"{origin}{path}") if path else self.ask_below("/models")
        return list(windows.entries(answer, "data"))
