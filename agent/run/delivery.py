"""From a changed tree to a reviewed branch: commit, checks, push, pull request, verify, ready.

Used twice: `checkpoint` while the task runs, as soon as there is a commit to show, and `deliver` at its end.  Every
outside step goes through `effects.jsonl` or is idempotent by itself, so that a restart repeats it without harm
(design: sections 8 and 9).  The forge, the sandbox and the wording are not its business.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from agent import disk
from agent.errors import (
    ForgeError,
    ForgeRefused,
    GitError,
    PolicyViolation,
    PushRejected,
    RulesRefused,
    SandboxUnavailable,
    SetupFailed,
    WorkError,
)
from agent.prompts import Live
from agent.run.gate import MENDABLE, decide, is_checked
from agent.run.report import Report
from agent.run.solo import is_private, keep_pull
from agent.run.wording import signed_off
from agent.security.paths import notable
from agent.security.sanitise import output
from agent.security.visible import hidden
from agent.values import End, Public
from agent.work.moved import catch_up
from agent.work.verify import Verdict, touched_tests, verify

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent.config import Settings
    from agent.forge.base import Forge, IssueText, PullRef
    from agent.observe.events import Events
    from agent.run.publishable import Door
    from agent.values import Effects, Finished, Outcome, Redact, TaskKey
    from agent.work.publish import Publisher
    from agent.work.workspace import Workspace


PATCH = "changes.patch"
_NEVER_TAKEN = (413, 422)
"""Statuses that the same request gets again: too large for a proxy, not to the forge's liking."""

PATCH_LIMIT = 50_000
"""Bytes of a patch that people are shown in a comment; a longer one is in the task's folder alone."""


