"""The events that the program's packages announce; the log, the metrics, the status line of `run`, the traces and the
progress comment listen to them.

The names of events are fixed: announcing a name that is not in `EVENTS` is a bug and raises an error. A listener of
events is a callable `(name, fields)`. Listeners run in the thread that announces the event, in the order of
registration; their errors do not reach the code that announces the event. A listener of events therefore only observes:
an action that must happen, or must stop the work when it fails, is called directly.
"""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any, Protocol

from agent.error_text import named
from agent.observe import log

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from agent.values import Listener

EVENTS: dict[str, str] = {
    # the daemon
    "daemon_started": "The daemon runs (pid, role, base_dir, version).",
    "daemon_stopping": "The daemon got a signal to end; running tasks go back to the queue (signal, seconds to wait).",
    "daemon_stopped": "The daemon has ended (seconds).",
    "poll_finished": "A place where tasks come from answered a poll (source, instance, found).",
    "poll_failed": "A poll of a place where tasks come from failed; it is tried again (source, instance, error).",
    "poked": "A signal or a webhook asked for a poll at once (by, project, sources: those that are polled).",
    "order_given": "A person stopped, paused, resumed or retried a task outside of its issue (uuid, order, by).",
    "poke_refused": "The endpoint of webhooks refused a request; reported once a minute for each reason (why).",
    "repository_file": "The task uses `.makimono.yaml` of its repository (commit, keys).",
    "poll_recovered": "A running task reaches its forge again (source, instance, seconds).",
    "issue_skipped": "One issue cannot be a task; the others go on (source, instance, why).",
    "issue_unwritable": (
        "The forge refuses changes of this account in a repository; told once, and tried again later (source, "
        "instance, task, why)."
    ),
    "label_unknown": (
        "A label of the configuration is on no project, or in another spelling; told after the first poll (source, "
        "instance, why)."
    ),
    "ci_red": "Red CI of a pull request starts a task that continues its last one (uuid, url, commit, jobs).",
    "ci_unread": "Checks of pull requests cannot be read, and the token has to be mended (source, instance, why).",
    "issue_taken_up": (
        "An issue shows that somebody has it, and the ledger knew no task of it: it is queued again (uuid, task, "
        "known: whether its uuid stood on the issue)."
    ),
    "item_skipped": "One row, folder or message cannot be handled; the others are (loop, item, why).",
    "worker_awaited": "`run --once` waits for a worker that an earlier daemon started (uuid).",
    "worker_died": "A worker ended without closing its task, or could not be started (uuid, signal, error).",
    "worker_unclaimed": (
        "A worker ended before it owned its task, which still waits; the next try is later each time (uuid, exit_code, "
        "why, seconds)."
    ),
    "worker_hung": "A worker's step has outlived its own time-out; it is traced and ended (uuid, pid, heartbeat).",
    "task_too_large": "A task's processes hold more than `limits.memory`; they are ended (uuid, pid, bytes, limit).",
    "drain_overdue": "Tasks did not end in time after a signal to stop; they are ended (uuids).",
    "broker_connected": "The broker answers; it wakes the workers from now on (broker).",
    "notices_lost": "The ledger sends no notices of changes for now; it is polled more often (error).",
    "broker_away": "The broker does not answer; the ledger is polled until it does (broker, error, seconds).",
    # events of repairs at the start of a daemon
    "folder_moved": "A closed task's folder still lay in running/; it is in completed/ now (uuid, status).",
    "row_restored": "The ledger had no row at all; this one was made again from its folder (uuid, status, error).",
    "row_settled": "An open row's folder, or its issue, shows its end; the row does so now (uuid, was, status).",
    "folder_recreated": "A task's folder was gone; it was made anew and the task starts from its issue (uuid, status).",
    "source_moved": "A tracker's folder was moved; its tasks follow (source, was, instance, tasks).",
    "source_missing": "Open tasks name a source that is not configured; they wait (source, instance, tasks).",
    "folder_quarantined": "Something in running/ belongs to no task; it was put aside (name, place, why).",
    "ground_replaced": "base_dir or tasks.db was removed or replaced; it is mended as by a start (path).",
    "ground_unfit": "Nothing is started: base_dir is unusable or another daemon's, or the schema is newer (why).",
    "ground_fit": "The reason for which the daemon started no tasks is over.",
    "disk_low": "The disk cannot be written, or has less than `scheduling.min_free`: no task is started (why).",
    "disk_slow": "A write or a sync took a second or longer; the work waits for it (file, what, seconds).",
    "template.reloaded": "Templates of people are in use from now on (source, previous, new, templates: how many).",
    "template.reload_failed": (
        "Changed templates of people cannot be used; the last good ones stay (source, error, kept: what stays)."
    ),
    "template.render_failed": (
        "A template of people cannot be filled; the program's own takes its place (template, error)."
    ),
    "code_changed": "The program's files were replaced under this daemon, which starts nothing more (why, todo).",
    "starts_held": (
        "Different tasks failed alike: no more are started in this place until a try succeeds (place, code, tasks, "
        "until)."
    ),
    "starts_go_on": "A try has succeeded; tasks of this place are started again (place).",
    "disk_free": "The disk can be written and has room again (free).",
    # events of a task, from the queue to its end
    "task_queued": "A task was put in the queue (uuid, task).",
    "task_published": "A pointer to the queued task was given to the broker (uuid).",
    "task_requeued": "A task that lost its owner, or was drained, is back in the queue (uuid, attempt, why).",
    "task_unopened": (
        "A worker owned its task and could not open it; the next try is later each time, and after some the task fails "
        "(uuid, task, tries, why, seconds until the next try; null when it has failed)."
    ),
    "task_left": "A queued task is left for a while to the host that has its files (uuid, host).",
    "replica_away": "The place of the replica does not answer; the task goes on (uuid, error, seconds until a try).",
    "replica_caught_up": "The place of the replica answers again and has all that was missing (uuid, last_seq).",
    "replica_fetched": (
        "Another host's files of the task were fetched from the replica (uuid; host, attempt, last_seq: of what was "
        "fetched; bytes; aside: where the older files of this host lie now)."
    ),
    "replica_lacks": "Uncommitted work is missing in the replica; all else is there (uuid, why).",
    "replica_unused": "The replica could not be used, and the task goes on without it (uuid, why).",
    "tree_revived": "The work tree was made again from mirror, branch and patch (head; lacks: what could not be had).",
    "task_anew": "The files of a task that was begun are not here: it starts from the issue (uuid, turns made).",
    "budget_spent": "A repository's daily limit holds a task back until tomorrow (task, limit).",
    "task_claimed": "A worker owns the task (uuid, pid).",
    "task_started": "The task's folder is open and work begins (uuid, task, provider, model, resumed).",
    "task_paused": "The task waits for a person (uuid, why).",
    "step_overdue": "A step has outlived its own time-out; its lease is not renewed any more (uuid, step, seconds).",
    "task_resumed": "A task that waited goes on (uuid; why, when it does so by itself).",
    "order_obeyed": "A person wrote /stop, /pause, /resume or /retry (uuid, order, author, comment).",
    "task_failed": "The task ended by an error, which is raised again (code; error: its message; the traceback).",
    "task_ended": "The run is over, however it ended (uuid, status, end, code).",
    # events before and after the turns
    "setup_started": "The setup command runs on the base commit (command).",
    "setup_finished": "The setup command has ended, or its cached result was copied (ok, cached).",
    "network_used": "A command reached a host (host, port, connections; sent, received: bytes).",
    "network_refused": "A command asked for a host that it may not reach (host, port, connections, why).",
    "verify_started": "The verify command runs (command).",
    "verify_finished": "The verify command has ended (command, exit_code, ok).",
    "base_checked": "A red check was compared with the base commit's (command, commit, exit_code, ok, same).",
    "sent_back": "Finished work went back to the model with what keeps it from being ready (round, rounds, why).",
    # the turn
    "turn_started": "A turn begins.",
    "context_assembled": (
        "A request was planned (tokens, limit, latency_ms, layers: tokens by layer, counts: messages or memories by "
        "layer, cut: what compactions keep back, dropped: layers that could not be had)."
    ),
    "layer_failed": "A layer of memory could not be had and is left out (layer, error).",
    "request_sent": "The request is on its way (provider, model, purpose, tokens, bytes).",
    "answer_received": (
        "The answer came (provider, model, purpose, prompt_tokens, completion_tokens, cached_tokens, reasoning_tokens "
        "where they are reported, estimated: how many tokens no server has reported, cost, finish_reason, seconds)."
    ),
    "request_failed": (
        "A request that was sent came to no answer (provider, model, purpose, status, error, and what it counts: "
        "prompt_tokens, completion_tokens, cached_tokens, reasoning_tokens where they are reported, estimated, cost)."
    ),
    "pictures_refused": "The server refused a request for its pictures; none are sent now (provider, model, error).",
    "model_differs": "The answer names another model than the request (provider, model, answered).",
    "model_adapted": (
        "A refusal taught what the server takes; the request is sent again (provider, model, learnt, why)."
    ),
    "window_unknown": "Nobody says how large the window is; the default counts (provider, model, window, advice).",
    "model_lacks": "The server says that the model cannot do this (provider, model, what, advice).",
    "text_mode": "The model calls tools in its text, since it has no tool calls (provider, model, why).",
    "calls_dropped": "An answer had too many tool calls; the model gets a hint (provider, model, calls, kept).",
    "call_recovered": "The server left tool calls in the text; they are run (provider, model, tools).",
    "model_wait": "The model's server must be waited for (provider, model, retry, seconds, code, why).",
    "model_failed": "The model's server could not be used (code, error).",
    "token_drift": "Estimated and reported tokens differ by more than 10 % (model, estimated, reported, ratio).",
    "length_suspected": "A refusal that nothing explains may be for the length: room is made (model, tokens, why).",
    "window_learnt": "An error or the server has shown the true window of the model (model, window, source).",
    "tool_started": "A tool call begins (tool).",
    "tool_finished": "A tool call has ended (tool, seq, status, duration_ms).",
    "compaction": "The view was compacted (strategy, start_seq, end_seq, tokens_before, tokens_after).",
    "compaction_failed": "One means of compaction did not free enough; the next one is tried (strategy, why).",
    "compaction_exhausted": "No means of compaction freed enough for a request that must be shorter (tokens, limit).",
    "nudge": "The model got a hint that it repeats itself, or that it must go on (why).",
    "store_repaired": "A file of a task was mended: a torn or broken line, or what another program did to it (file).",
    # outside effects
    "effect_done": "An outside effect happened, or was found to have happened (effect, url).",
    "effect_failed": "An outside effect could not be made (effect, error).",
    "publication_masked": "A text was masked or made inert before it was published (what, rules: id and count).",
    "push_refused": (
        "The work was not published: it holds a secret, touches a guarded path, or git or the forge refused it "
        "(findings)."
    ),
    # reviewers
    "reviewers_alike": "All reviewers of a deliberation have one model, which is close to one vote (model).",
    "reviewer_failed": "A reviewer gave no vote and is excluded (persona, phase, code, error).",
    "deliberation_ended": (
        "Reviewers came to a decision, or failed safe (decision, why; no_votes, waits: requests sent again; "
        "tokens_before, tokens_after: of shortened texts)."
    ),
    # events about MCP servers
    "mcp_listed": "The tools of a server were listed for a task (server, tools, left_out with reasons).",
    "mcp_pinned": "The first list of a server was pinned in mcp.lock (server, tools).",
    "mcp_changed": (
        "A server has changed or added tools since they were pinned; they are refused until `mcp accept` (server, "
        "tools)."
    ),
    "mcp_accepted": "Changed tools of a server were pinned anew, since `trust_changes` is set (server, tools).",
    "mcp_failed": (
        "A server could not be started, did not answer, or answered something else than a result (server, tool of the "
        "call, error)."
    ),
    # long-term memory
    "memory_extracted": (
        "A task that has ended, or the end of its pull request, is in long-term memory (uuid, job; events, records, "
        "commits, amended: how many; ended: facts that the repository's files contradict; dropped: proposals of the "
        "model that were not used; seconds)."
    ),
    "memory_extraction_failed": (
        "A try to take a task into long-term memory failed; after the last one the job is listed as failed (uuid, job, "
        "attempt, last, error)."
    ),
    "history_indexed": (
        "The history of a repository is indexed for its tasks (actor; commits; ended: facts that its files contradict; "
        "seconds)."
    ),
    "memory_followed": (
        "The memory.db of this host has what other hosts have appended to the shared log (entries, seconds; imported: "
        "entries that only this host had)."
    ),
    "memory_remains": "A forgotten text may still be in a file or in the table of the shared log (where).",
    "memory_unavailable": "Long-term memory cannot be used; tasks go on, and the job waits (uuid, error).",
    "memory_worker_died": "The process of an extraction job was killed; the job is done again (uuid, signal).",
    "pull_ended": "The pull request of an ended task was merged or closed (uuid, state, url).",
    # watching itself
    "traces_lost": "The endpoint of `observe.otlp` did not take spans; told once, the task goes on (endpoint, error).",
    "listener_failed": "A listener raised; the work went on without it (listener, event_name, error).",
}
"""Name of an event → one line of meaning, with the fields in brackets. docs/events.md is made from EVENTS; tests/docs
checks that the program announces each event in it."""

