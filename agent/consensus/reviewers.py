"""The reviewers of a deliberation: each has its own folder, its own model client and its own ReviewerControl, which can
end its requests.

Requests to reviewers are recorded in the requests.jsonl of the caller, so they count towards the limits of the caller's
task.
"""

from __future__ import annotations

import tempfile
import threading
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent.consensus.errors import NoVote
from agent.consensus.material import PERSONAS
from agent.context import MessageStore
from agent.errors import AnswerUnreadable
from agent.llm import make_client
from agent.prompts.reviewer_templates import template_of
from agent.values import WHOLE, End, Outcome

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from agent.config import Settings
    from agent.consensus.request import Asked
    from agent.consensus.streaming import PersonaStream
    from agent.context import RequestStore
    from agent.llm.base import LearntStore, ModelClient
    from agent.observe.events import EventSink
    from agent.values import Answer, Control

PURPOSE = "vote"
"""The purpose with which requests to reviewers are recorded in requests.jsonl."""
CANCELLED, LOST = "cancelled", "stream_retries"


@dataclass
class ReviewerControl:
    """Tells the model client of a reviewer to end its requests when the deliberation was cancelled, the reviewer's
    stream broke too often, or the task ends."""

    inner: Control | None
    cancelled: threading.Event
    is_lost: bool = False

    def poll(self, *, answering: bool = False) -> Outcome | None:
        """The reason to end the reviewer's requests now, None to continue."""
        if self.cancelled.is_set():
            return Outcome(End.STOPPED, code=CANCELLED)
        if self.is_lost:
            return Outcome(End.FAILED, code=LOST)
        return self.inner.poll(answering=answering) if self.inner is not None else None


@dataclass
class ReviewerEvents:
    """Passes the events of a reviewer's model client on; at `model_wait` it tells the reviewer's stream that the
    request will be repeated."""

    inner: EventSink | None
    control: ReviewerControl
    breaks: int
    stream: PersonaStream | None = None
    waits: int = 0  # number of `model_wait` events, each before a request is sent again

    def emit(self, name: str, /, **fields: Any) -> None:
        """Pass an event on to the listener `inner`."""
        self.waits += name == "model_wait"
        if name == "model_wait" and self.stream is not None:
            self.stream.retry(str(fields.get("code") or ""))
            self.control.is_lost = self.control.is_lost or self.stream.breaks > self.breaks
        if self.inner is not None:
            self.inner.emit(name, **fields)


@dataclass
class Reviewer:
    """One persona with its model client.  `plain`: the model cannot call tools, so its vote is read from the text of
    its answer."""

    name: str
    template: str
    client: ModelClient
    folder: Path
    control: ReviewerControl
    events: ReviewerEvents
    budget: int
    server: str
    slots: int | None
    timeout: float
    plain: bool = False

    @property
    def model(self) -> str:
        """The reviewer's provider and model, as `provider/model`."""
        return f"{self.client.provider}/{self.client.model}"

    def ask(self, asked: Asked, stream: PersonaStream, *, output: int) -> Answer:
        """Send one request to the reviewer; the tokens of the answer go to the stream while they arrive.

        Raises RequestRefused if the server refuses the request, NoVote if the answer cannot be read, and the other
        errors of a model client.
        """
        self.events.stream, self.client.listener = stream, stream.token
        try:
            tool = asked.tool["function"]["name"]
            return self.client.ask_aside(
                [{"role": "user", "content": asked.text}],
                purpose=PURPOSE,
                system=asked.system,
                tools=() if self.plain else [asked.tool],
                tool_choice=None if self.plain else tool,
                folder=self.folder,
                output=output,
            )
        except AnswerUnreadable:
            raise NoVote(("$: unreadable",)) from None
        finally:
            self.events.stream = self.client.listener = None

    def ask_for_text(self, system: str, text: str, *, output: int) -> str:
        """The whole text of one answer of the reviewer's model; "" for a refusal, a tool call, or an answer that was
        cut. Raises the errors of a model client."""
        answer = self.client.ask_aside(
            [{"role": "user", "content": text}], purpose=PURPOSE, system=system, folder=self.folder, output=output
        )
        return "" if answer.refused or answer.calls or answer.finish_reason != "stop" else answer.text


def designated_text(answer: Answer, tool: str) -> str:
    """The part of an answer that must be the vote: the arguments of the only tool call, or the whole text of the answer
    if it has no call.

    A vote is never taken from the model's reasoning.  Raises NoVote for an answer that is not complete, is a refusal,
    calls another tool, or has more than one call.
    """
    if answer.refused:
        raise NoVote(("$: refusal",))
    if answer.finish_reason not in WHOLE:
        raise NoVote(("$: finishReason",))
    if not answer.calls:
        return answer.text
    if len(answer.calls) != 1 or answer.calls[0]["name"] != tool:
        raise NoVote((f"$: oneCall {tool}",))
    return answer.raw_arguments[0]


@contextmanager
def open_reviewers(
    settings: Settings,
    requests: RequestStore,
    *,
    control: Control | None = None,
    events: EventSink | None = None,
    gate: Callable[[], Outcome | None] | None = None,
    learnt: LearntStore | None = None,
    templates: Sequence[str] = (),
) -> Iterator[dict[str, Reviewer]]:
    """A context manager for the reviewers that the configuration describes, by persona; at its end their clients are
    closed and their folders removed.

    `templates` are the names of the known prompt templates.  Raises ConfigError for an unknown prompt, provider or
    model.
    """
    cancelled = threading.Event()
    section = settings.consensus
    with tempfile.TemporaryDirectory(prefix="makimono-review-") as scratch, ExitStack() as opened:
        found: dict[str, Reviewer] = {}
        for name in PERSONAS:
            persona = getattr(section.personas, name)
            template = template_of(settings, name, templates)
            folder = Path(scratch) / name
            folder.mkdir()
            store = MessageStore(folder, settings, requests=requests)
            opened.callback(store.close)
            own = ReviewerControl(control, cancelled)
            sink = ReviewerEvents(events, own, section.stream_retries)
            provider = persona.provider or settings.llm.provider
            client = make_client(
                settings,
                store,
                folder,
                control=own,
                events=sink,
                provider=provider,
                model=persona.model,
                kept=learnt,
            )
            opened.callback(client.close)
            client.gate = gate
            keys = settings.provider_of(provider)
            window = client.loaded_window() or keys.context_length
            found[name] = Reviewer(
                name,
                template,
                client,
                folder,
                own,
                sink,
                min(section.token_budget, window),
                getattr(client, "address", provider),
                section.slots or client.slots,
                keys.timeout,
                plain=keys.tool_calls == "text",
            )
        yield found
