"""The parts of one task in its process, built in the order in which they need each other.

`prepare` makes everything that touches the outside (issue, sandbox, mirror, work tree, set-up); `brief` writes the
first messages; `loop` puts the loop together.  `run/handler.py` is the only caller.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agent import clock
from agent.config.environment import network_environment
from agent.context.manager import LEASE_SECONDS
from agent.errors import ForgeError, SetupFailed
from agent.llm import make_client
from agent.llm.base import Interrupted
from agent.loop import Loop
from agent.run import briefing
from agent.run.comments import fit
from agent.run.control import TaskControl
from agent.run.delivery import Delivery
from agent.run.limits import TaskLimits, Used
from agent.run.parent import read_parent
from agent.run.progress import Progress
from agent.sandbox import make_sandbox
from agent.sandbox.base import Mounts
from agent.security.paths import guarded
from agent.security.redact import Redactor
from agent.security.sanitise import output
from agent.security.secrets import scan
from agent.tools import Toolbox
from agent.tools.repetition import Repetition
from agent.window import make_window
from agent.work.mirror import Mirror
from agent.work.publish import Publisher
from agent.work.setup import prepare
from agent.work.workspace import Workspace

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from agent.context import TaskContextManager
    from agent.forge.base import LabelState
    from agent.run.wiring import Wiring
    from agent.values import Finished

RENEW_SECONDS = 20.0


class TaskRun:
    """One run of one task.  `publishing` False: nothing leaves the task's folder (replay)."""

    def __init__(self, wiring: Wiring, context: TaskContextManager, *, publishing: bool = True) -> None:
        self.wiring = wiring
        self.context = context
        self.publishing = publishing
        self.settings = wiring.settings
        self.key = context.task_key
        self.uuid = context.uuid
        self.events = wiring.events
        self.redact = Redactor(self.settings.secrets())
        self.forge = wiring.forge_of(self.key)
        self.control = TaskControl(self._asked, lambda: self.forge.control(self.key))
        self.renewed_at = clock.monotonic()
        self.effects = context.get_effect_store()
        self.progress = Progress(self)
        self.news_at = -self.forge.news_interval
        self.cursor: str | None = None
        self.reports: list[str] = []  # what a person should know and what refuses nothing
        self.isolation: dict[str, str] = {}

    # --- what touches the outside -----------------------------------------------------------------------------

    def prepare(self) -> None:
        """Issue, sandbox, mirror, work tree, set-up.  Idempotent: a resumed task finds its tree as it was."""
        settings, base_dir = self.settings, self.settings.base_dir
        self.issue = self.forge.read(self.key)
        self.context.set_columns(title=self.issue.title)
        if self.forge.labels.paused in self.issue.labels:
            self.label("processing")
        if self.publishing:
            self.progress.start()
        repository = self.forge.repository(self.key, self.issue)
        self.sandbox = make_sandbox(settings, uuid=self.uuid, base_dir=base_dir)
        self.isolation = {"sandbox": self.sandbox.kind, "sandbox_reason": self.sandbox.reason}
        network = network_environment()
        login: dict[str, Any] = {}
        if self.forge.git_login(self.key) is not None:  # asked anew at every git call: tokens expire
            login["credentials"] = lambda: self.forge.git_login(self.key)
        if repository.ca_file is not None:
            login["ca_file"] = repository.ca_file
        where = (repository.host, repository.owner, repository.repo, repository.url)
        self.mirror = Mirror(base_dir, *where, env=network, **login)
        self.mirror.fetch()
        self.parent = read_parent(settings, self.wiring.ledger, self.forge, self.context.column("parent_uuid"))
        earlier = self.parent.branch if self.parent else None
        if earlier is not None and self.mirror.commit_of(earlier) is None:
            earlier = None  # somebody removed it
        self.workspace = Workspace(
            self.context.context_dir,
            self.mirror,
            branch=earlier or f"makimono/{self.key.task_id}-{self.uuid[:8]}",
            start_at=earlier,
            base=self.issue.base or repository.default_branch,
            owner_uid=self.sandbox.uid,
            isolated=self.sandbox.kind != "none",
        )
        self.workspace.reports.extend(self.issue.problems)
        self.reports = self.workspace.reports
        self.workspace.open()
        self.home = self._set_up()
        self.publisher = Publisher(
            self.workspace,
            self.effects,
            scan=lambda chunks: scan(chunks, settings.secrets()),
            guarded=guarded,
            url=repository.url,
            env=network,
            **login,
        )
        self.delivery = Delivery(
            settings,
            self.key,
            self.uuid,
            self.issue,
            self.forge,
            self.workspace,
            self.publisher,
            self.effects,
            self.events,
            run=self.check,
            facts=self.facts,
            redact=self.redact,
            publishing=self.publishing,
        )

    def _set_up(self) -> Path | None:
        """Run or copy `workspace.setup`; the home folder that commands get, None for an empty one."""
        wanted = self.settings.workspace.setup
        if wanted is None:
            return None
        home = self.context.context_dir / "home"
        self.events.emit("setup_started", command=wanted.command)
        report = prepare(
            self.settings,
            self.mirror,
            self.workspace,
            self._run_setup,
            home=home,
            relocatable=self.sandbox.kind == "bubblewrap",
            secrets=self.settings.secrets(),
        )
        self.events.emit("setup_finished", ok=report.ok, cached=report.cached)
        if report.changed:
            self.reports.append(f"{report.note}: {', '.join(report.changed[:5])}")
        if not report.ok:
            raise SetupFailed(f"`workspace.setup` did not work: {report.note}\n\n{report.output}")
        return home if home.is_dir() else None

    def _run_setup(
        self, command: str, tree: Path, home: Path, network: bool, env: Mapping[str, str], timeout: float
    ) -> Finished:
        mounts = Mounts(**{**self.workspace.mounts(home), "work": tree})
        done = self.sandbox.run(command, mounts, timeout=timeout, network=network, env=env, stop=self._must_stop)
        return self._unless_stopped(done)

    def command(self, command: str, timeout: float, spool: Path | None = None) -> Finished:
        """Run a command of the model, or the verify command, in the sandbox."""
        mounts = Mounts(**self.workspace.mounts(self.home))
        return self.sandbox.run(command, mounts, timeout=timeout, spool=spool, stop=self._must_stop)

    def check(self, command: str, timeout: float) -> Finished:
        """Run the verify command.  Interrupted when a stop or a drain ended it: then it says nothing of the work."""
        return self._unless_stopped(self.command(command, timeout))

    def _unless_stopped(self, done: Finished) -> Finished:
        if done.timed_out and (outcome := self.control.poll()) is not None:
            raise Interrupted(outcome)
        return done

    def _asked(self) -> str | None:
        """What was asked of the task.  A turn may take longer than the lease, by which other hosts judge: the looks
        during a model call or a command, which both have an end, renew it now and then."""
        now = clock.monotonic()
        if now - self.renewed_at < RENEW_SECONDS:
            return self.wiring.ledger.requested(self.uuid)
        self.renewed_at = now
        return self.wiring.ledger.beat(self.uuid, self.context.attempt, LEASE_SECONDS)

    def _must_stop(self) -> bool:
        return self.control.poll() is not None

    # --- the first messages -----------------------------------------------------------------------------------

    def brief(self) -> None:
        """Build client, tools and window; write the first messages unless an earlier attempt did."""
        store = self.context.get_message_store()
        self.tools = Toolbox(
            root=self.workspace.tree,
            context_dir=self.context.context_dir,
            run=self.command,
            redact=self.redact,
            clean=output,
            lookup=self.context.get_tool_store().result,
            owner_uid=self.sandbox.uid,
            settings=self.settings,
        )
        self.repetition = Repetition()
        self.model = make_client(
            self.settings,
            store,
            self.context.context_dir,
            tools=self.tools.schemas(),
            control=self.control,
            events=self.events,
        )
        self.window = make_window(self.settings, self.context, self.model, self.tools, self.events, self.wiring.ratios)
        row_cursor = self.context.column("comment_cursor")
        if store.last_seq < 2:
            if store.last_seq == 0:
                self.model.send_system_prompt(briefing.system_prompt(self.settings))
            text = briefing.briefing(
                self.settings,
                self.issue,
                [comment for comment in self.issue.comments if not comment.is_bot],
                self.workspace,
                self.context.fence,
                window=self.window.limits.window,
                parent=self.parent,
                commands=self.sandbox.kind != "refused",
            )
            store.add_message("user", self.redact(text), kind="task")
            store.sync()
            self.cursor = self.issue.cursor
            self.context.set_columns(comment_cursor=self.cursor)
        else:
            self.cursor = row_cursor
            self.tools.restore(self.context.get_tool_store().records())
            self.repetition.restore(self.context.get_tool_store().recent())

    # --- the loop ---------------------------------------------------------------------------------------------

    def loop(self) -> Loop:
        """The loop with its parts; the progress comment and checkpoints listen to its events."""
        self.events.on(self.progress)
        return Loop(
            context=self.context,
            model=self.model,
            tools=self.tools,
            window=self.window,
            repetition=self.repetition,
            control=self.control,
            limits=TaskLimits(self.settings.limits, self.used),
            news=self.news,
            beat=self.beat,
            events=self.events,
        )

    def news(self) -> Iterator[str]:
        """What people wrote since the last look, fenced.  The cursor moves when the loop has appended all of it: a
        process that dies in between hears a comment twice rather than never."""
        now = clock.monotonic()
        if now - self.news_at < self.forge.news_interval:
            return
        self.news_at = now
        try:
            comments, cursor = self.forge.comments_since(self.key, self.cursor)
        except ForgeError as error:
            self.events.emit("poll_failed", source=self.forge.source, instance=self.forge.instance, error=str(error))
            return
        for comment in comments:
            if not comment.is_bot:
                yield self.redact(briefing.comment_text(comment, self.context.fence))
        if cursor != self.cursor:
            self.cursor = cursor
            self.context.get_message_store().sync()
            self.context.set_columns(comment_cursor=cursor)

    def beat(self) -> None:
        """Heartbeat and counters; Fenced when a newer attempt owns the row."""
        self.context.beat()

    def used(self) -> Used:
        """Turns, tokens and money so far, from the stores."""
        totals = self.context.totals()
        return Used(totals.llm_calls, totals.prompt + totals.completion, totals.cost)

    def facts(self) -> dict[str, Any]:
        """What the texts for people say about the run, however far it came."""
        totals = self.context.totals()
        provider = self.settings.provider()
        return {
            "turns": totals.llm_calls,
            "prompt_tokens": totals.prompt,
            "completion_tokens": totals.completion,
            "cost": totals.cost if provider.price is not None else None,
            "estimated": totals.llm_calls > 0 and totals.prompt == 0,
            "provider": provider.name,
            "model": provider.model,
            "reports": list(dict.fromkeys(self.reports)),
            **self.isolation,
        }

    def label(self, state: LabelState) -> None:
        """Move the issue's label, unless nothing may be published."""
        if self.publishing:
            self.forge.move_label(self.key, state)

    def say(self, text: str) -> str:
        """The text as the forge may have it (`comments.fit`)."""
        return fit(text, self.forge, self.uuid, self.redact)
