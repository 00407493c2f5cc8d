"""Servers of a model without tool calls.  They import nothing of this program.

The model is SmolLM2: its chat template (`HuggingFaceTB/SmolLM2-1.7B-Instruct`, tokenizer_config.json) is rendered with
jinja2, as llama.cpp and `transformers` do, and knows a role and a text for each message, nothing else.  Three servers
are around it: Ollama's `/api/chat`, which refuses tools of a model whose template has none
(ollama/ollama, server/images.go: "does not support tools"); llama.cpp, which says so in `/props`
(`chat_template_caps`, ggml-org/llama.cpp, common/chat.cpp) and refuses tools without `--jinja`; and vLLM without
`--enable-auto-tool-choice`.  Prompts are counted as rendered, and what is over the window is refused.

Ollama's kind can think (`thought`: so many words a turn): in `message.thinking`, counted in `eval_count` and nowhere
apart (ollama/ollama#17843); this template writes none of it into a later prompt, as those of many models
(ollama/ollama#11251).  `steps` are what the model says, in order: (text, [(name, arguments), …]) or a text as it stands.  It writes calls as the
system prompt tells it to.
"""

import json
import re
import threading

from jinja2 import StrictUndefined
from jinja2.sandbox import ImmutableSandboxedEnvironment
from loopback_server import JsonHandler, LoopbackServer
from strict_server import tokens

