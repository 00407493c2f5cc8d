"""Records each request to a model server: its beginning before the request is sent, and a line in requests.jsonl with
its token counts and cost when it ends.

The token counts that the server reports are recorded. For a count that is missing or implausible (no usage at all, a
count of the prompt alone, 0 for a long answer) an estimate is recorded, and the line in requests.jsonl says how many
tokens are estimated. A request that the server refused (`status_of`) is recorded without tokens and cost; for every
other request that was sent, the tokens of the prompt and of the part of the answer that arrived are recorded.
"""

from __future__ import annotations

import codecs
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from agent import clock
from agent.errors import AnswerUnreadable, MakimonoError, ModelError, ModelStalled
from agent.llm.base import Interrupted
from agent.llm.stream_accumulator import StreamAccumulator
from agent.store.storable_text import dumps
from agent.values import Usage

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from agent.config.llm_section import Price
    from agent.values import Counter, Json

READ = 1 << 16
REFUSALS = 300  # the lowest HTTP status that is not a success
NOTHING = Usage()
PLACE_HOLDER = 100
"""The server's count of prompt tokens is ignored if it is below 1/100 of the estimate: such a count is a placeholder
(such as 1), or the server counts only tokens that were not cached.  The estimate of the tokens of a text is not wrong
by a factor of 100, for any script of the text."""
# The record of a request's beginning counts this number of bytes as one token, if the caller passes no estimate of the
# request's tokens.
BYTES = 4


class Requests(Protocol):
    """The part of `context.RequestStore`, the store of request records, that RequestLog uses."""

    def begin(self, *, purpose: str, provider: str, model: str, tokens: int, cost: float = 0.0) -> Json:
        """Record that a request to a model will be sent now; returns the record, which is passed to `end` or `drop`."""
        ...

    def end(
        self,
        begun: Json,
        *,
        status: str,
        usage: Usage,
        estimated_tokens: int = 0,
        cost: float = 0.0,
        first_token_ms: int | None = None,
        duration_ms: int | None = None,
        finish_reason: str | None = None,
        error: str | None = None,
    ) -> int:
        """Record the end of a request; returns the number of its line in requests.jsonl."""
        ...

    def drop(self, begun: Json) -> None:
        """Remove the record of the beginning of a request that was not sent."""
        ...


@dataclass(frozen=True, slots=True)
class Bill:
    """Token counts, cost and status of one request. `seq` is the number of the request's line in requests.jsonl, None
    if there is no store."""

    usage: Usage = NOTHING
    estimated: int = 0
    cost: float = 0.0
    status: str = "ok"
    seq: int | None = None

    def fields(self) -> dict[str, Any]:
        """The token counts and the cost of a request as fields of an event."""
        return {**self.usage.to_dict(), "estimated": self.estimated, "cost": self.cost}


@dataclass(slots=True)
class PendingRequest:
    """The state of one request to a model server from its start to its end.

    `sent` is True if at least the headers of the request were sent, `answered` if the server answered with a success
    status.  `draft` is the part of the answer that has arrived, `bill` has the token counts and the cost of the
    request.
    """

    purpose: str
    path: Path
    tokens: int
    draft: StreamAccumulator = field(default_factory=StreamAccumulator)
    sent: bool = False
    answered: bool = False
    bill: Bill = Bill()


