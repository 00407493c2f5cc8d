"""`memory`: commands that show long-term memory, correct it, and make it forget."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path  # noqa: TC003 - typer evaluates the annotations at run time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agent.cli import tables
from agent.cli.app import app
from agent.cli.config_and_output import require_folder_of
from agent.cli.daemon import Uuid  # noqa: TC001 - typer evaluates the annotations at run time
from agent.cli.tasks_request_config import display_time
from agent.errors import MemoryUnavailable, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from agent.cli.config_and_output import CliState
    from agent.memory import Forgotten, MemoryRecord, MemoryStore, Selector
    from agent.values import Json

memory = typer.Typer(
    help="Long-term memory: show it, correct it, make it forget.", no_args_is_help=True, rich_markup_mode=None
)
app.add_typer(memory, name="memory")

SHOWN = 120
"""The maximum number of characters of a record's or event's text that a list shows."""

RecordId = Annotated[str, typer.Argument(metavar="ID", help="The id of a record, as `memory list` shows it.")]
Actor = Annotated[
    str | None,
    typer.Option("--actor", metavar="ACTOR", help="The owner of the memory; `memory status` lists the actors."),
]


def _open(state: CliState, *, reads: bool = True, follows: bool = True) -> MemoryStore:
    """The memory store that `_open_and_follow` opens."""
    return _open_and_follow(state, reads=reads, follows=follows)[0]


def _open_and_follow(state: CliState, *, reads: bool, follows: bool = True) -> tuple[MemoryStore, tuple[str, ...]]:
    """Open the memory store; returns (store, files that still contain a forgotten text).

    If several hosts share the memory log, the store first reads the log's new entries, unless `follows` is False.  A
    command that writes also removes bytes of forgotten texts that remain, for example since the process of an earlier
    `forget` was killed.

    Raises UsageError if memory.db does not exist and the shared log gave no entries to create it from.  If the shared
    log cannot be reached, a command that only reads (`reads`) uses memory.db as it is; without memory.db, and for a
    command that writes, MemoryUnavailable is raised.
    """
    from agent.wiring.memory import open_memory

    settings = state.settings_to_inspect if reads else state.settings
    store = open_memory(settings, "command line")
    remains: tuple[str, ...] = ()
    shares = store.shared is not None
    if follows and (shares or not reads) and ((shares and settings.memory.enabled) or store.path.exists()):
        try:
            remains = store.follow(purges=not reads).remains
            for where in remains:
                state.print_note(f"still found: {where}")
        except MemoryUnavailable as error:
            if not (reads and store.path.exists()):
                store.close()
                raise
            state.print_note(f"memory.db of this host is shown as it is: {error}")
    if not store.path.exists():
        hint = "" if settings.memory.enabled else " (memory.enabled is false)"
        raise UsageError(f"{store.path} does not exist: no task has left anything in memory yet{hint}")
    return store, remains


@memory.command()
def status(context: typer.Context) -> int:
    """Show how many events and records long-term memory has, for which actors, and the jobs that extract memories from
    tasks."""
    from agent.wiring.memory import open_memory

    state: CliState = context.obj
    settings = state.settings_to_inspect
    known: dict[str, Any] = {"events": 0, "records": {}, "jobs": {}, "bytes": 0}
    log: dict[str, Any] = {}
    actors: dict[str, int] = {}
    with closing(open_memory(settings, "command line")) as store:
        if exists := store.path.exists():
            known = store.figures()
            log = dict(store.log_status())
            actors = _actors(store)
    found = {
        "enabled": settings.memory.enabled,
        "file": store.path,
        "exists": exists,
        "log": log,
        "actors": actors,
        **known,
    }
    state.print_json(found)
    tables.facts(
        state,
        {
            "memory.enabled": "true" if settings.memory.enabled else "false",
            "file": f"{store.path}" + ("" if exists else " (does not exist yet)"),
            "size": f"{known['bytes']:,} bytes" if exists else "",
            "log": _log_line(log, settings.base_dir) if log else "",
            "events": f"{known['events']:,}",
            "jobs": ", ".join(f"{number} {name}" for name, number in known["jobs"].items()),
        },
    )
    rows = [(name, *(number.get(one, 0) for one in _STATUSES)) for name, number in known["records"].items()]
    if rows:
        state.print_line()
        tables.show(state, ("strategy", *_STATUSES), rows, right=(1, 2, 3, 4))
    if actors:
        state.print_line()
        tables.show(state, ("actor", "records"), sorted(actors.items()), right=(1,))
    return 0


def _log_line(log: Mapping[str, Any], base_dir: Path) -> str:
    """A line about the log of memories: where it is, and how many of its entries this host has not read yet; if it
    cannot be reached, the error."""
    if log["where"] == str(base_dir / "memory.db"):
        return f"{log['last']:,} entries, in the file"
    if log["last"] is None:
        return f"{log['where']}; {log['error']}"
    if log["own"]:
        return f"{log['where']}; the file has entries that it has not, and the next use brings them in"
    return f"{log['where']}, {log['last']:,} entries; this host is {log['last'] - log['applied']:,} behind"


_STATUSES = ("active", "quarantined", "superseded", "invalid")


def _actors(store: MemoryStore) -> dict[str, int]:
    """Actor (the owner of memories, by default a repository) → number of its active and quarantined records."""
    from agent.memory.namespaces import actor_in

    found: dict[str, int] = {}
    for state in ("active", "quarantined"):
        after = None
        while page := store.list_memory_records("/", status=state, limit=1000, after=after):
            after = page[-1].id
            for record in page:
                actor = actor_in(record.namespace)
                found[actor] = found.get(actor, 0) + 1
    return found


@memory.command()
def search(
    context: typer.Context,
    query: Annotated[str, typer.Argument(metavar="Q", help="The text to search for.")],
    namespace: Annotated[
        str, typer.Option("--namespace", metavar="NS", help="Only records below this prefix, like /facts/.")
    ] = "/",
    actor: Actor = None,
    top: Annotated[int, typer.Option("--top", metavar="N", min=1, max=1000, help="Maximum number of each.")] = 10,
) -> int:
    """Search records by relevance; with --actor also the actor's events, and files that similar changes touched."""
    state: CliState = context.obj
    events: list[Any] = []
    files: list[Any] = []
    with closing(_open(state)) as store:
        hits = store.retrieve_memory_records(query, namespace, top_k=top, relevance_score=0.0)
        if actor is not None:
            hits = [hit for hit in hits if f"/{actor}/" in hit.record.namespace]
            events = store.search_events(query, actor, top_k=top)
            files = store.likely_files(query, actor, top_k=top)
            if not (hits or events or files):
                _require_actor(store, actor)
    state.print_json({"records": hits, "events": events, "files": files})
    rows = [(f"{hit.score:.2f}", *_listed(hit.record)) for hit in hits]
    rows += [
        (f"{one.score:.2f}", str(one.event_id), "event", "", display_time(one.timestamp), _short(one.text))
        for one in events
    ]
    rows += [(f"{one.score:.2f}", ", ".join(sha[:8] for sha in one.commits), "file", "", "", one.path) for one in files]
    if rows:
        tables.show(state, ("relevance", *_HEADINGS), rows, right=(0,), cut=(5,))
    else:
        state.print_line("nothing found")
    return 0


