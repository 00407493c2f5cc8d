"""An HTTP server on 127.0.0.1 that returns recorded answers in the form of OpenAI's or Ollama's API, streamed or not.

The replay server is a real HTTP server, so that the client's whole code is used. The replay server does not check the
content of requests, and calls no other service. The position in the recording is the number in the replay client's
header, or, without this header, the number of assistant messages in the request.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Self

import orjson

from agent import clock
from agent.llm.error_wordings import RECORDING_OVER
from agent.llm.recorded_answers import Recording

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path
    from types import TracebackType

    from agent.values import Json

POSITION = "X-Replay-Position"
SUMMARY = "X-Replay-Summary"
PIECE = 48  # maximum characters of text or arguments in one event of a stream
# the value of `created` in answers, a constant, so that a recording results in the same bytes each time
STAMP = 1_769_850_900


class ReplayServer:
    """An HTTP server on a port of 127.0.0.1 that returns the answers of one recording.  `latency` is the number of
    seconds before the first byte of an answer."""

    def __init__(
        self, messages: Path | Iterable[Mapping[str, Any]], *, latency: float = 0.0, model: str = "replay"
    ) -> None:
        self.recording = Recording(messages)
        self.latency = latency
        self.model = model
        self.requests = 0
        self._server: ThreadingHTTPServer | None = None
        self._thread: threading.Thread | None = None

    @classmethod
    def serve(cls, messages: Path | Iterable[Mapping[str, Any]], **options: Any) -> ReplayServer:
        """Create and start a replay server."""
        return cls(messages, **options).start()

    @property
    def url(self) -> str:
        """The address of the replay server, without `/v1`."""
        assert self._server is not None, "start() first"
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def start(self) -> ReplayServer:
        """Start the replay server in a thread of this process."""
        replay = self

        class Handler(_Handler):
            server_of = replay

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, name="replay", daemon=True
        )
        self._thread.start()
        return self

    def close(self) -> None:
        """Stop listening."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def __enter__(self) -> Self:
        if self._server is None:
            self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def answer(self, headers: Mapping[str, str], body: Json) -> Json | str:
        """The recorded answer for a request, or a text with the reason why the recording has none."""
        what = "summary" if headers.get(SUMMARY) else "answer"
        given = headers.get(POSITION)
        if given is not None and given.isdigit():
            position = int(given)
        else:
            messages = body.get("messages")
            position = sum(
                isinstance(message, dict) and message.get("role") == "assistant"
                for message in (messages if isinstance(messages, list) else ())
            )
        record = self.recording.get(position, what)
        if record is None:
            kind = "summaries" if what == "summary" else "answers"
            return (
                f"the recording {self.recording.name} is over: it has {self.recording.count(what)} {kind}, and number "
                f"{position + 1} was asked for"
            )
        return record


def serve(messages: Path | Iterable[Mapping[str, Any]], *, latency: float = 0.0) -> ReplayServer:
    """Start a replay server; the result can be used as a context manager that closes the server at its end."""
    return ReplayServer.serve(messages, latency=latency)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server_of: ReplayServer

    def log_message(self, *_: Any) -> None:
        """Log nothing."""

    def handle(self) -> None:
        with suppress(ConnectionError):  # the client may close an unused connection
            super().handle()

    def do_GET(self) -> None:
        model = self.server_of.model
        listed = {
            "/v1/models": {"object": "list", "data": [{"id": model, "object": "model", "owned_by": "replay"}]},
            "/api/tags": {"models": [{"name": model, "model": model}]},
        }.get(self.path)
        if listed is None:
            self._json(404, {"error": {"message": f"no such path {self.path}", "type": "not_found_error"}})
        else:
            self._json(200, listed)

    def do_POST(self) -> None:
        body = self._body()
        if self.path not in ("/v1/chat/completions", "/api/chat"):
            self._json(404, {"error": {"message": f"no such path {self.path}", "type": "not_found_error"}})
            return
        replay = self.server_of
        replay.requests += 1
        record = replay.answer(self.headers, body)  # type: ignore[arg-type]
        if replay.latency:
            clock.sleep(replay.latency)
        with suppress(BrokenPipeError, ConnectionResetError):  # the client may disconnect before the end of the answer
            if self.path == "/api/chat":
                self._ollama(record, streamed=body.get("stream") is not False)
            else:
                self._openai(record, streamed=self.headers.get(POSITION) is not None or bool(body.get("stream")))

    def _body(self) -> Json:
        """The decoded body of a request; {} for a body that is not a JSON object, and for a request of the replay
        client, since the headers of such a request suffice."""
        left = int(self.headers.get("Content-Length") or 0)
        keep = self.headers.get(POSITION) is None
        kept = bytearray()
        while left > 0 and (chunk := self.rfile.read(min(left, 1 << 16))):
            left -= len(chunk)
            if keep:
                kept += chunk
        try:
            parsed = orjson.loads(bytes(kept)) if keep else {}
        except orjson.JSONDecodeError:
            parsed = {}
        return parsed if isinstance(parsed, dict) else {}

    def _openai(self, record: Json | str, *, streamed: bool) -> None:
        if isinstance(record, str):
            refusal = {"message": record, "type": "invalid_request_error", "param": None, "code": RECORDING_OVER}
            self._json(400, {"error": refusal})
        elif streamed:
            chunks = (
                b"data: " + orjson.dumps(chunk) + b"\n\n" for chunk in openai_chunks(record, self.server_of.model)
            )
            self._stream("text/event-stream", [*chunks, b"data: [DONE]\n\n"])
        else:
            self._json(200, openai_whole(record, self.server_of.model))

    def _ollama(self, record: Json | str, *, streamed: bool) -> None:
        if isinstance(record, str):
            self._json(400, {"error": record})
        elif streamed:
            lines = (orjson.dumps(line) + b"\n" for line in ollama_lines(record, self.server_of.model))
            self._stream("application/x-ndjson", lines)
        else:
            self._json(200, ollama_whole(record, self.server_of.model))

    def _json(self, status: int, value: Any) -> None:
        body = orjson.dumps(value)
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _stream(self, kind: str, pieces: Iterable[bytes]) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for piece in pieces:
            self.wfile.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
        self.wfile.write(b"0\r\n\r\n")


