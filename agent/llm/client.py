"""What every client does the same way: append, check, write request.json, send, read, append the answer, clean up.

A provider's class says only where to send, with which header, in which form, and how its answers read.  The contract
is in `base.py`; what is known of the server is in `server.py`, what refusals teach in `learning.py`.
"""

from __future__ import annotations

import codecs
import os
import re
import threading
from abc import ABC, abstractmethod
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, ClassVar

import orjson

from agent import clock, disk
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
)
from agent.llm import images, urls
from agent.llm.account import Account
from agent.llm.base import TURN, Aside, Interrupted
from agent.llm.call_formats import whole_calls
from agent.llm.calling import Calling
from agent.llm.dialects import COMPATIBLE, DIALECTS, When, by_headers, by_host, by_path
from agent.llm.faults import RESAMPLE_TRIES, STALLED_TRIES
from agent.llm.ids import with_ids
from agent.llm.learning import Learner
from agent.llm.retry import insist
from agent.llm.send_back import SendBack
from agent.llm.spans import Lines
from agent.llm.text_mode import PER_CALL
from agent.llm.tidy import parsed
from agent.store.text import dumps, fit, line
from agent.tokens import counter_for
from agent.values import Span

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from agent.llm.account import Bill, Entry
    from agent.llm.base import Announce, Kept
    from agent.llm.dialects import Dialect
    from agent.llm.draft import Draft
    from agent.llm.spans import Shape
    from agent.llm.tidy import Change
    from agent.llm.transport import Stream, Transport
    from agent.values import Answer, Control, Json, Messages, Outcome, Plan

READ = 1 << 16
KEPT = "kept.json"


