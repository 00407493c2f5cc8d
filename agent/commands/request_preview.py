"""Builds the next request of a task without sending it: its content, its size, and the limit that decided the size.

The files of facts of the task are copied to a separate folder, and the classes that a worker uses for its next turn
work on the copy: these classes derive the view, plan the request and encode it. The preview thus only reads the task's
folder, even while the task runs, and the stores repair only the copy. A preview makes no compaction, because a summary
would need a request to a model.
"""

from __future__ import annotations

import os
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import orjson

from agent import durable_files
from agent.commands.timeline import is_held, lies_elsewhere, missing
from agent.context import MessageStore, SummaryStore
from agent.context.mcp import McpStore
from agent.errors import HistoryRefused, ToolError
from agent.llm import make_client
from agent.llm.client import ChatClient
from agent.llm.images import NAME as PICTURES
from agent.security.sanitise import output
from agent.tools import Toolbox
from agent.values import CLOSED_STATUSES, Plan, Span
from agent.window import make_window
from agent.window.base import DoesNotFit, IllegalContext
from agent.window.context_layers import FileMessages
from agent.window.request_outline import OutlineRow, outline
from agent.wiring.folders import folder_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from agent.config import Settings
    from agent.taskqueue import Row
    from agent.tools.base import RawResult, Tool
    from agent.values import Json
    from agent.window.context_layers import AssemblyOptions
    from agent.window.context_window import Window
    from agent.window.limits import WindowLimits
    from agent.wiring.wiring import Wiring

FACTS = ("compactions.jsonl", "summaries.jsonl", "messages.jsonl", "mcp.jsonl")
"""Files of a task's facts, in the order of copying: records of a file refer only to records of files that are copied
later."""


@dataclass(frozen=True, slots=True)
class Preview:
    """The next request of a task to the model, as far as it can be built.

    `path` is the file with the request in its wire format (for a plug-in, with one message on each line), None when
    there is none (`notes` has the reason); `url` is the address to which the request would be sent, "" if there is
    none. `dialect` is the kind of model server, `learnt` are the facts that were learnt from its refusals. `parts` is
    the request plan as a table, `layers` the tokens by layer, `tokens` the total that is compared with `limits`.
    `by_counter` is the total of the token counter alone, which differs from `tokens` once a provider has reported a
    count. `reported`: `tokens` contains a number that the provider reported.
    """

    row: Row
    notes: tuple[str, ...]
    provider: str = ""
    model: str = ""
    url: str = ""
    dialect: str = ""
    learnt: Mapping[str, object] | None = None
    path: Path | None = None
    messages: int = 0
    tokens: int = 0
    by_counter: int = 0
    reported: bool = False
    exact: bool = False
    counter: str = ""
    layers: Mapping[str, int] | None = None
    parts: tuple[OutlineRow, ...] = ()
    limits: WindowLimits | None = None

    def to_json(self) -> Json:
        """All fields of the preview except the request itself, for JSON."""
        limits = self.limits
        return {
            "uuid": self.row.uuid,
            "status": self.row.status,
            "notes": self.notes,
            "provider": self.provider,
            "model": self.model,
            "url": self.url,
            "dialect": self.dialect,
            "learnt": self.learnt,
            "bytes": self.path.stat().st_size if self.path is not None else 0,
            "messages": self.messages,
            "tokens": {
                "next_request": self.tokens,
                "by_counter": self.by_counter,
                "counter": self.counter,
                "exact": self.exact,
                "reported": self.reported,
                "layers": self.layers,
            },
            "plan": [part.to_dict() for part in self.parts],
            "limits": None
            if limits is None
            else {
                "window": limits.window,
                "sources": [{"tokens": size, "source": name} for name, size in limits.sources],
                "reserve": limits.reserve,
                "margin": limits.margin,
                "input_limit": limits.input_limit,
                "compress_at": limits.compress_at,
                "output": limits.output,
            },
        }