@dataclass(slots=True)
class RequestLog:
    """Records the requests of one model client.  `requests` is the store of the records, None if the client's message
    store has none."""

    requests: Requests | None
    provider: str
    model: str
    counter: Counter
    price: Price | None

    @contextmanager
    def record(self, purpose: str, path: Path, tokens: int) -> Iterator[PendingRequest]:
        """A context manager that records the request that is sent inside it; a request that fails before it is sent
        leaves no record. `tokens` is the estimated number of prompt tokens, 0 if unknown."""
        entry = PendingRequest(purpose, path, tokens)
        rough = tokens or path.stat().st_size // BYTES
        begun = self._begin(purpose, rough)
        started, failure = clock.monotonic(), None
        try:
            yield entry
        except BaseException as error:
            failure = error
            raise
        finally:
            if failure is None or entry.sent:
                self._record_end(entry, begun, started, failure)
            elif self.requests is not None and begun is not None:
                self.requests.drop(begun)

    def _begin(self, purpose: str, tokens: int) -> Json | None:
        if self.requests is None:
            return None
        cost = self._cost(Usage(tokens))
        return self.requests.begin(purpose=purpose, provider=self.provider, model=self.model, tokens=tokens, cost=cost)

    def _record_end(
        self, entry: PendingRequest, begun: Json | None, started: float, failure: BaseException | None
    ) -> None:
        ended, draft = clock.monotonic(), entry.draft
        status = "ok" if failure is None else status_of(failure, entry)
        usage, estimated = (NOTHING, 0) if status == "refused" else self._usage(entry, whole=failure is None)
        cost, seq = self._cost(usage), None
        if self.requests is not None and begun is not None:
            seq = self.requests.end(
                begun,
                status=status,
                usage=usage,
                estimated_tokens=estimated,
                cost=cost,
                first_token_ms=milliseconds(draft.began - started) if draft.began else None,
                duration_ms=milliseconds(ended - started),
                finish_reason=draft.finish or None,
                error=error_word(failure) if failure is not None else None,
            )
        entry.bill = Bill(usage, estimated, cost, status, seq)

    def _usage(self, entry: PendingRequest, *, whole: bool) -> tuple[Usage, int]:
        """The token counts of a request: (the counts to record, how many of these tokens are estimated)."""
        draft = entry.draft
        said = draft.usage or NOTHING
        prompt, completion, estimated = said.prompt, said.completion, 0
        if not prompt or prompt * PLACE_HOLDER < entry.tokens:
            prompt = entry.tokens or self.count_file(entry.path)
            estimated += prompt
        # A token count that the server sent before the end of the answer covers only the text up to then, or is a
        # placeholder.
        if not whole or not completion or draft.is_early:
            written = self.count_answer(draft)
            if written > completion:
                completion = written
                estimated += written
        reasoning = None if said.reasoning is None else min(said.reasoning, completion)
        return Usage(prompt, completion, min(said.cached, prompt), reasoning), estimated

    def _cost(self, usage: Usage) -> float:
        return self.price.cost(usage) if self.price is not None else 0.0

    def count_answer(self, draft: StreamAccumulator) -> int:
        """The estimated number of tokens of the answer so far: text, reasoning and tool calls."""
        count = self.counter.count
        tokens = sum(count("".join(parts)) for parts in (draft.text, draft.reasoning))
        for call in draft.calls:
            tokens += count(call.name) + count("".join(call.pieces))
            tokens += count(dumps(call.ready).decode()) if call.ready is not None else 0
        return tokens

    def count_file(self, path: Path) -> int:
        """The estimated number of tokens of a request, from its file, which is read in pieces."""
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        tokens = 0
        with path.open("rb") as source:
            while chunk := source.read(READ):
                tokens += self.counter.count(decoder.decode(chunk))
        return tokens


def status_of(error: BaseException, entry: PendingRequest) -> str:
    """The value of `status` in the record of a request that ended with an error."""
    began = bool(entry.draft.began)
    if isinstance(error, Interrupted) or not isinstance(error, Exception):
        return "cancelled"
    if not isinstance(error, ModelError):
        return "failed"
    if error.status is not None and error.status >= REFUSALS:
        return "refused"
    if isinstance(error, AnswerUnreadable):
        return "unreadable"
    if began or not (entry.answered or isinstance(error, ModelStalled)):
        return "cut"
    # the status is "refused" if the server answered 200 and sent an error in place of the answer
    return "stalled" if isinstance(error, ModelStalled) else "refused"


def error_word(error: BaseException) -> str:
    """The text for an error in the record of a request: the error's code and the server's HTTP status, or the class
    name of another exception. The text for an error does not contain the server's message."""
    if isinstance(error, Interrupted) or not isinstance(error, MakimonoError):
        return type(error).__name__
    status = getattr(error, "status", None)
    return f"{error.code} ({status})" if status is not None else error.code


def milliseconds(seconds: float) -> int:
    """Convert seconds to a whole number of milliseconds."""
    return max(0, round(seconds * 1000))
