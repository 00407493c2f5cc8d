"""The client for OpenAI, and for every server that implements OpenAI's chat completions API: llama.cpp, vLLM,
OpenRouter, Azure and others.

In OpenAI's API the parameter for the maximum length of the answer has two names (`max_tokens`,
`max_completion_tokens`). The client selects one of these names for the maximum length by the server's dialect, and uses
the other one if the server refuses the first.
"""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, BinaryIO, ClassVar

import orjson

from agent.errors import HistoryRefused, ModelError, ModelNotFound, RequestRefused
from agent.llm import model_info, truncation_detector, urls, wire_openai
from agent.llm.client import ChatClient
from agent.llm.dialects import DIALECTS, by_headers, by_owner
from agent.llm.model_info import positive_int
from agent.llm.request_lines import sized
from agent.llm.role_alternation import normalized
from agent.llm.server_info import same_model
from agent.values import Span

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from agent.llm.base import SideRequest
    from agent.llm.stream_accumulator import StreamAccumulator
    from agent.llm.transport import Stream
    from agent.message_list_check import Shape
    from agent.values import Answer, Json, Plan

OTHER_LIMIT = {"max_tokens": "max_completion_tokens", "max_completion_tokens": "max_tokens"}
BAD = (400, 422)
CACHE_CONTROL = "cache_control"
LIMIT = "limit"  # in PLAINER: the parameter for the maximum length of the answer, under either of its names
PLAINER = (("stream_options",), (LIMIT,), ("stream_options", LIMIT, LIMIT))
"""The parameters that each further attempt of a refused first request leaves out; the first LIMIT means that the
parameter for the maximum length gets its other name, the second LIMIT that it is removed."""
KNOWN_OWNERS = ("vllm", "sglang", "replay")
"""Values of `owned_by` in the list of models that identify a server which reports its context window in that list or
nowhere."""
NO_NULL = re.compile(r"expected a string, got null|content type: <nil>|'content' field must be a string")