def preview(wiring: Wiring, prefix: str, place: Path, options: AssemblyOptions | None = None) -> Preview:
    """The next request of the task with a uuid that begins with `prefix`, built in the empty folder `place`, with the
    plan options `options` if given.

    `preview` asks the model's server only for its loaded window, and sends no chat request. Raises UsageError when no
    task, or more than one, has a uuid that begins with `prefix`, and ConfigError when no client can be made for the
    configured model.
    """
    settings = wiring.settings
    uuid = wiring.ledger.resolve(prefix)
    row = wiring.ledger.get(uuid)
    assert row is not None, "it was just there"
    folder = folder_of(settings, uuid)
    elsewhere = lies_elsewhere(settings, row, folder, "request")
    if folder is None or not (folder / "messages.jsonl").exists():
        none = "there is no conversation yet: the first request is made when a worker has the task"
        is_gone = folder is None and (row.started_at is not None or row.status in CLOSED_STATUSES)
        return Preview(row, (elsewhere or (missing(row) if is_gone else none),))
    is_live = is_held(folder)
    copy_facts(folder, place)
    if folder_of(settings, uuid) != folder and (moved := folder_of(settings, uuid)) is not None:
        copy_facts(moved, place)  # the task has ended just now, so its folder was moved
        folder = moved
    (place / PICTURES).symlink_to((folder / PICTURES).absolute())
    store = MessageStore(place, settings, ratios=wiring.ratios, summaries=SummaryStore(place))
    try:
        made = _preview_of_task(settings, wiring, row, store, place, options, is_live=is_live)
        return replace(made, notes=(elsewhere, *made.notes)) if elsewhere else made
    finally:
        store.close()


