"""The turn: this program in one page.

A task is a loop of turns.  A turn asks the model once and does what it answered; everything it learns is in the files
before the next step begins, so a process that dies anywhere goes on here, from the files.  `run/handler.py` calls
`Loop.run` with the parts that `run/wiring.py` built, and publishes what came of it.

    control ▶ limits ▶ plan ▶ ask (append) ▶ tools (append) ▶ repetition ▶ beat ▶ checkpoint ▶ compress

Nothing here knows a provider's JSON, a forge, a sandbox or SQL.  Design: section 5; seed 002: sections 5.1 and 6.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from agent.errors import ContextOverflow, RequestRefused
from agent.llm.base import Interrupted
from agent.prompts import render
from agent.tools import AFTER_THE_END, END, STOPPED_BEFORE
from agent.values import End, Outcome, ToolResult

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from agent.context import TaskContextManager
    from agent.llm.base import ModelClient
    from agent.observe.events import Events
    from agent.tools import Toolbox
    from agent.values import Control, Json, Plan, Said

DONE = (End.FINISHED, End.ANSWERED)

WHOLE = ("stop", "tool_calls")
"""Finish reasons of an answer that the model itself brought to its end; any other one, known or not, is no good end."""

PATIENCE = 3
"""How many answers in a row without a call that can be run end the run; each one before gets a hint."""


class Window(Protocol):
    """What the loop needs of `agent.window`: plan a request, and make room."""

    def plan(self) -> Plan:
        """The next request.  Raises DoesNotFit when even the minimum is too long (FR-4, FR-5)."""
        ...

    def make_room(self, overflow: ContextOverflow | None = None) -> bool:
        """Compact once; False when nothing could be freed.  `overflow` teaches the true window."""
        ...

    def suspect(self, refused: RequestRefused) -> bool:
        """Compact once if a refusal that nothing explains may be for the length; False when it is not, or nothing could
        be freed."""
        ...

    def past_the_mark(self) -> bool:
        """Whether it is time to compact."""
        ...


class Limits(Protocol):
    """What a task may use up."""

    def __call__(self) -> Outcome | None:
        """An outcome when turns, tokens, money, time or room are used up."""
        ...

    def of_calls(self) -> Outcome | None:
        """The same for what tool calls use: time, memory, room."""
        ...


class Repetition(Protocol):
    """Sees every call with its result; answers "nudge", "stop" or None."""

    def see(self, calls: Sequence[Json], results: Sequence[ToolResult]) -> str | None: ...


@dataclass
class Loop:
    """The parts of one task.  `news` yields what people wrote since the last look, asking anew whatever the time with
    True, and moves its cursor after the last of it was appended; `beat` writes heartbeat and counters, one UPDATE;
    `checkpoint` publishes what is worth showing before the end.  Both raise Fenced when another attempt owns the task.
    """

    context: TaskContextManager
    model: ModelClient
    tools: Toolbox
    window: Window
    repetition: Repetition
    control: Control
    limits: Limits
    news: Callable[[bool], Iterable[Said]]
    beat: Callable[[], None]
    events: Events
    checkpoint: Callable[[], None] = lambda: None
    hints: int = field(default=0, init=False)

    def run(self) -> Outcome:
        """Take turns until one of them ends the run."""
        self.hints = self.hints_so_far()
        outcome = None if self.hear() else self.already_ended()
        while outcome is None:
            outcome = self.turn()
        self.context.get_message_store().sync()
        self.context.get_tool_store().sync()
        return outcome

    def turn(self) -> Outcome | None:
        """Ask once, do what was answered; an outcome when that was the last turn."""
        self.hear()
        if ended := self.control.poll() or self.limits():
            return ended
        try:
            text, calls = self.ask()
        except Interrupted as stop:  # somebody said stop while the model was thinking; nothing was appended
            return stop.outcome
        self.context.get_message_store().sync()  # the answer is durable before anything it asks for is done
        outcome = self.act(text, calls)
        self.beat()
        if outcome is not None and outcome.end in DONE and self.limits() is None and self.hear(last=True):
            outcome = None  # somebody said something while the model came to its end
            self.hints = 0
        if outcome is None:
            self.checkpoint()
            if self.window.past_the_mark():
                self.window.make_room()
        return outcome

    def hear(self, *, last: bool = False) -> bool:
        """Take in what people wrote; whether there was anything.  An answer to `ask_user` comes this way too."""
        heard = False
        for said in self.news(last):
            self.context.get_message_store().add_message("user", said.text, kind="comment", images=said.images)
            heard = True
        return heard

    def ask(self) -> tuple[str, Sequence[Json]]:
        """One answer of the model, which the client appends.  Too long: `make_room` compacts at the first overflow in a
        row and resets at the second; after the third the task ends.  A refusal that may be for the length makes room
        once; when that does not help, it is what ends the task."""
        self.events.emit("turn_started")
        first: RequestRefused | None = None
        for last_try in (False, False, True):
            try:
                return self.model.get_response(self.window.plan())
            except ContextOverflow as overflow:
                if last_try or not self.window.make_room(overflow):
                    raise (first or overflow) from overflow
            except RequestRefused as refused:
                if last_try or first is not None or not self.window.suspect(refused):
                    raise (first or refused) from refused
                first = refused
        raise AssertionError  # the last try returns or raises

    def act(self, text: str, calls: Sequence[Json]) -> Outcome | None:
        """Run the calls of an answer in order, append every result, and judge the whole.

        Between two of them a stop or a limit of what calls use up leaves the rest undone.
        """
        reason = self.model.last.finish_reason if self.model.last is not None else "stop"
        if not calls:
            return self.without_calls(text, reason)
        results: list[ToolResult] = []
        self.tools.expect(len(calls))
        cut: Outcome | None = None
        for call in calls:
            if results and cut is None:
                cut = self.control.poll() or self.limits.of_calls()
            over = AFTER_THE_END if any(result.outcome for result in results) else STOPPED_BEFORE if cut else ""
            why = not_to_be_run(call["name"], reason) or over
            results.append(self.refuse(call, why) if why else self.call(call))
        ends = [result.outcome for result in results if result.outcome is not None]
        if ends:
            return ends[-1]
        if cut is not None:
            return cut
        if (last := self.model.last) is not None and last.dropped:
            self.say(render("too_many_calls", run=len(calls), dropped=last.dropped), kind="nudge")
        broken = any(not_to_be_run(call["name"], reason) for call in calls)
        self.hints = self.hints + 1 if broken else 0
        if self.hints >= PATIENCE:
            return gave_up(reason)
        advice = self.repetition.see(calls, results)
        if advice == "stop":
            return Outcome(End.REPEATING, code="repeating", summary=render("gave_up", why="repeating"))
        if advice == "nudge":
            self.events.emit("nudge", why="repetition")
            self.say(render("nudge"), kind="nudge")
        return None

    def without_calls(self, text: str, reason: str) -> Outcome | None:
        """An answer without a call gets a hint, a few times: only `finish` ends a task well.

        A model that goes on answering in words alone ends the run as ANSWERED, which is no `finish`: it counts as the
        answer to a question only where nothing was changed.  Where no tool ever ran, it is no answer either.
        """
        self.hints += 1
        words = bool(text.strip()) and reason in WHOLE
        if self.hints < PATIENCE:
            self.events.emit("nudge", why="no_call" if words else NUDGES.get(reason, "broken_off"))
            self.say(render("no_call") if words else hint(reason), kind="nudge")
            return None
        if not words:
            return gave_up(reason)
        if not self.tools.has_run:
            return Outcome(End.FAILED, code="no_tool_calls", summary=render("gave_up", why="no_tool_calls", text=text))
        return Outcome(End.ANSWERED, summary=text)

    def call(self, call: Json) -> ToolResult:
        """Run one call; record it, then append its result."""
        if "invalid" in call:  # `values.Answer`: the arguments were no JSON object
            answer = call.get("answer") or render("invalid", name=call["name"], found=call["invalid"])
            return self.refuse(call, answer)
        self.events.emit("tool_started", tool=call["name"])
        result = self.tools.run(call["name"], call["arguments"])
        return self.record({**call, "arguments": self.tools.mended(call["name"], call["arguments"])}, result)

    def refuse(self, call: Json, why: str) -> ToolResult:
        """Answer a call that must not be run."""
        return self.record(call, ToolResult(why, status="error", error=why))

    def record(self, call: Json, result: ToolResult) -> ToolResult:
        """tools.jsonl first, messages.jsonl second: a result that the model saw is always in both."""
        name, status, took = call["name"], result.status, result.duration_ms
        seq = self.context.get_tool_store().add_tool_call(
            name, call["arguments"], result.content, status, took, result.error, output=result.output
        )
        self.context.get_message_store().add_message(
            "tool", result.content, name, tool_call_id=call["id"], output=result.output, tool_seq=seq
        )
        self.events.emit("tool_finished", tool=name, seq=seq, status=status, duration_ms=took)
        return result

    def say(self, text: str, *, kind: str) -> None:
        """Add a user message of the program."""
        self.context.get_message_store().add_message("user", text, kind=kind)

    def already_ended(self) -> Outcome | None:
        """On resume: the last recorded step may have been the end, only its consequences are missing."""
        last = self.context.get_message_store().last()
        if last is None or last.get("kind") == "summary":
            return None
        if last["role"] == "tool":  # `finish` may be the newest call; an interrupted one has no `tool_seq`
            return self.tools.restored_outcome() if last.get("tool_seq") else None
        if last["role"] == "assistant" and not last.get("tool_calls"):
            return self.without_calls(last.get("content") or "", last.get("finish_reason") or "stop")
        return None

    def hints_so_far(self) -> int:
        """How many hints in a row the model had before its newest answer, from the files: a new process counts on."""
        hints = 0
        for record in self.context.get_message_store().backwards():
            if record["role"] == "assistant":
                if record.get("tool_calls"):
                    break
            elif record.get("kind") == "nudge":
                hints += 1
            else:
                break
        return hints


NUDGES = {"length": "cut", **dict.fromkeys(WHOLE, "empty")}
"""Why a hint was given, for the event, by finish reason."""


def hint(reason: str) -> str:
    """The word to a model whose answer ended for `reason` and holds nothing that can be used."""
    if reason == "length":
        return render("length")
    return render("empty") if reason in WHOLE else render("broken_off", reason=reason)


def not_to_be_run(tool: str, reason: str) -> str:
    """Why a call of an answer that ended for `reason` is not run, "" when it is.

    The arguments of a call are whole, but what the model wanted to say behind it is missing: it may go on, not end.
    """
    if reason == "length" or (tool == END and reason not in WHOLE):
        return hint(reason)
    return ""


def gave_up(reason: str) -> Outcome:
    """The end after too many answers in a row that ended for `reason` and could not be used."""
    why = {"length": "answer_cut", **dict.fromkeys(WHOLE, "no_answer")}.get(reason, "answer_broken_off")
    return Outcome(End.FAILED, code=why, summary=render("gave_up", why=why, reason=reason))
