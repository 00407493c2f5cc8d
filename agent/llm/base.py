"""The contract of a model client, and the table of them.

A client turns a plan (spans of files) into one request of its wire, sends it, and appends the answer to the message
store.  It is not the loop: it runs nothing, compacts nothing and knows no task.  `run/wiring.py` builds one with
`make_client`; `loop.py`, `window/compressor.py` and `cli` call it.  Seed 002, sections 5.2 to 5.4 and 6.2.

What every client keeps to:

* **Whole or nothing.**  An answer is appended after its last byte, with the provider's `usage` and `finish_reason`.
  A stream that is cut, idle, too long or interrupted leaves messages.jsonl exactly as it was.
* **Flat memory.**  `request.json` is written from the files in chunks or line by line, posted from the open file, and
  removed when the request is over, however it ended.
* **Legal or not sent.**  Lines that are new since the last request are checked (roles, keys, call/result pairs); what
  is not legal raises HistoryRefused before a byte is sent.
* **Same bytes, same place.**  Between two compactions the bytes of a request are a prefix of the next one's, up to the
  closing brackets.
* **Patience has classes** (`faults.py`, `retry.py`).  A prompt that is too long raises ContextOverflow at once, with
  the numbers the server told; compacting is the caller's.
* **Every request is a fact.**  `message_store.requests`, where there is one, gets a line for each that was sent
  (`account.py`).  With a `gate` no request but the first of a turn is sent once that answers with an outcome.
* **None** for `last` means that nothing was answered yet; None from `loaded_window` that the server does not tell.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from agent.registry import Registry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from agent.values import Answer, Control, Json, Messages, Outcome, Plan

CLIENTS = Registry(
    "llm provider",
    {
        "openai": "agent.llm.openai:OpenAIClient",
        "ollama": "agent.llm.ollama:OllamaClient",
        "lmstudio": "agent.llm.lmstudio:LMStudioClient",
        "anthropic": "agent.llm.anthropic:AnthropicClient",
        "replay": "agent.llm.replay:ReplayClient",
    },
)


CHOICES = ("", "auto", "none", "required")
TURN = "turn"
"""`purpose` of a request of the conversation; the others are `summary`, `vote`, `memory`."""


class Interrupted(Exception):
    """A stop, not an error: `control` ended the wait for an answer; nothing of it was appended.  `outcome` says why."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(outcome.summary or outcome.end.value)
        self.outcome = outcome


@dataclass(frozen=True, slots=True)
class Check:
    """What `doctor` says about a server: one line for a person, with what to do when it is not `ok`."""

    ok: bool
    text: str


@dataclass(frozen=True, slots=True)
class Aside:
    """What a request outside the conversation offers in the place of the conversation's tools.

    `choice` is "auto", "none", "required", the name of a tool that must be called, or "" for what the server does by
    itself.  A wire that cannot say it comes as near as it can: Ollama knows no choice, so a named tool is offered
    alone, and "none" offers nothing.
    """

    tools: tuple[Json, ...] = ()
    choice: str = ""

    @property
    def named(self) -> str:
        """The tool that must be called, "" for none."""
        return "" if self.choice in CHOICES else self.choice

    def alone(self) -> tuple[Json, ...]:
        """The tools, without the others where one must be called."""
        return tuple(tool for tool in self.tools if self.named in ("", tool["function"]["name"]))


class Announce(Protocol):
    """The part of `observe.events.Events` that a client uses."""

    def emit(self, name: str, /, **fields: Any) -> None:
        """Tell listeners."""
        ...


class Kept(Protocol):
    """Where what was learnt about a model on its server outlives the process (`store.learnt`)."""

    def get(self, server: str, model: str) -> Mapping[str, Any]:
        """The facts, {} for none."""
        ...

    def put(self, server: str, model: str, facts: Mapping[str, Any]) -> None:
        """Keep these facts instead of others."""
        ...


class ModelClient(Protocol):
    """One model on one wire, for one conversation.  Built as `(config, message_store, context_dir)`."""

    provider: str
    model: str
    tools: Sequence[Json]  # OpenAI-form schemas; never changed within a task
    last: Answer | None
    takes_no_pictures: bool  # learnt: the server refused a request for its pictures
    gate: Callable[[], Outcome | None] | None  # an outcome when a limit is reached

    @property
    def picture_form(self) -> str:
        """How pictures are sent, "" when none are."""
        ...

    def send_system_prompt(self, prompt: str) -> int:
        """Append a system message; returns `seq`."""
        ...

    def send_user_message(self, message: str) -> int:
        """Append a user message; returns `seq`."""
        ...

    def send_function_result(self, name: str, result: Any) -> int:
        """Append a tool result for the oldest open call of `name`; what is not text is written as JSON."""
        ...

    def get_response(self, plan: Plan | None = None) -> tuple[str, list[Json]]:
        """Ask once.  Returns (text, `[{"id", "name", "arguments": dict}]`) after appending both; without a plan the
        whole current view is sent.  A call with `"invalid"` beside its arguments must not be run; neither may any
        call of an answer whose `last.finish_reason` is "length".

        Raises ModelError and its kinds, DiskError, or Interrupted.
        """
        ...

    def ask_aside(
        self,
        messages: Iterable[Mapping[str, Any]],
        *,
        purpose: str,
        system: str = "",
        tools: Sequence[Json] = (),
        tool_choice: str | Mapping[str, Any] | None = None,
        folder: Path | None = None,
        output: int = 0,
    ) -> Answer:
        """One request outside the conversation: nothing is appended, `last` stays.

        `messages` are in OpenAI's form; a content that is a Path is the text of that file, read in pieces.
        `tool_choice` is "auto", "none", "required", or a tool by its name (or in OpenAI's form).  Its files lie in
        `folder`, the task's by default, under names of their own: several may be asked at once, from threads.
        `output` is the most tokens of the answer, 0 for what is configured.  Raises as `get_response` does.
        """
        ...

    def get_summary(self, path: Path) -> str:
        """`ask_aside` with the text of the file as the only user message, without tools.  AnswerUnreadable when the
        answer is empty, was cut, or is a call instead of text."""
        ...

    def models(self) -> list[str]:
        """Names of the models that the server has, [] when it does not tell.  ModelError when it cannot be asked."""
        ...

    def loaded_window(self) -> int | None:
        """Tokens that the server says are loaded; asked once, then remembered."""
        ...

    def describe(self) -> str:
        """Provider, model and address in one line for a person; no secret in it."""
        ...

    def check(self) -> Check:
        """Whether the server answers and has the model.  Never raises ModelError."""
        ...

    def close(self) -> None:
        """Give connections back."""
        ...


def make_client(
    settings: Any,
    message_store: Messages,
    context_dir: Path,
    *,
    tools: Sequence[Json] = (),
    control: Control | None = None,
    events: Announce | None = None,
    provider: str | None = None,
    model: str | None = None,
    kept: Kept | None = None,
) -> ModelClient:
    """The client of the configured provider, or of `provider` and `model` (a dotted path works as a name).  A client
    with `recall(kept)` begins with what earlier ones have learnt of its server.

    ConfigError for an unknown name.
    """
    from agent.config import settings_of

    validated = settings_of(settings)
    name = provider or validated.llm.provider
    make: Callable[..., ModelClient] = CLIENTS.load(name)
    more: Mapping[str, Any] = {"tools": tools, "control": control, "events": events, "provider": name, "model": model}
    client: ModelClient = make(validated, message_store, context_dir, **more)
    recall = getattr(client, "recall", None)
    if kept is not None and recall is not None:
        recall(kept)
    return client
