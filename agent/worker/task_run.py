"""The objects that all steps of one run of a task use: row, files, forge, comments, limits, control, progress.

The steps of `worker/handler.py` take a `TaskRun` as their first argument. The TaskRun is made before the first step,
and making it reads and writes nothing. Objects that one step makes and only some later steps need are in the result of
that step (`preparation.Prepared`, `conversation.Conversation`).
"""

from __future__ import annotations

from contextlib import ExitStack
from functools import cached_property
from typing import TYPE_CHECKING, Any

from agent import clock, deadline, process_tree
from agent.config.commits import EMAIL, NAME
from agent.context import TaskContextManager
from agent.forge.base import ForgeReports
from agent.forge.what_starts import how_to_ask, start_of
from agent.issue.acknowledge import Acknowledgements
from agent.issue.closed_by_merge import MERGED, is_closed_by_merge
from agent.issue.comments import truncate
from agent.issue.ineffective_commands import post_reply
from agent.issue.publish_filter import PublishFilter
from agent.issue.stop_reason import reason_on_forge
from agent.values import Status
from agent.worker.commit_author import author_at
from agent.worker.control import TaskControl
from agent.worker.disk_overuse import DiskOveruse, Leftovers
from agent.worker.folder_quota import FolderQuota
from agent.worker.inbox import CommentInbox
from agent.worker.issue_pictures import NONE_TAKEN, add_note
from agent.worker.limits import TaskLimits
from agent.worker.memory_limits import TaskMemory, first_outcome
from agent.worker.notices import notices_of
from agent.worker.progress import Progress
from agent.worker.replicator import TaskReplica

if TYPE_CHECKING:
    from agent.forge import Task
    from agent.forge.base import Comment, Forge, LabelState
    from agent.llm.base import ModelClient
    from agent.taskqueue import Row
    from agent.tools import Toolbox
    from agent.values import Outcome, Public
    from agent.wiring.wiring import Wiring
    from agent.work.workspace import Workspace

BRIEFED = 2
"""The number of messages of a task that has its briefing: the system prompt and the briefing."""