TEMPLATE = (
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
    "{{ '<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n' }}"
    "{% endif %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
ROLES = ("system", "user", "assistant")
MARK = re.compile(r"<call-([0-9a-f]+)>")


def render(messages):
    """The prompt.  Raises jinja2's errors if the template cannot render the messages: text and None cannot be
    concatenated."""
    environment = ImmutableSandboxedEnvironment(undefined=StrictUndefined)
    return environment.from_string(TEMPLATE).render(messages=messages, add_generation_prompt=True)


def fault(messages):
    """The first feature that this model was not trained for, "" if none: another role, another key, two messages of one
    side in a row."""
    last = ""
    for number, message in enumerate(messages):
        if set(message) - {"role", "content"}:
            return f"message {number} has {sorted(set(message) - {'role', 'content'})}"
        if message["role"] not in ROLES or not isinstance(message["content"], str) or not message["content"]:
            return f"message {number} is of role {message['role']!r} with {message['content']!r}"
        if message["role"] == last or (message["role"] == "system" and number):
            return f"message {number} is of {message['role']} behind {last}"
        last = message["role"]
    return "" if last == "user" else f"the last message is of {last}"


class TemplateServer(LoopbackServer):
    """`kind` is ollama, llamacpp or vllm; `refusals` has the refused requests, `requests` those that the model
    answered."""

    def __init__(self, kind, steps, *, window=100_000, hold=None, tells=True, thought=0):
        self.kind = kind
        self.steps = steps
        self.window = window
        self.hold = hold  # the step at which the first request waits until `free`
        self.tells = tells  # whether it reports that it has no tool calls
        self.held, self.free = threading.Event(), threading.Event()
        self.thought = "hmm " * thought if kind == "ollama" else ""
        self.position = 0
        self.refusals, self.requests, self.summaries, self.counts = [], [], [], []
        server = self

        class Handler(JsonHandler):
            def do_GET(self):
                if self.path == "/props" and server.kind == "llamacpp":
                    caps = {"supports_tools": False, "supports_tool_calls": False} if server.tells else {}
                    n_ctx = {"default_generation_settings": {"n_ctx": server.window}}
                    self.reply(200, n_ctx | {"chat_template": TEMPLATE, "chat_template_caps": caps})
                elif self.path == "/v1/models" and server.kind != "ollama":
                    owner = {"llamacpp": "llamacpp", "vllm": "vllm"}[server.kind]
                    self.reply(200, {"object": "list", "data": [{"id": "m", "object": "model", "owned_by": owner}]})
                elif self.path == "/api/tags" and server.kind == "ollama":
                    self.reply(200, {"models": [{"name": "m", "model": "m"}]})
                else:
                    self.reply(404, {"error": {"message": "File Not Found", "type": "not_found_error", "code": 404}})

            def do_POST(self):
                body = json.loads(self.body())
                if self.path == "/api/show" and server.kind == "ollama":
                    can = {"capabilities": ["completion"]} if server.tells else {}
                    self.reply(200, {"model_info": {"llama.context_length": server.window}, "template": TEMPLATE} | can)
                elif self.path == ("/api/chat" if server.kind == "ollama" else "/v1/chat/completions"):
                    server.answer(self, body)
                else:
                    self.reply(404, {"error": "no such path"})

        self.serve(Handler)

    def close(self):
        self.free.set()
        super().close()

    def refuse(self, handler, status, words):
        self.refusals.append(words)
        body = {"code": status, "message": words, "type": "server_error" if status == 500 else "invalid_request_error"}
        handler.reply(status, {"error": words if self.kind == "ollama" else body})

    def answer(self, handler, body):
        messages = body["messages"]
        if body.get("tools"):
            status, words = {
                "ollama": (400, "registry.ollama.ai/library/m does not support tools"),
                "llamacpp": (500, "tools param requires --jinja flag"),
                "vllm": (400, '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set'),
            }[self.kind]
            self.refuse(handler, status, words)
            return
        if problem := fault(messages):
            self.refuse(handler, 400, f"the template of this model cannot take it: {problem}")
            return
        prompt = tokens(render(messages))
        wanted = body.get("max_tokens") or body.get("options", {}).get("num_predict") or 0
        if prompt + wanted > self.window:
            self.refuse(handler, 400, "the request exceeds the available context size, try increasing it")
            return
        self.counts.append(prompt)
        if messages[0]["role"] != "system":
            self.summaries.append(messages[0]["content"])
            self.stream(
                handler, "Notes were read; the total must round the sum; calc.py is still to be changed.", prompt
            )
            return
        self.requests.append(messages)
        if self.position == self.hold and not self.held.is_set():
            self.held.set()
            self.free.wait(90)  # the client is killed meanwhile; the same step is sent again
            return
        step = self.steps[self.position]
        self.position += 1
        self.stream(handler, written(step, messages[0]["content"]), prompt)

    def stream(self, handler, text, prompt):
        pieces = [text[at : at + 40] for at in range(0, len(text), 40)]
        done = tokens(text) + 2 + tokens(self.thought)
        if self.kind == "ollama":
            first = {"role": "assistant", "content": "", "thinking": self.thought}
            lines = [{"model": "m", "message": first, "done": False}] if self.thought else []
            lines += [{"model": "m", "message": {"role": "assistant", "content": one}, "done": False} for one in pieces]
            counts = {"prompt_eval_count": prompt, "eval_count": done, "done_reason": "stop"}
            lines.append({"model": "m", "message": {"role": "assistant", "content": ""}, "done": True, **counts})
            data = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
            handler.send(200, "application/x-ndjson", data)
            return
        base = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
        chunks = [
            {**base, "choices": [{"index": 0, "delta": {"content": one}, "finish_reason": None}]} for one in pieces
        ]
        chunks.append({**base, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
        chunks.append({**base, "choices": [], "usage": {"prompt_tokens": prompt, "completion_tokens": done}})
        data = b"".join(b"data: " + json.dumps(chunk).encode() + b"\n\n" for chunk in chunks) + b"data: [DONE]\n\n"
        handler.send(200, "text/event-stream", data)


def written(step, system):
    """A step in the form that the system prompt demands; in a text, the mark replaces MARK."""
    mark = MARK.search(system)[1]
    if isinstance(step, str):
        return step.replace("MARK", mark)
    text, calls = step
    blocks = [
        f"<call-{mark}>\n{json.dumps({'name': name, 'arguments': arguments})}\n</call-{mark}>"
        for name, arguments in calls
    ]
    return "\n\n".join([text, *blocks]).strip()
