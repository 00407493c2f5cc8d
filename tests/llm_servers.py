"""Loopback model servers with scripted answers: real HTTP, and a journal of the requests."""

import json
import threading
import time
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from agent.config import settings_of
from agent.llm import make_client
from agent.values import Usage


@dataclass
class Reply:
    """`body` is bytes, JSON, or a list of pieces sent one by one; a piece that is a number is a wait, and one that is an
    event is waited for.  `cut` closes the connection without the end of the
    chunked body; `hold` is the wait after the pieces, `before` the wait before the status."""

    body: object = b""
    status: int = 200
    headers: dict = field(default_factory=dict)
    cut: bool = False
    hold: float = 0.0
    before: float = 0.0
    plain: bool = False  # no length, no chunks: the end of the connection is the end of the body


@dataclass
class Request:
    method: str
    path: str
    headers: dict
    body: bytes

    @property
    def json(self):
        return json.loads(self.body)


class Script:
    """A server on 127.0.0.1.  `routes` answer their (method, path) any number of times; every other request takes the
    next of `replies`, and the last one is repeated for ever."""

    def __init__(self, *replies, routes=None):
        self.replies = list(replies)
        self.routes = {("POST", "/api/show"): Reply({"error": "model not found"}, 404), **(routes or {})}
        self.journal = []
        self.released = threading.Event()
        script = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def log_message(self, *_):
                pass

            def do_GET(self):
                script.answer(self, b"")

            def do_POST(self):
                script.answer(self, self.rfile.read(int(self.headers.get("Content-Length") or 0)))

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.server.block_on_close = False
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self.thread.start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server.server_address[1]}"

    @property
    def asked(self):
        """The requests that `replies` answered."""
        known = self.routes
        return [one for one in self.journal if one.method == "POST" and (one.method, one.path) not in known]

    def answer(self, handler, body):
        request = Request(handler.command, handler.path, {k.lower(): v for k, v in handler.headers.items()}, body)
        self.journal.append(request)
        reply = self.routes.get((handler.command, handler.path))
        if reply is None and handler.command == "GET":
            reply = Reply({"error": {"message": "no such path"}}, 404)
        if reply is None:
            reply = self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]
        if callable(reply):
            reply = reply(request)
        try:
            self.send(handler, reply)
        except (BrokenPipeError, ConnectionResetError):
            handler.close_connection = True

    def send(self, handler, reply):
        if reply.before:
            self.released.wait(reply.before)
        pieces = reply.body if isinstance(reply.body, list) else None
        body = reply.body if isinstance(reply.body, bytes) else b""
        if pieces is None and not isinstance(reply.body, bytes):
            body = json.dumps(reply.body).encode()
        handler.send_response(reply.status)
        for name, value in {"Content-Type": "application/json", **reply.headers}.items():
            handler.send_header(name, value)
        if reply.plain:
            handler.send_header("Connection", "close")
        elif pieces is None:
            handler.send_header("Content-Length", str(len(body)))
        else:
            handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        for piece in [body] if pieces is None else pieces:
            if isinstance(piece, threading.Event):
                piece.wait(30)
                continue
            if isinstance(piece, float):
                time.sleep(piece)
                continue
            handler.wfile.write(piece if pieces is None or reply.plain else b"%x\r\n%s\r\n" % (len(piece), piece))
            handler.wfile.flush()
        if reply.hold:
            self.released.wait(reply.hold)
        if reply.cut or reply.plain:
            handler.close_connection = True
        elif pieces is not None:
            handler.wfile.write(b"0\r\n\r\n")

    def close(self):
        self.released.set()
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


# --- answers in each wire --------------------------------------------------------------------------------------
#
# `usage` is (prompt, completion) or (prompt, completion, thinking): on every wire, the completion includes the thinking.
# Which server reports it separately, and how: docs/wire.md, "Usage".  `thought` is the text of the thinking, if the wire
# shows it.


def call(name, arguments, call_id="call_1"):
    """One call of a scripted answer; `arguments` is an object, or the text to send."""
    return {"id": call_id, "name": name, "arguments": arguments}


