"""From a changed tree to a reviewed branch: commit, checks, push, pull request, verify, ready.

Used twice: `checkpoint` while the task runs, as soon as there is a commit to show, and `deliver` at its end.  Every
outside step goes through `effects.jsonl` or is idempotent by itself, so that a restart repeats it without harm
(design: sections 8 and 9).  The forge, the sandbox and the wording are not its business.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from agent.errors import PolicyViolation, PushRejected, SandboxUnavailable
from agent.forge.marks import without_markers
from agent.prompts import render
from agent.run.solo import is_private, keep_pull
from agent.security.sanitise import output
from agent.security.terminal import plain
from agent.values import End
from agent.work.verify import Verdict, touched_tests, verify

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent.config import Settings
    from agent.forge.base import Forge, IssueText, PullRef
    from agent.observe.events import Events
    from agent.values import Effects, Finished, Outcome, Redact, TaskKey
    from agent.work.changes import DiffStat
    from agent.work.publish import Publisher
    from agent.work.workspace import Workspace


@dataclass(frozen=True, slots=True)
class Report:
    """What came of a delivery, for the pull request, the comment and the row."""

    branch: str
    changed: bool = False
    commit: str | None = None
    pull: PullRef | None = None
    stat: DiffStat | None = None
    verdict: Verdict | None = None
    findings: tuple[str, ...] = ()
    rejected: str = ""
    touched_tests: tuple[str, ...] = ()

    @property
    def problem(self) -> tuple[str, str]:
        """(code, sentence) of what keeps it from being ready; ("", "") for nothing."""
        if self.findings:
            return "policy", f"not published: {'; '.join(self.findings[:3])}"
        if self.rejected:
            return "push_rejected", self.rejected
        if self.verdict is not None and not self.verdict.ok:
            return "verify_failed", str(self.verdict)
        return "", ""

    @property
    def ready(self) -> bool:
        """Whether a person may take it as finished: pushed, nothing found, and verified where a command is set."""
        return self.pull is not None and self.problem == ("", "")


@dataclass
class Delivery:
    """The parts of one task's publishing.  `run` executes a command in the sandbox; `facts` are what the texts say of
    the run (turns, tokens, cost, model, sandbox); `publishing` False commits and checks but pushes nothing (replay)."""

    settings: Settings
    key: TaskKey
    uuid: str
    issue: IssueText
    forge: Forge
    workspace: Workspace
    publisher: Publisher
    effects: Effects
    events: Events
    run: Callable[[str, float], Finished]
    facts: Callable[[], dict[str, object]]
    redact: Redact
    publishing: bool = True
    author: tuple[str, str] = field(default=("makimono", "makimono@localhost"))

    def checkpoint(self, title: str) -> Report:
        """Commit what changed; push it and open the draft pull request.  Findings and refusals are reported, not
        raised: the run goes on and the end tells."""
        report = self._commit(title)
        return self._publish(report, title, ready=False) if report.changed else report

    def deliver(self, outcome: Outcome) -> Report:
        """Commit, check, push, verify; the pull request is ready only when everything is green."""
        title = outcome.title or self.issue.title
        report = self._commit(title)
        if not report.changed:
            return report
        finished = outcome.end in (End.FINISHED, End.ANSWERED)
        report = self._publish(report, title, ready=False, summary=outcome.summary)
        if finished and self.settings.verify.command:
            report = replace(report, verdict=self._verify(self.settings.verify.command))
        if report.pull is not None:
            report = self._publish(report, title, ready=finished and report.ready, summary=outcome.summary)
            keep_pull(self.settings, self.key.instance, report.pull, self.workspace.context_dir)
        return report

    def _commit(self, title: str) -> Report:
        message = render("commit", title=title, issue=self.issue, key=self.key, uuid=self.uuid)
        name, email = self.author
        self.workspace.commit(self._fit(message), name=name, email=email)
        if not self.workspace.has_commits():
            return Report(self.workspace.branch)
        return Report(
            self.workspace.branch,
            changed=True,
            commit=self.workspace.head(),
            stat=self.workspace.diff_stat(),
            touched_tests=tuple(touched_tests(self.workspace.changed_paths())),
        )

    def _publish(self, report: Report, title: str, *, ready: bool, summary: str = "") -> Report:
        try:
            self.publisher.check()
        except PolicyViolation as violation:
            self.events.emit("push_refused", findings=list(violation.findings))
            return replace(report, findings=violation.findings or (str(violation),))
        if not self.publishing:
            return report
        try:
            self.publisher.push()
        except PushRejected as rejected:
            self.events.emit("push_refused", findings=[str(rejected)])
            return replace(report, rejected=str(rejected))
        body = render(
            "pull_request",
            summary=self._fit(summary),
            issue=self.issue,
            key=self.key,
            uuid=self.uuid,
            report=report,
            ready=ready,
            private=is_private(self.settings, self.key.instance),
            **self.facts(),
        )
        return replace(report, pull=self._pull(self._fit(title), body, draft=not ready))

    def _fit(self, text: str) -> str:
        """Words of a model as people read them, on a terminal too: no sequence it obeys, no marker, no secret."""
        return self.redact(without_markers(plain(text)))

    def _pull(self, title: str, body: str, *, draft: bool) -> PullRef:
        """Open the pull request once; later calls bring its text and state up to date."""
        head = self.workspace.branch
        opened: list[PullRef] = []

        def look_up() -> dict[str, object] | None:
            found = self.forge.find_pull(self.key, head)
            return None if found is None else {"id": found.id, "url": found.url}

        def open_it() -> dict[str, object]:
            pull = self.forge.open_pull(
                self.key, title=title, body=body, head=head, base=self.workspace.base or head, draft=draft
            )
            opened.append(pull)
            self.events.emit("effect_done", effect="pull", url=pull.url)
            return {"id": pull.id, "url": pull.url}

        self.effects.once("pull", look_up, open_it, head=head)
        if opened:
            return opened[0]
        pull = self.forge.find_pull(self.key, head)
        if pull is None:  # a person removed it; it is not made a second time
            raise PushRejected(f"the pull request of {head} is gone; reopen it or start the task again")
        return self.forge.update_pull(self.key, pull, title=title, body=body, draft=draft)

    def _verify(self, command: str) -> Verdict:
        self.events.emit("verify_started", command=command)
        try:
            verdict = verify(command, self.run, timeout=self.settings.verify.timeout)
        except SandboxUnavailable as error:
            verdict = Verdict(command, None, ok=False, duration=0.0, tail=str(error))
        self.events.emit("verify_finished", command=command, exit_code=verdict.exit_code, ok=verdict.ok)
        return replace(verdict, tail=self.redact(output(verdict.tail)))
