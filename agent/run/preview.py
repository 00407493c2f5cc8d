"""The next request of a task, built and not sent: what would go, how large it is, and which number decided that.

For `request`.  The task's facts are copied to a folder of its own, and there the same classes do what a worker would
do at its next turn: derive the view, plan, encode.  So the task's folder is only read, also while the task runs, and
what a store repairs is repaired in the copy.  Nothing is compacted either: that would ask a model.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import orjson

from agent import disk
from agent.context import MessageStore, SummaryStore
from agent.errors import HistoryRefused
from agent.llm import make_client
from agent.llm.client import ChatClient
from agent.llm.images import NAME as PICTURES
from agent.run.folders import folder_of
from agent.run.timeline import is_held
from agent.security.redact import Redactor
from agent.security.sanitise import output
from agent.tools import Toolbox
from agent.values import CLOSED_STATUSES, Plan, Span
from agent.window import make_window
from agent.window.base import DoesNotFit, IllegalContext
from agent.window.layers import FileMessages
from agent.window.outline import Part, outline

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from agent.config import Settings
    from agent.run.wiring import Wiring
    from agent.taskqueue import Row
    from agent.values import Json
    from agent.window.layers import AssemblyOptions
    from agent.window.limits import Limits
    from agent.window.window import Window

FACTS = ("compactions.jsonl", "summaries.jsonl", "messages.jsonl")
"""Copied in this order, each names only what is in a later one."""


@dataclass(frozen=True, slots=True)
class Preview:
    """What would be sent next.

    `path` is the request as it would go over the wire, None when there is none (`notes` says why); `url` where to;
    `dialect` and `learnt` what the server is taken for, and what its refusals have taught.
    `parts` are the plan as a table, `layers` tokens by layer, `tokens` the whole as it is judged against `limits`,
    `by_counter` the same by the counter alone (they differ once a provider has reported).  `reported`: the provider's
    own number is in `tokens`.
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
    parts: tuple[Part, ...] = ()
    limits: Limits | None = None

    def why(self) -> Json:
        """Everything but the request itself, for JSON."""
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
    """The next request of the task whose uuid begins with `prefix`, built in the empty folder `place`; `options`: as it
    would be with those.

    Asks the model's server which window is loaded, nothing else.  UsageError for an unknown uuid, ConfigError.
    """
    settings = wiring.settings
    uuid = wiring.ledger.resolve(prefix)
    row = wiring.ledger.get(uuid)
    assert row is not None, "it was just there"
    folder = folder_of(settings, uuid)
    if folder is None or not (folder / "messages.jsonl").exists():
        return Preview(row, ("there is no conversation yet: the first request is made when a worker has the task",))
    is_live = is_held(folder)
    copy_facts(folder, place)
    if folder_of(settings, uuid) != folder and (moved := folder_of(settings, uuid)) is not None:
        copy_facts(moved, place)  # it ended just now
        folder = moved
    (place / PICTURES).symlink_to((folder / PICTURES).absolute())
    store = MessageStore(place, settings, ratios=wiring.ratios, summaries=SummaryStore(place))
    try:
        return _of(settings, wiring, row, store, place, options, is_live=is_live)
    finally:
        store.close()


