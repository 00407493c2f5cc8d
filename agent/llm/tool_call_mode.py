"""Selects how the model of one conversation calls tools: by the tool calls of the server's API, or as text.

With the setting `auto` the conversation begins with the tool calls of the API. With `auto` the conversation switches to
calls as text when, for example, the server reports that the model has no tool calls (`ChatClient.abilities`), or
refuses a request with tools. If the first request of a task is refused for an unknown reason, or since the server
refuses the order of the messages or a parameter for tools, the request is tried once without tools; if this attempt is
refused as well, the error of the first refusal is raised.
"""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any

from agent.errors import HistoryRefused, ModelError, RequestRefused, ToolsRefused
from agent.llm.error_wordings import NO_ANSWER_TO_TOOLS
from agent.llm.request_lines import lines
from agent.llm.text_call_formats import MOST, ends_in_calls, whole_calls
from agent.llm.tool_calls_as_text import HEAD, RECOVERED, TEXT, TextCallForm, new_id
from agent.store.storable_text import fit_json
from agent.values import Span

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from agent.values import Answer, Json, Messages

ENDS = {"stop": "tool_calls"}
"""Stop reason of an answer → the stop reason that replaces it when tool calls were found in the text of the answer."""


class CallMode:
    """Selects how the model of one client calls tools, and stores what the client has learnt about tool calls.

    `wanted` is the setting `llm.<provider>.tool_calls`, `able` has the abilities of the model that the server
    reports.
    """

    def __init__(
        self, wanted: str, tools: Sequence[Json], store: Messages, able: Mapping[str, bool], emit: Callable[..., None]
    ) -> None:
        self.wanted = wanted
        self.tools = tools
        self.names = frozenset(str(tool.get("function", {}).get("name")) for tool in tools)
        self.store = store
        self.able = able
        self.emit = emit
        self.refused = False  # learnt: whether the server refuses tools for this model
        # the error of the first refusal of a request, while the request is tried without tools
        self._trying: ModelError | None = None
        # the error with which the first form of a request was refused, while other forms are tried
        self._first: ModelError | None = None
        # True if tools are called as text for the rest of the task, because a request succeeded only without tools or
        # because of `distrust`
        self._tried = False
        self._distrusted = False
        self._answered = False
        self._form: TextCallForm | None = None
        self._said = False

    @property
    def in_text(self) -> bool:
        """Whether tools are called as text at present: if so, a request describes the tools in the system prompt."""
        if not self.tools or self.wanted == "native":
            return False
        unable = self.able.get("tools") is False
        return self.wanted == "text" or self.refused or unable or self._tried or self._trying is not None

    @property
    def form(self) -> TextCallForm:
        """The form of tool calls as text for this task, which is derived from the task's first messages."""
        if self._form is None:
            path = self.store.get_current_context_file()
            head = list(islice(lines((Span(path),)), HEAD)) if path.exists() else []
            form = TextCallForm(self.tools, head)
            if len(head) < HEAD:
                return form
            self._form = form
        return self._form

    # --- refusals ---------------------------------------------------------------------------------------------

    def learn(self, error: ModelError) -> bool:
        """Switch to tool calls as text if `error` says that the server refuses tools; returns False if it does not say
        so, if the setting is not `auto`, or if the request has offered no tools."""
        if not isinstance(error, ToolsRefused) or self.wanted != "auto" or not self.tools or self.in_text:
            return False
        self.refused = True
        return True

    def try_text(self, error: ModelError) -> bool:
        """After the server refused the first request of a task, have this request sent again with tool calls as text;
        if the server accepts that, they stay text for the rest of the task.

        Returns whether to send the request again: with the setting `auto`, if the request offers tools and its refusal
        is unexplained, a HistoryRefused, or about a parameter for tools.
        """
        unexplained = isinstance(error, HistoryRefused) or (isinstance(error, RequestRefused) and error.unexplained)
        about_tools = any(re.split(r"\W", param, maxsplit=1)[0] in NO_ANSWER_TO_TOOLS for param in error.params)
        if (
            not ((unexplained or about_tools) and self.is_first and self.wanted == "auto" and self.tools)
            or self.in_text
        ):
            return False
        self._trying = self._first or error
        return True

    def begin_try(self, error: ModelError) -> None:
        """Store the error of a refused first request before the request is sent again in another form; if no form
        succeeds, the stored error is raised."""
        self._first = self._first or error

    def distrust(self) -> bool:
        """Switch to tool calls as text for this task, since the server does not recognise the tool calls of its model;
        returns False if nothing changes."""
        if self.wanted != "auto" or not self.tools or self.in_text:
            return False
        self._tried = self._distrusted = True
        return True

    def give_up(self, error: ModelError) -> ModelError:
        """The error to raise after the last attempt failed with `error`: the error of the first refusal if other forms
        were tried, else `error`."""
        first, self._trying, self._first = self._trying or self._first, None, None
        return first or error

    def accepted(self, *, summary: bool) -> None:
        """Record that the server has answered a request of the conversation; `summary` is True for every other request,
        of which nothing is recorded."""
        if summary:
            return
        self._answered, self._first = True, None
        if self._trying is not None:
            self._trying, self._tried = None, True

    def announce(self) -> None:
        """If tools are called as text, emit the event `text_mode`, once."""
        if self.in_text and not self._said:
            self._said = True
            self.emit("text_mode", why=self.reason())

    def reason(self) -> str:
        """The reason why tools are called as text, "" if the tool calls of the server are used."""
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
        """Whether the current request counts as the first request of its task: this client has no answer yet, and
        `_is_new` holds."""
        return not self._answered and self._is_new()

    def _is_new(self) -> bool:
        """Whether the task has no answers yet, or the tool calls in its answers were written as text; True for a store
        without an index."""
        survey: Any = getattr(self.store, "index", None)
        return survey is None or survey.turns == 0 or survey.form == TEXT

    # --- answers ----------------------------------------------------------------------------------------------

    def read(self, answer: Answer) -> tuple[Answer, str]:
        """Find tool calls in the text of an answer: (the answer with these calls, the form of the calls; "" if the text
        has no tool calls).

        Prose may surround the blocks that this program prescribes for calls as text. Tool calls in a form of
        `text_call_formats.py` count only if the whole text of the answer consists of calls.
        """
        if answer.calls or not self.tools:
            return answer, ""
        if self.in_text:
            found = self.form.read(answer.text)
            if found.calls:
                return self._answer_with_calls(answer, found.text, found.calls), TEXT
            answer = replace(answer, text=found.text)
        made = None if answer.finish_reason == "length" else whole_calls(answer.text, self.names)
        if not made:
            if not self.in_text and ends_in_calls(answer.text, self.names):
                # Tool calls that follow prose in a form of `text_call_formats.py` are not run. With the setting `auto`,
                # the system prompt asks the model for calls as text from now on, where sentences may precede a call;
                # otherwise no call of a model that writes sentences before its calls would be run.
                self.distrust()
            return answer, ""
        calls = tuple({"id": new_id(), "name": name, "arguments": fit_json(arguments)} for name, arguments in made)
        form = TEXT if self.in_text else RECOVERED
        if form == RECOVERED:
            self.emit("call_recovered", tools=[call["name"] for call in calls])
        return self._answer_with_calls(answer, "", calls), form

    def limit_calls(self, answer: Answer) -> Answer:
        """The answer with at most its first MOST tool calls; the other calls are dropped.

        The number of calls is limited because each call is a record in three files, and all calls of an answer are run
        before the next request.
        """
        more = len(answer.calls) - MOST
        if more <= 0:
            return answer
        self.emit("calls_dropped", calls=len(answer.calls), kept=MOST)
        calls, fields = answer.calls[:MOST], answer.call_fields[:MOST]
        return replace(answer, calls=calls, call_fields=fields, dropped=more)

    def _answer_with_calls(self, answer: Answer, text: str, calls: tuple[Json, ...]) -> Answer:
        reason = ENDS.get(answer.finish_reason, answer.finish_reason)
        return replace(answer, text=text, calls=calls, finish_reason=reason)