LEVELS: dict[str, str] = {
    "tool_started": "debug",
    "poll_finished": "debug",
    "poked": "debug",
    "poke_refused": "warning",
    "task_published": "debug",
    "broker_away": "warning",
    "notices_lost": "warning",
    "step_overdue": "warning",
    "model_differs": "warning",
    "model_adapted": "warning",
    "window_unknown": "warning",
    "model_lacks": "warning",
    "text_mode": "warning",
    "call_recovered": "warning",
    "calls_dropped": "warning",
    "model_wait": "warning",
    "issue_skipped": "warning",
    "label_unknown": "warning",
    "issue_unwritable": "warning",
    "ci_unread": "warning",
    "issue_taken_up": "warning",
    "item_skipped": "warning",
    "disk_low": "warning",
    "replica_away": "warning",
    "replica_lacks": "warning",
    "replica_unused": "warning",
    "task_anew": "warning",
    "disk_slow": "warning",
    "traces_lost": "warning",
    "row_restored": "warning",
    "network_refused": "warning",
    "code_changed": "error",
    "starts_held": "warning",
    "row_settled": "warning",
    "folder_recreated": "warning",
    "source_missing": "warning",
    "folder_quarantined": "warning",
    "token_drift": "warning",
    "length_suspected": "warning",
    "layer_failed": "warning",
    "compaction_exhausted": "warning",
    "store_repaired": "warning",
    "push_refused": "warning",
    "effect_failed": "warning",
    "poll_failed": "warning",
    "worker_died": "error",
    "reviewers_alike": "warning",
    "reviewer_failed": "warning",
    "memory_extraction_failed": "warning",
    "mcp_changed": "warning",
    "mcp_failed": "warning",
    "memory_remains": "warning",
    "memory_unavailable": "warning",
    "memory_worker_died": "warning",
    "worker_unclaimed": "warning",
    "task_unopened": "warning",
    "ground_replaced": "error",
    "ground_unfit": "error",
    "worker_hung": "error",
    "template.reload_failed": "warning",
    "template.render_failed": "warning",
    "task_too_large": "error",
    "drain_overdue": "warning",
    "task_failed": "error",
    "model_failed": "error",
    "listener_failed": "error",
}
"""Log levels of events; events without an entry have the level `info`."""

