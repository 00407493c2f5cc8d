"""The loop over the turns of a task: the main algorithm of the program.

A task is a loop of turns.  A turn sends one request to the model and executes the calls of its answer.  The result of
each step is written to files before the next step begins, so a task can continue from the files if its process dies at
any point.

    control ▶ limits ▶ plan ▶ query (append) ▶ tools (append) ▶ repetition ▶ heartbeat ▶ checkpoint ▶ compact

`loop.py` is independent of the JSON of a provider, of forges, of the sandbox and of SQL.  See docs/design/context.md,
sections 5.1 and 6.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from agent.errors import ContextOverflow, RequestRefused
from agent.finish_reasons import NUDGES, hint_text, is_answer, outcome_of_giving_up, refusal_reason
from agent.llm.base import Interrupted
from agent.prompts import render
from agent.tools import AFTER_THE_END, STOPPED_BEFORE
from agent.values import End, Outcome, ToolResult

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from agent.context import TaskContextManager
    from agent.llm.base import ModelClient
    from agent.observe.events import Events
    from agent.tools import Toolbox
    from agent.values import Control, FencedComment, Json, Plan

DONE = (End.FINISHED, End.ANSWERED)

PATIENCE = 3
"""After PATIENCE consecutive answers of the model without a call that can be run, the run ends; after each earlier
answer of this kind the model gets a hint."""


class Window(Protocol):
    """The part of `agent.window` that the loop needs: it plans requests, and compacts the conversation."""

    def plan(self) -> Plan:
        """Plan the next request of the conversation.  Raises DoesNotFit if even the smallest possible request is too
        long for the model (FR-4, FR-5 of docs/design/)."""
        ...

    def compact(self, overflow: ContextOverflow | None = None) -> bool:
        """Compact the conversation once; returns False if that freed no tokens and the maximum length of the next
        answer stays the same.  `overflow` has the limit that the server reported."""
        ...

    def explain_overflow(self, overflow: ContextOverflow) -> ContextOverflow:
        """A copy of `overflow` that names the tokens of each part of the request and the smallest context window that
        would suffice."""
        ...

    def compact_if_too_long(self, refused: RequestRefused) -> bool:
        """Compact the conversation once if the server may have refused the request because of its length; returns False
        if the length cannot be the reason, or if `compact` would return False."""
        ...

    def needs_compaction(self) -> bool:
        """Whether the next request would be longer than the threshold at which the conversation is compacted."""
        ...


class LimitCheck(Protocol):
    """Checks whether a limit of the task is reached."""

    def __call__(self) -> Outcome | None:
        """Returns an outcome if a limit of the task is reached, for example of turns, tokens, cost, time or disk
        space."""
        ...

    def check_calls(self) -> Outcome | None:
        """Returns an outcome if a resource that tool calls use, for example time, memory or disk space, is used up."""
        ...


class Repetition(Protocol):
    """Detects from the tool calls of the model and their results that the model repeats itself; `check` returns "nudge"
    (give a hint), "stop" or None."""

    def check(self, calls: Sequence[Json], results: Sequence[ToolResult]) -> str | None: ...


@dataclass
class Loop:
    """The loop of one task, with the objects that it uses.

    `new_comments` yields the comments of people that arrived since its last call, and moves its cursor when the last
    comment was appended; with the argument True it queries the forge even if the interval between queries has not
    passed. `heartbeat` writes the present time and the counters of the task into the task's row in one UPDATE.
    `checkpoint` publishes intermediate results of the task. `heartbeat` and `checkpoint` raise Fenced if this attempt
    does not own the task any more.
    """

    context: TaskContextManager
    model: ModelClient
    tools: Toolbox
    window: Window
    repetition: Repetition
    control: Control
    limits: LimitCheck
    new_comments: Callable[[bool], Iterable[FencedComment]]
    heartbeat: Callable[[], None]
    events: Events
    checkpoint: Callable[[], None] = lambda: None
    hints: int = field(default=0, init=False)

    def run(self) -> Outcome:
        """Take turns until a turn ends the run."""
        self.hints = self.count_hints()
        outcome = None if self.take_comments() else self.resume_outcome()
        while outcome is None:
            outcome = self.run_turn()
        self.context.get_message_store().sync()
        self.context.get_tool_store().sync()
        return outcome

    def run_turn(self) -> Outcome | None:
        """Send one request to the model and execute the calls of the answer; returns an outcome if this was the last
        turn."""
        self.take_comments()
        if ended := self.control.poll() or self.limits():
            return ended
        try:
            text, calls = self.query()
        except Interrupted as stop:  # a stop, pause or limit ended the request to the model; no answer was appended
            return stop.outcome
        self.context.get_message_store().sync()  # the answer is durable before its calls run
        outcome = self.run_calls(text, calls)
        self.heartbeat()
        if outcome is not None and outcome.end in DONE and self.limits() is None and self.take_comments(last=True):
            outcome = None  # a comment arrived while the model answered, so the run of the task continues
            self.hints = 0
        if outcome is None:
            self.checkpoint()
            if self.window.needs_compaction():
                self.window.compact()
        return outcome

    def take_comments(self, *, last: bool = False) -> bool:
        """Append new comments of people, and the memories that match them; returns whether there was a comment.

        A person's answer to `ask_user` arrives as a comment too.
        """
        heard = False
        for said in self.new_comments(last):
            store = self.context.get_message_store()
            store.add_message("user", said.text, **said.fields)
            heard = heard or said.kind == "comment"
        return heard

    def query(self) -> tuple[str, Sequence[Json]]:
        """Send the planned request to the model; returns (text, tool calls) of the answer, which the client appends to
        the message store.

        If the planned request is too long, `Window.compact` is called and the request is planned again; after the third
        consecutive overflow, or if a compaction freed no tokens, the task ends with the error. A refusal that the
        length of the request may have caused leads to one compaction; a second refusal of this kind ends the task with
        the error."""
        self.events.emit("turn_started")
        first: RequestRefused | None = None
        for last_try in (False, False, True):
            try:
                return self.model.get_response(self.window.plan())
            except ContextOverflow as overflow:
                if last_try or not self.window.compact(overflow):
                    raise (first or self.window.explain_overflow(overflow)) from overflow
            except RequestRefused as refused:
                if last_try or first is not None or not self.window.compact_if_too_long(refused):
                    raise (first or refused) from refused
                first = refused
        raise AssertionError  # not reached: the last pass through the loop returns or raises an error

    def run_calls(self, text: str, calls: Sequence[Json]) -> Outcome | None:
        """Run the tool calls of an answer in order, append the result of each call, and check for repetition.

        If the task is stopped or a limit is reached between two calls of an answer, the remaining calls are not run.
        """
        reason = self.model.last.finish_reason if self.model.last is not None else "stop"
        if not calls:
            return self.handle_no_calls(text, reason)
        results: list[ToolResult] = []
        self.tools.start_answer(len(calls))
        cut: Outcome | None = None
        for call in calls:
            if results and cut is None:
                cut = self.control.poll() or self.limits.check_calls()
            over = AFTER_THE_END if any(result.outcome for result in results) else STOPPED_BEFORE if cut else ""
            why = refusal_reason(call["name"], reason) or over
            results.append(self.refuse_call(call, why) if why else self.run_call(call))
        ends = [result.outcome for result in results if result.outcome is not None]
        if ends:
            return ends[-1]
        if cut is not None:
            return cut
        if (last := self.model.last) is not None and last.dropped:
            self.add_user(render("too_many_calls", run=len(calls), dropped=last.dropped), kind="nudge")
        broken = any(refusal_reason(call["name"], reason) for call in calls)
        self.hints = self.hints + 1 if broken else 0
        if self.hints >= PATIENCE:
            return outcome_of_giving_up(reason)
        advice = self.repetition.check(calls, results)
        if advice == "stop":
            return Outcome(End.REPEATING, code="repeating", summary=render("gave_up", why="repeating"))
        if advice == "nudge":
            self.events.emit("nudge", why="repetition")
            self.add_user(render("nudge"), kind="nudge")
        return None

    def handle_no_calls(self, text: str, reason: str) -> Outcome | None:
        """Append a hint for the model after an answer without a tool call, since a task with a change is completed only
        by `finish`.

        If the model still answers without a tool call after the hints, the run ends: as ANSWERED if the answer has a
        usable text and a tool has run, otherwise as FAILED. ANSWERED is a weaker end than a call of `finish`: the text
        counts as the answer to a question only if the task changed nothing and at least one tool ran.
        """
        self.hints += 1
        if self.hints >= PATIENCE:
            return self.end_without_calls(text, reason)
        words = is_answer(text, reason)
        self.events.emit("nudge", why="no_call" if words else NUDGES.get(reason, "broken_off"))
        self.add_user(render("no_call") if words else hint_text(reason), kind="nudge")
        return None

    def end_without_calls(self, text: str, reason: str) -> Outcome:
        """The outcome of a run that ends because the model continued to answer without a tool call."""
        if not is_answer(text, reason):
            return outcome_of_giving_up(reason)
        if not self.tools.has_run:
            return Outcome(End.FAILED, code="no_tool_calls", summary=render("gave_up", why="no_tool_calls", text=text))
        return Outcome(End.ANSWERED, summary=text)

    def run_call(self, call: Json) -> ToolResult:
        """Run one tool call of the model, record it, and append its result to the conversation."""
        if "invalid" in call:  # `values.Answer` sets `invalid` in a call if the arguments were not a JSON object
            answer = call.get("answer") or render("invalid", name=call["name"], found=call["invalid"])
            return self.refuse_call(call, answer)
        self.events.emit("tool_started", tool=call["name"])
        result = self.tools.run(call["name"], call["arguments"])
        return self.record_result(
            {**call, "arguments": self.tools.repair_arguments(call["name"], call["arguments"])}, result
        )

    def refuse_call(self, call: Json, why: str) -> ToolResult:
        """Record a refusal as the result of a tool call that must not be run."""
        return self.record_result(call, ToolResult(why, status="error", error=why))

    def record_result(self, call: Json, result: ToolResult) -> ToolResult:
        """Record the result of a tool call: first in tools.jsonl and second in messages.jsonl, so that each result in
        messages.jsonl is in tools.jsonl too."""
        name, status, took = call["name"], result.status, result.duration_ms
        seq = self.context.get_tool_store().add_tool_call(
            name, call["arguments"], result.content, status, took, result.error, output=result.output
        )
        self.context.get_message_store().add_message(
            "tool", result.content, name, tool_call_id=call["id"], output=result.output, tool_seq=seq
        )
        self.events.emit("tool_finished", tool=name, seq=seq, status=status, duration_ms=took)
        return result

    def add_user(self, text: str, *, kind: str) -> None:
        """Append a user message with a text that this program wrote."""
        self.context.get_message_store().add_message("user", text, kind=kind)

    def resume_outcome(self) -> Outcome | None:
        """The outcome when a task is resumed: if the newest message already ended the run, only the steps after the end
        are missing; otherwise None.

        If the newest message is an answer without a tool call, and the run goes on, the hint for such answers is
        appended."""
        end = self.recorded_outcome()
        if end is None and (last := self.newest_text()) is not None:
            return self.handle_no_calls(*last)
        return end

    def recorded_outcome(self) -> Outcome | None:
        """The outcome that the newest message implies; None if the run continues.  Changes nothing."""
        last = self.context.get_message_store().last()
        # the result of an interrupted call has no `tool_seq`, and does not end the run
        if last is not None and last["role"] == "tool" and last.get("tool_seq"):
            return self.tools.restored_outcome()  # the newest tool call may be `finish`, which ends the run
        if (words := self.newest_text()) is not None and self.count_hints() + 1 >= PATIENCE:
            return self.end_without_calls(*words)
        return None

    def newest_text(self) -> tuple[str, str] | None:
        """(text, finish reason) of the newest message, if that is an answer of the model without a call."""
        last = self.context.get_message_store().last()
        if last is None or last.get("kind") == "summary" or last["role"] != "assistant" or last.get("tool_calls"):
            return None
        return last.get("content") or "", last.get("finish_reason") or "stop"

    def count_hints(self) -> int:
        """The number of consecutive hints at the end of the conversation, read from the files, so that a new process
        continues the count."""
        hints = 0
        for record in self.context.get_message_store().backwards():
            if record["role"] == "assistant":
                if record.get("tool_calls"):
                    break
            elif record.get("kind") == "nudge":
                hints += 1
            elif record.get("kind") != "memory":
                break
        return hints
