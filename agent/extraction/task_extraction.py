"""Extracts memories from the folder of one task: events, episode, summary, commits, and records made by a model."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from agent.errors import Fenced, MemoryUnavailable
from agent.extraction.episode import AFTERWARDS, amended, episode_text, notes_of, summary_text
from agent.extraction.fact_check import FactCheck
from agent.extraction.feedback import Feedback
from agent.extraction.model_extraction import ModelExtraction
from agent.extraction.record_writer import RecordWriter
from agent.extraction.session_events import events_of, new_events
from agent.extraction.suspicion import suspicion
from agent.extraction.task_record import read_task, recalled_ids
from agent.gitcmd import git
from agent.memory.index_requests import IndexRequest
from agent.wiring.memory import actor_of_task

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from agent.extraction.session_events import SessionEvent
    from agent.memory import MemoryStore
    from agent.taskqueue import Row
    from agent.wiring.wiring import Wiring

EPISODES, SUMMARIES = "episodes", "summaries"


@dataclass(slots=True)
class Extracted:
    """The result of a job in numbers: events and records of the task, new commits, amended episodes, dropped proposals
    of the model, and facts that the repository's files contradict."""

    events: int = 0
    records: int = 0
    commits: int = 0
    amended: int = 0
    dropped: int = 0
    ended: int = 0

    def to_dict(self) -> dict[str, int]:
        """The numbers of this result as a mapping from name to number."""
        return asdict(self)


class TaskExtraction:
    """The extraction from one folder, of which the caller holds the lock.  `check` raises Fenced if another process has
    the job."""

    def __init__(self, wiring: Wiring, store: MemoryStore, row: Row, folder: Path, check: Callable[[], None]) -> None:
        self.wiring = wiring
        self.store = store
        self.row = row
        self.folder = folder
        self.check = check
        self.task = read_task(folder)
        self.extracted = Extracted()
        self.events: list[SessionEvent] = []
        self.ids: dict[str, int] = {}  # `SessionEvent.token` → the event's number; forgotten events are left out

    def run(self) -> Extracted:
        """Extract everything and return the numbers.  A task without a turn of the model, without a text of a person or
        without a receipt of the effect `origin` gives no memories."""
        task = self.task
        if not task.origin or not task.statements or self.row.turns < 1:
            return self.extracted
        self.writer = RecordWriter(self.store, task, self.row.title or task.title)
        self.events = events_of(task, self.row)
        numbers = self.store.create_events(new_events(task, self.writer.actor, self.events))
        known = set(self.store.known_events(numbers))
        tokens = [event.token for event in self.events]
        self.ids = {token: number for token, number in zip(tokens, numbers, strict=True) if number in known}
        self.extracted.events = len(self.ids)
        parts = (self._used, self._summary, self._episode, self._commits, self._model, self._review, self._vectors)
        self._each(parts)
        return self.extracted

    def _each(self, parts: Sequence[Callable[[], None]]) -> None:
        """Run every part, and raise the first error afterwards, so that the error of one part does not prevent the
        others. Fenced, MemoryUnavailable and the errors of `check` are raised at once."""
        failed: Exception | None = None
        for part in parts:
            self.check()
            try:
                part()
            except (Fenced, MemoryUnavailable):
                raise
            except Exception as error:  # noqa: BLE001 - the first error is raised after the last part, and fails the try
                failed = failed or error
        if failed is not None:
            raise failed

    def _sources(self, *tokens: str) -> list[int]:
        return [self.ids[token] for token in tokens if token in self.ids]

    def _used(self) -> None:
        """Log for each record that the task got that it was used (`MemoryStore.mark_used`)."""
        if ids := recalled_ids(self.folder):
            self.store.mark_used(ids, self.task.uuid)

    def _summary(self) -> None:
        text = summary_text(self.events)
        if not text.strip() or not self.ids:
            return
        namespace = self.writer.of_session(SUMMARIES)
        if all(one.text != text for one in self.writer.present(namespace)):
            sources = self._sources("issue", "plan", "summary")
            self.writer.write(namespace, SUMMARIES, text, sources, quarantine=suspicion(text))
        self.extracted.records += 1

    def _episode(self) -> None:
        """Write the episode of the task.  If an earlier extraction stored an episode of this task, its notes about
        feedback are copied into the new one."""
        if not self.ids:
            return
        task = self.task
        namespace = self.writer.of_session(EPISODES)
        text = episode_text(task, self.row, self.events)
        present = self.writer.present(namespace)
        self.extracted.records += 1
        if any(one.text.partition(f"\n{AFTERWARDS}")[0] == text for one in present):
            return
        notes = notes_of(present[-1].metadata) if present else {}
        trusted = {one.token for one in self.events if one.trust > 0}
        commands = [f"command-{one.seq}" for one in task.failures]
        shown = [token for token in commands if token in trusted or not trusted]
        about = "\n".join(line for line in text.split("\n") if not line.startswith(("Outcome: ", "Cost: ")))
        self.writer.write(
            namespace,
            EPISODES,
            amended(text, list(notes.values())),
            self._sources("issue", "plan", *shown, "outcome"),
            quarantine=suspicion(about),
            supersedes=[one.id for one in present],
            files=task.files,
            more={
                "recalled": recalled_ids(self.folder),
                "outcome": str(self.row.status),
                "verified": task.is_verified,
                "commit": task.delivery.get("commit"),
                "afterwards": notes,
            },
        )

    def _commits(self) -> None:
        """Index the new commits of the repository's base branch, and check facts against its files (`FactCheck`).

        Commits belong to the actor of the repository also for a confidential issue, because everybody who can read the
        repository can read its commits."""
        place, branch = str(self.task.origin.get("mirror") or ""), str(self.task.origin.get("base") or "")
        mirror = self.wiring.settings.base_dir / place
        if place and branch and has_branch(mirror, branch):
            actor = actor_of_task(self.wiring.settings, self.task.key)
            self.extracted.commits = self.store.index_commits(mirror, actor, branch=branch)
            IndexRequest(actor, place, branch).remove(self.wiring.settings.base_dir)
            check = FactCheck(self.store, mirror, branch)
            self.extracted.ended = sum(check.run(one) for one in {actor, self.writer.actor})

    def _model(self) -> None:
        if not self.wiring.settings.memory.extraction.enabled:
            return
        shown = [one for one in self.events if one.trust > 0 and one.token in self.ids]
        model = ModelExtraction(self.wiring, self.writer, self.row, self.check)
        made, dropped = model.run(shown, self.ids)
        self.extracted.records += made
        self.extracted.dropped += dropped

    def _vectors(self) -> None:
        self.store.fill_vectors()

    def _review(self) -> None:
        self.extracted.amended += Feedback(self.wiring, self.store).of_review(self.row, self.task)


def has_branch(mirror: Path, branch: str) -> bool:
    """Whether a mirror of the repository exists and has the branch.  Raises GitError when git cannot be run."""
    if not (mirror / "HEAD").is_file():
        return False
    found = git("show-ref", "--verify", "--quiet", f"refs/heads/{branch}", git_dir=mirror, negative=1)
    return found.returncode == 0
