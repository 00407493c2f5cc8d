"""The base class of the model clients: it appends and checks messages, writes the file of a request (request.json),
sends the file, reads and appends the answer, and renames or removes the file.

The subclass of `ChatClient` for a provider adds the address, the headers, the format of a request and the parser of
answers.  The contract of a client is in `base.py`; `server_info.py` reads facts about the server;
`learnt_from_refusals.py` learns facts from refused requests.
"""

from __future__ import annotations

import codecs
import os
import re
import threading
from abc import ABC, abstractmethod
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, ClassVar

import orjson

from agent import clock, durable_files
from agent.config import settings_of
from agent.errors import (
    AnswerUnreadable,
    CallUnreadable,
    ContextError,
    ContextOverflow,
    HistoryRefused,
    ModelError,
    ModelNotFound,
    ModelStalled,
    RequestRefused,
    ShapeWrong,
)
from agent.llm import images, urls
from agent.llm.base import TURN, Interrupted, SideRequest
from agent.llm.call_ids import with_ids
from agent.llm.dialects import COMPATIBLE, DIALECTS, When, by_headers, by_host, by_path
from agent.llm.error_mapping import RESAMPLE_TRIES, STALLED_TRIES
from agent.llm.fields_sent_back import ReturnedFields
from agent.llm.learnt_from_refusals import Learner
from agent.llm.request_lines import Lines
from agent.llm.request_record import RequestLog
from agent.llm.retry import call_with_retries
from agent.llm.role_alternation import parsed
from agent.llm.text_call_formats import whole_calls
from agent.llm.tool_call_mode import CallMode
from agent.llm.tool_calls_as_text import PER_CALL
from agent.store.storable_text import dumps, line, replace_surrogates
from agent.tokens import counter_for
from agent.values import WHOLE, Span

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from agent.llm.base import LearntStore
    from agent.llm.dialects import Dialect
    from agent.llm.request_record import Bill, PendingRequest
    from agent.llm.role_alternation import Change
    from agent.llm.stream_accumulator import StreamAccumulator
    from agent.llm.transport import Stream, Transport
    from agent.message_list_check import Shape
    from agent.observe.events import EventSink
    from agent.values import Answer, Control, Json, Messages, Outcome, Plan

READ = 1 << 16
KEPT = "kept.json"


@dataclass(frozen=True, slots=True)
class RequestBody:
    """The parts of a request that `encode` writes: the lines of its messages, their properties, the wanted maximum of
    the answer in tokens (0: the configured one), and `aside` for a request outside the conversation."""

    spans: Sequence[Span]
    shape: Shape
    output: int = 0
    aside: SideRequest | None = None


