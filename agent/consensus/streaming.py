"""Passes the text of the reviewers' answers to one consumer while the answers arrive.

A stream belongs to one answer of one reviewer: it has any number of `stream.token` and `stream.error` events, then
exactly one `stream.end`. If a request is sent again, `stream.error` has `retrying` and `discard_from_seq`: the consumer
must discard the tokens from that number on, so that it does not mix the texts of two attempts. For a slow consumer
several `stream.token` events are joined into one; `stream.error` and `stream.end` are dropped only after an error of
the consumer, which ends the streaming. Votes are read from the whole answer and never from the stream.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType
    from typing import Self

    from agent.values import Json

TOKEN, ERROR, END = "stream.token", "stream.error", "stream.end"
THREAD = "stream"
"""The name of the thread that calls the consumer."""
WAITING = 64
"""If at least WAITING events are in the queue, a new token is joined with the last event if both are tokens of the same
attempt of the same stream."""


class StreamingEmitter:
    """Passes the events of streamed answers to `consumer`, one at a time, in a thread of its own. Thread-safe.

    Without a consumer, no event is emitted and no thread is started. An error of the consumer ends the streaming, not
    the deliberation.
    """

    def __init__(self, consumer: Callable[[Json], None] | None = None, *, session: str = "") -> None:
        self.consumer = consumer
        self.session = session
        self._events: deque[Json] = deque()
        self._ready = threading.Condition()
        self._closed = consumer is None
        self._thread: threading.Thread | None = None
        self.failure: Exception | None = None  # the error of the consumer that ended the streaming

    def stream(self, persona: str, phase: str, round_: int = 0) -> PersonaStream:
        """A stream for one answer; a context manager."""
        return PersonaStream(self, persona, phase, round_)

    def queue_event(self, event: Json) -> None:
        """Queue an event for the consumer; a token may be joined with the token before it."""
        with self._ready:
            if self._closed:
                return
            last = self._events[-1] if self._events else None
            if len(self._events) >= WAITING and last is not None and _joinable(last, event):
                last["chunk"] += event["chunk"]
            else:
                self._events.append({"session": self.session, **event})
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=THREAD, daemon=True)
                self._thread.start()
            self._ready.notify()

    def close(self, seconds: float | None = None) -> None:
        """Wait until the consumer has received every queued event, but at most `seconds`; None means without limit.
        Events that are queued after this call are ignored."""
        with self._ready:
            self._closed = True
            self._ready.notify()
        if self._thread is not None:
            self._thread.join(seconds)

    def _run(self) -> None:
        while True:
            with self._ready:
                while not self._events:
                    if self._closed:
                        return
                    self._ready.wait()
                event = self._events.popleft()
            try:
                assert self.consumer is not None, "the thread is started for a consumer"
                self.consumer(event)
            except Exception as error:  # noqa: BLE001 - an error of the consumer, which is foreign code, ends only the streaming
                with self._ready:
                    self._closed = True
                    self._events.clear()
                    self.failure = error
                return


def _joinable(last: Json, event: Json) -> bool:
    keys = ("event", "persona", "phase", "round", "attempt")
    return event["event"] == TOKEN and all(last.get(key) == event[key] for key in keys)


class PersonaStream:
    """The events of one reviewer's answer, as a context manager. `attempt` numbers the requests for the answer from 1,
    `seq` the events of the stream."""

    def __init__(self, emitter: StreamingEmitter, persona: str, phase: str, round_: int) -> None:
        self._emitter = emitter
        self._about = {"persona": persona, "phase": phase, "round": round_}
        self._lock = threading.Lock()
        self._seq = 0
        self._began = 1  # `seq` of the first token of the present request for the answer
        self._ended = False
        self.attempt = 1
        self.breaks = 0  # number of attempts that were discarded after at least one token

    def token(self, chunk: str) -> None:
        """Emit a piece of the reviewer's answer; after the end of the stream nothing is emitted."""
        self._emit(TOKEN, chunk=chunk)

    def retry(self, reason: str) -> None:
        """Emit `stream.error` for a request that will be repeated: the tokens of the previous attempt are void."""
        with self._lock:
            began, self._began = self._began, self._seq + 2
            self.breaks += self._seq >= began
        self._emit(ERROR, reason=reason, retrying=True, discard_from_seq=began)
        with self._lock:
            self.attempt += 1

    def error(self, reason: str) -> None:
        """Emit `stream.error` for an answer that will not arrive."""
        self._emit(ERROR, reason=reason, retrying=False, discard_from_seq=self._began)

    def end(self, reason: str) -> None:
        """Emit `stream.end` for the answer; a second call does nothing."""
        self._emit(END, reason=reason)

    def _emit(self, name: str, **more: object) -> None:
        with self._lock:
            if self._ended:
                return
            self._ended = name == END
            self._seq += 1
            self._emitter.queue_event({"event": name, **self._about, "attempt": self.attempt, "seq": self._seq, **more})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if error is None:
            self.end("done")
            return
        reason = str(getattr(error, "code", None) or type(error).__name__)
        self.error(reason)
        self.end("cancelled" if reason in ("interrupted", "KeyboardInterrupt") else "failed")
