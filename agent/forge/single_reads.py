"""A scope in which a thread sends each GET to a forge only once between two changes (`SingleReads.scope`).

Several steps of a task that follow one another read the same issue, its comments, or the pull requests of a branch. In
a scope of `SingleReads` the second read of a resource gets the answer of the first read. When the thread sends a
change, the stored answers are removed: later reads are sent to the forge again, so the thread sees what it has changed
itself. The caller opens a scope only around steps that may rely on one state of the forge, such as the checks before a
task begins. Outside a scope of `SingleReads` each read sends a request.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from agent.forge.etag_cache import HttpAnswer, request_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


class SingleReads:
    """Stores the answers to the GET requests of each thread, from the beginning of the thread's outermost scope to its
    end or to the thread's next change."""

    def __init__(self) -> None:
        self._of_thread = threading.local()

    @contextmanager
    def scope(self) -> Iterator[None]:
        """A context manager: inside it, this thread sends each GET to the forge only once, and once more after each
        change that the thread sends. A scope of `SingleReads` inside another scope is part of the outer scope."""
        if self._answers_of_scope is not None:
            yield
            return
        self._of_thread.answers = {}
        try:
            yield
        finally:
            self._of_thread.answers = None

    def find(self, verb: str, path: str, query: Mapping[str, Any] | None) -> HttpAnswer | None:
        """The earlier answer to the same GET in the scope; None if the scope has no such answer. A call of `find` for
        another verb than GET removes all stored answers."""
        answers = self._answers_of_scope
        if answers is None:
            return None
        if verb != "GET":
            answers.clear()
            return None
        return answers.get(request_name(path, query))

    def put(self, verb: str, path: str, query: Mapping[str, Any] | None, answer: HttpAnswer) -> None:
        """Store the answer to a GET; outside a scope, and for other verbs, `put` does nothing."""
        if self._answers_of_scope is not None and verb == "GET":
            self._answers_of_scope[request_name(path, query)] = answer

    def put_item(self, path: str, item: dict[str, Any]) -> None:
        """Store an item of a list, so that the method `item` returns it for the same `path`; outside a scope nothing is
        stored. The item is not used as the answer to a GET of `path`, since items of a list lack fields: GitLab's merge
        requests have no `head_pipeline` in a list."""
        if self._answers_of_scope is not None:
            self._answers_of_scope[f"item {path}"] = HttpAnswer(200, data=item)

    def item(self, path: str) -> dict[str, Any] | None:
        """The item of a list that was stored for `path` in this scope, else None."""
        found = (self._answers_of_scope or {}).get(f"item {path}")
        return None if found is None else found.data

    @property
    def _answers_of_scope(self) -> dict[str, HttpAnswer] | None:
        found: dict[str, HttpAnswer] | None = getattr(self._of_thread, "answers", None)
        return found