class ChatClient(Learner, ABC):
    """Base class of the model clients.  `config` is a Settings object or a mapping with the same keys
    (docs/design/context.md, 9.1)."""

    name: ClassVar[str]
    default_url: ClassVar[str] = ""
    call: ClassVar[str] = "/chat/completions"  # the path of a chat request, below the base URL of the server
    learns: ClassVar[tuple[str, ...]] = (
        "no_tools",
        "alternate",
        "most_output",
        "base",
        "dropped",
        "takes_no_pictures",
        "id_form",
        "said",
    )
    is_recording: ClassVar[bool] = False  # whether the answers come from a recorded conversation, not a model
    lists_every_model: ClassVar[bool] = False  # whether a model that the server does not list cannot be used
    start_advice: ClassVar[str] = ""  # how to start the server and get a model; "" for a hosted service
    key_header: ClassVar[str] = "Authorization"
    wire_headers: ClassVar[Mapping[str, str]] = {}  # headers of every request to the provider's API
    # the dialect (peculiarities of the API) until the configuration, the address or an answer selects another
    own_dialect: ClassVar[Dialect] = COMPATIBLE

    def __init__(
        self,
        config: Any,
        message_store: Messages,
        context_dir: Path | str,
        *,
        tools: Sequence[Json] = (),
        control: Control | None = None,
        events: EventSink | None = None,
        provider: str | None = None,
        model: str | None = None,
    ) -> None:
        self.settings = settings_of(config)
        self.provider = provider or self.name
        self.keys = self.settings.provider_of(self.provider)
        self.model = model or self.keys.model
        named = by_host(urls.host(self.base_url)) or by_path(urls.path(self.base_url))
        self.dialect = DIALECTS.get(self.keys.dialect) or named or self.own_dialect
        self.recognised = "by its address" if named else "nothing says otherwise"
        self.message_store = message_store
        self.context_dir = Path(context_dir)
        # the name of the task's folder: the uuid of the task, which is the same in every process that works on the task
        self.conversation = self.context_dir.name
        self.tools: Sequence[Json] = tuple(tools)
        self.control = control
        self.events = events
        self.last: Answer | None = None
        self.summary: Answer | None = None  # the last answer of `get_summary`; callers read its usage
        self.lines = Lines()
        self.alternate = False  # learnt: whether the chat template requires alternating roles
        # decides which extra fields of earlier answers (such as reasoning) are sent back to the server, and learns from
        # refusals which fields the server accepts
        self.back = ReturnedFields(self.keys.wire)
        self.id_form = ""  # learnt: a pattern of the tool call ids that this server accepts
        # what the messages of the current request contain (`Shape`); None for a request outside the conversation
        self.shape: Shape | None = None
        self.abilities: dict[str, bool] = {}  # "tools" or "images" → whether the model has this ability, by the server
        self.calling = CallMode(self.keys.tool_calls, self.tools, message_store, self.abilities, self.emit)
        self.pictures_refused = ""  # the error text of a refused request that had pictures
        self.takes_no_pictures = False  # learnt: whether a request that was refused with pictures succeeded without
        self.most_output = 0  # learnt: the model's maximum number of output tokens
        self._asked_output = 0  # the maximum answer length, in tokens, that the newest request contained
        # the context window of the loaded model, None before the server has reported it
        self._window: int | None = None
        self.told_slots = 0  # the number of slots (parallel requests) that the server reported, 0 if it reported none
        self.allocated: int | None = (
            # the context window that the server reported when it seemed to have truncated a prompt
            # (`truncation_detector.py`)
            None
        )
        self.gate: Callable[[], Outcome | None] | None = None
        self.listener: Callable[[str], None] | None = None
        self.input_limit = 0  # the maximum tokens of a request, from the request plan; 0 if unknown
        self._transport: Transport | None = None
        self._idle: list[Transport] = []  # additional connections to the server, for concurrent requests
        self._taking = threading.Lock()
        self._taken = False  # whether `_transport` is in use
        self._numbers = count(1)
        self._thread = threading.get_ident()
        self._heard_of: set[str] = set()
        self.base = 0  # learnt: the index in `bases` of the base URL that works
        self.dropped: set[str] = set()  # learnt: parameters, and keywords in tool schemas, that the server refuses
        self.said: set[str] = set()  # warnings that were logged, so that they are not repeated
        self.kept: LearntStore | None = None  # storage of learnt facts that processes share
        self._known: Json = {}  # the learnt facts about the server as they are in the storage
        # the facts that this client had before it added the stored facts; None after the stored facts were dropped
        self._fresh: Json | None = None

    # --- what a provider's class implements --------------------------------------------------------------------

    @abstractmethod
    def encode(
        self, out: BinaryIO, spans: Sequence[Span], shape: Shape, output: int, aside: SideRequest | None = None
    ) -> None:
        """Write the body of a request to `out`; `output` is the maximum number of tokens of the answer, 0 for no
        maximum.

        If `aside` is given, the request is outside the conversation, and offers the tools of `aside`.
        """

    @abstractmethod
    def read(self, stream: Stream) -> StreamAccumulator:
        """Read the server's answer to its end."""

    def prepare(self) -> None:
        """Request the facts about the server that `encode` needs; `prepare` is called before each request is
        written."""

    def request_headers(self, *, summary: bool) -> Mapping[str, str]:
        """The headers of one request that are sent in addition to those of `headers()`."""
        del summary
        return {}

    def validate(self, answer: Answer, plan: Plan | None) -> None:
        """Raise ContextOverflow if the server has cut the prompt off, although its answer is complete. In the base
        class `validate` accepts every answer. `plan` is None for a request outside the conversation."""

    # --- the conversation -------------------------------------------------------------------------------------

    def send_system_prompt(self, prompt: str) -> int:
        return self.message_store.add_message("system", prompt)

    def send_user_message(self, message: str) -> int:
        return self.message_store.add_message("user", message)

    def send_function_result(self, name: str, result: Any) -> int:
        text = result if isinstance(result, str) else dumps(result).decode()
        return self.message_store.add_message("tool", text, tool_name=name)

    def get_response(self, plan: Plan | None = None) -> tuple[str, list[Json]]:
        spans = plan.spans if plan is not None else (Span(self.message_store.get_current_context_file()),)
        self.shape = shape = self.lines.check(spans, plan.reading if plan is not None else None)
        if plan is not None:
            self.input_limit = plan.limit
        wanted = plan.output if plan is not None else 0
        tokens = plan.tokens if plan is not None else 0
        answer, bill = self.ask(RequestBody(spans, shape, wanted), tokens=tokens)
        answer = at_the_limit(answer, self.output_limit(wanted))
        self.validate(answer, plan)
        self.back.accepted(shape)
        answer, form = self.calling.read(answer)
        answer = self.calling.limit_calls(answer)
        more = self.fields_of(answer) | ({} if answer.request is None else {"request": answer.request})
        # The server's token counts of an answer are stored only if the server reported the count of the prompt:
        # otherwise `bill` has an estimate of that count. If the provider reported no token count of the answer, `bill`
        # has an estimate of that count.
        reported = answer.usage is not None and 0 < answer.usage.prompt == bill.usage.prompt
        self.message_store.add_message(
            "assistant",
            answer.text,
            tool_calls=answer.calls or None,
            usage=bill.usage if reported else None,
            finish_reason=answer.finish_reason,
            form=form or None,
            **more,
        )
        self.last = answer
        return answer.text, [dict(call) for call in answer.calls]

    def fields_of(self, answer: Answer) -> Json:
        """The arguments of `add_message` that store the provider-specific fields of an answer, such as its reasoning.

        Returns {} if the answer has no provider-specific fields, or if the answer is empty, since empty answers are not
        sent back.
        """
        if not answer.calls and not answer.text.strip():
            return {}
        kept = {"reasoning": answer.reasoning} if answer.reasoning and not answer.fields else {}
        if not (answer.fields or any(answer.call_fields) or kept):
            return {}
        whose = {"wire": self.keys.wire, "model": self.model, "server": urls.host(self.base_url)}
        own = {"message": answer.fields, "calls": answer.call_fields, "kept": kept}
        return {"provider_fields": whose | own}

    @property
    def reports(self) -> Any:
        """The servers' reports of token counts of prompts of the conversation (`context.usage_reports.UsageReports`);
        None if the store has none."""
        return getattr(getattr(self.message_store, "index", None), "reports", None)

    def sends_back(self, name: str) -> bool:
        """Whether later requests contain the field `name` of an earlier answer or of its tool calls."""
        return any(
            self.back.when(self.dialect, name, in_call=in_call) in (When.ALWAYS, When.LOOP) for in_call in (False, True)
        )

    def text_mode(self) -> tuple[str, int]:
        """For a model that writes its tool calls as text: (the text that is added after the system prompt, the tokens
        that one call in text needs in addition to its contents).

        Returns ("", 0) if the tool calls of the server's API are used.
        """
        return (self.calling.form.prompt, PER_CALL) if self.calling.in_text else ("", 0)

    def in_text(self, spans: Sequence[Span]) -> Iterator[Json] | None:
        """The messages of a request in which tool calls are written as text, for a model without tool calls; None if
        the tool calls of the server's API are used."""
        return self.as_text(parsed(spans)) if self.calling.in_text else None

    def as_text(self, messages: Iterable[Json]) -> Iterator[Json]:
        """Change messages for a model that writes its tool calls as text: the calls in them become text, and the
        pictures get the form that the server accepts."""
        return images.with_pictures(self.calling.form.messages(messages), self.context_dir, self.picture_form)

    def message_change(self, shape: Shape) -> Change | None:
        """A function that changes stored messages as the server demands; None when the stored lines can be sent
        unchanged."""
        form = self.id_form or self.dialect.id_form
        ids = bool(form) and not all(re.fullmatch(form, call_id) for call_id in shape.ids)
        if self.back.is_as_it_stands(self.dialect, shape) and not ids and not shape.images:
            return None

        def change(messages: Iterable[Json]) -> Iterator[Json]:
            shown = images.with_pictures(messages, self.context_dir, self.picture_form)
            for message in self.back.applied(shown, self.dialect, shape):
                yield with_ids(message, form) if ids else message

        return change

    def get_summary(self, path: Path) -> str:
        self.summary = answer = self.ask_aside([{"role": "user", "content": Path(path)}], purpose="summary")
        if answer.finish_reason == "length":
            raise AnswerUnreadable(f"{self.label}: the summary was cut at the limit of the answer; it is not used")
        if answer.finish_reason not in WHOLE:
            raise AnswerUnreadable(f"{self.label}: the summary ended for {answer.finish_reason}; it is not used")
        if answer.refused:
            raise AnswerUnreadable(f"{self.label}: the summary is a refusal; it is not used")
        is_call = bool(answer.calls) or whole_calls(answer.text, self.calling.names) is not None
        if is_call or not answer.text.strip():
            raise AnswerUnreadable(f"{self.label}: the summary is {'a call' if is_call else 'empty'}; it is not used")
        return answer.text

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
        self.shape = None
        aside = SideRequest(tuple(tools), choice_of(tool_choice))
        name = f"request-{next(self._numbers)}"
        folder = self.context_dir if folder is None else Path(folder)
        lines = folder / f"{name}.jsonl"
        try:
            with durable_files.writing(lines):
                write_lines(lines, system, messages)
            spans = (Span(lines),)
            body = RequestBody(spans, Lines().check(spans), output, aside)
            answer, _ = self.ask(body, purpose=purpose, path=folder / f"{name}.json")
        finally:
            lines.unlink(missing_ok=True)
        answer = at_the_limit(answer, self.output_limit(output))
        self.validate(answer, None)
        return answer

    # --- one request ------------------------------------------------------------------------------------------

    def ask(
        self,
        body: RequestBody,
        *,
        tokens: int = 0,
        purpose: str = TURN,
        path: Path | None = None,
    ) -> tuple[Answer, Bill]:
        """Write the file of a request, send it, repeat the request as far as the errors allow, and read the whole
        answer; afterwards the file is removed or renamed (`request`).

        The file of a request is `path`, or request.json if `path` is None. `tokens` is the estimated number of prompt
        tokens, 0 if unknown.
        """
        self.prepare()
        started = clock.monotonic()
        summary = purpose != TURN  # True if the request is outside the conversation
        send = self._sender(purpose, tokens)
        while True:
            try:
                if not summary:
                    self.calling.announce()
                with self.request(body, keep=path is None, own=path) as written:
                    self.emit("request_sent", purpose=purpose, tokens=tokens, bytes=written.stat().st_size)
                    entry = call_with_retries(
                        partial(send, written),
                        provider=self.provider,
                        model=self.model,
                        control=self.control,
                        events=self.events,
                    )
                if body.aside is None:
                    answer = entry.draft.answer(body.shape.ids, self.calling.names)
                else:
                    answer = entry.draft.answer((), names_of(body.aside.tools))
                answer = replace(answer, request=entry.bill.seq)
                self._received(answer, entry.bill, purpose, started)
                return answer, entry.bill
            except (RequestRefused, HistoryRefused, ModelNotFound) as error:
                self._adapt(error, summary=summary)
            except CallUnreadable as error:
                if summary or not self.calling.distrust():
                    self.emit("model_failed", code=error.code, error=str(error))
                    raise
            except ContextOverflow:
                raise  # the prompt is too long: the caller has to compact the conversation
            except ModelError as error:
                if not self._give_up_pictures(error):
                    self._emit_failure(error)
                    raise

    def _sender(self, purpose: str, tokens: int) -> Callable[[Path], PendingRequest]:
        """A function that sends a written request. The function checks the limits of the task before each attempt,
        except before the first attempt of a turn, since the agent's loop checks the limits before each turn."""
        looked = purpose == TURN

        def send(written: Path) -> PendingRequest:
            nonlocal looked
            if not looked and self.gate is not None and (outcome := self.gate()) is not None:
                raise Interrupted(outcome)
            looked = False
            return self.send(written, self.request_headers(summary=purpose == "summary"), purpose, tokens)

        return send

    def _received(self, answer: Answer, bill: Bill, purpose: str, started: float) -> None:
        """Emit `answer_received`, and store the facts that the answer shows about the server."""
        said = {"purpose": purpose, **bill.fields(), "finish_reason": answer.finish_reason}
        self.emit("answer_received", **said, seconds=round(clock.monotonic() - started, 3))
        self._who_answered(answer.model)
        self.calling.accepted(summary=purpose != TURN)
        # only the thread that created the client may store facts, since the database connection belongs to that thread
        if threading.get_ident() == self._thread:
            self.recognise(by_headers(self.transport.heard))
            self._went_without_pictures()
            self.save_learnt()

    def _adapt(self, error: RequestRefused | HistoryRefused | ModelNotFound, *, summary: bool) -> None:
        """Change the form of a refused request, so that the request is sent again; raises an error if no other form is
        left."""
        before = self.facts()
        if not self._another_way(error, summary=summary):
            first = self.calling.give_up(error)
            self._emit_failure(first)
            raise first from (None if first is error else error)
        changed = {name: value for name, value in self.facts().items() if value != before.get(name)}
        self.emit("model_adapted", learnt=changed, why=str(error))

    def _another_way(self, error: RequestRefused | HistoryRefused | ModelNotFound, *, summary: bool) -> bool:
        """Change the form of a refused request; returns whether to send it again.

        If the reason of a refusal is known, only the part of the request that caused it is changed. If the reason of a
        refusal is unknown, the request is sent without its pictures, then (if it is a request of the conversation)
        without optional parameters, then with its tools in the text. In the attempts without optional parameters and
        with the tools in the text the pictures are included again, since the request without pictures was refused too.
        At last the facts that earlier processes have learnt are dropped (`reset_learnt`).
        """
        explained = self.adapt_to_refusal(error)
        if not explained and self._give_up_pictures(error):
            return True
        if explained or (not summary and (self.try_plainer(error) or self.calling.try_text(error))):
            self._keep_pictures()
            return True
        return self.reset_learnt()

    def _keep_pictures(self) -> None:
        if not self.takes_no_pictures:
            self.pictures_refused = ""

    def _emit_failure(self, error: ModelError) -> None:
        self._keep_pictures()  # the request failed without its pictures too, so the pictures were not the reason
        self.emit("model_failed", code=error.code, error=str(error))

    @contextmanager
    def request(self, body: RequestBody, *, keep: bool, own: Path | None = None) -> Iterator[Path]:
        """A context manager that writes the file of a request: `own`, or request.json if `own` is None; the file exists
        until the end of the block.

        At the end of the block the file is removed, or with `keep` renamed to `kept.json`, which the next request of
        the conversation overwrites or extends (`OpenAIClient.encode`).
        """
        path, aside = own or self.context_dir / "request.json", self.context_dir / KEPT
        try:
            with durable_files.writing(path):
                if keep:
                    with suppress(FileNotFoundError):  # kept.json does not exist before the first request
                        os.replace(aside, path)  # noqa: PTH105 - `os.replace` is faster than Path.replace
                flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
                with os.fdopen(os.open(path, flags, 0o600), "wb", buffering=READ) as out:
                    self.encode(out, body.spans, body.shape, self.output_limit(body.output), body.aside)
                    out.truncate()
            yield path
        finally:
            # an error while removing the file would hide an earlier error, and the next request overwrites a file that
            # was left
            with suppress(OSError):
                if keep:
                    os.replace(path, aside)  # noqa: PTH105
                else:
                    path.unlink()

    def send(self, path: Path, more: Mapping[str, str], purpose: str = TURN, tokens: int = 0) -> PendingRequest:
        """Send the request file `path` once, and read the whole answer; this adds one line to requests.jsonl."""
        with self.request_log.record(purpose, path, tokens) as entry, self.connection() as transport:
            try:
                with path.open("rb") as body, transport.post(self.url, body, more) as stream:
                    entry.draft, entry.answered = stream.draft, True
                    stream.draft.listener = self.listener
                    entry.draft = self._read(stream)
                    stream.rest()
                self._ended(entry.draft)
            finally:
                entry.sent = transport.sockets.sent
        return entry

    def _read(self, stream: Stream) -> StreamAccumulator:
        try:
            return self.read(stream)
        except ShapeWrong as error:
            # The answer is JSON, but does not have the form of the provider's API: for example a list instead of an
            # object, or text instead of a list.
            raise AnswerUnreadable(
                f"{self.label} sent JSON of another shape than an answer has ({error}); check base_url and provider"
            ) from error

    def _ended(self, draft: StreamAccumulator) -> None:
        """Translate the server's stop reason of an answer into a stop reason of this program; an unknown stop reason
        stays unchanged and does not count as a normal end. For the stop reasons `error` and `resample` a ModelError is
        raised."""
        reason = draft.finish
        draft.finish = self.dialect.stop(reason) or reason
        error: ModelError
        if draft.finish == "error":
            error = ModelStalled(f"{self.label} broke the answer off ({reason}); nothing of it was used")
            error.tries = STALLED_TRIES
            raise error
        if draft.finish == "resample":
            error = CallUnreadable(f"{self.label}: the model wrote a call that its server cannot read ({reason})")
            error.tries = RESAMPLE_TRIES
            raise error

    @cached_property
    def request_log(self) -> RequestLog:
        """The RequestLog of this client, which writes a line of requests.jsonl for each request."""
        counter = getattr(self.message_store, "counter", None)
        if counter is None or self.model != self.settings.provider().model:
            counter = counter_for(self.model)
        requests = getattr(self.message_store, "requests", None)
        return RequestLog(requests, self.provider, self.model, counter, self.keys.price)

    # --- what is known of the server --------------------------------------------------------------------------

    def close(self) -> None:
        with suppress(OSError):
            (self.context_dir / KEPT).unlink(missing_ok=True)
        if self._transport is not None:
            self._transport.close()
            self._transport = None
        while self._idle:
            self._idle.pop().close()


