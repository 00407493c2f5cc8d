"""The parts of one task in its process, built in the order in which they need each other.

`prepare` makes everything that touches the outside (issue, sandbox, mirror, work tree, set-up); `brief` writes the
first messages; `loop` puts the loop together.  `run/handler.py` is the only caller.
"""

from __future__ import annotations

from contextlib import ExitStack, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from agent import disk, proc, process_tree, step
from agent.config.environment import network_environment
from agent.config.reach import parse_all
from agent.errors import EndedBefore, MakimonoError, SandboxUnavailable, SetupFailed
from agent.forge.login import login_of
from agent.llm import make_client
from agent.llm.base import Interrupted
from agent.llm.text_mode import RECOVERED, TEXT
from agent.loop import Loop
from agent.prompts import render
from agent.run import briefing, claims, groups, solo
from agent.run.answering import answer
from agent.run.checkpoint import Checkpoint
from agent.run.comments import fit
from agent.run.control import TaskControl
from agent.run.delivery import Delivery
from agent.run.hearing import Hearing, since, spoken
from agent.run.limits import TaskLimits, Used
from agent.run.memory import TaskMemory, both
from agent.run.parent import read_parent
from agent.run.past import read_point
from agent.run.pictures import NONE_TAKEN, Pictures, note, notes
from agent.run.present import Present
from agent.run.progress import Progress, Waiting
from agent.run.publishable import Door
from agent.run.quota import FolderQuota
from agent.run.replicating import Replicator
from agent.run.start import start_of
from agent.sandbox import account, make_sandbox
from agent.sandbox.base import Mounts
from agent.security.paths import guarded
from agent.security.sanitise import output
from agent.security.secrets import scan
from agent.tools import Toolbox
from agent.tools.repetition import Repetition
from agent.values import Public, Said, Status
from agent.window import make_window
from agent.work import revived, setup
from agent.work.base_check import base_verdict
from agent.work.checkout import checked_out
from agent.work.mirror import Mirror
from agent.work.publish import Publisher, is_own
from agent.work.signing import Signing
from agent.work.tree import remove
from agent.work.workspace import Workspace

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
    from pathlib import Path

    from agent.config.reach import Reach
    from agent.context import TaskContextManager
    from agent.forge.base import Comment, LabelState
    from agent.run.wiring import Wiring
    from agent.taskqueue import Row
    from agent.values import Finished, Json
    from agent.work.revived import Revived
    from agent.work.verify import Verdict

BRIEFED = 2
"""Messages of a task that was briefed: the system prompt and the briefing."""


def spoken_calls(forms: Collection[str]) -> Iterator[str]:
    """What a person should know of calls that came as text; `forms` are those of the conversation."""
    if TEXT in forms:
        yield (
            "the model, or its server as it was started, has no tool calls: it called tools in its text. "
            "Models that have them work better"
        )
    if RECOVERED in forms:
        yield (
            "the model's server left tool calls in the text, and they were run: its tool parser seems not to fit the "
            "model (llama.cpp: `--jinja`, vLLM: `--tool-call-parser`)"
        )