_HEADINGS = ("id", "strategy", "status", "time", "text")


def _listed(record: MemoryRecord) -> tuple[str, str, str, str, str]:
    shown = f"{record.status}, pinned" if record.pinned else record.status
    return (record.id, record.strategy, shown, display_time(record.timestamp), _short(record.title or record.text))


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= SHOWN else f"{line[: SHOWN - 1]}…"


@memory.command("list")
def list_records(
    context: typer.Context,
    namespace: Annotated[
        str, typer.Argument(metavar="NS", help="Records below this prefix, like /facts/; / for all.")
    ] = "/",
    status: Annotated[
        str | None,
        typer.Option(
            "--status",
            metavar="STATUS",
            help="Only active, quarantined, superseded, invalid or forgotten ones; all by default.",
        ),
    ] = None,
    strategy: Annotated[
        str | None, typer.Option("--strategy", metavar="STRATEGY", help="Only records of this strategy.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=1, help="Maximum number of records.")] = 100,
    after: Annotated[
        str | None, typer.Option("--after", metavar="ID", help="Only records after this one, for the next page.")
    ] = None,
) -> int:
    """List the records of long-term memory, the oldest first."""
    state: CliState = context.obj
    with closing(_open(state)) as store:
        if after is not None:
            store.get_memory_record(after)  # raises an error for an id that no record has
        found = store.list_memory_records(namespace, strategy=strategy, status=status, limit=limit, after=after)
    state.print_json(found)
    if not found:
        filters = {"strategy": strategy, "status": status, "after": after}
        named = "".join(f", {name} {value}" for name, value in filters.items() if value is not None)
        state.print_line(f"no records below {namespace}{named}")
        return 0
    tables.show(state, _HEADINGS, [_listed(record) for record in found], cut=(4,))
    if len(found) == limit:
        state.print_line(f"perhaps more: --after {found[-1].id}")
    return 0


@memory.command()
def show(context: typer.Context, record_id: RecordId) -> int:
    """Show one record of long-term memory, its sources, and its log entries; or one event, by its number."""
    state: CliState = context.obj
    with closing(_open(state)) as store:
        if record_id.isdecimal():
            return _show_event(state, store, int(record_id))
        record = store.get_memory_record(record_id)
        events = store.get_events(record.event_ids)
        history = store.history_of(record_id)
    state.print_json({"record": record, "events": events, "history": history})
    tables.facts(
        state,
        {
            "id": record.id,
            "namespace": record.namespace,
            "status": f"{record.status}: {record.reason}" if record.reason else record.status,
            "pinned": "yes" if record.pinned else "",
            "trust": f"{record.trust} ({_trust(record.trust)})",
            "time": display_time(record.timestamp),
            "task": record.session_id,
            "used": f"{record.uses} times, helped {record.helped}, hurt {record.hurt}" if record.uses else "",
            "superseded by": record.superseded_by,
            "expires": display_time(record.expires_at),
            "made of records": ", ".join(record.record_ids),
            "files": ", ".join(record.files),
        },
    )
    state.print_line()
    for line in [*([record.title, ""] if record.title else []), *record.text.splitlines()]:
        state.print_line(line)
    if events:
        state.print_line("\nsources:")
        rows = [(str(one.event_id), one.role, one.source, _trust(one.trust), _short(one.text)) for one in events]
        tables.show(state, ("event", "role", "source", "trust", "text"), rows, right=(0,), cut=(4,))
    state.print_line("\nhistory:")
    entries = [(display_time(one.at), one.operation, one.who, one.reason) for one in history]
    tables.show(state, ("time", "operation", "by", "reason"), entries)
    return 0


def _show_event(state: CliState, store: MemoryStore, number: int) -> int:
    found = store.get_events([number])
    if not found:
        raise UsageError(f"there is no event {number}; it was forgotten, or never was")
    [event] = found
    state.print_json({"event": event})
    tables.facts(
        state,
        {
            "event": event.event_id,
            "task": event.session_id,
            "time": display_time(event.timestamp),
            "role": event.role,
            "source": event.source,
            "trust": f"{event.trust} ({_trust(event.trust)})",
        },
    )
    state.print_line()
    for line in event.text.splitlines():
        state.print_line(line)
    return 0


def _trust(trust: int) -> str:
    from agent.memory.base import TRUST

    return TRUST.get(trust, "")


@memory.command()
def why(context: typer.Context, uuid: Uuid) -> int:
    """Show which memories one task got, with scores, and which were left out and why."""
    from agent.commands.memory_traces import pinned_rules, retrievals
    from agent.wiring.wiring import Wiring

    state: CliState = context.obj
    state.require_tasks(uuid)
    wiring = Wiring(state.settings_to_inspect)
    try:
        task = wiring.ledger.resolve(uuid)
    finally:
        wiring.close()
    found = retrievals(state.settings_to_inspect, task)
    pinned = pinned_rules(state.settings_to_inspect, task)
    state.print_json({"uuid": task, "retrievals": found, "pinned": pinned})
    for one in pinned:
        commit = f" of commit {str(one['base_commit'])[:12]}" if one["base_commit"] else ""
        state.print_line(f"pinned rules: {one['file']}{commit}, {one['lines']} lines in the briefing")
    if not found:
        state.print_line(f"task {task} recalled nothing: memory was off, or the task was not briefed yet")
    for one in found:
        state.print_line(f"{display_time(one.get('timestamp'))} {one.get('purpose')}: {_short(str(one.get('query')))}")
        for name, reason in (one.get("missing") or {}).items():
            state.print_line(f"  {name} could not be had: {reason}")
        rows = [_hit_row(hit, "given") for hit in one.get("hits") or ()]
        rows += [_hit_row(hit, str(hit.get("why"))) for hit in one.get("dropped") or ()]
        if rows:
            tables.show(state, ("relevance", "kind", "id", "source", "tokens", ""), rows, right=(0, 4))
        else:
            state.print_line("  nothing found")
        state.print_line()
    return 0


def _hit_row(hit: Json, said: str) -> tuple[object, ...]:
    names = ("kind", "id", "source", "tokens")
    return (f"{float(hit.get('score') or 0):.2f}", *(hit.get(name, "") for name in names), said)


@memory.command()
def promote(
    context: typer.Context,
    record_id: RecordId,
    trust: Annotated[
        int | None, typer.Option("--trust", metavar="N", min=0, max=3, help="Its trust from now on, 0 to 3.")
    ] = None,
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="The reason, for the log.")] = "",
) -> int:
    """Make a memory record that is quarantined, or is no longer valid, active again."""
    state: CliState = context.obj
    with closing(_open(state, reads=False)) as store:
        store.promote(record_id, trust=trust, reason=reason or "promoted by a person")
        _changed(state, store, record_id)
    return 0