LINES: dict[str, str] = {
    "comment_skipped": "A line of a local comment file cannot be read and is left out (why).",
    "draft_unsupported": "The repository has no draft pull requests; an ordinary one is opened.",
    "review_not_asked": "The person who asked could not be made a reviewer.",
    "item_left_out": "One row, folder, comment or answer cannot be handled; the others are (loop, item, why).",
    "bug": (
        "An item of a loop, a tool or a plug-in met an error that nobody foresaw; the work goes on without it (item, "
        "error; the traceback)."
    ),
    "edit_left_out": "An issue's own text was edited, perhaps by somebody without the right to ask (issue, author).",
    "log_refused": "The log file cannot be opened; its lines go to stderr (why).",
    "metrics": "Metrics are answered on this port (port).",
    "task_put_back": "A task is tried again after an error that nobody foresaw (code, error; the traceback).",
}
"""Name of a line that a module writes to the log directly → its meaning; such a line is no event, so no listener gets
it."""

MESSAGES: dict[str, str] = {
    "daemon_stopping": (
        "waiting up to {seconds} s for answers of models and publishing that are under way; a second signal ends the "
        "workers at once; run again to go on"
    ),
    "task_started": "Task started: {uuid}",  # this sentence is prescribed by docs/design/context.md, 5.1
    "task_failed": "Task processing failed",  # this sentence is prescribed by docs/design/context.md, 11.1
}
"""Name of an event → a sentence, which the log has beside the name as `message`; only some events have a sentence."""


