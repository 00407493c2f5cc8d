"""How the model of one conversation calls tools: by its server's tool calls, or in its text.

`auto` begins with tool calls.  It goes over to the text when the server says that it has none: in an answer to a
question about the model (`ChatClient.abilities`), or by refusing the tools.  A first request that is refused for no
known reason is tried without tools once; if that is refused as well, the first refusal stands.
"""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any

from agent.errors import HistoryRefused, ModelError, RequestRefused, ToolsRefused
from agent.llm.call_formats import MOST, ends_in_calls, whole_calls
from agent.llm.spans import lines
from agent.llm.text_mode import HEAD, RECOVERED, TEXT, TextForm, new_id
from agent.llm.wording import NO_ANSWER_TO_TOOLS
from agent.store.text import fit_json
from agent.values import Span

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from agent.values import Answer, Json, Messages

ENDS = {"stop": "tool_calls"}
"""The reason of an end, where an answer turns out to hold calls."""


class Calling:
    """The state of one client.  `wanted` is `llm.<provider>.tool_calls`, `able` what the server says of the model."""

    def __init__(
        self, wanted: str, tools: Sequence[Json], store: Messages, able: Mapping[str, bool], emit: Callable[..., None]
    ) -> None:
        self.wanted = wanted
        self.tools = tools
        self.names = frozenset(str(tool.get("function", {}).get("name")) for tool in tools)
        self.store = store
        self.able = able
        self.emit = emit
        self.refused = False  # learnt: this model on this server has no tool calls
        self._trying: ModelError | None = None  # a first refusal, while the request is tried without tools
        self._first: ModelError | None = None  # what a request was refused with before anything was tried
        self._tried = False  # and that was answered: for this task
        self._distrusted = False
        self._answered = False
        self._form: TextForm | None = None
        self._said = False

    @property
    def in_text(self) -> bool:
        """Whether the next request describes the tools in its text."""
        if not self.tools or self.wanted == "native":
            return False
        unable = self.able.get("tools") is False
        return self.wanted == "text" or self.refused or unable or self._tried or self._trying is not None

    @property
    def form(self) -> TextForm:
        """The form of this task's calls in text, made from the first messages."""
        if self._form is None:
            path = self.store.get_current_context_file()
            head = list(islice(lines((Span(path),)), HEAD)) if path.exists() else []
            form = TextForm(self.tools, head)
            if len(head) < HEAD:
                return form
            self._form = form
        return self._form

    # --- refusals ---------------------------------------------------------------------------------------------

    def learn(self, error: ModelError) -> bool:
        """Go over to the text because the server refuses tools; False when it does not, or must not."""
        if not isinstance(error, ToolsRefused) or self.wanted != "auto" or not self.tools or self.in_text:
            return False
        self.refused = True
        return True

    def try_text(self, error: ModelError) -> bool:
        """Try the first request of a task in text, when it is refused and nothing explains why; once."""
        unexplained = isinstance(error, HistoryRefused) or (isinstance(error, RequestRefused) and error.unexplained)
        about_tools = any(re.split(r"\W", param)[0] in NO_ANSWER_TO_TOOLS for param in error.params)
        if (
            not ((unexplained or about_tools) and self.is_first and self.wanted == "auto" and self.tools)
            or self.in_text
        ):
            return False
        self._trying = self._first or error
        return True

    def begin_try(self, error: ModelError) -> None:
        """A first request is sent again in another way; should none be answered, its first refusal stands."""
        self._first = self._first or error

    def distrust(self) -> bool:
        """Go over to the text for this task, since the server could not read the calls of its own model, whatever was
        tried; once."""
        if self.wanted != "auto" or not self.tools or self.in_text:
            return False
        self._tried = self._distrusted = True
        return True

    def give_up(self, error: ModelError) -> ModelError:
        """The error that stands: the one that began a try, where this one ends it."""
        first, self._trying, self._first = self._trying or self._first, None, None
        return first or error

    def accepted(self, *, summary: bool) -> None:
        """A request was answered."""
        if summary:
            return
        self._answered, self._first = True, None
        if self._trying is not None:
            self._trying, self._tried = None, True

    def announce(self) -> None:
        """Say once that tools are called in the text."""
        if self.in_text and not self._said:
            self._said = True
            self.emit("text_mode", why=self.why())

    def why(self) -> str:
        """The reason in words, "" where the server's tool calls are used."""
        if not self.in_text:
            return ""
        if self.wanted == "text":
            return "tool_calls is text"
        if self.refused:
            return "the server refused the tools"
        if self.able.get("tools") is False:
            return "the server says that the model has no tool calls"
        if self._distrusted:
            return "the server could not read the calls of its model"
        return "the first request was refused with tools"

    @property
    def is_first(self) -> bool:
        """Whether the request that is under way is the first of its task."""
        return not self._answered and self._is_new()

    def _is_new(self) -> bool:
        """Whether nothing was answered in this task, or only in text."""
        survey: Any = getattr(self.store, "survey", None)
        return survey is None or survey.turns == 0 or survey.form == TEXT

    # --- answers ----------------------------------------------------------------------------------------------

    def read(self, answer: Answer) -> tuple[Answer, str]:
        """(the answer with the calls of its text, the form in which they came, "" for none).

        Blocks of the text mode may stand in prose.  Any other form counts only where the whole text is calls.
        """
        if answer.calls or not self.tools:
            return answer, ""
        if self.in_text:
            found = self.form.read(answer.text)
            if found.calls:
                return self._with(answer, found.text, found.calls), TEXT
            answer = replace(answer, text=found.text)
        made = None if answer.finish_reason == "length" else whole_calls(answer.text, self.names)
        if not made:
            if not self.in_text and ends_in_calls(answer.text, self.names):
                self.distrust()  # a model that says a word before each call would never have one run
            return answer, ""
        calls = tuple({"id": new_id(), "name": name, "arguments": fit_json(arguments)} for name, arguments in made)
        form = TEXT if self.in_text else RECOVERED
        if form == RECOVERED:
            self.emit("call_recovered", tools=[call["name"] for call in calls])
        return self._with(answer, "", calls), form

    def bounded(self, answer: Answer) -> Answer:
        """The answer with its first MOST calls: each is a record in three files, and all are answered before
        anybody is asked again."""
        more = len(answer.calls) - MOST
        if more <= 0:
            return answer
        self.emit("calls_dropped", calls=len(answer.calls), kept=MOST)
        calls, fields = answer.calls[:MOST], answer.call_fields[:MOST]
        return replace(answer, calls=calls, call_fields=fields, dropped=more)

    def _with(self, answer: Answer, text: str, calls: tuple[Json, ...]) -> Answer:
        reason = ENDS.get(answer.finish_reason, answer.finish_reason)
        return replace(answer, text=text, calls=calls, finish_reason=reason)