class OpenAIClient(ChatClient):
    """A client for OpenAI's API; its positional arguments are `(config, message_store, context_dir)`; see
    docs/design/context.md, 5.2."""

    name = "openai"
    learns: ClassVar[tuple[str, ...]] = (*ChatClient.learns, "swapped", "no_null")
    default_url = "https://api.openai.com/v1"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # learnt: whether the server uses the other name of the parameter for the maximum length of the answer
        self.swapped = False
        self._offered: tuple[set[str], bytes] | None = None
        self._written: wire_openai.WrittenRequest | None = None
        self._asked_window = False
        self.cuts = False  # whether the server is known to truncate prompts
        self.no_null = False  # learnt: whether the server refuses `content: null` in a message with tool calls
        self._plainer = list(PLAINER)  # the attempts that `try_plainer` has not made yet: entries of PLAINER
        # the values of `dropped` and `swapped` before the attempts of `try_plainer`
        self._untried: tuple[set[str], bool] | None = None

    # --- request ----------------------------------------------------------------------------------------------

    def parameters(self, output: int) -> Json:
        """The parameters of a request that are written before the tools, always in the same order."""
        fields: Json = {"model": self.model, "stream": True}
        if "stream" not in self.dropped:
            fields["stream_options"] = {"include_usage": True}
        fields[self.limit_key] = output
        left_out = self.dropped | self.dialect.refused
        return {name: value for name, value in fields.items() if name not in left_out}

    def caching(self) -> Json:
        """Parameters for the prompt cache in a request of the conversation (docs/wire.md, "Prompt caches")."""
        fields: Json = {}
        if self.dialect.cache_key:
            fields[self.dialect.cache_key] = f"makimono-{self.conversation}"
        if any(fnmatchcase(self.model.lower(), pattern) for pattern in self.dialect.cache_marks):
            fields[CACHE_CONTROL] = {"type": "ephemeral"}
        return {name: value for name, value in fields.items() if name not in self.dropped}

    @property
    def limit_key(self) -> str:
        """The name that the parameter for the maximum length of the answer has on this server."""
        return OTHER_LIMIT[self.dialect.limit_key] if self.swapped else self.dialect.limit_key

    def optional(self) -> Collection[str]:
        return (*super().optional(), "stream_options", self.limit_key, *self.caching())

    def try_plainer(self, error: ModelError) -> bool:
        """Whether to send a first request again, without optional parameters, after a refusal without a known reason.

        If an attempt without optional parameters succeeds, the client keeps that form of the request; if none does, the
        parameters are restored. `try_plainer` does not repeat a request with pictures, since the pictures are the more
        likely reason of the refusal (`_another_way`).
        """
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
            self.drop_parameter(self.limit_key if name == LIMIT else name)
        return True

    def drop_parameter(self, name: str) -> None:
        if name == self.limit_key and not self.swapped:
            self.swapped = True
        else:
            super().drop_parameter(name)

    @property
    def offered(self) -> bytes:
        """The tools of the conversation, encoded in OpenAI's form; they are encoded again only when the refused
        parameters or keywords change."""
        if self._offered is None or self._offered[0] != self.dropped:
            self._offered = set(self.dropped), wire_openai.offered(self.offered_tools())
        return self._offered[1]

    def encode(
        self, out: BinaryIO, spans: Sequence[Span], shape: Shape, output: int, aside: SideRequest | None = None
    ) -> None:
        """Write the body of a request to OpenAI's API to `out`.

        If the request begins like the previous one, of which the bytes are still in `out`, only the new part is
        written.
        """
        if aside is None and (texts := self.in_text(spans)) is not None:
            self._written = None
            out.write(wire_openai.header(self.parameters(output) | self.caching()))
            wire_openai.join(out, (orjson.dumps(message) for message in texts))
            out.write(b"]}")
            return
        if aside is None:
            wire_openai.check_tools(self.tools)
            header = wire_openai.header(self.parameters(output) | self.caching(), self.offered)
            # `_written` describes the previous request while its bytes are complete; None while a request is being
            # written
            before, self._written = self._written, None
        else:
            header, before = self._header_aside(output, aside), None
        roles, change = self.dialect.roles, self.message_change(shape)
        alternate = self.alternate or (roles.no_user_after_tool and shape.user_after_tool)
        no_null = self.no_null or roles.text_beside_calls
        if change or alternate or no_null or (roles.no_neighbours and not shape.tidy):
            out.write(header)
            messages = normalized(spans, shape, merge=roles.no_neighbours, alternate=alternate, change=change)
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
                self._written = wire_openai.WrittenRequest(header, shape, parts, out.tell())
        out.write(b"]}")

    def _header_aside(self, output: int, aside: SideRequest) -> bytes:
        tools, named = aside.tools, bool(aside.named)
        fields = self.parameters(output)
        if tools and named and not self.dialect.names_tool:
            tools, fields = aside.alone(), fields | self.tool_choice({"tool_choice": "required"})
        elif tools and aside.choice:
            choice = {"type": "function", "function": {"name": aside.named}} if named else aside.choice
            fields |= self.tool_choice({"tool_choice": choice})
        wire_openai.check_tools(tools)
        return wire_openai.header(fields, wire_openai.offered(self.offered_tools(tools)))

    def adapt_to_refusal(self, error: RequestRefused | HistoryRefused | ModelNotFound) -> bool:
        words = str(error).lower()
        if isinstance(error, HistoryRefused) and not self.no_null and NO_NULL.search(words):
            self.no_null = True
            return True
        return super().adapt_to_refusal(error)

    # --- answer -----------------------------------------------------------------------------------------------

    def read(self, stream: Stream) -> StreamAccumulator:
        return wire_openai.read_answer(stream, self.label)

    def validate(self, answer: Answer, plan: Plan | None) -> None:
        if self.cuts:
            why = "Ollama's /v1 takes no window: set OLLAMA_CONTEXT_LENGTH there, or llm.provider to ollama"
            window = self._window or self.configured_window
            truncation_detector.check_not_truncated(
                answer, plan, self.reports, window, self._allocated, self.label, why
            )

    # --- server -----------------------------------------------------------------------------------------------

    def models(self) -> list[str]:
        return [entry["id"] for entry in self._listed() if isinstance(entry.get("id"), str)]

    def loaded_window(self) -> int | None:
        """The context window that the server reports, None if it reports none; the client requests it once.

        The sources of the context window are llama.cpp's `n_ctx` of one slot, the entry of the model in the list of
        models, and further endpoints of Ollama, TGI, LiteLLM or LM Studio. If the kind of server is recognised,
        endpoints that only other kinds of servers have are not requested. OpenAI itself does not report a context
        window.
        """
        if not self._asked_window and self.dialect.tells_window:
            self._asked_window = True
            self._window = self._read_window()
        return self._window

    def _read_window(self) -> int | None:
        owner, stated = self._stated()
        self.recognise(by_owner(owner) or by_headers(self.transport.heard))
        name = self.dialect.name
        if not self.dialect.local or owner in KNOWN_OWNERS:
            return stated
        if name == "litellm":
            return stated or self._window_in_list(self._answer("/model/info"), "data", "model_name")
        if name == "lmstudio":
            return self._window_in_list(self._answer("/api/v0/models"), "data", "id", "loaded_context_length") or stated
        return self._slot() or stated or self._allocated() or self._total() or self._routed()

    def _answer(self, path: str) -> Any:
        """The response of the server to a GET of `path`, an endpoint outside OpenAI's API; None after an error."""
        try:
            return self.fetch("GET", urls.join(self.base_url, urls.root(self.base_url), path))
        except ModelError:
            return None

    def _slot(self) -> int | None:
        props = self._answer("/props")
        window = model_info.slot_window(props)
        if window is not None:
            self.told_slots = positive_int(props.get("total_slots")) or 0
            self.recognise(DIALECTS["llamacpp"])
            self.abilities |= model_info.abilities(props)
        return window

    def _stated(self) -> tuple[str, int | None]:
        """The facts in the server's list of models: (`owned_by` of this client's model, or of the first model if this
        model is not listed, "" if it is missing; the context window of this client's model, None if it is missing)."""
        try:
            listed = self._listed()
        except ModelError:
            return "", None
        ours = next((one for one in listed if self._is_ours(one.get("id"))), None)
        entry = ours or (listed[0] if listed else {})
        owner = entry.get("owned_by")
        self.abilities |= model_info.abilities(ours)
        return owner if isinstance(owner, str) else "", model_info.listed_window(ours) if ours is not None else None

    def _is_ours(self, name: Any) -> bool:
        return isinstance(name, str) and (name == self.model or name.removeprefix("models/") == self.model)

    def _window_in_list(self, answer: Any, key: str, name: str, size: str = "") -> int | None:
        """The context window of this client's model from the list under `key` in a response; `name` and `size` are the
        keys of the model's name and of the window in an entry of the list. The result is None if the list has no window
        of this model."""
        entry = next((one for one in model_info.entries(answer, key) if self._is_ours(one.get(name))), {})
        self.abilities |= model_info.abilities(entry)
        return positive_int(entry.get(size)) if size else model_info.listed_window(entry)

    def _allocated(self) -> int | None:
        """The context window that Ollama has allocated for the model; None if the server is not Ollama or has not
        loaded the model.

        If the server is Ollama, the client checks its token counts from then on (`cuts`), since a request to `/v1`
        cannot set the window and Ollama truncates a long prompt silently.
        """
        answer = self._answer("/api/ps")
        running = answer.get("models") if isinstance(answer, dict) else None
        if not isinstance(running, list):
            return None
        self.recognise(DIALECTS["ollama"])
        self.cuts = True
        self.allocated = truncation_detector.allocated_of(answer, self.model, same_model)
        return self.allocated

    def _routed(self) -> int | None:
        """The context window in LiteLLM's response to `/model/info`; None if the server is not LiteLLM or names no
        window."""
        if self.dialect.name != "compatible":
            return None
        answer = self._answer("/model/info")
        if any("litellm_params" in entry for entry in model_info.entries(answer, "data")):
            self.recognise(DIALECTS["litellm"])
        return self._window_in_list(answer, "data", "model_name")

    def _total(self) -> int | None:
        """The context window in TGI's response to `/info`: the maximum for prompt and answer together. The result is
        None if the server is not TGI or names no window."""
        if self.dialect.name not in ("compatible", "tgi"):
            return None
        info = self._answer("/info")
        window = positive_int(info.get("max_total_tokens")) if isinstance(info, dict) else None
        if window is not None:
            self.recognise(DIALECTS["tgi"])
        return window

    def _listed(self) -> list[Json]:
        path = self.dialect.models_path
        origin = urls.origin(self.base_url)
        answer = self.fetch("GET", f"{origin}{path}") if path else self.ask_below("/models")
        return list(model_info.entries(answer, "data"))