@memory.command()
def pin(
    context: typer.Context,
    record_id: RecordId,
    undo: Annotated[bool, typer.Option("--undo", help="Unpin it.")] = False,
) -> int:
    """Pin a memory record: it does not age, no cap makes it invalid, and it is recalled first."""
    state: CliState = context.obj
    with closing(_open(state, reads=False)) as store:
        store.pin(record_id, pinned=not undo)
        _changed(state, store, record_id)
    return 0


def _changed(state: CliState, store: MemoryStore, record_id: str) -> None:
    record = store.get_memory_record(record_id)
    state.print_json(record)
    state.print_line("  ".join(_listed(record)))


@memory.command()
def forget(
    context: typer.Context,
    ids: Annotated[
        list[str] | None,
        typer.Option("--id", metavar="ID", help="A record, or the number of an event. Repeatable."),
    ] = None,
    session: Annotated[
        str | None,
        typer.Option(
            "--session",
            metavar="UUID",
            help="All events and records of this task; the beginning of its uuid is enough.",
        ),
    ] = None,
    actor: Actor = None,
    namespace: Annotated[
        str | None, typer.Option("--namespace", metavar="NS", help="All records below this prefix.")
    ] = None,
    match: Annotated[
        str | None, typer.Option("--match", metavar="TEXT", help="All that contain this text, in upper or lower case.")
    ] = None,
    yes: Annotated[
        bool, typer.Option("--yes", help="Remove them for good; without this option nothing is changed.")
    ] = False,
) -> int:
    """Forget the selected events and records of long-term memory, and the records made only from them; without --yes
    only list what would be forgotten."""
    from agent.commands.memory_traces import folders_with
    from agent.memory import Selector

    state: CliState = context.obj
    store, remained = _open_and_follow(state, reads=not yes)
    with closing(store):
        if session is not None:
            session = _session(state, store, session)
        selector = Selector(tuple(ids or ()), session, actor, namespace, match)
        known, found = _forget(store, selector, yes)
        if not known and not found.commits and actor is not None:
            _require_actor(store, actor)
    sessions = {str(one["session"]) for one in known if one["session"]}
    folders = folders_with(state.settings_to_inspect, sessions, {str(one["id"]) for one in known})
    state.print_json({"forgotten": found, "items": known, "folders": folders})
    if not known and not found.commits:
        state.print_line("nothing in memory fits")
        return 1 if remained else 0
    if known:
        tables.show(state, ("id", "kind", "task", "text"), [tuple(one.values()) for one in known], cut=(3,))
    verb = "forgotten" if yes else "would be forgotten; --yes does it"
    counts = f"{len(found.records)} record(s), {len(found.events)} event(s) and {found.commits} indexed commit(s)"
    state.print_line(f"{counts} {verb}")
    for where in found.remains:
        state.print_line(f"still found: {where}")
    state.print_line("memory does not reach:")
    for place in found.elsewhere:
        state.print_line(f"  {place}")
    for folder in folders:
        state.print_line(f"  among them {folder}")
    return 1 if remained or found.remains else 0