class TaskRun:
    """One run of one task in one process.

    `publishing` False: nothing is published outside of this machine (in `replay`).  `asked_here`: a person at this
    machine started the run for the issue in its present state (`solve`).

    `workspace`, `tools` and `model` are None until the step that makes them is done.  `reports` are notices for people
    that do not prevent the delivery; `isolation` describes the sandbox of commands.  `resting`: this attempt has paused
    the row, but may not have shown the pause on the issue yet.  `ended` is the status with which this attempt closed
    the row, None if it has not.  `is_final_shown`: whether the issue had the last comment of this task when the run
    began, None if that was not read.
    """

    def __init__(
        self, wiring: Wiring, context: TaskContextManager, *, publishing: bool = True, asked_here: bool = False
    ) -> None:
        self.wiring = wiring
        self.context = context
        self.publishing = publishing
        self.asked_here = asked_here
        self.settings = settings = wiring.settings
        self.key = context.task_key
        self.uuid = context.uuid
        self.events = wiring.events
        self.effects = context.get_effect_store()
        self.publish_filter = PublishFilter.for_task(settings, self.events, self.key.instance)
        self.redact = self.publish_filter.redact
        self.workspace: Workspace | None = None
        self.tools: Toolbox | None = None
        self.model: ModelClient | None = None
        self.reports: list[str] = []
        self.isolation: dict[str, str] = {}
        self.resting = False
        self.ended: Status | None = None
        self.is_final_shown: bool | None = None
        self.progress = Progress(self)
        self.replica = TaskReplica(settings, context, self.events, publishing=publishing)
        self.memory = TaskMemory(settings, self.uuid, context.attempt)
        self.disk_overuse = DiskOveruse(settings, context.context_dir, self._leftovers)
        quota = FolderQuota(context.context_dir, settings.limits.folder_size, settings.limits.folder_files)
        room = first_outcome(quota, self.memory, self.disk_overuse)
        self.limits = TaskLimits(settings.limits, context.totals, room, self.memory.ran_over, settings.llm.currency)
        self.control = TaskControl(
            self._requested,
            self._read_forge_request,
            first_outcome(room, self._over_time),
            settings.scheduling.interval,
            patience=settings.scheduling.drain_seconds,
            why=self._stop_reason,
        )
        self.held = ExitStack()  # connections and threads that the run closes at its end
        self.held.callback(quota.close)
        context.get_request_store().events = self.events

    @cached_property
    def forge(self) -> Forge:
        """The forge of the task.  Raises ConfigError if the source of the task is not configured any more."""
        return self.wiring.forge_of(self.key)

    @cached_property
    def author(self) -> tuple[str, str]:
        """(name, mail address) of the author of commits: the configured one, else the account at the host, else that of
        this program."""
        configured = self.settings.commit.identity()
        return configured or author_at(self.forge) or (NAME, EMAIL)

    @cached_property
    def acknowledgements(self) -> Acknowledgements:
        """The object that adds the program's reactions (emoji) to comments of people."""
        return Acknowledgements(self.forge, self.events)

    @cached_property
    def inbox(self) -> CommentInbox:
        """The inbox with the comments of people on the task."""
        often = self.settings.scheduling.interval
        return CommentInbox(self.forge, self.key, self.uuid, self.wiring.ledger, self, self.events, often)

    def save_comment_cursor(self, cursor: str) -> None:
        """Write the comment cursor into the row."""
        self.context.set_columns(comment_cursor=cursor)

    def pull_urls(self) -> list[str]:
        """The addresses of the pull requests that this task has opened or continues in, the newest last."""
        found = [self.effects.receipt(name) for name in self.effects.intended() if name.startswith("pull")]
        urls = [str(receipt["url"]) for receipt in found if receipt and receipt.get("url")]
        return list(dict.fromkeys([*urls, *filter(None, [self.context.column("url")])]))

    def check_held(self) -> None:
        """Raise Fenced if another attempt owns the task, and the error with which the current step was interrupted, if
        any; called before each outside effect. After this attempt has paused the row (`resting`), Fenced is raised if
        the row is not paused any more."""
        if self.resting:
            self.context.check_held(Status.PAUSED)
            return
        deadline.check()
        self.context.check_held()

    def heartbeat(self) -> None:
        """Write the heartbeat and the counters into the row; also reap orphaned processes of commands, and store a
        notice if the model turned out not to take pictures.

        Raises Fenced if a newer attempt owns the row.
        """
        process_tree.reap_orphans()
        if self.model is not None and self.model.takes_no_pictures:
            add_note(self.context.context_dir, NONE_TAKEN)
        self.context.heartbeat()

    def is_briefed(self) -> bool:
        """Whether the first messages (system prompt and briefing) are written."""
        return self.context.get_message_store().last_seq >= BRIEFED

    def has_worked(self) -> bool:
        """Whether the model has called any tool, in this attempt or an earlier one."""
        return self.context.get_tool_store().count_tool_calls() > 0

    def written_paths(self) -> list[str]:
        """Paths that `write_file` and `edit_file` wrote in any attempt at the task; none before the tools exist."""
        return self.tools.written_paths() if self.tools is not None else []

    def emit(self, name: str, **fields: object) -> None:
        """Emit an event with the task's uuid."""
        self.events.emit(name, uuid=self.uuid, **fields)

    # --- what people see --------------------------------------------------------------------------------------

    def move_label(self, state: LabelState) -> None:
        """Move the issue's label, except in a replay."""
        if self.publishing:
            self.check_held()
            self.forge.move_label(self.key, state)

    def facts(self) -> dict[str, Any]:
        """The values that the texts about the run show; they can be read at any stage."""
        totals = self.context.totals()
        provider = self.settings.provider()
        reports = ForgeReports(self.forge)
        url, branch = self.context.column("url") or "", self.context.column("branch") or ""
        return {
            "turns": totals.turns,
            "requests": totals.llm_calls,
            "prompt_tokens": totals.prompt,
            "completion_tokens": totals.completion,
            "cost": totals.cost if provider.price is not None else None,
            "currency": self.settings.llm.currency,
            "estimated": totals.estimated,
            "provider": provider.name,
            "model": provider.model,
            "reports": list(dict.fromkeys([*self.reports, *notices_of(self.context)])),
            "mention": f"@{self.forge.own_names()[-1]}",
            "ask": how_to_ask(start_of(self.forge)),
            "kept": self.settings.context_storage.enabled,
            "pull": url,
            "pull_name": reports.pull_name(),
            "branch_page": reports.branch_page(url, branch) if url and branch else "",
            "minutes": self._minutes(),
            **self.isolation,
        }

    def _minutes(self) -> int:
        """Whole minutes since the task was first started."""
        since = self.context.column("started_at")
        return int((clock.now() - clock.parse(since)).total_seconds() // 60) if since else 0

    def fit_comment(self, text: Public) -> Public:
        """The text, cut to the maximum length of a comment on the forge."""
        return truncate(text, self.forge, self.uuid)

    def reply_without_effect(self, row: Row, comment: Comment) -> None:
        """Reply to a person that the command in a comment has no effect on a running task."""
        if self.publishing:
            self.check_held()
            post_reply(self.wiring.ledger, self.forge, self.events, self.publish_filter, row, comment, "running")

    def show_seen(self, comment: Comment) -> None:
        """Show at a comment that the program has read it; at the comment that asked for the task, the daemon has
        already shown that. Raises Fenced."""
        if self.publishing and comment.id != self.context.column("started_by"):
            self.check_held()
            self.acknowledgements.show(self.key, comment)

    # --- what ends the run: requests of people, and limits ------------------------------------------------------

    def _requested(self) -> str | None:
        """The request in the task's row (stop or pause), None if there is none. Raises Fenced if another attempt owns
        the task."""
        deadline.check()
        return self.wiring.ledger.requested(self.uuid)

    def _read_forge_request(self) -> str | None:
        """The request from the forge while the task runs: a command in a comment, or "stop" if a person removed the
        program's label, set the stopped label or unassigned its account, or if the issue is gone, hidden from the token
        or closed by something else than a merge; None if there is none."""
        if self.inbox.poll():
            return self._requested()
        word = self.forge.requested(self.key)
        if word != "stop":
            return word
        merged = self.effects.receipt(MERGED) is not None
        return None if is_closed_by_merge(self.forge, self.key, self._branch(), merged=merged) else word

    def _stop_reason(self) -> str:
        """The reason for which a person stopped the task on the forge; "" for a command in a comment, since the
        progress comment names the command."""
        return "" if self.inbox.asked_by else reason_on_forge(self.forge, self.key)

    def _branch(self) -> str | None:
        """The branch of this task; before this task has a branch, the branch of the task that it continues, if there is
        one; else None."""
        if self.workspace is not None:
            return self.workspace.branch
        parent = self.wiring.ledger.get(str(self.context.row.get("parent_uuid") or ""))
        found: str | None = self.context.column("branch") or (parent.branch if parent is not None else None)
        return found

    def _over_time(self) -> Outcome | None:
        """The outcome if the wall time is used up; None if wall time is left, or while its clock is stopped."""
        return None if self.limits.stopped is not None else self.limits.check_time()

    def finish_work(self, outcome: Outcome) -> None:
        """Record that the model's work has ended with `outcome` and its publication begins: from now on wall time is
        not counted."""
        self.limits.stop_clock()
        self.control.finish_work(outcome)

    def resume_work(self) -> None:
        """Record that the model continues to work."""
        self.limits.start_clock()
        self.control.resume()

    def _leftovers(self) -> Leftovers | None:
        """The files that commands left in the work tree, which may be removed if the disk is full; None before there is
        a work tree."""
        if self.workspace is None:
            return None
        names, taken = self.workspace.unknown(), self.workspace.unknown(ignored=False)
        return Leftovers(self.workspace.tree, names, taken, frozenset(self.written_paths()))


def open_run(wiring: Wiring, task: Task, *, attempt: int | None, publishing: bool, asked_here: bool) -> TaskRun:
    """Open the files and the row of a task for one run, and emit `task_started`, and `store_repaired` for each repair
    of a file.

    `attempt` is the number of the claimed attempt.
    """
    settings = wiring.settings
    context = TaskContextManager(
        task.get_task_key(),
        str(task.get_uuid()),
        settings,
        user=task.get_user(),
        title=task.title,
        attempt=attempt,
        lease_owner=wiring.owner,
        database=wiring.db,
    )
    run = TaskRun(wiring, context, publishing=publishing, asked_here=asked_here)
    run.emit(
        "task_started",
        task=str(run.key),
        provider=settings.llm.provider,
        model=settings.provider().model,
        resumed=context.resumed,
    )
    for repair in context.repairs:
        run.emit("store_repaired", file=repair)
    context.noticed = lambda what: run.emit("store_repaired", file=what)
    return run