class EventSink(Protocol):
    """The part of `Events` that announces events; objects that only pass events on implement it too."""

    def emit(self, name: str, /, **fields: Any) -> None:
        """Announce the event `name`."""
        ...


class Events:
    """Calls the listeners of events.

    `on` adds a listener, `emit` calls each listener; several threads may call both methods.
    """

    def __init__(self, listeners: Iterable[Listener] = ()) -> None:
        self._listeners: tuple[Listener, ...] = tuple(listeners)
        self._failure_listeners: tuple[Listener, ...] = ()
        self._traced: set[tuple[str, str]] = set()  # (listener, type of its error) with a logged traceback

    def on(self, listener: Listener) -> Listener:
        """Add a listener of events; returns it, so that this method can be a decorator."""
        self._listeners = (*self._listeners, listener)
        return listener

    def on_failure(self, listener: Listener) -> None:
        """Add a listener that gets the event `listener_failed` for each error of a listener of these events.  The error
        is in the log already, so `listener_failed` goes to no other listener."""
        self._failure_listeners = (*self._failure_listeners, listener)

    def off(self, listener: Listener) -> None:
        """Remove a listener of events; nothing happens when it is not registered."""
        self._listeners = tuple(one for one in self._listeners if one is not listener)

    def emit(self, name: str, /, **fields: Any) -> None:
        """Announce the event `name`.

        Raises ValueError when the name is not in `EVENTS`; an error of a listener is logged, and the other listeners
        run.
        """
        if name not in EVENTS:
            raise ValueError(f"{name!r} is not an event; the names are in agent/observe/events.py")
        for listener in self._listeners:
            if (error := _error_of(listener, name, fields)) is not None:
                failure = self._log_error(listener, name, error)
                for other in self._failure_listeners:
                    if (error := _error_of(other, "listener_failed", failure)) is not None:
                        self._log_error(other, "listener_failed", error)

    def _log_error(self, listener: Listener, name: str, error: Exception) -> dict[str, Any]:
        """Log an error of a listener; returns the logged fields. Only the first error of each type of a listener gets a
        traceback, since a listener may fail at each event."""
        known = getattr(listener, "__qualname__", type(listener).__qualname__)
        kind = (known, type(error).__name__)
        trace = None if kind in self._traced else error
        self._traced.add(kind)
        fields = {"listener": known, "event_name": name, "error": named(error)}
        log.get("events").error("listener_failed", **fields, exc_info=trace)
        return fields