def _session(state: CliState, store: MemoryStore, prefix: str) -> str:
    """The uuid that begins with `prefix`, of a task in memory, or else of one in the ledger. Raises UsageError
    if no uuid begins with `prefix`, or if several do."""
    from agent.wiring.wiring import Wiring

    text = prefix.strip().lower()
    found = sorted(one for one in store.sessions_and_actors()[0] if one.startswith(text)) if text else []
    if text in found or len(found) == 1:
        return text if text in found else found[0]
    if found:
        raise UsageError(f"several tasks begin with {prefix!r}: {', '.join(found)}; write more of it")
    state.require_tasks(prefix)
    with closing(Wiring(state.settings_to_inspect)) as wiring:
        return wiring.ledger.resolve(prefix)


def _require_actor(store: MemoryStore, actor: str) -> None:
    """Raise UsageError if memory has nothing of this actor."""
    if actor not in store.sessions_and_actors()[1]:
        raise UsageError(f"memory has nothing of an actor {actor!r}; `memory status` lists the actors")


def _forget(store: MemoryStore, selector: Selector, yes: bool) -> tuple[list[Json], Forgotten]:
    """Forget the selected events and records if `yes` is set: (short descriptions of them, the result); the
    descriptions are made before the removal."""
    found = store.forget(selector)
    known: list[Json] = []
    for record in map(store.get_memory_record, found.records):
        text = _short(record.title or record.text)
        known.append({"id": record.id, "kind": record.strategy, "session": record.session_id, "text": text})
    for event in store.get_events(found.events):
        text = _short(event.text)
        known.append({"id": str(event.event_id), "kind": "event", "session": event.session_id, "text": text})
    jobs = store.list_memory_extraction_jobs() if found.jobs else []
    known += [
        {"id": one["id"], "kind": "job", "session": one["session_id"], "text": _short(one["error"])}
        for one in jobs
        if one["id"] in found.jobs
    ]
    return known, store.forget(selector, dry_run=False) if yes and (known or found.commits) else found


