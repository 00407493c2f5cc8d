"""What people did with the result of a task: its episode says so, and the records that the task was given gain or lose.

* Its pull request was merged or closed.  The comment poller sees that in what it reads anyway, and notes it in the row
  (`Ledger.note_pull`), which makes the extraction due again; so it costs no request.
* Others changed its branch before that: one look at the remote's refs, when the pull request has ended.
* A comment asked for more after its end: the task that this comment started says so in its own extraction.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from agent import clock
from agent.config.environment import network_environment
from agent.errors import MakimonoError
from agent.extraction.episode import amended, notes_of
from agent.extraction.events import OUTCOME, VERIFIED
from agent.extraction.suspicion import suspicion
from agent.extraction.task_record import COMMENT, read_task
from agent.forge.base import ForgeReports, IssueText
from agent.forge.git_credentials import login_of
from agent.memory import NewEvent
from agent.values import Status
from agent.wiring.folders import folder_of
from agent.wiring.memory import actor_of_task
from agent.work.remote import Remote

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agent.extraction.task_record import TaskRecord
    from agent.memory import MemoryRecord, MemoryStore
    from agent.taskqueue import Row
    from agent.wiring.wiring import Wiring

GENERATIONS = 20
"""Tasks in a row that worked on one branch."""
QUOTED = 200
"""Characters of a comment in an episode."""

NOTES = {"merged": "The pull request was merged.", "closed": "The pull request was closed without a merge."}
CHANGED = "Others changed the branch before that."
PENDING = "it needs a second episode, or a result that was verified"
"""Why a reflection is in quarantine that nothing confirms yet."""


@dataclass(slots=True)
class Feedback:
    """The feedback of the tasks of one memory."""

    wiring: Wiring
    store: MemoryStore

    def of_pull(self, row: Row) -> int:
        """Take in what became of the pull request; returns the number of episodes that were amended."""
        state = row.pull_state
        if state not in NOTES:
            return 0
        changed = self._is_changed_by_others(row)
        amended_ones = 0
        for one in self._of_branch(row):
            notes = {"pull": NOTES[state]} | ({"branch": CHANGED} if changed else {})
            helped = None if changed and state == "merged" else state == "merged"
            amended_ones += self.amend(one, notes, token=f"pull-{state}", helped=helped)
            if state == "merged":
                self._confirm(one)
        return amended_ones

    def of_review(self, row: Row, task: TaskRecord) -> int:
        """Take in that a comment on the result of an earlier task started this one."""
        parent = self.wiring.ledger.get(row.parent_uuid) if row.parent_uuid and row.started_by else None
        if parent is None or parent.status is not Status.COMPLETED or not parent.branch:
            return 0
        folder = folder_of(self.wiring.settings, parent.uuid)
        known = {one.text for one in read_task(folder).statements} if folder is not None else set()
        asked = [one for one in task.statements if one.source == COMMENT and one.text not in known]
        if not asked or not task.origin.get("comments_may_ask"):
            return 0
        said = " ".join(asked[-1].text.split())
        said = said if len(said) <= QUOTED else f"{said[: QUOTED - 1]}…"
        note = f"A person then asked for more: “{said}”"
        return self.amend(parent, {f"review-{row.uuid}": note}, token=f"review-{row.uuid}", helped=False)

    def amend(self, row: Row, notes: dict[str, str], *, token: str, helped: bool | None) -> bool:
        """Add notes to the episode of a task, and judge the records that it was given, once.  False when the task has
        no episode."""
        episode = self.episode(row)
        if episode is None:
            return False
        actor = actor_in(episode)
        event = NewEvent(
            actor,
            row.uuid,
            " ".join(notes.values()),
            role="system",
            timestamp=clock.stamp(),
            source=OUTCOME,
            trust=VERIFIED,
            client_token=f"{row.uuid}:{token}",
        )
        self.store.judge(event, [str(one) for one in episode.metadata.get("recalled") or ()], helped=helped)
        known = notes_of(episode.metadata)
        if known | notes == known:
            return False
        both = known | notes
        text = amended(episode.text, list(both.values()))
        self.store.create_memory_record(
            episode.namespace,
            text,
            strategy=episode.strategy,
            title=episode.title,
            timestamp=episode.timestamp,
            trust=episode.trust,
            event_ids=self.store.known_events(episode.event_ids),
            files=episode.files,
            metadata={**episode.metadata, "afterwards": both},
            supersedes=[episode.id],
            quarantine=episode.reason if episode.status == "quarantined" else suspicion(" ".join(notes.values())),
        )
        return True

    def episode(self, row: Row) -> MemoryRecord | None:
        """The present episode of a task; None when there is none."""
        for confidential in (False, True):
            actor = actor_of_task(self.wiring.settings, row.key, confidential=confidential)
            namespace = f"/episodes/{actor}/{row.uuid}/"
            for status in ("active", "quarantined"):
                if found := self.store.list_memory_records(namespace, status=status):
                    return found[-1]
        return None

    def _of_branch(self, row: Row) -> Iterator[Row]:
        """The task, and those before it whose work is in the same branch."""
        now: Row | None = row
        for _ in range(GENERATIONS):
            if now is None or now.branch != row.branch:
                return
            yield now
            now = self.wiring.ledger.get(now.parent_uuid) if now.parent_uuid else None

    def _confirm(self, row: Row) -> None:
        """Make the reflections of a task active that waited for a verified result."""
        episode = self.episode(row)
        if episode is None:
            return
        namespace = f"/reflections/{actor_in(episode)}/"
        for record in self.store.list_memory_records(namespace, status="quarantined", limit=1000):
            if record.session_id == row.uuid and record.reason == PENDING:
                self.store.promote(record.id, reason="the pull request was merged")

    def _is_changed_by_others(self, row: Row) -> bool:
        """Whether the branch of an ended pull request has another commit than the one that its last task pushed.  False
        where nobody can tell: the branch is gone, or the remote does not answer."""
        folder = folder_of(self.wiring.settings, row.uuid)
        delivery = read_task(folder).delivery if folder is not None else {}
        commit, pull = delivery.get("commit"), delivery.get("pull")
        if not commit or not pull or not row.branch:
            return False
        try:
            forge = self.wiring.forge_of(row.key)
            repository = forge.repository(row.key, IssueText(row.key, "", "", ""))
            ref = ForgeReports(forge).pull_ref(str(pull["id"]))
            refs = () if ref is None else (ref,)
            remote = Remote(repository.url, env=network_environment(), **login_of(forge, row.key, repository))
            found = remote.list(refs).refs
        except MakimonoError:
            return False
        names = (*refs, f"refs/heads/{row.branch}")
        return any(found[name] != commit for name in names if name in found)


def actor_in(record: MemoryRecord) -> str:
    """The actor of a record's namespace."""
    return record.namespace.strip("/").split("/")[1]
