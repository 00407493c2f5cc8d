"""Simulates how Ollama counts, truncates and reports.  It imports nothing of this program.

Prompts are counted with o200k, as rendered by a plain template.  A prompt over the `allocated` window is handled in one
of two ways:

- If the request has `truncate: false` and the model's runner supports it, the answer is 400 (ollama/ollama#17889).
- Otherwise it is truncated (ollama/ollama, server/prompt.go): whole messages are removed from the front until it fits;
  system messages and the newest message with its calls stay.  A prompt that is still too long keeps only its start (4
  tokens) and its end, so that half of the window and a few tokens are left (ollama/ollama#17427).  The status is HTTP
  200, and the count is that of the rest.

`/v1` supports neither `truncate` nor a window (ollama/ollama#14259): it always truncates.  `eval_count` includes the
thinking (ollama/ollama#17843).  A later prompt includes it only if the template `renders` it, within the running tool
loop (ollama/ollama#11251).  In newer versions (`tells`), `/api/ps` reports the allocated window of a loaded model.

`play(number)` returns the model's answer to request `number`: (thinking, text, [(name, arguments), …]).
"""

import json

from loopback_server import JsonHandler, LoopbackServer
from strict_server import tokens

KEPT = 4


def size(message, *, thinking):
    """Tokens of one message as rendered."""
    total = 4 + tokens(message.get("content") or "")
    for call in message.get("tool_calls") or ():
        arguments = call["function"]["arguments"]
        said = arguments if isinstance(arguments, str) else json.dumps(arguments)
        total += 8 + tokens(call["function"]["name"]) + tokens(said)
    return total + (tokens(message.get("thinking") or "") if thinking else 0)


class OllamaServer(LoopbackServer):
    """`prompts` has (sent tokens, read tokens) of each request; `refused` has those of the requests answered with
    400."""

    def __init__(self, allocated, play, *, heeds=True, renders=False, tells=True, trained=131_072):
        self.allocated = allocated
        self.play = play
        self.heeds = heeds
        self.renders = renders
        self.tells = tells
        self.trained = trained
        self.prompts = []
        self.refused = []
        server = self

        class Handler(JsonHandler):
            def do_GET(self):
                if self.path == "/api/ps":
                    entry = {"name": "m:latest", "model": "m:latest"}
                    entry |= {"context_length": server.allocated} if server.tells else {}
                    self.reply(200, {"models": [entry] if server.prompts else []})
                elif self.path == "/v1/models":
                    self.reply(200, {"object": "list", "data": [{"id": "m", "object": "model", "owned_by": "library"}]})
                else:
                    self.reply(404, {"error": "404 page not found"})

            def do_POST(self):
                body = json.loads(self.body())
                if self.path == "/api/show":
                    self.reply(200, {"model_info": {"general.context_length": server.trained}})
                elif self.path in ("/api/chat", "/v1/chat/completions"):
                    server.answer(self, body, native=self.path == "/api/chat")
                else:
                    self.reply(404, {"error": "404 page not found"})

        self.serve(Handler)

    def read(self, body):
        """(tokens of the whole prompt, tokens that the model receives)."""
        messages = body["messages"]
        tools = tokens(json.dumps(body["tools"])) if body.get("tools") else 0
        loop = max((number for number, one in enumerate(messages) if one["role"] == "user"), default=0)
        sizes = [size(one, thinking=self.renders and number > loop) for number, one in enumerate(messages)]
        whole = tools + sum(sizes)
        for start in range(len(messages)):
            first = start
            while messages[first]["role"] == "tool":
                first -= 1
            system = [sizes[number] for number in range(first) if messages[number]["role"] == "system"]
            left = tools + sum(system) + sum(sizes[first:])
            if left <= self.allocated:
                return whole, left
        return whole, self.allocated // 2 + KEPT // 2

    def answer(self, handler, body, *, native):
        whole, read = self.read(body)
        if whole > self.allocated and native and self.heeds and body.get("truncate") is False:
            self.refused.append(whole)
            handler.reply(400, {"error": "the request exceeds the available context size, try increasing it"})
            return
        self.prompts.append((whole, read))
        thought, text, calls = self.play(len(self.prompts))
        written = tokens(thought) + tokens(text) + sum(tokens(name) + tokens(json.dumps(said)) for name, said in calls)
        made = [(f"call_{len(self.prompts)}_{place}", *one) for place, one in enumerate(calls)]
        data, kind = (self.lines if native else self.chunks)(thought, text, made, read, written)
        handler.send(200, kind, data)

    def lines(self, thought, text, calls, read, written):
        said = [{"role": "assistant", "content": "", "thinking": thought}] if thought else []
        said.append({"role": "assistant", "content": text})
        for identifier, name, arguments in calls:
            call = {"id": identifier, "function": {"name": name, "arguments": arguments}}
            said.append({"role": "assistant", "content": "", "tool_calls": [call]})
        lines = [{"model": "m", "message": one, "done": False} for one in said]
        counts = {"prompt_eval_count": read, "eval_count": written, "done_reason": "stop"}
        lines.append({"model": "m", "message": {"role": "assistant", "content": ""}, "done": True, **counts})
        return b"".join(json.dumps(line).encode() + b"\n" for line in lines), "application/x-ndjson"

    def chunks(self, thought, text, calls, read, written):
        base = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
        deltas = [{"role": "assistant", "content": text, **({"reasoning": thought} if thought else {})}]
        for index, (identifier, name, arguments) in enumerate(calls):
            function = {"name": name, "arguments": json.dumps(arguments)}
            call = {"index": index, "id": identifier, "type": "function", "function": function}
            deltas.append({"tool_calls": [call]})
        chunks = [{**base, "choices": [{"index": 0, "delta": one, "finish_reason": None}]} for one in deltas]
        reason = "tool_calls" if calls else "stop"
        chunks.append({**base, "choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})
        counts = {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}
        chunks.append({**base, "choices": [], "usage": counts})
        data = b"".join(b"data: " + json.dumps(chunk).encode() + b"\n\n" for chunk in chunks) + b"data: [DONE]\n\n"
        return data, "text/event-stream"
