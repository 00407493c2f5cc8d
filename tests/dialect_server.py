"""A loopback server of each dialect that refuses what the real one refuses (`dialect_rules.py`), over real HTTP.

    with DialectServer("mistral", play) as server: … server.url, server.refused, server.taken

`play(messages, number)` says what the model answers to request `number`: a `Say`.  Answers carry the ids, thoughts and
signatures of their kind of server, and what is sent back is checked against them.  A prompt over `window` tokens (a
quarter of its characters) is answered with that server's words for it.  Anthropic's has its prompt cache too.
"""

import json
import threading
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

from dialect_rules import RULES, anthropic_error, openai_error
from prompt_cache import PromptCache

KEY = "sk-test-0123456789"
THOUGHT = 300
"""Thinking tokens in each answer of a server that thinks."""
LIST_PATHS = {"openai": "/chat/completions", "anthropic": "/messages"}


@dataclass
class Say:
    """The model's answer: text, and calls as (name, arguments)."""

    text: str = ""
    calls: tuple = ()
    finish: str = ""


class DialectServer:
    """`taken` has the bodies of the accepted requests, `refused` has (status, message) of the others."""

    def __init__(self, name, play, *, window=3000, thinks=True, cache=None):
        self.name = name
        self.cache = cache or PromptCache()
        self.rules = RULES[name]
        self.play = play
        self.window = window
        self.thinks = thinks and bool(self.rules.reasoning or self.rules.signed)
        self.taken = []
        self.refused = []
        self.signatures = set()
        self.made = 0
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True  # an answer is two writes, and an ACK comes up to 40 ms later

            def log_message(self, *_):
                pass

            def do_GET(self):
                server.listing(self)

            def do_POST(self):
                server.answer(self, json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"{}"))

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        self.thread = threading.Thread(target=self.http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self.thread.start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.http.server_address[1]}{self.rules.address}"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.http.shutdown()
        self.http.server_close()
        self.thread.join()

    # --- questions about the server ---------------------------------------------------------------------------

    def listing(self, handler):
        """The list of models, if this kind of server has one."""
        path = urlsplit(handler.path).path
        below = self.rules.path.removesuffix(LIST_PATHS.get(self.rules.wire, ""))
        if self.rules.wire == "ollama" and path == "/api/tags":
            self.send(handler, 200, {"models": [{"name": "m", "model": "m"}]})
        elif self.rules.wire != "ollama" and path == f"{below}/models" and self.name not in ("azure", "github"):
            self.send(handler, 200, {"object": "list", "data": [{"id": "m", "object": "model", **self.rules.own}]})
        else:
            self.send(handler, 404, {"error": {"message": "Not Found"}})

    # --- chats ------------------------------------------------------------------------------------------------

    def answer(self, handler, body):
        parts = urlsplit(handler.path)
        if parts.path != self.rules.path or (self.rules.query and parts.query != self.rules.query):
            self.send(handler, 404, {"error": {"code": "404", "message": "Resource not found"}})
            return
        if refusal := self.refusal(handler, body):
            status, words = refusal
            self.refused.append((status, json.dumps(words)))
            self.send(handler, status, words)
            return
        self.taken.append(body)
        said = self.play(body["messages"], len(self.taken))
        pieces, kind = getattr(self, f"{self.rules.wire}_pieces")(said, body)
        self.send(handler, 200, b"".join(pieces), kind)

    def refusal(self, handler, body):
        """(status, error body) of the first broken rule."""
        if self.rules.key:
            given = handler.headers.get(self.rules.key, "")
            if given != (f"Bearer {KEY}" if self.rules.key == "authorization" else KEY):
                return 401, openai_error("Incorrect API key provided", code="invalid_api_key")
        if self.rules.wire == "anthropic" and not handler.headers.get("anthropic-version"):
            return 400, anthropic_error("anthropic-version: header is required")
        if not body.get("messages"):
            return 400, openai_error("[] is too short - 'messages'")
        for check in self.rules.checks:
            if found := check(body, self):
                return found
        count = len(json.dumps([body["messages"], body.get("system"), body.get("tools")])) // 4
        return self.rules.overflow(count, self.window) if count > self.window else None

    def send(self, handler, status, body, kind="application/json"):
        data = (
            body if isinstance(body, bytes) else body.encode() if isinstance(body, str) else json.dumps(body).encode()
        )
        handler.send_response(status)
        for name, value in {"Content-Type": kind, "Content-Length": str(len(data)), **self.rules.headers}.items():
            handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(data)

    def next_id(self):
        self.made += 1
        return self.rules.ids.format(self.made)

    # --- wires ------------------------------------------------------------------------------------------------

    def openai_pieces(self, said, body):
        def event(**fields):
            record = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "m", **fields}
            return b"data: " + json.dumps(record).encode() + b"\n\n"

        def delta(value, end=None):
            return event(choices=[{"index": 0, "delta": value, "finish_reason": end}])

        pieces = [delta({"role": "assistant", "content": ""})]
        if self.thinks and self.rules.reasoning:
            thought = "I think."
            if self.rules.reasoning == "reasoning_details":
                thought = [{"type": "reasoning.encrypted", "data": f"sig-{len(self.taken)}", "index": 0}]
            pieces.append(delta({self.rules.reasoning: thought}))
        if said.text:
            pieces.append(delta({"content": said.text}))
        for index, (name, arguments) in enumerate(said.calls):
            call = {"index": index, "id": self.next_id(), "type": "function"}
            call["function"] = {"name": name, "arguments": json.dumps(arguments)}
            if self.rules.signed and index == 0:
                call["extra_content"] = {"google": {"thought_signature": f"sig-{len(self.taken)}"}}
            pieces.append(delta({"tool_calls": [call]}))
        finish = said.finish or ("tool_calls" if said.calls else "stop")
        pieces.append(delta({}, self.rules.stops.get(finish, finish)))
        asked = (body.get("stream_options") or {}).get("include_usage")
        if self.rules.usage == "always" or (self.rules.usage == "asked" and asked):
            pieces.append(event(choices=[], usage=self.usage(body)))
        return [*pieces, b"data: [DONE]\n\n"], "text/event-stream"

    def usage(self, body):
        prompt = len(json.dumps(body["messages"])) // 4 + 1
        thought = THOUGHT if self.thinks else 0
        counts = {"prompt_tokens": prompt, "completion_tokens": 20 + thought, "total_tokens": prompt + 20 + thought}
        if self.rules.thought == "inside":
            counts["completion_tokens_details"] = {"reasoning_tokens": thought}
        elif self.rules.thought == "beside":
            counts["completion_tokens"] = 20
        return counts

    def ollama_pieces(self, said, body):
        lines = [{"message": {"role": "assistant", "content": said.text}, "done": False}]
        for name, arguments in said.calls:
            call = {"id": self.next_id(), "function": {"name": name, "arguments": arguments}}
            lines.append({"message": {"role": "assistant", "content": "", "tool_calls": [call]}, "done": False})
        counts = {"prompt_eval_count": len(json.dumps(body["messages"])) // 4 + 1, "eval_count": 20}
        lines.append({"message": {"role": "assistant", "content": ""}, "done": True, "done_reason": "stop", **counts})
        return [json.dumps({"model": "m", **line}).encode() + b"\n" for line in lines], "application/x-ndjson"

    def anthropic_pieces(self, said, body):
        def event(kind, **fields):
            return f"event: {kind}\n".encode() + b"data: " + json.dumps({"type": kind, **fields}).encode() + b"\n\n"

        blocks = []
        if self.thinks:
            signature = f"sig-{len(self.taken)}"
            self.signatures.add(signature)
            blocks.append(
                (
                    {"type": "thinking", "thinking": "", "signature": ""},
                    [
                        {"type": "thinking_delta", "thinking": "I think."},
                        {"type": "signature_delta", "signature": signature},
                    ],
                )
            )
        if said.text:
            blocks.append(({"type": "text", "text": ""}, [{"type": "text_delta", "text": said.text}]))
        for name, arguments in said.calls:
            block = {"type": "tool_use", "id": self.next_id(), "name": name, "input": {}}
            blocks.append((block, [{"type": "input_json_delta", "partial_json": json.dumps(arguments)}]))
        start = {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": "m",
            "content": [],
            "stop_reason": None,
        }
        pieces = [event("message_start", message=start | {"usage": self.cache.take(body).usage | {"output_tokens": 1}})]
        for index, (block, deltas) in enumerate(blocks):
            pieces.append(event("content_block_start", index=index, content_block=block))
            pieces += [event("content_block_delta", index=index, delta=one) for one in deltas]
            pieces.append(event("content_block_stop", index=index))
        end = {"stop_reason": "tool_use" if said.calls else "end_turn"}
        counts = {"output_tokens": 20}
        if self.thinks:
            counts = {"output_tokens": 20 + THOUGHT, "output_tokens_details": {"thinking_tokens": THOUGHT}}
        pieces.append(event("message_delta", delta=end, usage=counts))
        return [*pieces, event("message_stop")], "text/event-stream"
