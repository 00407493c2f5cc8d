"""Anthropic's prompt cache as its documentation describes it.  It imports nothing of this program.

Rules, from platform.claude.com/docs/en/build-with-claude/prompt-caching (read November 2026):

* At most 4 blocks carry `cache_control`; more are refused with 400 (oguzbilgic/kern-ai#316 has the words).
* A prefix is written only at a mark, as a hash of everything up to and with the marked block: tools, system, messages.
* A read looks back from each mark at 20 positions at most, the mark itself the first.  The Claude API counts a run of
  `tool_use` blocks as one position, and a run of `tool_result` blocks; other platforms count every block (`runs`).
* A prefix below the least length of the model is not kept, without an error.
* An entry lives for 5 minutes from the start of the request that wrote or read it, for an hour with `"ttl": "1h"`; a
  longer one must stand in front of a shorter one.
* Thinking blocks and empty texts cannot be marked.
* Another `tool_choice`, another `thinking`, and a picture more or less change the prefix of the messages alone.
* Models before Claude Opus 4.5 drop thinking from the prompt once a user says something that is no tool result
  (docs/en/build-with-claude/extended-thinking; `keeps_thinking`).
"""

import json
import time
from dataclasses import dataclass, field
from hashlib import sha256

MOST_MARKS = 4
LOOKBACK = 20
LIFE = {"5m": 300.0, "1h": 3600.0}
LEAST = {
    "claude-fable": 512,
    "claude-mythos-preview": 2048,
    "claude-mythos": 512,
    "claude-opus-5": 512,
    "claude-opus-4-8": 1024,
    "claude-opus-4-7": 2048,
    "claude-opus-4-6": 4096,
    "claude-opus-4-5": 4096,
    "claude-sonnet": 1024,
    "claude-haiku-4-5": 4096,
}
THINKING = ("thinking", "redacted_thinking")


@dataclass
class Counted:
    """Input tokens of one request: read from the cache, written to it, neither.  `positions` is of the whole prompt."""

    read: int
    written: int
    rest: int
    positions: int

    @property
    def usage(self):
        return {
            "input_tokens": self.rest,
            "cache_read_input_tokens": self.read,
            "cache_creation_input_tokens": self.written,
        }


@dataclass
class PromptCache:
    """`least` None: derived from the model's name.  `now()` is in seconds.  `asked` has a Counted for each request."""

    least: int | None = None
    runs: bool = False
    keeps_thinking: bool = True
    now: object = time.monotonic
    entries: dict = field(default_factory=dict)  # hash of a prefix → its expiry
    asked: list = field(default_factory=list)

    def refusal(self, body):
        """The message of a 400, "" if the request is valid."""
        blocks = list(marked(body))
        if len(blocks) > MOST_MARKS:
            return f"A maximum of 4 blocks with cache_control may be provided. Found {len(blocks)}."
        lives = []
        for where, block in blocks:
            mark = block["cache_control"]
            if mark.get("type") != "ephemeral" or mark.get("ttl", "5m") not in LIFE or set(mark) - {"type", "ttl"}:
                return f"{where}.cache_control: Input should be a valid dictionary or object of type ephemeral"
            if block.get("type") in THINKING:
                return f"{where}.{block['type']}.cache_control: Extra inputs are not permitted"
            if block.get("type") == "text" and not block["text"].strip():
                return f"{where}.text: cache_control cannot be set for empty text blocks"
            lives.append(LIFE[mark.get("ttl", "5m")])
        if lives != sorted(lives, reverse=True):
            return "a ttl='1h' cache_control block must not come after a ttl='5m' cache_control block"
        return ""

    def take(self, body):
        """The counts of one request; its prefixes are cached from then on."""
        started, prefixes, marks = self.now(), [], []
        running, tokens, position, last = sha256(str(body.get("model")).encode()), 0, 0, ""
        for kind, block in self.prompt(body):
            bare = {key: value for key, value in block.items() if key != "cache_control"}
            text = json.dumps(bare, sort_keys=False)
            running.update(text.encode())
            tokens += len(text) // 4 + 1
            position += not (self.runs and kind == last and kind in ("tool_use", "tool_result"))
            last = kind
            prefixes.append((running.hexdigest(), tokens, position))
            if "cache_control" in block:
                marks.append((len(prefixes) - 1, LIFE[block["cache_control"].get("ttl", "5m")]))
        least = self.least if self.least is not None else least_of(str(body.get("model")))
        read = 0
        for number, life in marks:
            for key, size, place in reversed(prefixes[: number + 1]):
                if prefixes[number][2] - place >= LOOKBACK:
                    break
                if self.entries.get(key, 0) > started:
                    self.entries[key] = max(self.entries[key], started + life)
                    read = max(read, size)
                    break
        kept = [(prefixes[number], life) for number, life in marks if prefixes[number][1] >= least]
        for (key, _, _), life in kept:
            self.entries[key] = max(self.entries.get(key, 0), started + life)
        covered = max([size for (_, size, _), _ in kept] + [read])
        counted = Counted(read, covered - read, tokens - covered, position)
        self.asked.append(counted)
        return counted

    def prompt(self, body):
        """(kind, block) in the order of the prompt: tools, system, messages.  The first message block includes the
        settings that invalidate only the messages."""
        for tool in body.get("tools") or ():
            yield "tool", tool
        system = body.get("system") or ()
        for block in [{"type": "text", "text": system}] if isinstance(system, str) else system:
            yield "system", block
        turns = [(turn["role"], content_of(turn)) for turn in body["messages"]]
        pictures = sum(block.get("type") == "image" for _, content in turns for block in content)
        words = [n for n, (role, content) in enumerate(turns) if role == "user" and has_words(content)]
        first = True
        for number, (role, content) in enumerate(turns):
            for block in content:
                if not self.keeps_thinking and block.get("type") in THINKING and number < max(words, default=0):
                    continue
                if first:
                    first = False
                    choices = [body.get("tool_choice"), body.get("thinking"), pictures]
                    block = {"": choices, **block}  # noqa: PLW2901 - part of the hash of every message
                yield block.get("type"), {"role": role, **block}


def content_of(turn):
    content = turn["content"]
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def has_words(content):
    return any(block.get("type") != "tool_result" for block in content)


def marked(body):
    """(position, block) of every marked block."""
    for number, tool in enumerate(body.get("tools") or ()):
        if "cache_control" in tool:
            yield f"tools.{number}", tool
    system = body.get("system")
    for number, block in enumerate(system if isinstance(system, list) else ()):
        if "cache_control" in block:
            yield f"system.{number}", block
    for number, turn in enumerate(body["messages"]):
        for place, block in enumerate(content_of(turn)):
            if "cache_control" in block:
                yield f"messages.{number}.content.{place}", block


def least_of(model):
    """The least tokens of a cached prefix, by the model's name; 1,024 for a model that is not in the table."""
    found = [name for name in LEAST if model.startswith(name)]
    return LEAST[max(found, key=len)] if found else 1024