def unrecalled(memory: Mapping[str, Any] | None) -> Iterator[str]:
    """What a person should know of long-term memory; `memory` is what the briefing's record says of it."""
    for layer, why in ((memory or {}).get("missing") or {}).items():
        yield f"the task began without long-term memory {layer}, which could not be had: {why}"


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
        self.door = Door.of(self.settings, self.events, self.key.instance)
        self.redact = self.door.redact
        self.forge = wiring.forge_of(self.key)
        self.hearing = Hearing(
            self.forge,
            self.key,
            self.uuid,
            wiring.ledger,
            lambda cursor: context.set_columns(comment_cursor=cursor),
            self.events,
            self._refused,
            self.settings.scheduling.interval,
        )
        limits = self.settings.limits
        self.quota = FolderQuota(context.context_dir, limits.folder_size, limits.folder_files)
        scheduling = self.settings.scheduling
        self.memory = TaskMemory(self.settings, self.uuid, context.attempt)
        self.room = both(self.quota, self.memory)
        self.limits = TaskLimits(self.settings.limits, self.used, self.room, self._ran_over)
        self.control = TaskControl(
            self._asked, self._wanted, self.room, scheduling.interval, patience=scheduling.drain_seconds
        )
        self.effects = context.get_effect_store()
        context.get_request_store().failed = self._request_failed
        self.progress = Progress(self)
        self.replica: Replicator | None = None
        self.reports: list[str] = []  # what a person should know and what refuses nothing
        self.isolation: dict[str, str] = {}
        self.unrun: str | None = None  # why commands are refused, from the first refusal on; "" once one has run
        self.network = parse_all(self.settings.sandbox.network)
        self.held = ExitStack()  # what is given back when the run is over: connections, a thread
        self.held.callback(self.quota.close)
        self.resting = False  # this attempt has paused the row: it still shows that on the issue

    # --- what touches the outside -----------------------------------------------------------------------------

    @property
    def is_open(self) -> bool:
        """Whether `prepare` has come as far as the work tree, so that what is in it can be delivered."""
        return hasattr(self, "delivery")

    def prepare(self, *, set_up: bool = True) -> None:
        """Issue, sandbox, mirror, work tree, delivery, set-up.  Idempotent: a resumed task finds its tree as it was.
        Without `set_up` no command can be run in the tree."""
        settings, base_dir = self.settings, self.settings.base_dir
        row = self.context.row
        self.parent = read_parent(settings, self.wiring.ledger, self.forge, row.get("parent_uuid"))
        self.issue = self.forge.read(self.key)
        self.context.set_columns(title=self.issue.title)
        if self.publishing:
            self._check_end()
            self._check_claim(row.get("started_by"))
        if self.forge.labels.is_left_behind(self.issue.labels, by_comment=row.get("started_by") is not None):
            self.label("processing")
        if self.publishing:
            self.progress.start()
        repository = self.forge.repository(self.key, self.issue)
        self.sandbox = make_sandbox(settings, uuid=self.uuid, base_dir=base_dir)
        account.share(self.context.context_dir, self.sandbox.uid)
        self.isolation = {"sandbox": self.sandbox.kind, "sandbox_reason": self.sandbox.reason}
        network = {**network_environment(), proc.MARK: self.uuid}  # a push of a dead attempt is found and ended
        login = login_of(self.forge, self.key, repository)
        where = (repository.host, repository.owner, repository.repo, repository.url)
        self.mirror = Mirror(base_dir, *where, env=network, **login)
        self.point = read_point(self.context.context_dir)
        earlier = self.parent.branch if self.parent and self.point is None else None
        name = self.door.branch(solo.branch_name(settings, self.key.instance))
        prefix = settings.branch.prefix
        decided = row.get("branch")  # for a host that has not the files; where they are, `Workspace` keeps to theirs
        self.begin = start_of(self.key, self.uuid, self.issue, repository, earlier, name, decided, prefix)
        self.mirror.fetch(self.begin.refs)
        if earlier is not None and self.mirror.commit_of(earlier) is None:  # somebody removed it
            self.begin = start_of(self.key, self.uuid, self.issue, repository, None, name, decided, prefix)
        if self.point is not None:
            self.begin = replace(self.begin, start_at=self.point.commit)
        self.workspace = Workspace(
            self.context.context_dir,
            self.mirror,
            branch=self.begin.branch,
            start_at=self.begin.start_at,
            base=self.begin.base,
            owner_uid=self.sandbox.uid,
            isolated=self.sandbox.kind != "none",
            signing=Signing(settings.commit.signing_key),
            pushes=self.begin.pushes,
            lfs_limit=settings.workspace.lfs_limit or 0,
        )
        self.workspace.reports.extend([*self.issue.problems, *([self.begin.about] if self.begin.about else [])])
        head = self.mirror.default_branch() if self.begin.base is None else None
        if head is not None and is_own(head, prefix):
            self.workspace.reports.append(
                f"the repository's HEAD is {head}, a branch of this program, and the work began there: check another "
                f"branch out in it, or name one as `base` in the issue"
            )
        self.reports = self.workspace.reports
        self.revived = self._open_workspace()
        self.home: Path | None = None
        self.publisher = Publisher(
            self.workspace,
            self.effects,
            scan=lambda chunks: scan(chunks, settings.secrets()),
            guarded=guarded,
            largest=self.forge.max_file,
            url=repository.url,
            env=network,
            prefix=prefix,
            **login,
        )
        self.publisher.take_up()
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
            on_base=self.check_base,
            facts=self.facts,
            unrun=lambda: self.unrun or "",
            redact=self.redact,
            door=self.door,
            hold=self.hold,
            publishing=self.publishing,
            pushes=self.begin.pushes,
            written=self._written,
            author=settings.commit.identity(),
        )
        if set_up:
            self.home = self._set_up()

    def _open_workspace(self) -> Revived | None:
        """The work tree as it was left here, or as another host had it; what came of that."""
        folder = self.context.context_dir
        if not revived.waits(folder):
            self.workspace.open()
            return None
        made = revived.revive(self.workspace, self.settings.commit.identity()[1])
        self.events.emit("tree_revived", head=made.head, lacks=made.lacks)
        if made.lacks:
            self.reports.append(f"the task went on on another host, and {made.lacks}")
        return made

    def replicate(self) -> None:
        """Begin to keep a replica, where one is wanted, with what is there now; until `end_copy`, and not only while
        the rest of the run is held: a task that goes back to the queue says in its files why."""
        address = self.settings.context_storage.replica
        kept = self.settings.context_storage.enabled
        if address is None or not kept or not self.publishing or self.replica is not None:
            return
        self.replica = Replicator(address, self.context, self.workspace, self.events)
        self.replica.turn()

    def keep_copy(self, seconds: float = 0.0) -> None:
        """Bring the replica to what the files hold now; wait for it so long."""
        if self.replica is not None:
            self.replica.turn()
            self.replica.wait(seconds)

    def end_copy(self) -> None:
        """The files go, or others may work on them."""
        if self.replica is not None:
            self.replica.close()

    def _after_turn(self) -> Callable[[], None]:
        checkpoint = Checkpoint(self)

        def after_turn() -> None:
            checkpoint()
            self.keep_copy()

        return after_turn

    def _set_up(self) -> Path | None:
        """Run or copy `workspace.setup`; the home folder that commands get, None for an empty one."""
        wanted = self.settings.workspace.setup
        if wanted is None:
            return None
        home = self.context.context_dir / "home"
        self.events.emit("setup_started", command=wanted.command)
        report = setup.prepare(
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
            message = f"`workspace.setup` did not work: {report.note}\n\n{report.output}"
            raise SetupFailed(message, passing=report.passing)
        return home if home.is_dir() else None

    def _run_setup(
        self, command: str, tree: Path, home: Path, network: Sequence[Reach], env: Mapping[str, str], timeout: float
    ) -> Finished:
        mounts = Mounts(**{**self.workspace.mounts(home), "work": tree})
        done = self._run(command, mounts, timeout=timeout, network=network, env=env)
        return self._unless_stopped(done)

    def tidy(self, status: Status) -> None:
        """Remove what an ended task needs no more, its work tree and its home, as `workspace.keep` says."""
        keep = self.settings.workspace.keep
        if keep == "always" or (keep == "failed" and status is not Status.COMPLETED):
            return
        if self.publishing and self.is_open:
            with suppress(MakimonoError):  # `cleanup` removes it
                if self.workspace.discard(self._written()):
                    remove(self.context.context_dir / "home")

    def _written(self) -> list[str]:
        """Paths that the tools wrote; none where the task has not come as far as its tools."""
        return self.tools.written() if hasattr(self, "tools") else []

    def command(self, command: str, timeout: float, spool: Path | None = None) -> Finished:
        """Run a command of the model in the sandbox."""
        mounts = Mounts(**self.workspace.mounts(self.home))
        try:
            done = self._run(command, mounts, timeout=timeout, spool=spool, network=self.network)
        except SandboxUnavailable:
            if self.unrun is None:
                self.unrun = self.sandbox.reason
            raise
        self.unrun = ""
        if self.settings.context_storage.durability != "none":
            disk.sync_tree(self.workspace.tree)  # what it made must be there when its record says that it ran
        return done

    def _run(self, command: str, mounts: Mounts, **options: Any) -> Finished:
        """Run a command in the sandbox, until somebody says stop or it holds too much memory."""
        held = self.memory.command()
        done = self.sandbox.run(command, mounts, stop=lambda: self._must_stop() or held(), **options)
        for contact in done.contacts:
            said = {"host": contact.host, "port": contact.port, "connections": contact.connections}
            if contact.refused:
                self.events.emit("network_refused", **said, why=contact.refused)
            else:
                self.events.emit("network_used", **said, sent=contact.sent, received=contact.received)
        return replace(done, why=held.why) if held.why else done

    def check(self, command: str, commit: str, timeout: float) -> Finished:
        """Run the verify command on a clean check-out of `commit`: what is checked is what is published.  Interrupted
        when a stop or a drain ended it: then it says nothing of the work."""
        with checked_out(self.workspace, commit) as place:
            setup.again(
                self.settings, self.workspace, self._run_setup, place, commit, relocatable=self.sandbox.kind != "none"
            )
            home = place.home if self.settings.workspace.setup is not None else None
            mounts = Mounts(**{**self.workspace.mounts(home), "work": place.tree})
            done = self._run(command, mounts, timeout=timeout, network=self.network)
        return self._unless_stopped(done)

    def check_base(self, run: Callable[[str], Verdict]) -> Verdict:
        """What the check says of the base commit: known, or made with `run(commit)`."""
        return base_verdict(
            self.settings, self.workspace, run, sandbox=self.sandbox.kind, waiting=self._interrupt_if_stopped
        )

    def _interrupt_if_stopped(self) -> None:
        if (outcome := self.control.poll()) is not None:
            raise Interrupted(outcome)

    def _unless_stopped(self, done: Finished) -> Finished:
        if done.timed_out and (outcome := self.control.poll()) is not None:
            raise Interrupted(outcome)
        return done

    def _asked(self) -> str | None:
        """What was asked of the task.  Fenced when another attempt owns it."""
        step.check()
        return self.wiring.ledger.requested(self.uuid)

    def _refused(self, row: Row, comment: Comment) -> None:
        """Tell a person that an order says nothing to a task that is being worked on."""
        if self.publishing:
            self.hold()
            answer(self.wiring.ledger, self.forge, self.events, self.door, row, comment, "running")

    @property
    def is_briefed(self) -> bool:
        """Whether `brief` was called: the model can be asked."""
        return hasattr(self, "model")

    def _must_stop(self) -> bool:
        return self.control.poll() is not None

    # --- the first messages -----------------------------------------------------------------------------------

    def _check_end(self) -> None:
        """EndedBefore when the forge shows the end of this very task."""
        status = claims.told_end(self.forge, self.key, self.uuid, self.issue.labels)
        if status is not None:
            said = f"{self.key} shows that this task has ended ({status}); the row was older, from a backup perhaps"
            raise EndedBefore(said, status=status)

    def _check_claim(self, started_by: str | None) -> None:
        claims.check(
            self.forge,
            self.key,
            self.uuid,
            lambda: self.progress.words("started"),
            claims.quiet_of(self.settings),
            home=claims.home_of(self.settings),
            started_by=started_by,
            issue=self.issue,
            posted=self.progress.is_posted,
            is_over=claims.over_in(self.wiring.ledger),
        )

    def take_up(self) -> None:
        """The tools as the task left them: all that is needed of its past when only publishing is left."""
        self.tools = Toolbox(
            root=self.workspace.tree,
            context_dir=self.context.context_dir,
            run=self.command,
            redact=self.redact,
            clean=output,
            lookup=self.context.get_tool_store().result,
            message=self.context.get_message_store().text_of,
            owner_uid=self.sandbox.uid,
            settings=self.settings,
            why_left_out=self.workspace.why_left_out,
        )
        self.tools.restore(self.context.get_tool_store().records())
        if self.context.get_message_store().last_seq >= BRIEFED:
            self.hearing.begin(self.context.column("comment_cursor"))

    def brief(self) -> None:
        """Build client, tools and window; write the first messages unless an earlier attempt did."""
        store = self.context.get_message_store()
        self.take_up()
        self.events.on(self.progress)
        self.repetition = Repetition()
        self.model = make_client(
            self.settings,
            store,
            self.context.context_dir,
            tools=self.tools.schemas(),
            control=self.control,
            events=Waiting(self, self.progress),
            kept=self.wiring.learnt,
        )
        self.limits = TaskLimits(self.settings.limits, self.used, self.room, self._ran_over)
        self.model.gate = self.limits
        self.held.callback(self.model.close)
        self.window = make_window(
            self.settings,
            self.context,
            self.model,
            self.tools,
            self.events,
            self.wiring.ratios,
            memory=self.wiring.memory,
            work=Present(self.tools, self.workspace.changes_now),
        )
        self.tools.follow(
            lambda: self.window.limits.window,
            lambda: self.window.shares.results,
            self.window.assembler.counter.count,
        )
        self.window.rebrief = self.rebrief
        self.window.check()
        window = self.window.limits.window
        takes_any = bool(self.model.picture_form)
        self.pictures = Pictures(self.forge, self.key, self.context.context_dir, window, takes_any)
        row = self.context.row
        if store.last_seq < BRIEFED:
            comments = spoken(self.issue.comments, self.forge.names())
            new = self._since_the_parent()
            images, about_pictures = self.pictures.of(self.issue.body, *(one.body for one in comments))
            text = briefing.briefing(
                self.settings,
                self.issue,
                [comment for comment in comments if comment.id not in new],
                self.workspace,
                self.context.fence,
                budget=self._budget(),
                parent=self.parent,
                about=self.begin.about,
                news=[comment for comment in comments if comment.id in new],
                commands=self.sandbox.kind != "refused",
                pictures=about_pictures,
            )
            self.context.set_columns(comment_cursor=self.issue.cursor)  # an attempt without a briefing writes one anew
            self.hearing.begin(
                self.issue.cursor, since(self.issue.comments, str(row["created_at"]), row.get("started_by"))
            )
            self.window.open(self.redact(text), f"{self.issue.title}\n\n{self.issue.body}", images)
        else:
            self.rebrief()  # for a server that was started again with less
            self.repetition.restore(self.context.get_tool_store().recent())
            if self.point is not None and store.last_seq == self.point.seq:
                store.add_message("user", render("past_point", commit=self.point.commit or ""), kind="nudge")
            if self.revived is not None and not self._has_ended():
                store.add_message("user", render("taken_over", lacks=self.revived.lacks), kind="nudge")
                store.sync()
        revived.settled(self.context.context_dir)
        self.progress.show()

    def _has_ended(self) -> bool:
        """Whether the newest message ends the work (`Loop.already_ended`): then nothing is said behind it."""
        last = self.context.get_message_store().last() or {}
        if last.get("role") == "tool":
            return self.tools.restored_outcome() is not None
        return last.get("role") == "assistant" and not last.get("tool_calls")

    def _budget(self) -> briefing.Budget:
        """What the parts of a briefing may have in the window in force."""
        shares, tools = self.window.shares, self.tools
        return briefing.Budget(
            shares.rules, shares.told, self.window.assembler.counter.count, tools.shortened, tools.keep
        )

    def rebrief(self) -> bool:
        """Choose rules and comments of the briefing again where they are more than the window in force has for them;
        whether there is another briefing now.  It is appended, and a line of compactions.jsonl puts it in the view."""
        store = self.context.get_message_store()
        if (record := store.briefing()) is None:
            return False
        text = briefing.chosen_again(record["content"], self.context.fence, self._budget())
        if text is None:
            return False
        before, seq = store.get_current_token_count(), store.last_seq + 1
        store.brief_again(text)
        after = store.get_current_token_count()
        named = {"strategy": "brief", "start_seq": seq, "end_seq": seq}
        self.events.emit("compaction", **named, tokens_before=before, tokens_after=after)
        return True

    # --- the loop ---------------------------------------------------------------------------------------------

    def loop(self) -> Loop:
        """The loop with its parts.  May be called again: the conversation goes on from its files."""
        return Loop(
            context=self.context,
            model=self.model,
            tools=self.tools,
            window=self.window,
            repetition=self.repetition,
            control=self.control,
            limits=self.limits,
            news=self.news,
            beat=self.beat,
            events=self.events,
            checkpoint=self._after_turn(),
        )

    def news(self, last: bool = False) -> Iterator[Said]:
        """What people wrote since the last look, fenced; `last`: look whatever the time, since the run is about to end.
        The cursor moves when the loop has appended all of it."""
        if self.hearing.look(now=last):
            self.control.hurry()

        def fenced(comments: Sequence[Comment]) -> Iterator[Said]:
            room = self.window.shares.comments_now
            for comment, text in briefing.together(comments, self.context.fence, room, self._budget()):
                images, about = self.pictures.of(comment.body) if comment is not None else ((), "")
                yield Said(self.redact(f"{text}\n\n{about}" if about else text), tuple(images))

        return self.hearing.take(fenced, self.context.get_message_store().sync)

    def _wanted(self) -> str | None:
        """What the forge says of the task while the model thinks: an order in a comment, or a label taken away."""
        if self.hearing.look():
            return self._asked()
        return self.forge.control(self.key)

    def _since_the_parent(self) -> frozenset[str]:
        """Ids of what was written after the end of the task that this one goes on from."""
        if self.parent is None or self.parent.cursor is None:
            return frozenset()
        return frozenset(one.id for one in self.forge.comments_since(self.key, self.parent.cursor)[0])

    def beat(self) -> None:
        """Heartbeat and counters; commands' dead orphans are collected.  Fenced when a newer attempt owns the row."""
        process_tree.reap_orphans()
        if self.is_briefed and self.model.takes_no_pictures:
            note(self.context.context_dir, NONE_TAKEN)
        self.context.beat()

    def hold(self) -> None:
        """Fenced when another attempt owns the task: called before each outside effect."""
        if not self.resting:
            step.check()
            self.context.check_held()

    def used(self) -> Used:
        """Turns, tokens and money so far, from the stores."""
        totals = self.context.totals()
        return Used(totals.turns, totals.tokens, totals.cost)

    def _request_failed(self, record: Json) -> None:
        names = ("purpose", "provider", "model", "status", "estimated", "cost", "error")
        self.events.emit("request_failed", **{name: record[name] for name in names}, **record["usage"])

    def _ran_over(self) -> bool:
        return groups.ran_over(self.settings.base_dir, self.uuid, self.context.attempt)

    def facts(self) -> dict[str, Any]:
        """What the texts for people say about the run, however far it came."""
        totals = self.context.totals()
        provider = self.settings.provider()
        return {
            "turns": totals.turns,
            "requests": totals.llm_calls,
            "prompt_tokens": totals.prompt,
            "completion_tokens": totals.completion,
            "cost": totals.cost if provider.price is not None else None,
            "estimated": totals.estimated,
            "provider": provider.name,
            "model": provider.model,
            "reports": list(dict.fromkeys([*self.reports, *self._noted()])),
            "mention": f"@{self.forge.names()[-1]}",
            **self.isolation,
        }

    def _noted(self) -> list[str]:
        """What the files of the task know that a person should: of earlier processes too."""
        survey = self.context.get_message_store().survey
        return [*spoken_calls(survey.forms), *unrecalled(survey.memory), *notes(self.context.context_dir)]

    def label(self, state: LabelState) -> None:
        """Move the issue's label, unless nothing may be published."""
        if self.publishing:
            self.hold()
            self.forge.move_label(self.key, state)

    def say(self, text: Public) -> Public:
        """At most what a comment may hold."""
        return fit(text, self.forge, self.uuid)
