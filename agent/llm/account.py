"""One line of requests.jsonl for one request: begun before it is sent, closed however it ends, with what it cost.

What a server reports counts, part by part.  Where it reports nothing for a part (no usage at all, a count of the prompt
alone, 0 with a long answer) the estimate counts, and the line says so.  A server that refuses a request before it has
said anything is taken to charge nothing for it; everything else that was sent counts, with what came of the answer.
"""

from __future__ import annotations

import codecs
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from agent import clock
from agent.errors import AnswerUnreadable, MakimonoError, ModelError, ModelStalled
from agent.llm.base import Interrupted
from agent.llm.draft import Draft
from agent.store.text import dumps
from agent.values import Usage

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from agent.config.models import Price
    from agent.values import Counter, Json

READ = 1 << 16
REFUSALS = 300  # statuses from here on
NOTHING = Usage()
PLACE_HOLDER = 100
"""A prompt of less than one in so many of the estimate's tokens was not counted by the server: a place-holder (1), or
only what it had not cached.  No script is estimated so far off."""
BYTES = 4  # of a request, a token: for what is only needed should this process die meanwhile


class Requests(Protocol):
    """Where requests are written down (`context.RequestStore`)."""

    def begin(self, *, purpose: str, provider: str, model: str, tokens: int, cost: float = 0.0) -> Json:
        """A request is about to be sent."""
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
        """It is over; the number of its line."""
        ...

    def drop(self, begun: Json) -> None:
        """It was not sent."""
        ...


@dataclass(frozen=True, slots=True)
class Bill:
    """What one request comes to.  `seq` is its line in requests.jsonl, None where none is kept."""

    usage: Usage = NOTHING
    estimated: int = 0
    cost: float = 0.0
    status: str = "ok"
    seq: int | None = None

    def fields(self) -> dict[str, Any]:
        """For an event."""
        return {**self.usage.to_dict(), "estimated": self.estimated, "cost": self.cost}


@dataclass(slots=True)
class Entry:
    """One request under way.  `sent`: it left.  `answered`: the server's status was good.  `draft` is what came so far,
    `bill` what it came to in the end."""

    purpose: str
    path: Path
    tokens: int
    draft: Draft = field(default_factory=Draft)
    sent: bool = False
    answered: bool = False
    bill: Bill = Bill()


@dataclass(slots=True)
class Account:
    """The requests of one client.  `requests` is None where nothing is kept of them."""

    requests: Requests | None
    provider: str
    model: str
    counter: Counter
    price: Price | None

    @contextmanager
    def over(self, purpose: str, path: Path, tokens: int) -> Iterator[Entry]:
        """Around the sending of one request; `tokens` is the estimate of its prompt, 0 where nobody made one."""
        entry = Entry(purpose, path, tokens)
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
                self._end(entry, begun, started, failure)
            elif self.requests is not None and begun is not None:
                self.requests.drop(begun)

    def _begin(self, purpose: str, tokens: int) -> Json | None:
        if self.requests is None:
            return None
        cost = self._cost(Usage(tokens))
        return self.requests.begin(purpose=purpose, provider=self.provider, model=self.model, tokens=tokens, cost=cost)

    def _end(self, entry: Entry, begun: Json | None, started: float, failure: BaseException | None) -> None:
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
                error=told(failure) if failure is not None else None,
            )
        entry.bill = Bill(usage, estimated, cost, status, seq)

    def _usage(self, entry: Entry, *, whole: bool) -> tuple[Usage, int]:
        """(what counts, how much of it is estimated)."""
        draft = entry.draft
        said = draft.usage or NOTHING
        prompt, completion, estimated = said.prompt, said.completion, 0
        if not prompt or prompt * PLACE_HOLDER < entry.tokens:
            prompt = entry.tokens or self.count_file(entry.path)
            estimated += prompt
        # Before the end of an answer its count is of what had been written when it was sent, or a place-holder.
        if not whole or not completion or draft.is_early:
            written = self.count_answer(draft)
            if written > completion:
                completion = written
                estimated += written
        reasoning = None if said.reasoning is None else min(said.reasoning, completion)
        return Usage(prompt, completion, min(said.cached, prompt), reasoning), estimated

    def _cost(self, usage: Usage) -> float:
        return self.price.cost(usage) if self.price is not None else 0.0

    def count_answer(self, draft: Draft) -> int:
        """Estimated tokens of what came: text, thinking and calls."""
        count = self.counter.count
        tokens = sum(count("".join(parts)) for parts in (draft.text, draft.reasoning))
        for call in draft.calls:
            tokens += count(call.name) + count("".join(call.pieces))
            tokens += count(dumps(call.ready).decode()) if call.ready is not None else 0
        return tokens

    def count_file(self, path: Path) -> int:
        """Estimated tokens of a whole request, read in pieces."""
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        tokens = 0
        with path.open("rb") as source:
            while chunk := source.read(READ):
                tokens += self.counter.count(decoder.decode(chunk))
        return tokens


def status_of(error: BaseException, entry: Entry) -> str:
    """One word for how a request that was sent came to no answer."""
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
    return "stalled" if isinstance(error, ModelStalled) else "refused"  # an error in the place of the answer


def told(error: BaseException) -> str:
    """The error as it is recorded: its code, and the server's status; what servers say is in the log alone."""
    if not isinstance(error, MakimonoError):
        return type(error).__name__
    status = getattr(error, "status", None)
    return f"{error.code} ({status})" if status is not None else error.code


def milliseconds(seconds: float) -> int:
    """Whole ones."""
    return max(0, round(seconds * 1000))