@dataclass
class Delivery:
    """The parts of one task's publishing.  `run(command, commit, seconds)` executes the check on
    a clean check-out of a commit, in the sandbox; `on_base(verify)` gives the verdict of the base commit, known or made
    with `verify(commit)`; `facts` are what the texts say of
    the run (turns, tokens, cost, model, sandbox), `unrun` what a `Report` says of refused commands;
    `publishing` False commits and checks but pushes nothing (replay);
    `pushes` False hands the change over as a patch (a fork's pull request).  `written` are the paths that tools
    wrote.  `hold` is called before each outside step
    and raises Fenced when another attempt owns the task."""

    settings: Settings
    key: TaskKey
    uuid: str
    issue: IssueText
    forge: Forge
    workspace: Workspace
    publisher: Publisher
    effects: Effects
    events: Events
    run: Callable[[str, str, float], Finished]
    on_base: Callable[[Callable[[str], Verdict]], Verdict]
    facts: Callable[[], dict[str, object]]
    unrun: Callable[[], str]
    redact: Redact
    door: Door
    hold: Callable[[], None] = lambda: None
    publishing: bool = True
    pushes: bool = True
    written: Callable[[], list[str]] = list
    author: tuple[str, str] = field(default=("makimono", "makimono@localhost"))
    shown: str | None = field(default=None, init=False)  # the commit that the pull request has, as far as we know

    def checkpoint(self, title: str) -> Report:
        """Commit what changed; push it and open the draft pull request.  Findings, and refusals of the repository and
        the forge, are reported, not raised: the run goes on and the end tells."""
        report = self._report()
        try:
            report = self._commit(title)
            return self._publish(report, title, ready=False) if report.changed else report
        except (ForgeError, GitError, WorkError) as error:
            self.events.emit("push_refused", findings=[str(error)])
            return replace(report, rejected=str(error))

    def deliver(self, outcome: Outcome) -> Report:
        """Commit, check, push, verify; the pull request is ready only when everything is green."""
        title = outcome.title or self.issue.title
        try:
            report = self._commit(title)
            behind = self.workspace.left_behind(self.written())
        except RulesRefused as refused:  # nothing can be committed until the model has put it right
            self.events.emit("push_refused", findings=list(refused.findings))
            return replace(self._as_it_is(), findings=refused.findings)
        self.workspace.reports.extend(line for line in behind if line not in self.workspace.reports)
        return replace(self._deliver(outcome, report, title), left_behind=tuple(behind))

    def _deliver(self, outcome: Outcome, report: Report, title: str) -> Report:
        if not report.changed:
            return report
        if self.publishing and self.pushes:
            report = self._catch_up(report)
            if report.rejected or not report.changed:
                return report
        ended = "" if outcome.end is End.FINISHED else decide(outcome, report).code
        words = {"summary": outcome.summary, "ended": ended}
        report = self._publish(report, title, ready=False, **words)
        if is_checked(outcome) and self.settings.verify.command:
            report = self._check(report, self.settings.verify.command)
        if not self.pushes and not report.findings:
            report = self._hand_over(report)
        if report.pull is not None:
            report = self._publish(report, title, ready=decide(outcome, report).ready, **words)
            keep_pull(self.settings, self.key.instance, report.pull, self.workspace.context_dir)
        return report

    def _report(self, **more: Any) -> Report:
        return Report(self.workspace.branch, unrun=self.unrun(), **more)

    def _as_it_is(self) -> Report:
        """What was committed so far."""
        if self.workspace.has_commits():
            return self._changes()
        return self._report(changed=True, base=self.workspace.base, commit=self.workspace.head())

    def keep(self) -> bool:
        """Commit what there is, and publish nothing; whether there is anything.  GitError, WorkError, DiskError."""
        return self._commit(self.issue.title).changed

    def _commit(self, title: str) -> Report:
        name, email = self.author
        self.workspace.commit(self._message(title), name=name, email=email)
        return self._changes() if self.workspace.has_commits() else self._report()

    def _message(self, title: str) -> Public:
        """The commit message: the program's, or the operator's (`commit.template`)."""
        wanted = self.settings.commit
        if wanted.template is None:
            title = self.door.masked(title)  # before it is cut
            message = self.door.render("commit", title=title, issue=self.issue, key=self.key, uuid=self.uuid)
        else:
            message = self.door.commit_message(
                wanted.template,
                title=" ".join(title.split()),
                issue=" ".join(self.issue.title.split()),
                key=Live(self.key),
                number=Live(self.key.task_id),
                uuid=Live(self.uuid),
            )
        return signed_off(message, self.author) if wanted.sign_off else message

    def _catch_up(self, report: Report) -> Report:
        """Take in what others did to our branch and to its base meanwhile, once."""
        try:
            moved = catch_up(self.workspace, self.author)
        except PushRejected as rejected:
            return self._rejected(report, rejected)
        self.workspace.reports.extend(moved.notes)
        if not self.workspace.has_commits():  # all of it has come onto the base by another way
            return self._report(base=self.workspace.base, landed=True)
        return replace(self._changes(), conflicts=moved.conflicts, base_gone=moved.base_gone)

    def _rejected(self, report: Report, rejected: PushRejected) -> Report:
        self.events.emit("push_refused", findings=[str(rejected)])
        if rejected.code in MENDABLE:  # what is put right must not stay in the history of the next push
            self.workspace.update_state(refused=self.workspace.head())
        return replace(report, rejected=str(rejected), code=rejected.code)

    def _changes(self) -> Report:
        paths = self.workspace.changed_paths(own=not self.pushes)
        diff = self.workspace.diff() if self.pushes else self.workspace.patch()
        return self._report(
            changed=True,
            base=self.workspace.base,
            commit=self.workspace.head(),
            stat=self.workspace.diff_stat(own=not self.pushes),
            touched_tests=tuple(touched_tests(paths)),
            look=(*notable(paths), *hidden(diff)),
        )

    def _hand_over(self, report: Report) -> Report:
        """The change as a file of the task, and as text where a comment can carry it unharmed."""
        path = self.workspace.context_dir / PATCH
        disk.write_file(path, self.workspace.patch())
        room = min(PATCH_LIMIT, self.forge.max_comment // 2)
        text = ""
        if path.stat().st_size <= room:
            with suppress(UnicodeDecodeError):
                text = path.read_text("utf-8")
        return replace(report, patch=text if self.door.carries(text) else "", patch_file=PATCH)

    def _publish(self, report: Report, title: str, *, ready: bool, summary: str = "", ended: str = "") -> Report:
        try:
            self.publisher.check()
        except PolicyViolation as violation:
            self.events.emit("push_refused", findings=list(violation.findings))
            return replace(report, findings=violation.findings or (str(violation),))
        if not (self.publishing and self.pushes):
            return report
        self.hold()
        try:
            self.publisher.push()
        except PushRejected as rejected:
            return self._rejected(report, rejected)
        if self._is_first():
            return replace(report, first=True)
        if report.base_gone:
            said = (
                f"the branch {report.base!r}, onto which it was to go, is gone; {report.branch!r} is pushed and has no "
                f"pull request. Open one onto another branch, or restore {report.base!r} and set the label again"
            )
            return self._rejected(report, PushRejected(said, code="base_missing"))
        body = self.door.render(
            "pull_request",
            summary=summary,
            ended=ended,
            issue=self.issue,
            key=self.key,
            uuid=self.uuid,
            report=report,
            ready=ready,
            private=is_private(self.settings, self.key.instance),
            **self.facts(),
        )
        self.hold()
        try:
            pull = self._pull(self.door.title(title), body, draft=not ready)
        except PushRejected as rejected:
            if rejected.code not in ("pull_refused", "pull_closed"):
                raise
            return self._rejected(report, rejected)
        self.shown = report.commit
        return replace(report, pull=pull)

    def _is_first(self) -> bool:
        """Whether the repository was empty when the task began, and nobody has made its base branch since (as of the
        last fetch)."""
        return self.workspace.base_commit is None and self.workspace.mirror.commit_of(self.workspace.base) is None

    def _pull(self, title: Public | None, body: Public | None, *, draft: bool) -> PullRef:
        """Open the pull request once; later calls bring its text and state up to date.  What was done after a person
        merged it goes into one more; one that a person closed stays closed."""
        head = self.workspace.branch
        opened: list[PullRef] = []

        def look_up() -> dict[str, object] | None:
            found = self.forge.find_pull(self.key, head)
            return None if found is None or found.state == "merged" else {"id": found.id, "url": found.url}

        def open_it() -> dict[str, object]:
            try:
                pull = self.forge.open_pull(
                    self.key,
                    title=title or Public(""),
                    body=body or Public(""),
                    head=head,
                    base=self.workspace.base,
                    draft=draft,
                )
            except ForgeRefused as refused:  # waiting would change nothing; a person can
                raise PushRejected(f"{refused}. The branch is pushed", code="pull_refused") from refused
            opened.append(pull)
            self.events.emit("effect_done", effect="pull", url=pull.url)
            return {"id": pull.id, "url": pull.url}

        self.effects.once("pull", look_up, open_it, head=head)
        if opened:
            return opened[0]
        pull = self.forge.find_pull(self.key, head)
        if pull is not None and pull.state == "merged":
            if self.shown == self.workspace.head():
                return pull
            self.workspace.reports.append(f"{pull.url} was merged while the task ran; what came after it is in another")
            self.effects.once(f"pull-after-{pull.id}", look_up, open_it, head=head)
            if opened:
                return opened[0]
            pull = self.forge.find_pull(self.key, head)
        if pull is None:  # a person removed it; it is not made a second time
            said = f"the pull request of {head} was removed while the task ran, and is not opened again. The branch is "
            raise PushRejected(f"{said}pushed: set the label again to have another one", code="pull_closed")
        if pull.state != "open":
            said = f"{pull.url} was closed while the task ran, and is not opened again. The branch {head} is pushed: "
            raise PushRejected(f"{said}reopen it, or set the label again to have another one", code="pull_closed")
        if self.issue.pull is not None and self.issue.pull.head == head:  # the task itself: its words stay people's
            title, body = None, None
        try:
            return self.forge.update_pull(self.key, pull, title=title, body=body, draft=draft)
        except ForgeRefused as refused:
            if refused.status not in _NEVER_TAKEN:
                raise
            raise PushRejected(f"{refused}. The branch is pushed", code="pull_refused") from refused

    def _check(self, report: Report, command: str) -> Report:
        """Run the check on what was committed; when it is red, ask what it says of the base."""
        self.events.emit("verify_started", command=command)
        verdict = self._verify(command, report.commit or "")
        self.events.emit("verify_finished", command=command, exit_code=verdict.exit_code, ok=verdict.ok)
        report = replace(report, verdict=verdict)
        base = self.workspace.base_commit
        if verdict.ok or verdict.exit_code is None or base is None:
            return report
        before = self.on_base(lambda commit: self._verify(command, commit))
        report = replace(report, before=before)
        self.events.emit(
            "base_checked", command=command, commit=base, exit_code=before.exit_code, ok=before.ok, same=report.was_red
        )
        return report

    def _verify(self, command: str, commit: str) -> Verdict:
        timeout = self.settings.verify.timeout
        try:
            return verify(
                command,
                lambda line, seconds: self.run(line, commit, seconds),
                timeout=timeout,
                clean=lambda text: self.redact(output(text)),
            )
        except (SandboxUnavailable, SetupFailed) as error:
            said = self.redact(output(str(error)))
            return Verdict(command, None, ok=False, duration=0.0, tail=said)