def copy_facts(folder: Path, place: Path) -> None:
    """Copy the facts as they are now, to their last whole line or beyond; a missing file stays missing."""
    for name in FACTS:
        try:
            source = os.open(folder / name, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except FileNotFoundError:
            continue
        try:
            target = os.open(place / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            try:
                with disk.writing(place / name):
                    disk.copy_range(source, target, 0, os.fstat(source).st_size)
            finally:
                os.close(target)
        finally:
            os.close(source)


@dataclass(frozen=True, slots=True)
class _Folder:
    """As much of a TaskContextManager as a window needs."""

    store: MessageStore
    learnt: Mapping[str, int]

    def learnt_window(self, model: str) -> int | None:
        return self.learnt.get(model)

    def get_message_store(self) -> MessageStore:
        return self.store

    def get_summary_store(self) -> SummaryStore:
        return self.store.summaries


def _of(
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
        redact=Redactor(settings.secrets()),
        clean=output,
        lookup=lambda _seq: None,
        settings=settings,
    )
    client = make_client(settings, store, place, tools=tools.schemas(), kept=wiring.learnt)
    if isinstance(client, ChatClient):
        client.conversation = row.uuid
    try:
        window = make_window(settings, _Folder(store, _learnt(wiring, row)), client, tools, None, wiring.ratios)
        assembler = window.assembler
        notes = _state(row, store, is_live=is_live)
        plan, problem = _plan(window, options)
        layers = plan.metadata.get("layer_tokens") if plan.metadata else None
        found = Preview(
            row=row,
            notes=(),
            provider=client.provider,
            model=client.model,
            messages=assembler.view.read().messages if problem else len(FileMessages(plan)),
            tokens=plan.tokens or assembler.tokens_in_use(),
            by_counter=assembler.estimate(),
            reported=bool(store.survey.reported),
            exact=assembler.counter.exact,
            counter=assembler.counter.name,
            layers=layers or _layers(window),
            parts=tuple(outline(assembler, store, plan.spans)),
            limits=window.limits,
        )
        if row.model and row.model != client.model:
            notes.append(f"the task ran with {row.model} so far; config.yaml now says {client.model}")
        if problem:
            notes.append(problem)
        elif plan.metadata.get("needs_compaction"):
            notes.append("it is over the limit: a compaction comes first, this is what it would start from")
        elif assembler.past_the_mark():
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
        return replace(
            found, path=path, url=client.url if settings.llm.provider != "replay" else "", notes=tuple(notes)
        )
    finally:
        client.close()


def _learnt(wiring: Wiring, row: Row) -> dict[str, int]:
    """What an error has taught about the window, by model."""
    [found] = wiring.db.run("task_get", uuid=row.uuid)
    return {found["learnt_model"]: found["learnt_window"]} if found.get("learnt_window") else {}


def _state(row: Row, store: MessageStore, *, is_live: bool) -> list[str]:
    """What the state of the task means for its next request."""
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
    """The plan as the loop would make it, without compacting; and why it would not be sent, "" when it would."""
    try:
        return window.assembler.assemble(options).plan, ""
    except (DoesNotFit, IllegalContext) as error:
        path = window.assembler.view.path
        return Plan((Span(path),), output=window.limits.output), f"it is not sent: {error}"


def _layers(window: Window) -> dict[str, int]:
    """Tokens by layer of a view that cannot be planned."""
    seen = window.assembler.view.read()
    working = seen.tokens - seen.head - seen.briefing
    return {"system": seen.head + window.assembler.fixed(), "user_message": seen.briefing, "working": working}


def _encode(client: ChatClient, plan: Plan, place: Path) -> Path:
    """The bytes that `get_response` would send.  HistoryRefused when the list is not legal for the wire."""
    shape = client.lines.check(plan.spans)
    path = place / "request.json"
    with disk.writing(path), path.open("wb") as out:
        client.encode(out, plan.spans, shape, client.output(plan.output))
    return path


def _lines(plan: Plan, place: Path) -> Path:
    """The messages of a plan as a file, one a line."""
    path = place / "request.jsonl"
    with disk.writing(path), path.open("wb") as out:
        out.writelines(orjson.dumps(message) + b"\n" for message in FileMessages(plan))
    return path


def request_of(path: Path) -> Json:
    """The request as an object, to be shown; a view (of a plug-in) as the list of its messages."""
    text = path.read_bytes()
    if path.suffix == ".jsonl":
        return {"messages": [orjson.loads(line) for line in text.splitlines()]}
    found: Json = orjson.loads(text)
    return found
