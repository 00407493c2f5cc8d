"""Makes the events of an ended task: issue, comments, plan, failed commands, summary, outcome; each with its trust.

Each event of a task has a token, by which a second extraction does not store the event again. The token of a comment
names the comment and the time of its last edit, so that all tasks of an issue give one event for it. The trust of an
event (`memory.base.TRUST`) depends on the author of its text. The issue has trust 1 if its author may ask for work in
the repository, else 0. Comments have trust 1 if the forge passes on only those of people who may ask for work, else 0.
Plan, commands and summary have trust 1, but trust 0 if the issue or a comment has trust 0; the summary has trust 0 too
if the model did not end the task. Sentences that repeat a tool's result, a file, a memory or a person's text of trust 0
(`echoed_sentences.py`) are left out of the plan and the summary; those of the summary are an event with trust 0, and a
command with such a sentence has trust 0. Output of commands has trust 0. This program writes the outcome, which has
trust 2 if the check passed, else 1.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from agent.extraction.echoed_sentences import Divided, divide
from agent.extraction.task_record import COMMENT, ISSUE, ISSUE_TITLE
from agent.filetree import printable
from agent.memory import NewEvent

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from agent.extraction.task_record import Failure, PersonText, TaskRecord
    from agent.taskqueue import Row

OUTSIDE, INFERENCE, VERIFIED = 0, 1, 2

ISSUE_TEXT, COMMENT_TEXT, PLAN, COMMAND, OUTPUT, SUMMARY, REPEATED, OUTCOME = (
    *("issue", "comment", "plan", "command", "output", "summary", "repeated", "outcome"),
)
"""Values of `SessionEvent.source`."""

SHOWN_FILES = 20
LONGEST_PATH = 120
NAME = 8
"""The number of parts (runs of letters and digits) that an event shows of a file's or folder's name, if the name has
more than NAME + 1 of them."""
_LONG_NAME = re.compile(rf"(?:[^\W_]+[\W_]+){{{NAME}}}(?=[^\W_]+[\W_]+[^\W_])")


@dataclass(frozen=True, slots=True)
class SessionEvent:
    """One event of a task that is not stored yet. `token` is unique within the task; with `of_issue` it is unique
    within the issue."""

    token: str
    source: str
    role: str
    text: str
    trust: int
    at: str
    author: str = ""
    of_issue: bool = False


def events_of(task: TaskRecord, row: Row) -> list[SessionEvent]:
    """The events of the task: first the texts of people, then plan, commands, summary and outcome; empty ones are left
    out."""
    return [one for one in _events(task, row) if one.text.strip()]


def new_events(task: TaskRecord, actor: str, events: Sequence[SessionEvent]) -> list[NewEvent]:
    """The events as arguments of `MemoryStore.create_events`."""
    shared: dict[str, Any] = {"task": str(task.key)}
    issue = ":".join((actor, *task.key.to_dict().values()))
    if task.origin.get("confidential"):
        shared["confidential"] = True
    return [
        NewEvent(
            actor,
            task.uuid,
            one.text,
            role=one.role,
            timestamp=one.at,
            source=one.source,
            trust=one.trust,
            metadata=shared | ({"author": one.author} if one.author else {}),
            client_token=f"{issue if one.of_issue else task.uuid}:{one.token}",
        )
        for one in events
    ]


def _events(task: TaskRecord, row: Row) -> Iterator[SessionEvent]:
    people = list(_people(task))
    yield from people
    least = min((one.trust for one in people), default=OUTSIDE)
    own = min(INFERENCE, least)  # the trust of a text of the model
    others = OtherTexts(task, people)
    plan = others.divide("\n".join(task.plan))
    yield SessionEvent("plan", PLAN, "assistant", _plan(plan), own, task.ended_at)
    for failure in task.failures:
        said = [others.divide(one) for one in dict.fromkeys((failure.command, failure.passed)) if one]
        trust = OUTSIDE if any(one.repeated for one in said) else own
        yield SessionEvent(f"command-{failure.seq}", COMMAND, "tool", command_text(failure), trust, failure.at)
        output = f"Output of `{failure.command}`:\n{failure.output}" if failure.output else ""
        yield SessionEvent(f"output-{failure.seq}", OUTPUT, "tool", output, OUTSIDE, failure.at)
    summary = others.divide(task.summary or task.message)
    # if the model did not end the task, the text is the message of an error, which comes from outside
    trust = own if task.summary and task.ended_by_model else OUTSIDE
    yield SessionEvent("summary", SUMMARY, "assistant", summary.own, trust, task.ended_at)
    yield SessionEvent("repeated", REPEATED, "assistant", summary.repeated, OUTSIDE, task.ended_at)
    verified = VERIFIED if task.is_verified else INFERENCE
    yield SessionEvent("outcome", OUTCOME, "system", outcome_text(task, row), verified, task.ended_at)


class OtherTexts:
    """The texts with which the model's sentences are compared: those of people with trust 0, results of tools, rules of
    the repository, memories."""

    def __init__(self, task: TaskRecord, people: Sequence[SessionEvent]) -> None:
        self.task = task
        self.untrusted = [one.text for one in people if one.trust == OUTSIDE]

    def divide(self, text: str) -> Divided:
        """Split `text` into the model's own sentences and those that repeat a text of others (of an untrusted person,
        or another text that the model has read)."""
        return divide(text, self._every_text()) if text.strip() else Divided("", "")

    def _every_text(self) -> Iterator[str]:
        yield from self.untrusted
        yield from self.task.texts_of_others()


# --- texts -----------------------------------------------------------------------------------------------------


def _people(task: TaskRecord) -> Iterator[SessionEvent]:
    """One event for the issue, then one for each comment."""
    may_ask = bool(task.origin.get("author_may_ask"))
    about = [one for one in task.statements if one.source in (ISSUE_TITLE, ISSUE)]
    if about:
        first = about[0]
        text = "\n\n".join(one.text for one in about)
        yield _said("issue", ISSUE_TEXT, first, text, trusted=may_ask)
    trusted = bool(task.origin.get("comments_may_ask"))
    numbers: dict[int, int] = {}
    for one in task.statements:
        if one.source == COMMENT:
            numbers[one.seq] = numbers.get(one.seq, 0) + 1
            token = f"comment-{one.version or f'{one.seq}-{numbers[one.seq]}'}"
            yield _said(token, COMMENT_TEXT, one, one.text, trusted=trusted)


def _said(token: str, source: str, one: PersonText, text: str, *, trusted: bool) -> SessionEvent:
    trust = INFERENCE if trusted else OUTSIDE
    return SessionEvent(token, source, "user", text, trust, one.at, one.author, of_issue=bool(one.version))


def _plan(plan: Divided) -> str:
    steps = [line for line in plan.own.split("\n") if line.strip()]
    return "\n".join(["Plan:", *(f"- {step}" for step in steps)]) if steps else ""


def command_text(failure: Failure) -> str:
    """One or two sentences about a failed command: how it ended, and which command passed afterwards."""
    times = f", {failure.tries} times in a row" if failure.tries > 1 else ""
    said = f"`{failure.command}` failed ({failure.ending}{times})."
    if not failure.passed:
        return f"{said} Nothing made it pass."
    what = "It" if failure.passed == failure.command else f"`{failure.passed}`"
    after = f" after changes to {paths_text(failure.files)}" if failure.files else ""
    return f"{said} {what} passed{after}."


def paths_text(paths: Sequence[str]) -> str:
    """The paths in one line: at most SHOWN_FILES, each without white space and at most LONGEST_PATH characters long.

    Of a file's or folder's name with more than NAME + 1 parts, the first NAME are shown, since a long name can be a
    sentence.
    """
    shown = [_shown_path(path) for path in paths[:SHOWN_FILES]]
    more = f" and {len(paths) - SHOWN_FILES} more" if len(paths) > SHOWN_FILES else ""
    return f"{', '.join(shown)}{more}"


def _shown_path(path: str) -> str:
    parts = "_".join(printable(path).split()).split("/")
    return "/".join(f"{long[0]}…" if (long := _LONG_NAME.match(part)) else part for part in parts)[:LONGEST_PATH]


def outcome_text(task: TaskRecord, row: Row) -> str:
    """Sentences about the end of the task: its status, the result of the verify command, whether no file was changed,
    and the address of the pull request."""
    end = task.ending.outcome.end.value if task.ending is not None else ""
    code = row.error_code or ""
    said = [f"The task ended as {row.status}{f' ({code or end})' if code or end else ''}."]
    check: Mapping[str, Any] = task.delivery.get("check") or {}
    if check:
        how = "passed" if check.get("ok") else f"failed with exit code {check.get('exit_code')}"
        as_before = ", as it does without the change" if check.get("was_red") else ""
        said.append(f"The check `{check.get('command')}` {how}{as_before}.")
    if not task.delivery.get("commit") or not task.files:
        said.append("No file was changed.")
    if pull := task.delivery.get("pull"):
        said.append(f"Pull request: {pull['url']}.")
    return " ".join(said)
