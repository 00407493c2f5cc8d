"""A server of models for `fidelity`: one of four wires, a window that it enforces by its own count, real HTTP.

It counts with o200k_base, times a factor of its wire, since each server has another vocabulary; what is too long it
refuses in the words of its kind (docs/wire.md), and so a result that answers no call.  A request without tools is one
for a summary.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Protocol

import orjson

from agent.tokens.openai import O200k
from benchmarks.fidelity_facts import Step, strings

if TYPE_CHECKING:
    from collections.abc import Iterator

    Json = dict[str, Any]

FACTORS = {"openai": 1.0, "ollama": 1.05, "lmstudio": 1.1, "anthropic": 1.25}
PATHS = {
    "openai": "/v1/chat/completions",
    "lmstudio": "/v1/chat/completions",
    "ollama": "/api/chat",
    "anthropic": "/v1/messages",
}
MODEL = "bench-model"
PER_MESSAGE = 4
SSE = "text/event-stream"
NDJSON = "application/x-ndjson"

vocabulary = O200k()


@dataclass(frozen=True)
class Said:
    """What the model answers: `status` other than 200 is an error with the text as its words."""

    text: str = ""
    calls: tuple[tuple[str, Json], ...] = ()
    status: int = 200


class Mind(Protocol):
    """Who decides what is said."""

    def turn(self, request: Json) -> Step:
        """The next answer of the conversation."""
        ...

    def summary(self, text: str, limit: int) -> Said:
        """The answer to a request for a summary; `limit` is the most tokens that the request allows, 0 for none."""
        ...


class Model:
    """A running server.  `refused` has (why, tokens) of what it refused, `sizes` the tokens of each accepted turn."""

    def __init__(self, wire: str, window: int, mind: Mind) -> None:
        self.wire = wire
        self.window = window
        self.mind = mind
        self.refused: list[tuple[str, int]] = []
        self.sizes: list[int] = []
        self.summaries = 0
        self.costs: dict[int, int] = {}
        self.calls = 0
        self.lock = threading.Lock()
        model = self

        class Handler(_Handler):
            server_of = model

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        self.http.block_on_close = False
        threading.Thread(target=self.http.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    @property
    def url(self) -> str:
        """What a person would configure."""
        below = "/v1" if self.wire in ("openai", "anthropic") else ""
        return f"http://127.0.0.1:{self.http.server_address[1]}{below}"

    def close(self) -> None:
        """Stop listening."""
        self.http.shutdown()
        self.http.server_close()

    def knows(self, path: str) -> Json | None:
        """What it says of itself at `path`, None for an unknown one."""
        listed: Json = {"object": "list", "data": [{"id": MODEL, "object": "model", "type": "model"}]}
        if self.wire == "ollama":
            known: dict[str, Json] = {"/api/tags": {"models": [{"name": MODEL, "model": MODEL}]}}
            shown = {"model_info": {"bench.context_length": self.window}, "capabilities": ["completion", "tools"]}
            return (known | {"/api/show": shown}).get(path)
        if self.wire == "lmstudio":
            loaded = [{"id": MODEL, "config": {"context_length": self.window}}]
            entry = {"key": MODEL, "max_context_length": self.window, "loaded_instances": loaded}
            return {"/v1/models": listed, "/api/v1/models": {"models": [entry]}}.get(path)
        return listed if path.partition("?")[0] == "/v1/models" else None

    def answer(self, body: Json) -> tuple[int, str, bytes]:
        """(status, content type, body) for one request."""
        with self.lock:
            tokens = self.cost(body)
            if why := unpaired(body["messages"]):
                self.refused.append((why, tokens))
                return 400, "application/json", _dumps(self.error(why))
            wanted = _most(body)
            over = tokens + (wanted if self.wire == "openai" else 0)
            if over > self.window:
                self.refused.append(("length", tokens))
                return 400, "application/json", _dumps(self.too_long(tokens, wanted))
            if body.get("tools"):
                self.sizes.append(tokens)
                step = self.mind.turn(body)
                said = Said(step.text, step.calls)
            else:
                self.summaries += 1
                said = self.mind.summary("\n".join(strings([body.get("system"), body["messages"]])), wanted)
            if said.status != 200:
                return said.status, "application/json", _dumps(self.error(said.text))
            return 200, NDJSON if self.wire == "ollama" else SSE, self.written(said, tokens)

    # --- counting -----------------------------------------------------------------------------------------------

    def cost(self, body: Json) -> int:
        """Tokens of a request: tools, system, messages, as this server counts them."""
        parts = [*body["messages"], *(body.get("tools") or ()), body.get("system") or ""]
        return round(sum(self._cost(part) for part in parts) * FACTORS[self.wire])

    def _cost(self, part: Any) -> int:
        key = hash(_dumps(without_marks(part)))
        if key not in self.costs:
            texts = strings(part) if isinstance(part, dict) and "role" in part else [_dumps(part).decode()]
            self.costs[key] = PER_MESSAGE + sum(vocabulary.count(text) for text in texts)
        return self.costs[key]

    def said_tokens(self, said: Said) -> int:
        """Tokens of an answer."""
        text = said.text + "".join(name + _dumps(arguments).decode() for name, arguments in said.calls)
        return round(vocabulary.count(text) * FACTORS[self.wire]) + 3

    # --- in the words of its kind -------------------------------------------------------------------------------

    def error(self, words: str) -> Json:
        """An error that is not about length."""
        if self.wire == "ollama":
            return {"error": words}
        kind = {"type": "invalid_request_error", "message": words}
        return {"type": "error", "error": kind} if self.wire == "anthropic" else {"error": {**kind, "code": None}}

    def too_long(self, tokens: int, wanted: int) -> Json:
        """The refusal of a request that is too long."""
        window = self.window
        if self.wire == "openai":
            words = (
                f"This model's maximum context length is {window} tokens. However, you requested {tokens + wanted} "
                f"tokens ({tokens} in the messages, {wanted} in the completion)."
            )
            return {"error": {**self.error(words)["error"], "code": "context_length_exceeded", "param": "messages"}}
        if self.wire == "anthropic":
            return self.error(f"prompt is too long: {tokens} tokens > {window} maximum")
        if self.wire == "lmstudio":
            return {
                "error": f"Trying to keep the first {tokens} tokens when context the overflows. However, the model is "
                f"loaded with context length of only {window} tokens, which is not enough"
            }
        return self.error(f"request ({tokens} tokens) exceeds the available context size ({window} tokens)")

    def written(self, said: Said, tokens: int) -> bytes:
        """The answer as a stream of its wire."""
        pieces = {"ollama": self._ollama, "anthropic": self._anthropic}.get(self.wire, self._openai)
        return b"".join(pieces(said, tokens))

    def _numbered(self, said: Said) -> Iterator[tuple[int, str, str, Json]]:
        for index, (name, arguments) in enumerate(said.calls):
            self.calls += 1
            yield index, f"call_{self.calls:06d}", name, arguments

    def _openai(self, said: Said, tokens: int) -> Iterator[bytes]:
        base = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": MODEL}

        def chunk(delta: Json, end: str | None = None) -> bytes:
            return (
                b"data: " + _dumps({**base, "choices": [{"index": 0, "delta": delta, "finish_reason": end}]}) + b"\n\n"
            )

        yield chunk({"role": "assistant", "content": said.text})
        for index, identifier, name, arguments in self._numbered(said):
            function = {"name": name, "arguments": _dumps(arguments).decode()}
            yield chunk({"tool_calls": [{"index": index, "id": identifier, "type": "function", "function": function}]})
        yield chunk({}, "tool_calls" if said.calls else "stop")
        answer = self.said_tokens(said)
        usage = {"prompt_tokens": tokens, "completion_tokens": answer, "total_tokens": tokens + answer}
        yield b"data: " + _dumps({**base, "choices": [], "usage": usage}) + b"\n\ndata: [DONE]\n\n"

    def _ollama(self, said: Said, tokens: int) -> Iterator[bytes]:
        base = {"model": MODEL, "created_at": "2026-01-31T09:15:00Z"}
        yield _dumps({**base, "message": {"role": "assistant", "content": said.text}, "done": False}) + b"\n"
        for index, _, name, arguments in self._numbered(said):
            call = {"function": {"index": index, "name": name, "arguments": arguments}}
            message = {"role": "assistant", "content": "", "tool_calls": [call]}
            yield _dumps({**base, "message": message, "done": False}) + b"\n"
        counts = {"prompt_eval_count": tokens, "eval_count": self.said_tokens(said)}
        end = {"message": {"role": "assistant", "content": ""}, "done": True, "done_reason": "stop", **counts}
        yield _dumps({**base, **end}) + b"\n"

    def _anthropic(self, said: Said, tokens: int) -> Iterator[bytes]:
        def event(kind: str, **fields: Any) -> bytes:
            return f"event: {kind}\ndata: ".encode() + _dumps({"type": kind, **fields}) + b"\n\n"

        message = {"id": "msg_1", "type": "message", "role": "assistant", "model": MODEL, "content": []}
        yield event("message_start", message={**message, "usage": {"input_tokens": tokens, "output_tokens": 1}})
        blocks: list[tuple[Json, Json]] = []
        if said.text:
            blocks.append(({"type": "text", "text": ""}, {"type": "text_delta", "text": said.text}))
        for _, identifier, name, arguments in self._numbered(said):
            delta = {"type": "input_json_delta", "partial_json": _dumps(arguments).decode()}
            blocks.append(({"type": "tool_use", "id": identifier, "name": name, "input": {}}, delta))
        for index, (block, delta) in enumerate(blocks):
            yield event("content_block_start", index=index, content_block=block)
            yield event("content_block_delta", index=index, delta=delta)
            yield event("content_block_stop", index=index)
        reason = {"stop_reason": "tool_use" if said.calls else "end_turn", "stop_sequence": None}
        yield event("message_delta", delta=reason, usage={"output_tokens": self.said_tokens(said)})
        yield event("message_stop")


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server_of: Model

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def handle(self) -> None:
        with suppress(ConnectionError):  # the client let go of a connection that was kept for its next request
            super().handle()

    def do_GET(self) -> None:
        self._about(self.path)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.path == PATHS[self.server_of.wire]:
            self.reply(*self.server_of.answer(orjson.loads(body)))
        else:
            self._about(self.path)

    def _about(self, path: str) -> None:
        known = self.server_of.knows(path)
        self.reply(404 if known is None else 200, "application/json", _dumps(known or {"error": "no such path"}))

    def reply(self, status: int, kind: str, data: bytes) -> None:
        """Send it."""
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def unpaired(messages: list[Json]) -> str:
    """Why the calls and results of a request do not belong together, "" when they do: the rule of all four."""
    waiting = 0
    for number, message in enumerate(messages):
        blocks = message["content"] if isinstance(message.get("content"), list) else []
        results = (message["role"] == "tool") + sum(block.get("type") == "tool_result" for block in blocks)
        if results > waiting or (waiting and not results):
            return f"messages.{number}: {results} results where {waiting} calls wait for one"
        asked = len(message.get("tool_calls") or ()) + sum(block.get("type") == "tool_use" for block in blocks)
        waiting = asked or waiting - results
    return f"{waiting} calls without a result" if waiting else ""


def without_marks(part: Any) -> Any:
    """A message without the marks of a prompt cache, which move from request to request."""
    if isinstance(part, dict):
        return {key: without_marks(value) for key, value in part.items() if key != "cache_control"}
    return [without_marks(one) for one in part] if isinstance(part, list) else part


def in_order(body: Json) -> bytes:
    """A request as a prompt cache reads it: tools, system, messages, without the marks."""
    parts = [body.get("tools"), body.get("system"), *body["messages"]]
    return b"\n".join(_dumps(without_marks(part)) for part in parts)


def _most(body: Json) -> int:
    options = body.get("options") or {}
    return int(body.get("max_completion_tokens") or body.get("max_tokens") or options.get("num_predict") or 0)


def _dumps(value: Any) -> bytes:
    return orjson.dumps(value)
