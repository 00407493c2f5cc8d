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

from agent.errors import ContextOverflow
from agent.llm.base import Interrupted
from agent.prompts import render
from agent.tools import AFTER_THE_END
from agent.values import End, Outcome, ToolResult

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from agent.context import TaskContextManager
    from agent.llm.base import ModelClient
    from agent.observe.events import Events
    from agent.tools import Toolbox
    from agent.values import Control, Json, Plan

DONE = (End.FINISHED, End.ANSWERED)

PATIENCE = 3
"""How many empty or cut answers in a row are answered with a hint before the run ends."""


class Window(Protocol):
    """What the loop needs of `agent.window`: plan a request, and make room."""

    def plan(self) -> Plan:
        """The next request.  Raises DoesNotFit when even the minimum is too long (FR-4, FR-5)."""
        ...

    def make_room(self, overflow: ContextOverflow | None = None) -> bool:
        """Compact once; False when nothing could be freed.  `overflow` teaches the true window."""
        ...

    def past_the_mark(self) -> bool:
        """Whether it is time to compact."""
        ...


class Repetition(Protocol):
    """Sees every call with its result; answers "nudge", "stop" or None."""

    def see(self, calls: Sequence[Json], results: Sequence[ToolResult]) -> str | None: ...


@dataclass
class Loop:
    """The parts of one task.  `limits` answers with an outcome when turns, tokens, money or time are used up;
    `news` yields what people wrote since the last look, asking anew whatever the time with True, and moves its cursor
    after the last of it was appended;
    `beat` writes heartbeat and counters, one UPDATE; `checkpoint` publishes what is worth showing before the end.  Both
    raise Fenced when another attempt owns the task."""

    context: TaskContextManager
    model: ModelClient
    tools: Toolbox
    window: Window
    repetition: Repetition
    control: Control
    limits: Callable[[], Outcome | None]
    news: Callable[[bool], Iterable[str]]
    beat: Callable[[], None]
    events: Events
    checkpoint: Callable[[], None] = lambda: None
    hints: int = field(default=0, init=False)

    def run(self) -> Outcome:
        """Take turns until one of them ends the run."""
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
        if outcome is None:
            self.checkpoint()
            if self.window.past_the_mark():
                self.window.make_room()
        return outcome

    def hear(self, *, last: bool = False) -> bool:
        """Take in what people wrote; whether there was anything.  An answer to `ask_user` comes this way too."""
        heard = False
        for text in self.news(last):
            self.say(text, kind="comment")
            heard = True
        return heard

    def ask(self) -> tuple[str, Sequence[Json]]:
        """One answer of the model, which the client appends.  Too long: `make_room` compacts at the first overflow in a
        row and resets at the second; after the third the task ends."""
        self.events.emit("turn_started")
        for last_try in (False, False, True):
            try:
                return self.model.get_response(self.window.plan())
            except ContextOverflow as overflow:
                if last_try or not self.window.make_room(overflow):
                    raise
        raise AssertionError  # the last try returns or raises

    def act(self, text: str, calls: Sequence[Json]) -> Outcome | None:
        """Run the calls of an answer in order, append every result, and judge the whole."""
        cut = self.model.last is not None and self.model.last.finish_reason == "length"
        if not calls:
            return self.without_calls(text, cut=cut)
        results: list[ToolResult] = []
        for call in calls:
            over = AFTER_THE_END if any(result.outcome for result in results) else ""
            why = render("length") if cut else over
            results.append(self.refuse(call, why) if why else self.call(call))
        self.hints = self.hints + 1 if cut else 0
        ends = [result.outcome for result in results if result.outcome is not None]
        if ends:
            return ends[-1]
        if self.hints >= PATIENCE:
            return Outcome(End.FAILED, code="answer_cut", summary=render("gave_up", why="answer_cut"))
        advice = self.repetition.see(calls, results)
        if advice == "stop":
            return Outcome(End.REPEATING, code="repeating", summary=render("gave_up", why="repeating"))
        if advice == "nudge":
            self.events.emit("nudge", why="repetition")
            self.say(render("nudge"), kind="nudge")
        return None

    def without_calls(self, text: str, *, cut: bool) -> Outcome | None:
        """A plain answer ends the run; an empty or cut one gets a hint, a few times."""
        if text.strip() and not cut:
            return Outcome(End.ANSWERED, summary=text)
        self.hints += 1
        if self.hints >= PATIENCE:
            why = "answer_cut" if cut else "no_answer"
            return Outcome(End.FAILED, code=why, summary=render("gave_up", why=why))
        self.events.emit("nudge", why="cut" if cut else "empty")
        self.say(render("length") if cut else render("empty"), kind="nudge")
        return None

    def call(self, call: Json) -> ToolResult:
        """Run one call; record it, then append its result."""
        if "invalid" in call:  # `values.Answer`: the arguments were no JSON object
            return self.refuse(call, render("invalid", name=call["name"], found=call["invalid"]))
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
        """Add a user message of the program or of a person."""
        self.context.get_message_store().add_message("user", text, kind=kind)

    def already_ended(self) -> Outcome | None:
        """On resume: the last recorded step may have been the end, only its consequences are missing."""
        last = self.context.get_message_store().last()
        if last is None or last.get("kind") == "summary":
            return None
        if last["role"] == "tool":  # `finish` may be the newest call; an interrupted one has no `tool_seq`
            return self.tools.restored_outcome() if last.get("tool_seq") else None
        if last["role"] == "assistant" and not last.get("tool_calls"):
            return self.without_calls(last.get("content") or "", cut=last.get("finish_reason") == "length")
        return None