def copy_facts(folder: Path, place: Path) -> None:
    """Copy the task's files of facts in their present state, at least to the end of their last complete line; a file
    that the task does not have is not created."""
    for name in FACTS:
        try:
            source = durable_files.open_regular(folder / name)
        except FileNotFoundError:
            continue
        try:
            target = os.open(place / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            try:
                with durable_files.writing(place / name):
                    durable_files.copy_range(source, target, 0, os.fstat(source).st_size)
            finally:
                os.close(target)
        finally:
            os.close(source)


@dataclass(frozen=True, slots=True)
class KeptFolder:
    """The part of a TaskContextManager that the classes of `agent/window` need, for a folder that is not locked."""

    store: MessageStore
    learnt: Mapping[str, int]

    def learnt_window(self, model: str) -> int | None:
        return self.learnt.get(model)

    def get_message_store(self) -> MessageStore:
        return self.store

    def get_summary_store(self) -> SummaryStore:
        return self.store.summaries


def _tools_of_servers(place: Path) -> list[Tool]:
    """The tools of MCP servers that are recorded for the task; a preview calls none of them."""
    with closing(McpStore(place)) as store:
        recorded = store.tools()
    if not recorded:
        return []
    from agent.tools.mcp.offered_tools import OfferedTool
    from agent.tools.mcp.tool import McpTool

    return [McpTool(OfferedTool.from_dict(one), _refuse) for one in recorded]


def _refuse(_tool: object, _arguments: Json) -> RawResult:
    raise ToolError("a preview runs no tool")


def _preview_of_task(
    settings: Settings,
    wiring: Wiring,
    row: Row,
    store: MessageStore,
    place: Path,
    options: AssemblyOptions | None,
    *,
    is_live: bool,
) -> Preview:
    tools = Toolbox(
        root=place,
        context_dir=place,
        run=None,
        redact=wiring.redact,
        clean=output,
        lookup=lambda _seq: None,
        settings=settings,
        extra_tools=_tools_of_servers(place),
    )
    client = make_client(settings, store, place, tools=tools.schemas(), kept=wiring.learnt)
    if isinstance(client, ChatClient):
        client.conversation = row.uuid
    try:
        window = make_window(settings, KeptFolder(store, _learnt(wiring, row)), client, tools, None, wiring.ratios)
        assembler = window.assembler
        notes = _state(row, store, is_live=is_live)
        plan, problem = _plan(window, options)
        layers = plan.metadata.get("layer_tokens") if plan.metadata else None
        summary = options is None or options.include_session_summary
        whole = bool(problem) or plan.spans == (Span(assembler.view.path, 0, assembler.view.read().offset),)
        found = Preview(
            row=row,
            notes=(),
            provider=client.provider,
            model=client.model,
            messages=assembler.view.read().messages if problem else len(FileMessages(plan)),
            tokens=plan.tokens or assembler.tokens_in_use(),
            by_counter=plan.counted or assembler.estimate(),
            # the number of tokens that a provider reported is valid only for the whole view
            reported=whole and bool(store.index.reported),
            exact=assembler.counter.exact,
            counter=assembler.counter.name,
            layers=layers or _layers(window),
            parts=tuple(outline(assembler, store, plan.spans, summary=summary)),
            limits=window.limits,
        )
        if row.model and row.model != client.model:
            notes.append(f"the task ran with {row.model} so far; config.yaml now says {client.model}")
        if problem:
            notes.append(problem)
        elif plan.metadata.get("needs_compaction"):
            notes.append("it is over the limit: a compaction comes first, this is what it would start from")
        elif assembler.needs_compaction():
            notes.append("it is past the mark: the view is compacted after the next answer")
        if not isinstance(client, ChatClient):
            notes.append(f"{client.provider} is a plug-in: its wire form is its own affair; the view is shown instead")
            return replace(found, path=_lines(plan, place), notes=tuple(notes))
        found = replace(
            found,
            dialect=client.dialect.title,
            learnt={name: value for name, value in client.facts().items() if name != "said"},
        )
        try:
            path = _encode(client, plan, place)
        except HistoryRefused as error:
            if not problem:
                notes.append(str(error))
            return replace(found, notes=tuple(notes))
        return replace(found, path=path, url="" if client.is_recording else client.url, notes=tuple(notes))
    finally:
        client.close()


def _learnt(wiring: Wiring, row: Row) -> dict[str, int]:
    """The window (tokens) that the task learnt from an error, under the name of its model; empty if it learnt none."""
    [found] = wiring.db.run("task_get", uuid=row.uuid)
    return {found["learnt_model"]: found["learnt_window"]} if found.get("learnt_window") else {}


def _state(row: Row, store: MessageStore, *, is_live: bool) -> list[str]:
    """Sentences about the state of the task and its next request."""
    notes = []
    if row.status in CLOSED_STATUSES:
        notes.append(f"the task has ended ({row.status}): nothing is sent any more; this would have been next")
    elif is_live:
        notes.append("the task is running: a request may be under way, and this one is as of now")
    elif row.status == "paused":
        notes.append("the task is paused: this is sent when it goes on, with what people write until then behind it")
    interrupted = [repair for repair in store.repairs if "had no result" in repair]
    if interrupted and is_live:
        notes.append("tools are at work: their results are not known yet and stand here as unknown")
    elif interrupted:
        notes.append("calls that a dead process left open are answered with 'outcome unknown'")
    return notes


def _plan(window: Window, options: AssemblyOptions | None) -> tuple[Plan, str]:
    """(the plan of the request that the loop would make, without compacting; the reason why it would not be sent, or
    "")."""
    try:
        return window.assembler.assemble(options).plan, ""
    except (DoesNotFit, IllegalContext) as error:
        path = window.assembler.view.path
        return Plan((Span(path),), output=window.limits.output), f"it is not sent: {error}"


def _layers(window: Window) -> dict[str, int]:
    """The tokens of each layer of a view for which no request plan can be made."""
    seen = window.assembler.view.read()
    working = seen.tokens - seen.head - seen.briefing
    return {"system": seen.head + window.assembler.fixed_tokens(), "user_message": seen.briefing, "working": working}


def _encode(client: ChatClient, plan: Plan, place: Path) -> Path:
    """Write the bytes that `get_response` would send to the model to a file, and return its path.

    Raises HistoryRefused when the message list is not legal for the server's format.
    """
    shape = client.lines.check(plan.spans, plan.reading)
    path = place / "request.json"
    with durable_files.writing(path), path.open("wb") as out:
        client.encode(out, plan.spans, shape, client.output_limit(plan.output))
    return path


def _lines(plan: Plan, place: Path) -> Path:
    """Write the messages of a request plan to a file, one on each line, and return the path of the file."""
    path = place / "request.jsonl"
    with durable_files.writing(path), path.open("wb") as out:
        out.writelines(orjson.dumps(message) + b"\n" for message in FileMessages(plan))
    return path


def request_of(path: Path) -> Json:
    """The request in a file as an object, for display; if the file is the view (of a plug-in), the list of its
    messages."""
    text = path.read_bytes()
    if path.suffix == ".jsonl":
        return {"messages": [orjson.loads(line) for line in text.splitlines()]}
    found: Json = orjson.loads(text)
    return found