def _error_of(listener: Listener, name: str, fields: Mapping[str, Any]) -> Exception | None:
    """Call a listener; returns its error, None without one."""
    try:
        listener(name, fields)
    except Exception as error:  # noqa: BLE001 - an error of a listener must never reach the code that announces the event
        return error
    return None


def to_log(name: str, fields: Mapping[str, Any]) -> None:
    """The listener that writes every event to the log, at its level."""
    # Fields of an event with a name in `own` get another name, since the logger has parameters with these names.
    own = ("self", "event", "level", "exc_info", "stack_info")
    said = {f"{key}_" if key in own else key: value for key, value in fields.items()}
    if name in MESSAGES:
        said["message"] = MESSAGES[name].format_map({"uuid": "", "seconds": "some", **said})
    log.write(LEVELS.get(name, "info"), "events", name, said)


PAGE_WIDTH = 120
"""The maximum line length of docs/events.md."""


def markdown() -> str:
    """The text of docs/events.md, made from EVENTS and LINES."""
    rows = "".join(_item(f"`{name}` ({LEVELS.get(name, 'info')})", meaning) for name, meaning in EVENTS.items())
    lines = "".join(_item(f"`{name}`", meaning) for name, meaning in LINES.items())
    return f"{_HEAD}{rows}{_LINES}{lines}"


def _item(name: str, meaning: str) -> str:
    text = f"- {name}: {meaning}"
    return (
        textwrap.fill(text, PAGE_WIDTH, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False) + "\n"
    )


_HEAD = """\
# Events

The program announces these events while it works. Each is a line of the log under exactly this name (`worker.log` in a
task's folder has one JSON object a line); metrics, the progress comment and the dashboard are made from them. An entry
has the name, the level, the meaning and, in brackets, the fields; `uuid`, `timestamp` and `level` are in every line of
a task's log. This page is made from the program (`scripts/write_docs.py`).

"""

_LINES = """
Some lines of the log are no events; only the log has them:

"""