@memory.command()
def rebuild(context: typer.Context) -> int:
    """Build the tables that are used to search long-term memory again, from the memory log."""
    state: CliState = context.obj
    # `rebuild` itself reads the new entries of a shared log, after it has created the tables
    with closing(_open(state, reads=False, follows=False)) as store:
        entries = store.rebuild()
    state.print_json({"entries": entries})
    state.print_line(f"made again from {entries:,} entries of the log")
    return 0


@memory.command()
def export(
    context: typer.Context,
    file: Annotated[
        Path | None,
        typer.Argument(metavar="FILE", help="The file to write; without it a new file in base_dir/memory/."),
    ] = None,
) -> int:
    """Write every event and record of long-term memory as a line of JSON. `forget` removes forgotten texts only from
    exports in base_dir/memory/."""
    state: CliState = context.obj
    if file is not None and file.exists():
        raise UsageError(f"{file} is there already; name a new file")
    if file is not None:
        require_folder_of(file)
    with closing(_open(state)) as store:
        made = store.export(file)
    state.print_json({"file": made})
    state.print_line(str(made))
    return 0


@memory.command()
def jobs(
    context: typer.Context,
    status: Annotated[
        str | None, typer.Option("--status", metavar="STATUS", help="Only queued, running, done or failed ones.")
    ] = None,
) -> int:
    """List the jobs that extract memories from ended tasks, the oldest first."""
    state: CliState = context.obj
    with closing(_open(state)) as store:
        found = store.list_memory_extraction_jobs(status)
    state.print_json(found)
    names: Sequence[str] = ("id", "status", "attempts", "updated_at", "error")
    if found:
        rows = [
            tuple(display_time(one[name]) if name == "updated_at" else one[name] for name in names) for one in found
        ]
        tables.show(state, ("job", "status", "tries", "time", "error"), rows, right=(2,))
    else:
        state.print_line("no jobs" if status is None else f"no {status} jobs")
    return 0


@memory.command()
def retry(
    context: typer.Context,
    job: Annotated[str, typer.Argument(metavar="JOB", help="A failed job, as `memory jobs` shows it.")],
) -> int:
    """Queue a failed extraction job again."""
    from agent.extraction.job import restart
    from agent.wiring.wiring import Wiring

    state: CliState = context.obj
    with closing(_open(state, reads=False)) as store, closing(Wiring(state.settings)) as wiring:
        restart(wiring, store, job)
    state.print_json({"job": job, "status": "queued"})
    state.print_line(f"{job} is queued again")
    return 0
