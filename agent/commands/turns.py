"""Reads the last turns of one task for people: each turn with its tool calls, the sizes of their results, and what
happened between the turns (compactions, comments, failed requests, outside effects).

Only the ends of the task's files are read, so the time does not depend on the length of the conversation: a task of
200,000 messages takes as long as a task of 200. `turns.py` only reads, takes no lock and opens no store (stores repair
the files that they open). Damaged lines in the ends of the files are named in `notes`. `timeline.py` shows every record
of a task; the commands `show` and `show --watch` print the last turns.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import orjson

from agent.commands.timeline import FILES, excerpt, id_key
from agent.context.outside_effects import ROW
from agent.store.jsonl import DamagedLines, as_int, tail

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from agent.values import Json

TURNS = 20
"""The number of turns that `show` prints without `--full`."""

MOST_RECORDS = 2000
"""The maximum number of newest messages that are read, since a task may have many messages without an answer."""

ABOUT = ("command", "path", "title", "question", "pattern", "query", "url", "text")
"""Names of arguments that say best what a tool call is about; of those that a call has, the first in this order is
shown."""


LONG_KINDS = ("system", "task", "memory")
"""Kinds and roles of messages of which the text is long in every task."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One tool call: its number in tools.jsonl, what it is about, its status, the size of its result in characters, and
    its duration; `number`, `size` and `ms` are None while the call has no result, `number` and `ms` also if tools.jsonl
    lacks the call."""

    tool: str
    about: str
    number: int | None = None
    status: str = ""
    size: int | None = None
    ms: int | None = None

    @property
    def failed(self) -> bool:
        """Whether the tool call ended with an error."""
        return self.status not in ("", "success")


@dataclass(slots=True)
class Turn:
    """One answer of the model, which is message `seq`, with its tool calls; `text` is the beginning of its text."""

    seq: int
    at: str
    text: str
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    calls: list[ToolCall] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Between:
    """Something that happened between two turns: a compaction, a message to the model, a failed request or an outside
    effect; `number` is the record's number in its file."""

    kind: Literal["compaction", "message", "request", "effect"]
    at: str
    number: int
    text: str
    failed: bool = False


@dataclass(frozen=True, slots=True)
class LastTurns:
    """The last turns of a task, and what happened between them, in the order of time.

    `complete`: the first turn of the task is among these turns. `closing`: the summary, or the question, with which the
    model ended its work, "" if the model has not ended it. `notes`: sentences about damaged or unreadable files of the
    task.
    """

    items: tuple[Turn | Between, ...] = ()
    complete: bool = True
    closing: str = ""
    notes: tuple[str, ...] = ()


def last_turns(folder: Path, count: int = TURNS) -> LastTurns:
    """The last `count` turns in the folder of a task."""
    damage = {name: DamagedLines(folder / name) for name in FILES}
    notes: list[str] = []

    def read(name: str, enough: Callable[[list[Json]], bool]) -> tuple[list[Json], bool]:
        try:
            return tail(folder / name, enough, id_key=id_key(name), damage=damage[name])
        except OSError as error:
            notes.append(f"{name} cannot be read: {error.strerror or error}")
            return [], True

    messages, whole = read("messages.jsonl", lambda found: len(found) > MOST_RECORDS or _answers(found) > count)
    shown = _window(messages, count)
    complete = whole and len(shown) == len(messages)
    since = "" if complete or not shown else str(shown[0].get("timestamp", ""))
    numbers = [number for one in shown if (number := as_int(one.get("tool_seq"))) is not None]
    # if these turns have no tool call, the task's last call is enough: it may have ended the work (`_closing_text`)
    tools, _ = read("tools.jsonl", lambda found: bool(found) and found[0]["seq"] <= min(numbers, default=math.inf))
    items: list[Turn | Between] = list(_turns(shown, {one["seq"]: one for one in tools}))
    for name, made in (("compactions.jsonl", _compaction), ("requests.jsonl", _request), ("effects.jsonl", _effect)):
        found, _ = read(name, lambda found: bool(found) and str(found[0].get("timestamp", "")) < since)
        items += [made(one) for one in found if str(one.get("timestamp", "")) >= since and _counts(name, one)]
    items.sort(key=lambda one: one.at)
    for one in damage.values():
        notes += one.sentences()
    return LastTurns(tuple(items), complete, _closing_text(tools), tuple(notes))


def about_call(tool: object, args: object) -> str:
    """What a tool call is about, such as the command or the path in its arguments; for `update_plan` the number of the
    steps that are done and the first step that is not."""
    if not isinstance(args, dict):
        return excerpt(args)
    items = args.get("items")
    if tool == "update_plan" and isinstance(items, list):
        steps = [one for one in items if isinstance(one, dict)]
        now = next((excerpt(one.get("text")) for one in steps if one.get("status") != "done"), "")
        done = sum(one.get("status") == "done" for one in steps)
        return f"{done} of {len(steps)} done{'; ' if now else ''}{now}"
    return next((excerpt(args[key]) for key in ABOUT if args.get(key)), "") or (excerpt(args) if args else "")


def _is_answer(record: Json) -> bool:
    return record.get("role") == "assistant" and record.get("kind") != "summary"


def _answers(records: Iterable[Json]) -> int:
    return sum(map(_is_answer, records))