def _calls(record: Json) -> list[Json]:
    """The tool calls of a recorded answer as the model sent them, also with arguments that were not JSON, as far as
    they were recorded."""
    return [
        {
            "id": call["id"],
            "type": "function",
            "function": {
                "name": call["function"]["name"],
                "arguments": call.get("invalid") or call["function"]["arguments"],
            },
        }
        for call in record.get("tool_calls") or ()
    ]


def _finish(record: Json) -> str:
    return str(record.get("finish_reason") or ("tool_calls" if record.get("tool_calls") else "stop"))


def _usage(record: Json) -> Json | None:
    usage = record.get("usage")
    if not isinstance(usage, dict):
        return None
    prompt, completion = int(usage.get("prompt_tokens") or 0), int(usage.get("completion_tokens") or 0)
    thought = usage.get("reasoning_tokens")
    apart = {} if thought is None else {"completion_tokens_details": {"reasoning_tokens": int(thought)}}
    return apart | {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": int(usage.get("cached_tokens") or 0)},
    }


def openai_whole(record: Json, model: str) -> Json:
    """Convert a recorded answer into one object `chat.completion` of OpenAI's API."""
    calls = _calls(record)
    message: Json = {"role": "assistant", "content": record.get("content"), "refusal": None}
    if calls:
        message["tool_calls"] = calls
    whole: Json = {
        "id": f"chatcmpl-{record.get('seq', 0)}",
        "object": "chat.completion",
        "created": STAMP,
        "model": model,
        "choices": [{"index": 0, "message": message, "finish_reason": _finish(record), "logprobs": None}],
    }
    usage = _usage(record)
    return whole | {"usage": usage} if usage else whole


def openai_chunks(record: Json, model: str) -> Iterator[Json]:
    """Convert a recorded answer into objects `chat.completion.chunk` of OpenAI's API: role, text in pieces, tool calls
    in pieces, end, usage."""
    base = {
        "id": f"chatcmpl-{record.get('seq', 0)}",
        "object": "chat.completion.chunk",
        "created": STAMP,
        "model": model,
    }

    def chunk(delta: Json, finish: str | None = None) -> Json:
        return {**base, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}

    yield chunk({"role": "assistant", "content": None if record.get("tool_calls") else ""})
    for piece in _pieces(record.get("content") or ""):
        yield chunk({"content": piece})
    for index, call in enumerate(_calls(record)):
        arguments = call["function"]["arguments"]
        opening = {**call, "index": index, "function": {"name": call["function"]["name"], "arguments": ""}}
        yield chunk({"tool_calls": [opening]})
        for piece in _pieces(arguments):
            yield chunk({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
    yield chunk({}, _finish(record))
    if usage := _usage(record):
        yield {**base, "choices": [], "usage": usage}


def ollama_whole(record: Json, model: str) -> Json:
    """Convert a recorded answer into one object of Ollama's chat API, not streamed."""
    *parts, last = ollama_lines(record, model)
    message: Json = {"role": "assistant", "content": record.get("content") or ""}
    calls = [call for part in parts for call in part["message"].get("tool_calls", ())]
    if calls:
        message["tool_calls"] = calls
    return {**last, "message": message}


def ollama_lines(record: Json, model: str) -> Iterator[Json]:
    """Convert a recorded answer into a stream of Ollama's chat API (JSON objects, one per line): text in pieces, each
    tool call whole, and at the end the token counts."""
    base = {"model": model, "created_at": "2026-01-31T09:15:00Z"}
    for piece in _pieces(record.get("content") or ""):
        yield {**base, "message": {"role": "assistant", "content": piece}, "done": False}
    for call in _calls(record):
        try:
            arguments = orjson.loads(call["function"]["arguments"] or b"{}")
        except orjson.JSONDecodeError:
            arguments = {}
        function = {"name": call["function"]["name"], "arguments": arguments}
        message = {"role": "assistant", "content": "", "tool_calls": [{"id": call["id"], "function": function}]}
        yield {**base, "message": message, "done": False}
    usage = _usage(record) or {}
    reason = "length" if _finish(record) == "length" else "stop"
    counts = {
        "prompt_eval_count": usage.get("prompt_tokens", 0),
        "eval_count": usage.get("completion_tokens", 0),
    }
    yield {**base, "message": {"role": "assistant", "content": ""}, "done": True, "done_reason": reason, **counts}


def _pieces(text: str) -> Iterator[str]:
    for start in range(0, len(text), PIECE):
        yield text[start : start + PIECE]