def at_the_limit(answer: Answer, output: int) -> Answer:
    """The answer with its true stop reason: an answer with exactly the maximum number of tokens (`output`) counts as
    cut off at that limit.

    A router between this program and the model may have replaced the server's stop reason `length` by another stop
    reason.
    """
    if not output or answer.usage is None or answer.usage.completion != output:
        return answer
    return replace(answer, finish_reason="length")


def names_of(tools: Iterable[Json]) -> frozenset[str]:
    """The names of the tools; `tools` are schemas in OpenAI's form."""
    return frozenset(str(tool.get("function", {}).get("name")) for tool in tools)


def choice_of(tool_choice: str | Mapping[str, Any] | None) -> str:
    """Convert a caller's tool choice (a keyword, the name of a tool, or OpenAI's object with the name) into the value
    of `SideRequest.choice`."""
    if tool_choice is None or isinstance(tool_choice, str):
        return tool_choice or ""
    return str(tool_choice["function"]["name"])


def write_lines(path: Path, system: str, messages: Iterable[Mapping[str, Any]]) -> None:
    """Write a file with one message per line, the system message first unless `system` is empty; a `content` that is a
    Path stands for the text of that file."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
    with os.fdopen(os.open(path, flags, 0o600), "wb", buffering=READ) as out:
        if system:
            out.write(line({"role": "system", "content": system}))
        for message in messages:
            content = message.get("content")
            if not isinstance(content, Path):
                out.write(line(message))
                continue
            rest = {key: value for key, value in message.items() if key != "content"}
            # the JSON line of a message up to and including the opening quote of its content
            out.write(dumps(rest | {"content": ""})[:-2])
            out.writelines(escaped(content))
            out.write(b'"}\n')


def escaped(path: Path) -> Iterator[bytes]:
    """The text of a file in pieces, escaped for a JSON string; bytes that are not UTF-8 become U+FFFD. Raises
    ContextError if the file cannot be read."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    try:
        with path.open("rb") as source:
            while chunk := source.read(READ):
                yield orjson.dumps(replace_surrogates(decoder.decode(chunk)))[1:-1]
    except OSError as error:
        raise ContextError(f"cannot read {path} for the summary: {error.strerror}") from error
    yield orjson.dumps(replace_surrogates(decoder.decode(b"", final=True)))[1:-1]