def openai_events(text="", calls=(), finish=None, usage=(100, 20), model="m", done=True, thought=""):
    """SSE pieces of one chat completion.  OpenAI hides the thoughts, DeepSeek shows them; both report their tokens
    separately."""
    finish = finish or ("tool_calls" if calls else "stop")
    base = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": model}

    def event(delta, end=None):
        return sse({**base, "choices": [{"index": 0, "delta": delta, "finish_reason": end}]})

    pieces = [event({"role": "assistant", "content": None if calls else ""})]
    pieces += [event({"reasoning_content": thought[i : i + 700]}) for i in range(0, len(thought), 700)]
    pieces += [event({"content": text[i : i + 7]}) for i in range(0, len(text), 7)]
    for index, one in enumerate(calls):
        arguments = one["arguments"] if isinstance(one["arguments"], str) else json.dumps(one["arguments"])
        function = {"name": one["name"], "arguments": arguments[:5]}
        pieces.append(
            event({"tool_calls": [{"index": index, "id": one["id"], "type": "function", "function": function}]})
        )
        if arguments[5:]:
            pieces.append(event({"tool_calls": [{"index": index, "function": {"arguments": arguments[5:]}}]}))
    pieces.append(event({}, finish))
    if usage:
        counts = {"prompt_tokens": usage[0], "completion_tokens": usage[1], "total_tokens": sum(usage[:2])}
        if len(usage) > 2:
            counts["completion_tokens_details"] = {"reasoning_tokens": usage[2]}
        pieces.append(sse({**base, "choices": [], "usage": counts}))
    return [*pieces, b"data: [DONE]\n\n"] if done else pieces


def sse(value, event=None):
    return (f"event: {event}\n" if event else "").encode() + b"data: " + json.dumps(value).encode() + b"\n\n"


def ollama_lines(text="", calls=(), finish=None, usage=(100, 20), model="m", done=True, thought=""):
    """NDJSON pieces of one /api/chat answer.  `eval_count` counts all output; thinking has no count of its own."""
    base = {"model": model, "created_at": "2026-01-31T09:15:00Z"}
    lines = [
        {**base, "message": {"role": "assistant", "content": "", "thinking": thought[i : i + 700]}, "done": False}
        for i in range(0, len(thought), 700)
    ]
    lines += [
        {**base, "message": {"role": "assistant", "content": text[i : i + 7]}, "done": False}
        for i in range(0, len(text), 7)
    ]
    for one in calls:
        function = {"name": one["name"], "arguments": one["arguments"]}
        whole = {"function": function} | ({"id": one["id"]} if one["id"] else {})
        lines.append({**base, "message": {"role": "assistant", "content": "", "tool_calls": [whole]}, "done": False})
    if done:
        counts = {"prompt_eval_count": usage[0], "eval_count": usage[1]} if usage else {}
        reason = "length" if finish == "length" else "stop"
        lines.append(
            {**base, "message": {"role": "assistant", "content": ""}, "done": True, "done_reason": reason, **counts}
        )
    return [json.dumps(line).encode() + b"\n" for line in lines]


