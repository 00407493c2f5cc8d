"""Records feedback after a task: how people used the task's result changes the task's episode (a memory record) and the
counts of the memory records that the task got.

* One kind of feedback is that the task's pull request was merged or closed. The comment poller sees the end of the pull
  request in the answers that it reads for comments, without another request; it writes the end into the row
  (`Ledger.note_pull`), which makes the extraction due again.
* Another kind is that other people changed the task's branch before its pull request ended. After the end of the pull
  request, one request for the refs of the remote shows whether the branch has other commits.
* A third kind is that a person asked for more in a comment after the end of the task. The extraction of the task that
  the comment started adds the comment to the earlier task's episode.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice, takewhile
from typing import TYPE_CHECKING

from agent import clock
from agent.config.environment import network_environment
from agent.errors import MakimonoError
from agent.extraction.episode import amended, notes_of
from agent.extraction.session_events import INFERENCE, OUTCOME, VERIFIED
from agent.extraction.suspicion import suspicion
from agent.extraction.task_record import COMMENT, read_task
from agent.forge.base import ForgeReports, IssueText
from agent.forge.git_credentials import login_of
from agent.issue.ci_rounds import line_of
from agent.memory import NewEvent
from agent.memory.namespaces import actor_in, of_actor, of_session
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

EPISODES, REFLECTIONS = "episodes", "reflections"
GENERATIONS = 20
"""The end of a pull request is added to the episodes of at most this many tasks on its branch, each the parent of the
next: the newest ones."""
QUOTED = 200
"""Maximum number of characters of a comment in an episode."""

NOTES = {"merged": "The pull request was merged.", "closed": "The pull request was closed without a merge."}
CHANGED = "Others changed the branch before that."
PENDING = "it needs a second episode, or a result that was verified"
"""The quarantine reason of a reflection that nothing has confirmed yet."""


@dataclass(slots=True)
class Feedback:
    """Writes feedback about tasks into one memory."""

    wiring: Wiring
    store: MemoryStore

    def of_pull(self, row: Row) -> int:
        """Add the end of the pull request (merged or closed) to the episodes of the newest GENERATIONS tasks on its
        branch; return the number of changed episodes, 0 if the pull request is open."""
        state = row.pull_state
        if state not in NOTES:
            return 0
        changed = self._is_changed_by_others(row)
        amended_ones = 0
        for one in self._of_branch(row):
            notes = {"pull": NOTES[state]} | ({"branch": CHANGED} if changed else {})
            helped = None if changed and state == "merged" else state == "merged"
            amended_ones += self.amend(one, notes, token=f"pull-{state}", trust=VERIFIED, helped=helped)
            if state == "merged":
                self._confirm(one)
        return amended_ones

    def of_review(self, row: Row, task: TaskRecord) -> int:
        """If a comment on the result of an earlier task started this task, add the comment to the earlier task's
        episode; return the number of changed episodes. Nothing is added if the earlier task did not complete or has no
        branch, or if the forge also passes on comments of people who may not ask for work."""
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
        return self.amend(
            parent, {f"review-{row.uuid}": note}, token=f"review-{row.uuid}", trust=INFERENCE, helped=False
        )

    def amend(self, row: Row, notes: dict[str, str], *, token: str, trust: int, helped: bool | None) -> bool:
        """Add notes to the episode of a task, and count the outcome once for the records that the task got.  Returns
        False if the task has no episode, or the episode has the notes already."""
        episode = self.episode(row)
        if episode is None:
            return False
        actor = actor_in(episode.namespace)
        event = NewEvent(
            actor,
            row.uuid,
            " ".join(notes.values()),
            role="system",
            timestamp=clock.stamp(),
            source=OUTCOME,
            trust=trust,
            client_token=f"{row.uuid}:{token}",
        )
        self.store.add_outcome(event, [str(one) for one in episode.metadata.get("recalled") or ()], helped=helped)
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
            trust=min(episode.trust, trust),
            event_ids=self.store.known_events(episode.event_ids),
            files=episode.files,
            metadata={**episode.metadata, "afterwards": both},
            supersedes=[episode.id],
            quarantine=episode.reason if episode.status == "quarantined" else suspicion(" ".join(notes.values())),
        )
        return True

    def episode(self, row: Row) -> MemoryRecord | None:
        """The newest active episode of a task, else its newest one in quarantine; None when there is none."""
        for confidential in (False, True):
            actor = actor_of_task(self.wiring.settings, row.key, confidential=confidential)
            namespace = of_session(EPISODES, actor, row.uuid)
            for status in ("active", "quarantined"):
                if found := self.store.list_memory_records(namespace, status=status):
                    return found[-1]
        return None

    def _of_branch(self, row: Row) -> Iterator[Row]:
        """The task, then its parent tasks on the same branch, newest first."""
        line = islice(line_of(self.wiring.ledger, row), GENERATIONS)
        return takewhile(lambda one: one.branch == row.branch, line)

    def _confirm(self, row: Row) -> None:
        """Make those reflections of a task active that are in quarantine until the task's result is verified."""
        episode = self.episode(row)
        if episode is None:
            return
        namespace = of_actor(REFLECTIONS, actor_in(episode.namespace))
        for record in self.store.list_memory_records(namespace, status="quarantined", limit=1000):
            if record.session_id == row.uuid and record.reason == PENDING:
                self.store.promote(record.id, reason="the pull request was merged")

    def _is_changed_by_others(self, row: Row) -> bool:
        """Whether the branch of an ended pull request points to another commit than the last one that the task pushed.
        Returns False if the commit of the branch is unknown: the branch is deleted, the remote does not answer, or no
        push is recorded."""
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
