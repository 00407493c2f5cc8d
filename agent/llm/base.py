"""The contract of a model client, and the registry of clients.

A client turns a plan (spans of files) into one request in the format of its wire (the API of its provider), sends it,
and appends the answer to the message store.  A client is not the agent's loop: it runs no tools, does not compact the
conversation and does not know the task.  `make_client` makes the client of the configured provider.  See
docs/design/context.md, sections 5.2 to 5.4 and 6.2.

Every client guarantees:

* **Only whole answers are stored.** The client appends an answer to the message store after the last byte has arrived,
  with the provider's `usage` and `finish_reason`. An answer that breaks off before its end, stays idle, is too long or
  is interrupted leaves messages.jsonl unchanged.
* **Flat memory.** The client writes the file of a request (`request.json`) from the files of the task in chunks or line
  by line, sends it from the open file, and removes or renames it when the request ends, with or without an error.
* **Only valid message lists are sent.** A message list that breaks a rule of `agent/message_list_check.py` raises
  HistoryRefused before a byte is sent. A request plan contains the result of the planner's check of its lines; the
  client checks each line that the planner has not checked, once.
* **Requests have a stable beginning** (so that the server can cache it). Between two compactions each request of the
  conversation begins with the same bytes as the request before it, except for the closing brackets at the end of the
  earlier request.
* **Retries by class of error** (`error_mapping.py`, `retry.py`).  A prompt that is too long raises ContextOverflow at
  once, with the numbers of tokens that the server reported; the caller then compacts the conversation.
* **Every request is recorded.** The client adds a line to `message_store.requests` for each request that it sends, if
  the store has this file (`request_record.py`). If the function `gate` is set and returns an outcome, the client
  repeats no request, and sends no request outside the conversation.
* **None.** The attribute `last` (the last answer) is None if there is no answer yet; `loaded_window` returns None if
  the server does not report its window.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from agent.errors import StopHeard
from agent.registry import Registry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from agent.observe.events import EventSink
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
"""The value of `purpose` for a request of the conversation; a request outside the conversation has another purpose,
such as `summary`, `vote` or `memory`."""


class Interrupted(StopHeard):
    """The error that a task has to stop, which is not a failure: the request was not sent or its answer was not
    awaited, and no part of the answer was stored.

    `outcome` contains the reason why the task stops.
    """

    code = "interrupted"

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(outcome.summary or outcome.end.value)
        self.outcome = outcome


@dataclass(frozen=True, slots=True)
class Check:
    """Result of the `doctor` check of a model server: one line of text for a person, with advice when `ok` is False.

    `answers` is True if the server replied, even if it does not serve the model.
    """

    ok: bool
    text: str
    answers: bool = True


@dataclass(frozen=True, slots=True)
class SideRequest:
    """The tools of a request outside the conversation, which offers these tools instead of the tools of the
    conversation.

    `choice` says whether the model must call a tool, and which: "auto", "none", "required", the name of a tool, or ""
    for the server's default. For an API without an equivalent of `choice` the nearest form is used: Ollama's API has no
    tool choice, so a named tool becomes the only tool of the request, and with "none" no tools are sent.
    """

    tools: tuple[Json, ...] = ()
    choice: str = ""

    @property
    def named(self) -> str:
        """The name of the tool that must be called, "" if there is none."""
        return "" if self.choice in CHOICES else self.choice

    def alone(self) -> tuple[Json, ...]:
        """The tools to offer where the API cannot demand a tool by its name: all tools, or only the named tool if one
        must be called."""
        return tuple(tool for tool in self.tools if self.named in ("", tool["function"]["name"]))


class LearntStore(Protocol):
    """Storage, shared by all processes, of facts that were learnt about a model on its server
    (`store.learnt_model_facts`)."""

    def get(self, server: str, model: str) -> Mapping[str, Any]:
        """The stored facts about a model on a server, {} if there are none."""
        ...

    def put(self, server: str, model: str, facts: Mapping[str, Any]) -> None:
        """Replace the stored facts about a model on a server."""
        ...


class ModelClient(Protocol):
    """A client for one model of one provider, for one conversation.

    The positional arguments of a client class are `(config, message_store, context_dir)`.
    """

    provider: str
    model: str
    tools: Sequence[Json]  # tool schemas in OpenAI's form, the same for the whole task
    last: Answer | None
    # Learnt from a refused request: the server does not accept pictures (the value is then True).
    takes_no_pictures: bool
    gate: Callable[[], Outcome | None] | None  # a function that returns an outcome when a limit of the task is reached
    listener: Callable[[str], None] | None  # a function that is called with each piece of an answer as it arrives

    @property
    def picture_form(self) -> str:
        """The form in which pictures are sent to the model server's API; "" when no pictures are sent."""
        ...

    def send_system_prompt(self, prompt: str) -> int:
        """Append a system message; returns its `seq`."""
        ...

    def send_user_message(self, message: str) -> int:
        """Append a user message; returns its `seq`."""
        ...

    def send_function_result(self, name: str, result: Any) -> int:
        """Append a tool result for the oldest open call of `name`; a result that is not text is stored as JSON."""
        ...

    def get_response(self, plan: Plan | None = None) -> tuple[str, list[Json]]:
        """Send one request of the conversation.

        Returns (text of the answer, tool calls as `[{"id", "name", "arguments": dict}]`) after the answer is appended
        to the message store.

        Without a request plan (`plan`) the whole current context file of the message store is sent. The caller must not
        run a tool call that has a field `"invalid"`, nor any tool call of an answer with the `finish_reason` "length"
        (`last.finish_reason`).

        Raises ModelError or one of its subclasses, DiskError, or Interrupted.
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
        """Send one request outside the conversation: nothing is appended to the message store, and `last` does not
        change.

        The messages of `ask_aside` are in OpenAI's form; a `content` that is a Path stands for the text of that file,
        which is read in pieces. `tool_choice` is "auto", "none", "required", or a tool by its name (or in OpenAI's
        form). The files of the request are written to `folder` (default: the task's folder) under unique names, so
        several threads may send requests at once. `output` is the maximum number of tokens of the answer; 0 means the
        configured maximum. `ask_aside` raises the same errors as `get_response`.
        """
        ...

    def get_summary(self, path: Path) -> str:
        """Send the text of the file `path` as the only message, without tools; returns the text of the answer.

        Raises AnswerUnreadable when the answer is empty, a refusal, not complete, or a tool call instead of text.
        """
        ...

    @property
    def slots(self) -> int | None:
        """The number of requests that the model server processes at the same time, as the server reports it, else 1 for
        local servers; None for hosted services, where it is unknown.

        The value of `slots` is certain only after `loaded_window` was called."""
        ...

    def models(self) -> list[str]:
        """Names of the models that the server lists, [] when the server has no such list.

        Raises ModelError when the request fails.
        """
        ...

    def loaded_window(self) -> int | None:
        """The context window, in tokens, with which the server has loaded the model, as the server reports it; None if
        the server does not report it."""
        ...

    def describe(self) -> str:
        """Provider, model and address in one line for a person, without secrets."""
        ...

    def check(self) -> Check:
        """Ask the model server whether it serves the model. A failure is described by the result; ModelError is never
        raised."""
        ...

    def close(self) -> None:
        """Close the client's connections to the model server."""
        ...


def make_client(
    settings: Any,
    message_store: Messages,
    context_dir: Path,
    *,
    tools: Sequence[Json] = (),
    control: Control | None = None,
    events: EventSink | None = None,
    provider: str | None = None,
    model: str | None = None,
    kept: LearntStore | None = None,
) -> ModelClient:
    """Make the client for the configured provider and model, or for `provider` and `model` (the configured class of a
    provider may be a dotted path).

    `kept` is the storage of facts that earlier processes have learnt about servers; it is passed to a client that has a
    method `load_learnt`.  Raises ConfigError for an unknown name of a provider.
    """
    from agent.config import settings_of

    validated = settings_of(settings)
    name = provider or validated.llm.provider
    make: Callable[..., ModelClient] = CLIENTS.load(name, validated.plugin_guard)
    more: Mapping[str, Any] = {"tools": tools, "control": control, "events": events, "provider": name, "model": model}
    client: ModelClient = make(validated, message_store, context_dir, **more)
    recall = getattr(client, "load_learnt", None)
    if kept is not None and recall is not None:
        recall(kept)
    return client