def anthropic_events(text="", calls=(), finish=None, usage=(100, 20), model="m", done=True, thought=""):
    """SSE pieces of one /v1/messages answer; `message_delta` reports the thinking tokens separately."""
    start = {"id": "msg_1", "type": "message", "role": "assistant", "model": model, "content": [], "stop_reason": None}
    tokens = {"input_tokens": usage[0], "output_tokens": 1} if usage else {}
    pieces = [
        sse({"type": "message_start", "message": start | {"usage": tokens}}, "message_start"),
        sse({"type": "ping"}, "ping"),
    ]
    index = 0
    shown = [
        (
            {"type": "text", "text": ""},
            [{"type": "text_delta", "text": text[i : i + 7]} for i in range(0, len(text), 7)],
        )
    ]
    if thought:
        deltas = [{"type": "thinking_delta", "thinking": thought}, {"type": "signature_delta", "signature": "c2lnbmVk"}]
        shown.insert(0, ({"type": "thinking", "thinking": "", "signature": ""}, deltas))
    for block, deltas in shown if text else shown[:-1]:
        start = {"type": "content_block_start", "index": index, "content_block": block}
        pieces.append(sse(start, "content_block_start"))
        told = [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
        pieces += [sse(one, one["type"]) for one in [*told, {"type": "content_block_stop", "index": index}]]
        index += 1
    for one in calls:
        arguments = one["arguments"] if isinstance(one["arguments"], str) else json.dumps(one["arguments"])
        block = {"type": "tool_use", "id": one["id"], "name": one["name"], "input": {}}
        pieces.append(
            sse({"type": "content_block_start", "index": index, "content_block": block}, "content_block_start")
        )
        for piece in ("", arguments[:5], arguments[5:]):
            delta = {"type": "input_json_delta", "partial_json": piece}
            pieces.append(sse({"type": "content_block_delta", "index": index, "delta": delta}, "content_block_delta"))
        pieces.append(sse({"type": "content_block_stop", "index": index}, "content_block_stop"))
        index += 1
    reason = {"length": "max_tokens", None: "tool_use" if calls else "end_turn"}.get(finish, finish)
    if done:
        end = {"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": None}}
        counts = {"output_tokens": usage[1]} if usage else {}
        if usage and len(usage) > 2:
            counts["output_tokens_details"] = {"thinking_tokens": usage[2]}
        pieces.append(sse(end | {"usage": counts}, "message_delta"))
        pieces.append(sse({"type": "message_stop"}, "message_stop"))
    return pieces


WIRES = {
    "openai": (openai_events, "text/event-stream"),
    "lmstudio": (openai_events, "text/event-stream"),
    "ollama": (ollama_lines, "application/x-ndjson"),
    "anthropic": (anthropic_events, "text/event-stream"),
}


def says(wire, text="", calls=(), **more):
    """A reply with a whole answer in one wire format."""
    make, kind = WIRES[wire]
    how = {key: more.pop(key) for key in ("cut", "hold", "before", "plain") if key in more}
    return Reply(make(text, calls, **more), headers={"Content-Type": kind}, **how)


# --- clients ---------------------------------------------------------------------------------------------------


def config_for(wire, url, **keys):
    """The mapping of `config` for one provider on a loopback server."""
    return {"llm": {"provider": wire, wire: {"model": "m", "context_length": 8192, "base_url": url, **keys}}}


def client_for(wire, url, folder, store=None, *, control=None, events=None, tools=(), **keys):
    """(client, store) for a loopback server."""
    settings = settings_of(config_for(wire, url, **keys))
    store = store if store is not None else store_for(folder, settings)
    return make_client(settings, store, folder, control=control, events=events, tools=tools), store


@contextmanager
def conversations(folder, *messages):
    """start(wire, *replies) → (client, store, server), with these (role, content) in the store; closed at the end."""
    with ExitStack() as made:

        def start(wire, *replies, routes=None, path="", url=None, **more):
            server = made.enter_context(closing(Script(*replies, routes=routes)))
            client, store = client_for(wire, url(server) if url else server.url + path, folder, **more)
            made.callback(store.close)
            made.callback(client.close)
            for role, content in messages:
                store.add_message(role, content)
            return client, store, server

        yield start


def store_for(folder, settings):
    from agent.context import MessageStore

    return MessageStore(folder, settings)


class Stop:
    """A control that ends the task after `looks` polls."""

    def __init__(self, outcome, looks=0):
        self.outcome = outcome
        self.looks = looks

    def poll(self, *, answering=False):
        self.looks -= 1
        return self.outcome if self.looks < 0 else None


class Heard:
    """Records events."""

    def __init__(self):
        self.said = []

    def emit(self, name, /, **fields):
        self.said.append((name, fields))

    def named(self, name):
        return [fields for said, fields in self.said if said == name]


TOOL = {
    "type": "function",
    "function": {
        "name": "read_file",
        "description": "Read a file.",
        "parameters": {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
    },
}

USAGE = Usage(100, 20)