class ChatClient(Learner, ABC):
    """The shared half of a client.  `config` is the seeds' mapping or the validated settings."""

    name: ClassVar[str]
    default_url: ClassVar[str] = ""
    call: ClassVar[str] = "/chat/completions"  # what stands behind the base of an address
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
    key_header: ClassVar[str] = "Authorization"
    wire_headers: ClassVar[Mapping[str, str]] = {}  # those that every request of the wire has
    own_dialect: ClassVar[Dialect] = COMPATIBLE  # where neither configuration nor address names another

    def __init__(
        self,
        config: Any,
        message_store: Messages,
        context_dir: Path | str,
        *,
        tools: Sequence[Json] = (),
        control: Control | None = None,
        events: Announce | None = None,
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
        self.conversation = self.context_dir.name  # the same in every process: the task's uuid
        self.tools: Sequence[Json] = tuple(tools)
        self.control = control
        self.events = events
        self.last: Answer | None = None
        self.summary: Answer | None = None  # the last answer of `get_summary`, for its usage
        self.lines = Lines()
        self.alternate = False  # learnt: this template counts turns
        self.back = SendBack(self.keys.wire)  # which fields of earlier answers go back; learns too
        self.id_form = ""  # learnt: a pattern of the tool call ids that this server takes
        self.shape: Shape | None = None  # of the request that is under way, None for one outside the conversation
        self.abilities: dict[str, bool] = {}  # "tools", "images": what the server says that the model can
        self.calling = Calling(self.keys.tool_calls, self.tools, message_store, self.abilities, self.emit)
        self.pictures_refused = ""  # what a request with pictures was refused with
        self.takes_no_pictures = False  # learnt: the same request without them was answered
        self.most_output = 0  # learnt: what the model can write at most
        self._asked_output = 0  # the longest answer that the newest request allowed
        self._window: int | None = None  # what the server has loaded, once it was asked
        self.allocated: int | None = None  # the window that it said to have when a prompt looked cut (`silent.py`)
        self.gate: Callable[[], Outcome | None] | None = None
        self._input_limit = 0  # of the newest plan: a window that an error taught shows here
        self._transport: Transport | None = None
        self._idle: list[Transport] = []  # more connections, for requests that were under way at once
        self._taking = threading.Lock()
        self._taken = False  # `_transport` is in use
        self._numbers = count(1)
        self._thread = threading.get_ident()
        self._heard_of: set[str] = set()
        self.base = 0  # learnt: which of `bases` is right
        self.dropped: set[str] = set()  # learnt: parameters, and keywords in schemas of tools, that are refused
        self.said: set[str] = set()  # what need not be said again
        self.kept: Kept | None = None  # where what is learnt outlives this process
        self._known: Json = {}  # what is there
        self._fresh: Json | None = None  # without what is there; None once it was doubted

    # --- what a provider says ---------------------------------------------------------------------------------

    @abstractmethod
    def encode(
        self, out: BinaryIO, spans: Sequence[Span], shape: Shape, output: int, aside: Aside | None = None
    ) -> None:
        """Write the whole request; `output` is the most tokens of the answer, 0 for no limit.  With `aside` it is one
        outside the conversation, which offers those tools."""

    @abstractmethod
    def read(self, stream: Stream) -> Draft:
        """The whole answer."""

    def ready(self) -> None:
        """Called before the first request is written: what must be known of the server."""

    def request_headers(self, *, summary: bool) -> Mapping[str, str]:
        """Headers of one request beside `headers()`."""
        del summary
        return {}

    def judge(self, answer: Answer, plan: Plan | None) -> None:
        """Raise when an answer that looks whole must not be used; without a plan it is that to a summary request."""

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
        self.shape = shape = self.lines.check(spans)
        self._input_limit = plan.limit if plan is not None else 0
        wanted = plan.output if plan is not None else 0
        tokens = plan.tokens if plan is not None else 0
        answer, bill = self.ask(
            lambda out: self.encode(out, spans, shape, self.output(wanted)), taken=shape.ids, tokens=tokens
        )
        answer = at_the_limit(answer, self.output(wanted))
        self.judge(answer, plan)
        self.back.accepted(shape)
        answer, form = self.calling.read(answer)
        answer = self.calling.bounded(answer)
        more = self.fields_of(answer) | ({} if answer.request is None else {"request": answer.request})
        # A prompt that nobody counted is not the provider's own number; an answer's count is completed.
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
        """What `add_message` gets of the fields that only this server understands; nothing where there are none, or
        where the answer is empty, which is never sent."""
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
        """What was reported of the prompts of the conversation (`context.reports.Reports`), None where none is kept."""
        return getattr(getattr(self.message_store, "survey", None), "reports", None)

    def sends_back(self, name: str) -> bool:
        """Whether the field `name` of an answer, or of its calls, goes out with its message."""
        return any(
            self.back.when(self.dialect, name, in_call=in_call) in (When.ALWAYS, When.LOOP) for in_call in (False, True)
        )

    def text_mode(self) -> tuple[str, int]:
        """(what stands behind the system prompt for a model without tool calls, what a call costs beside its contents);
        ("", 0) where the server's tool calls are used."""
        return (self.calling.form.prompt, PER_CALL) if self.calling.in_text else ("", 0)

    def in_text(self, spans: Sequence[Span]) -> Iterator[Json] | None:
        """The messages of a request for a model without tool calls, None where the server's tool calls are used."""
        return self.as_text(parsed(spans)) if self.calling.in_text else None

    def as_text(self, messages: Iterable[Json]) -> Iterator[Json]:
        """Messages for a model without tool calls, with their pictures as this server takes them."""
        return images.expanded(self.calling.form.messages(messages), self.context_dir, self.picture_form)

    def outgoing(self, shape: Shape) -> Change | None:
        """What is done to each message on its way out for this server; None when lines can be sent as they stand."""
        form = self.id_form or self.dialect.id_form
        ids = bool(form) and not all(re.fullmatch(form, call_id) for call_id in shape.ids)
        if self.back.is_as_it_stands(self.dialect, shape) and not ids and not shape.images:
            return None

        def change(messages: Iterable[Json]) -> Iterator[Json]:
            shown = images.expanded(messages, self.context_dir, self.picture_form)
            for message in self.back.applied(shown, self.dialect, shape):
                yield with_ids(message, form) if ids else message

        return change

    def get_summary(self, path: Path) -> str:
        self.summary = answer = self.ask_aside([{"role": "user", "content": Path(path)}], purpose="summary")
        if answer.finish_reason == "length":
            raise AnswerUnreadable(f"{self.who}: the summary was cut at the limit of the answer; it is not used")
        if answer.finish_reason not in ("stop", "tool_calls"):
            raise AnswerUnreadable(f"{self.who}: the summary ended for {answer.finish_reason}; it is not used")
        if answer.refused:
            raise AnswerUnreadable(f"{self.who}: the summary is a refusal; it is not used")
        is_call = bool(answer.calls) or whole_calls(answer.text, self.calling.names) is not None
        if is_call or not answer.text.strip():
            raise AnswerUnreadable(f"{self.who}: the summary is {'a call' if is_call else 'empty'}; it is not used")
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
        aside = Aside(tuple(tools), choice_of(tool_choice))
        name = f"request-{next(self._numbers)}"
        folder = self.context_dir if folder is None else Path(folder)
        lines, most = folder / f"{name}.jsonl", self.output(output)
        try:
            with disk.writing(lines):
                write_lines(lines, system, messages)
            spans = (Span(lines),)
            shape = Lines().check(spans)
            answer, _ = self.ask(
                lambda out: self.encode(out, spans, shape, most, aside),
                purpose=purpose,
                path=folder / f"{name}.json",
                offered=names_of(aside.tools),
            )
        finally:
            lines.unlink(missing_ok=True)
        answer = at_the_limit(answer, most)
        self.judge(answer, None)
        return answer

    # --- one request ------------------------------------------------------------------------------------------

    def ask(
        self,
        write: Callable[[BinaryIO], None],
        *,
        taken: Collection[str] = (),
        tokens: int = 0,
        purpose: str = TURN,
        path: Path | None = None,
        offered: Collection[str] | None = None,
    ) -> tuple[Answer, Bill]:
        """Write the file of the request, send it as often as the errors allow, read the whole answer, remove the file.

        Without a `path` of its own it is request.json, and without names that are `offered` the tools are those of the
        conversation."""
        self.ready()
        started = clock.monotonic()
        summary = purpose != TURN  # outside the conversation
        looked = not summary  # the loop has looked at the limits before a turn

        def once(path: Path) -> Entry:
            nonlocal looked
            if not looked and self.gate is not None and (outcome := self.gate()) is not None:
                raise Interrupted(outcome)
            looked = False
            return self.send(path, self.request_headers(summary=purpose == "summary"), purpose, tokens)

        while True:
            try:
                if not summary:
                    self.calling.announce()
                with self.request(write, keep=path is None, own=path) as written:
                    self.emit("request_sent", purpose=purpose, tokens=tokens, bytes=written.stat().st_size)
                    entry = insist(
                        lambda written=written: once(written),  # type: ignore[misc]
                        provider=self.provider,
                        model=self.model,
                        control=self.control,
                        events=self.events,
                    )
                names = self.calling.names if offered is None else offered
                answer = replace(entry.draft.answer(taken, names), request=entry.bill.seq)
                said = {"purpose": purpose, **entry.bill.fields(), "finish_reason": answer.finish_reason}
                self.emit("answer_received", **said, seconds=round(clock.monotonic() - started, 3))
                self._who_answered(answer.model)
                self.calling.accepted(summary=summary)
                if threading.get_ident() == self._thread:  # the rows have one connection
                    self.recognise(by_headers(self.transport.heard))
                    self._went_without_pictures()
                    self.remember()
                return answer, entry.bill
            except (RequestRefused, HistoryRefused, ModelNotFound) as error:
                before = self.facts()
                if not self._another_way(error, summary=summary):
                    first = self.calling.give_up(error)
                    self._failed(first)
                    raise first from (None if first is error else error)
                changed = {name: value for name, value in self.facts().items() if value != before.get(name)}
                self.emit("model_adapted", learnt=changed, why=str(error))
            except CallUnreadable as error:
                if summary or not self.calling.distrust():
                    self.emit("model_failed", code=error.code, error=str(error))
                    raise
            except ContextOverflow:
                raise  # the caller makes room
            except ModelError as error:
                if not self._give_up_pictures(error):
                    self._failed(error)
                    raise

    def _another_way(self, error: RequestRefused | HistoryRefused | ModelNotFound, *, summary: bool) -> bool:
        """Whether a refused request is to be sent in another way.  Where nothing explains the refusal it goes without
        its pictures first, then without what not every server takes, then with its tools in the text, and there with
        the pictures again: they were not why."""
        explained = self.amend(error)
        if not explained and self._give_up_pictures(error):
            return True
        if explained or (not summary and (self.try_plainer(error) or self.calling.try_text(error))):
            self._keep_pictures()
            return True
        return self.doubt()

    def _keep_pictures(self) -> None:
        if not self.takes_no_pictures:
            self.pictures_refused = ""

    def _failed(self, error: ModelError) -> None:
        self._keep_pictures()  # it was not about them
        self.emit("model_failed", code=error.code, error=str(error))

    @contextmanager
    def request(self, write: Callable[[BinaryIO], None], *, keep: bool, own: Path | None = None) -> Iterator[Path]:
        """The file of a request while the block runs: `own`, else request.json.  With `keep` it lies aside as
        `kept.json` until the next such request, which is written over it or goes on from it (`OpenAIClient.encode`).
        """
        path, aside = own or self.context_dir / "request.json", self.context_dir / KEPT
        try:
            with disk.writing(path):
                if keep:
                    with suppress(FileNotFoundError):  # the first
                        os.replace(aside, path)  # noqa: PTH105 - each turn
                flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
                with os.fdopen(os.open(path, flags, 0o600), "wb", buffering=READ) as out:
                    write(out)
                    out.truncate()
            yield path
        finally:
            with suppress(OSError):  # what went wrong before matters more; a left-over is overwritten by the next
                if keep:
                    os.replace(path, aside)  # noqa: PTH105
                else:
                    path.unlink()

    def send(self, path: Path, more: Mapping[str, str], purpose: str = TURN, tokens: int = 0) -> Entry:
        """One try, which is one line of requests.jsonl."""
        with self.account.over(purpose, path, tokens) as entry, self.connection() as transport:
            try:
                with path.open("rb") as body, transport.post(self.url, body, more) as stream:
                    entry.draft, entry.answered = stream.draft, True
                    entry.draft = self._read(stream)
                    stream.rest()
                self._ended(entry.draft)
            finally:
                entry.sent = transport.sockets.sent
        return entry

    def _read(self, stream: Stream) -> Draft:
        try:
            return self.read(stream)
        except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
            # JSON, but not this wire's: a list for an object, a text for a list, nested without end.
            raise AnswerUnreadable(
                f"{self.who} sent JSON of another shape than an answer has ({error}); check base_url and provider"
            ) from error

    def _ended(self, draft: Draft) -> None:
        """Put our word for why it ended; one that is not known stays as it is, and is no good end."""
        reason = draft.finish
        draft.finish = self.dialect.stop(reason) or reason
        error: ModelError
        if draft.finish == "error":
            error = ModelStalled(f"{self.who} broke the answer off ({reason}); nothing of it was used")
            error.tries = STALLED_TRIES
            raise error
        if draft.finish == "resample":
            error = CallUnreadable(f"{self.who}: the model wrote a call that its server cannot read ({reason})")
            error.tries = RESAMPLE_TRIES
            raise error

    @cached_property
    def account(self) -> Account:
        """Where the requests of this client are written down."""
        counter = getattr(self.message_store, "counter", None)
        if counter is None or self.model != self.settings.provider().model:
            counter = counter_for(self.model)
        requests = getattr(self.message_store, "requests", None)
        return Account(requests, self.provider, self.model, counter, self.keys.price)

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
    """The answer with its true reason: one that has just as many tokens as were allowed was cut there, whatever a
    router between us and the model made of `length`."""
    if not output or answer.usage is None or answer.usage.completion != output:
        return answer
    return replace(answer, finish_reason="length")


def names_of(tools: Iterable[Json]) -> frozenset[str]:
    """The names of tools in OpenAI's form."""
    return frozenset(str(tool.get("function", {}).get("name")) for tool in tools)


def choice_of(tool_choice: str | Mapping[str, Any] | None) -> str:
    """`Aside.choice` of what a caller wants: a word, a name, or OpenAI's form of one."""
    if tool_choice is None or isinstance(tool_choice, str):
        return tool_choice or ""
    return str(tool_choice["function"]["name"])


def write_lines(path: Path, system: str, messages: Iterable[Mapping[str, Any]]) -> None:
    """A file of messages, one a line; a content that is a Path is the text of that file."""
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
            out.write(dumps(rest | {"content": ""})[:-2])  # up to the quote
            out.writelines(escaped(content))
            out.write(b'"}\n')


def escaped(path: Path) -> Iterator[bytes]:
    """The text of a file as the inside of a JSON string, in pieces; bytes that are not UTF-8 become U+FFFD."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    try:
        with path.open("rb") as source:
            while chunk := source.read(READ):
                yield orjson.dumps(fit(decoder.decode(chunk)))[1:-1]
    except OSError as error:
        raise ContextError(f"cannot read {path} for the summary: {error.strerror}") from error
    yield orjson.dumps(fit(decoder.decode(b"", final=True)))[1:-1]