def _window(messages: list[Json], count: int) -> list[Json]:
    """The messages of the last `count` turns, from the answer with which these turns begin; if `messages` has at most
    `count` answers, its newest MOST_RECORDS messages."""
    answers = [number for number, one in enumerate(messages) if _is_answer(one)]
    if len(answers) > count:
        return messages[answers[-count] :]
    return messages[-MOST_RECORDS:]


def _turns(messages: Iterable[Json], tools: dict[int, Json]) -> Iterable[Turn | Between]:
    """The turns of the messages, and the messages that are neither answers nor results nor summaries."""
    turn: Turn | None = None
    open_calls: dict[str, int] = {}  # id of a call → its position in `turn.calls`
    for record in messages:
        if _is_answer(record):
            usage = record.get("usage")
            usage = usage if isinstance(usage, dict) else {}
            turn = Turn(
                record["seq"],
                str(record.get("timestamp", "")),
                excerpt(record.get("content")),
                as_int(usage.get("prompt_tokens")),
                as_int(usage.get("completion_tokens")),
            )
            open_calls = {}
            for call in record.get("tool_calls") or ():
                if isinstance(call, dict):
                    open_calls[str(call.get("id"))] = len(turn.calls)
                    turn.calls.append(_pending_call(call))
            yield turn
        elif record.get("role") == "tool" and turn is not None:
            place = open_calls.get(str(record.get("tool_call_id")))
            result = _result(record, tools.get(record.get("tool_seq") or 0))
            if place is None:
                turn.calls.append(result)
            else:
                turn.calls[place] = result
        elif record.get("kind") != "summary" and record.get("role") != "tool":
            yield _message(record)


def _message(record: Json) -> Between:
    """The line about a message to the model; of the system prompt, the briefing and memories, which are long, only the
    size is shown."""
    kind, content = str(record.get("kind") or record.get("role")), record.get("content")
    text = f"{len(str(content or '')):,} characters" if kind in LONG_KINDS else excerpt(content)
    return Between("message", str(record.get("timestamp", "")), record["seq"], f"{kind}: {text}")


def _pending_call(call: Json) -> ToolCall:
    """A tool call in an answer that has no result yet."""
    function = call.get("function")
    function = function if isinstance(function, dict) else {}
    name, text = function.get("name") or "?", function.get("arguments")
    args: Any = text
    if isinstance(text, str):
        try:
            args = orjson.loads(text)
        except orjson.JSONDecodeError:
            args = text
    return ToolCall(str(name), about_call(name, args))


def _result(message: Json, record: Json | None) -> ToolCall:
    """A tool call with its result; `record` is the call's line in tools.jsonl, None if that line is missing."""
    tool = message.get("tool_name") or "?"
    if record is None:
        return ToolCall(str(tool), "", status="success", size=len(str(message.get("content") or "")))
    result = record.get("result")
    return ToolCall(
        str(record.get("tool") or tool),
        about_call(record.get("tool"), record.get("args")),
        record["seq"],
        str(record.get("status") or ""),
        len(result) if isinstance(result, str) else len(orjson.dumps(result, default=str)),
        as_int(record.get("duration_ms")),
    )


def _counts(name: str, record: Json) -> bool:
    """Whether a record is shown between turns: every compaction, requests that failed, and effects with an address or
    id on the forge, but no copies of the task's row."""
    if name == "requests.jsonl":
        return record.get("status") != "ok"
    return name != "effects.jsonl" or (record.get("name") != ROW and bool(_place(record)))


def _compaction(record: Json) -> Between:
    before, after = as_int(record.get("tokens_before")), as_int(record.get("tokens_after"))
    sizes = f", {before or 0:,} → {after or 0:,} tokens" if before is not None or after is not None else ""
    text = f"{record.get('strategy')}: messages {record.get('start_seq')} to {record.get('end_seq')}{sizes}"
    return Between("compaction", str(record.get("timestamp", "")), record["id"], text)


def _request(record: Json) -> Between:
    text = f"{record.get('purpose')} {record.get('status')}: {excerpt(record.get('error'))}"
    return Between("request", str(record.get("timestamp", "")), record["seq"], text, failed=True)


def _effect(record: Json) -> Between:
    text = f"{record.get('name')}: {excerpt(_place(record))}"
    return Between("effect", str(record.get("timestamp", "")), record["seq"], text)


def _place(record: Json) -> str:
    """The address of the object that an effect has created on the forge, or the number of the comment; "" for a receipt
    that concerns only this program, and for a record that is no receipt."""
    receipt = record.get("receipt")
    if record.get("state") != "receipt" or not isinstance(receipt, dict):
        return ""
    number = receipt.get("id")
    return str(receipt.get("url") or (f"comment {number}" if number else ""))


def _closing_text(tools: list[Json]) -> str:
    """The title and summary of `finish`, or the question of `ask_user`, if that is the last tool call and it succeeded;
    else ""."""
    last = tools[-1] if tools else {}
    args = last.get("args")
    if last.get("tool") not in ("finish", "ask_user") or last.get("status") != "success" or not isinstance(args, dict):
        return ""
    parts = [str(args[name]).strip() for name in ("title", "summary", "question") if args.get(name)]
    return ". ".join([*(part.rstrip(".") for part in parts[:-1]), *parts[-1:]])
