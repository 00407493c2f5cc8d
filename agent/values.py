"""Immutable values and small protocols that several packages share.

`values.py` does no I/O, and imports no other module of this program. The values in `values.py` do not depend on the
form in which they are stored or in which a provider exchanges them. The protocols at the end of `values.py` describe
what a package needs from a higher or neighbouring package; `wiring/wiring.py` passes the real objects.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NewType, Protocol

if TYPE_CHECKING:
    from pathlib import Path

Json = dict[str, Any]


# --- tasks ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TaskKey:
    """Identifies the issue or pull request that a task is about.

    `instance` of a task key is the host of the forge, or the path of the local tracker.
    """

    task_source: str
    owner: str
    repo: str
    task_type: str
    task_id: str
    instance: str = ""

    def to_dict(self) -> dict[str, str]:
        """The task key as a mapping (docs/design/context.md, 3.1), with `instance`."""
        return {
            "task_source": self.task_source,
            "instance": self.instance,
            "owner": self.owner,
            "repo": self.repo,
            "task_type": self.task_type,
            "task_id": self.task_id,
        }

    @classmethod
    def from_mapping(cls, key: TaskKey | Mapping[str, Any]) -> TaskKey:
        """Make a task key from a mapping, or return the given task key; other keys (`uuid`, `user`) are ignored, and
        `instance` may be missing. Raises ValueError if any other field of a task key is missing or empty."""
        if isinstance(key, TaskKey):
            return key
        names = ("task_source", "owner", "repo", "task_type", "task_id")
        missing = [name for name in names if key.get(name) in (None, "")]
        if missing:
            raise ValueError(f"task key lacks {', '.join(missing)}; it needs {', '.join(names)}")
        source, owner, repo, kind, number = (str(key[name]) for name in names)
        return cls(source, owner, repo, kind, number, str(key.get("instance") or ""))

    @property
    def is_in_folder(self) -> bool:
        """Whether the issue is in a folder of this machine, and so has no web page: the instance is then a path."""
        return is_folder(self.instance)

    def __str__(self) -> str:
        return f"{self.task_source}:{self.owner}/{self.repo}#{self.task_id}"


def is_folder(instance: str) -> bool:
    """Whether the instance of a forge is a folder, by its absolute path, and not a host."""
    return instance.startswith("/")


class Status(StrEnum):
    """The states of a task's row in the table `tasks` (docs/design/context.md, 2.2)."""

    QUEUED = "queued"
    RUNNING = "running"
    PAUSED = "paused"
    COMPLETED = "completed"
    FAILED = "failed"
    STOPPED = "stopped"


OPEN_STATUSES = (Status.QUEUED, Status.RUNNING, Status.PAUSED)
CLOSED_STATUSES = (Status.COMPLETED, Status.FAILED, Status.STOPPED)


class End(StrEnum):
    """How the loop of a task ended, if it raised no error."""

    FINISHED = "finished"  # the model called `finish`
    ANSWERED = "answered"  # the model answered without a tool call, even after hints
    ASKED = "asked"  # the model called `ask_user`: the task waits for a person's answer
    PAUSED = "paused"
    STOPPED = "stopped"  # the task was stopped, usually by a person
    DRAINED = "drained"  # the daemon shuts down, and the task's row becomes `queued` again
    LIMIT = "limit"  # one of the task's limits was reached (turns, tokens, money, wall time, memory or disk space)
    REPEATING = "repeating"  # the model repeated the same calls with the same results even after a hint
    FAILED = "failed"  # the task cannot continue; `Outcome.code` has the reason


@dataclass(frozen=True, slots=True)
class CommentAnswer:
    """An answer of the model to one comment: `comment` is the id of the comment, `text` Markdown for its author;
    `settled` says that the model has done the work that the comment asks for."""

    comment: str
    text: str
    settled: bool = False


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a task's run: `code` is a stable identifier, `title` one line, `summary` Markdown for a person;
    `answers` are the model's answers to single comments."""

    end: End
    summary: str = ""
    title: str = ""
    code: str = ""
    answers: tuple[CommentAnswer, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        found: dict[str, Any] = {"end": str(self.end), "title": self.title, "summary": self.summary, "code": self.code}
        return found | ({"answers": [asdict(one) for one in self.answers]} if self.answers else {})

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Outcome:
        """Make an outcome from a mapping that `to_dict` made."""
        answers = tuple(CommentAnswer(**one) for one in record.get("answers") or ())
        return cls(End(record["end"]), record["summary"], record["title"], record["code"], answers)


# --- messages ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Usage:
    """The numbers of tokens of one answer, as the provider reported them or as they were estimated, or their sums over
    several answers.

    `prompt` tokens include the `cached` tokens; `completion` tokens include the `reasoning` tokens. `reasoning` is None
    if the server does not report the tokens of reasoning; that is different from 0.
    """

    prompt: int = 0
    completion: int = 0
    cached: int = 0
    reasoning: int | None = None

    def __add__(self, other: Usage) -> Usage:
        told = [one for one in (self.reasoning, other.reasoning) if one is not None]
        return Usage(
            self.prompt + other.prompt,
            self.completion + other.completion,
            self.cached + other.cached,
            sum(told) if told else None,
        )

    def to_dict(self) -> dict[str, int]:
        """The usage as a mapping for a record; `reasoning_tokens` is missing if it was not reported."""
        counts = {"prompt_tokens": self.prompt, "completion_tokens": self.completion, "cached_tokens": self.cached}
        return counts if self.reasoning is None else counts | {"reasoning_tokens": self.reasoning}

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Usage:
        """Make a Usage from a mapping that `to_dict` made."""
        return cls(
            int(record.get("prompt_tokens") or 0),
            int(record.get("completion_tokens") or 0),
            int(record.get("cached_tokens") or 0),
            None if record.get("reasoning_tokens") is None else int(record["reasoning_tokens"]),
        )


WHOLE = ("stop", "tool_calls")
"""Finish reasons of a complete answer of the model; an answer with any other finish reason, known or unknown, counts as
incomplete."""


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer of a model, after its stream has ended; `finish_reason` shows whether the answer is complete (WHOLE).

    `calls` of an answer are objects `{"id", "name", "arguments": dict}`. A call with arguments that are not a JSON
    object has `arguments: {}` and `"invalid"` with a description of what was found, and must not be run. `fields` are
    fields that the program does not interpret, but sends back with the message since the server may need them
    (reasoning, signatures); `call_fields` are those of each call. `dropped` is the number of calls above the maximum
    number of calls in an answer, which were removed from the answer. `raw_arguments` are the arguments of each tool
    call as the server sent them, without any repair. `request` is the number of the line in requests.jsonl about the
    request of this answer, None if there is none. `refused`: the server sent the text of the answer in its field for
    refusals (OpenAI's API has one).
    """

    text: str
    calls: tuple[Json, ...] = ()
    finish_reason: str = "stop"
    usage: Usage | None = None
    model: str = ""
    reasoning: str = ""
    fields: Json = field(default_factory=dict)
    call_fields: tuple[Json, ...] = ()
    request: int | None = None
    refused: bool = False
    dropped: int = 0
    raw_arguments: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Span:
    """A range of whole lines of a JSONL file with OpenAI messages, from the byte `start` to the byte `end`; `end` None
    means the end of the file."""

    path: Path
    start: int = 0
    end: int | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """One request to the model, described as spans of files, before any byte of them is copied.

    `tokens` of a plan is the estimate for the whole request, including tools and overhead. `limit` is the maximum
    number of tokens of the input, `output` the number of tokens that are reserved for the answer (0: the request names
    no maximum). `metadata` has facts about the plan, for the log and for the decision whether a compaction is needed.
    `counted` of a plan is the estimate of the counter without the learnt ratio and without reports of servers.
    `reading` is what the planner has already read of the view (`message_reader.Reading`); None if the plan sends only a
    part of the view.
    """

    spans: tuple[Span, ...]
    tokens: int = 0
    limit: int = 0
    output: int = 0
    metadata: Mapping[str, Any] = field(default_factory=dict)
    counted: int = 0
    reading: object = field(default=None, compare=False, repr=False)


# --- tools ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ToolResult:
    """The result of one tool call.

    `content` of a tool result is exactly the text that the model gets (truncated, with secrets masked). `status` of a
    tool result is "success" or "error". `output` names the file below the task's folder that has the complete text, if
    `content` was truncated. A tool result with an `outcome` ends the run of the task.
    """

    content: str
    status: str = "success"
    duration_ms: int = 0
    output: str | None = None
    error: str | None = None
    outcome: Outcome | None = None


@dataclass(frozen=True, slots=True)
class Contact:
    """What a command in the sandbox exchanged with one host and port: number of connections, bytes sent and received.

    `refused` is the reason for which the proxy refused the host; `connections` then counts the refused attempts.
    `refused` is "" for an allowed host, even if no connection to it succeeded."""

    host: str
    port: int
    connections: int
    sent: int = 0
    received: int = 0
    refused: str = ""


@dataclass(frozen=True, slots=True)
class Finished:
    """One command that has run to its end.

    `returncode` is negative if a signal ended the command; `output` is the output of the command, or its head and tail
    if it is longer than the maximum that the caller set.
    """

    returncode: int
    output: bytes
    duration: float
    timed_out: bool = False
    dropped: int = 0  # number of bytes of the output between head and tail that `output` lacks
    # The file for the whole output that the caller named; the file exists only if `dropped` is not 0.
    spool: Path | None = None
    why: str = ""  # the reason why the program killed the command early, if the command itself is the cause
    contacts: tuple[Contact, ...] = ()  # hosts that the command tried to reach


# --- protocols -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FileChange:
    """One file of the work tree that differs from the base commit of the work.

    `how` is "changed", "new", "deleted" or "renamed" (`source` is then the old path); `added` and `removed` are numbers
    of lines, None for a binary file. Paths of changed files are as git reports them, with invalid UTF-8 as surrogates,
    or in the printable form of `WorkTreeView.changes`.
    """

    path: str
    how: str
    added: int | None = 0
    removed: int | None = 0
    source: str = ""

    def __str__(self) -> str:
        lines = "binary" if self.added is None else f"+{self.added} -{self.removed}"
        how = {"changed": lines, "deleted": "deleted", "renamed": f"renamed from {self.source}, {lines}"}
        return f"{self.path} ({how.get(self.how, f'{self.how}, {lines}')})"


class PresentWork(Protocol):
    """The work tree of a task as it is now; a compaction carries over its changed files."""

    def changes(self) -> Sequence[FileChange]:
        """The files that differ from the base commit, the newest one last.

        `changes` may raise any error; after an error the changes of the work tree count as unknown.
        """
        ...

    def text(self, path: str) -> str | None:
        """The content of a file of the work tree, with secrets masked; None if it is not a regular file, is binary or
        large, or may contain a secret."""
        ...


class Counter(Protocol):
    """Counts the tokens of a text.

    `exact` of a counter is False for estimates; `name` is the name of the tokenizer ("o200k_base", "bytes:o200k").
    """

    name: str
    exact: bool

    def count(self, text: str) -> int:
        """The tokens of `text`; `count` never raises an error for any string."""
        ...


class Ratios(Protocol):
    """The learnt ratio of reported to estimated tokens for each model, stored in tasks.db, or in memory where there is
    no database."""

    def get(self, model: str) -> float:
        """The ratio for `model`; 1.0 if nothing was learnt."""
        ...

    def reports(self, model: str) -> int:
        """The number of reports from which the ratio for `model` was learnt."""
        ...

    def learn(self, model: str, estimated: int, reported: int, plausible: tuple[int, int] | None = None) -> float:
        """Learn from an estimated and a reported number of tokens for the same request; returns the new ratio of the
        model.

        `plausible` are the fewest and the most tokens that the text can have.
        """
        ...


@dataclass(frozen=True, slots=True)
class FencedComment:
    """A person's comment as the model gets it: the text inside a fence, and its pictures.

    If the message has the kind `memory`, its text consists of recalled memories instead of a comment, and `memory` has
    their number, their tokens and the `seq` of their line in recalled.jsonl. `comments` has the `id` of the comment and
    the time of its last change; it is empty if the text is not one person's comment.
    """

    text: str
    images: tuple[Json, ...] = ()
    kind: str = "comment"
    memory: Json | None = None
    comments: tuple[Json, ...] = ()

    @property
    def fields(self) -> Json:
        """The arguments of `add_message` besides role and text."""
        return {"kind": self.kind, "images": self.images, "memory": self.memory, "comments": self.comments}


class Messages(Protocol):
    """The part of `context.MessageStore` that model clients and the planner use."""

    @property
    def last_seq(self) -> int:
        """The number (`seq`) of the newest message; 0 if there is no message."""
        ...

    def add_message(
        self,
        role: str,
        content: str | None,
        tool_name: str | None = None,
        *,
        tool_calls: Sequence[Mapping[str, Any]] | None = None,
        tool_call_id: str | None = None,
        kind: str | None = None,
        usage: Usage | None = None,
        finish_reason: str | None = None,
        provider_fields: Mapping[str, Any] | None = None,
        form: str | None = None,
        images: Sequence[Mapping[str, Any]] = (),
    ) -> int:
        """Append a message to the conversation; returns its number (`seq`).

        `provider_fields` are fields of the server's answer that the program does not interpret.  `images` are the
        pictures of a user message, which are files below the task's folder.
        """
        ...

    def get_current_context_file(self, unsummarized_file_path: Path | None = None) -> Path:
        """The path of the file with the view: the messages that are sent to the model."""
        ...

    def sync(self) -> None:
        """Sync the appended lines of the messages to disk, if `context_storage.durability` demands that now."""
        ...


class Control(Protocol):
    """Reports whether a running task must end now, for example because a person has requested a stop.  `poll` is cheap
    and may be called every second."""

    def poll(self, *, answering: bool = False) -> Outcome | None:
        """The outcome with which the task must end now (STOPPED, PAUSED, DRAINED or LIMIT), None if it may continue.

        `answering`: the model is sending an answer now, or the result of the task is being published. While the model
        answers or the result is published, DRAINED (the daemon is ending) is returned only after
        `scheduling.drain_seconds`, so that this work can be completed.
        """
        ...


class MemoryLayer(Protocol):
    """One layer of long-term memory: a source of memories for the briefing.

    A layer of long-term memory may be called in another thread than the one that made it. If a layer of long-term
    memory raises an error or takes longer than 10 seconds, the briefing has no memories of this layer, and the task
    continues.
    """

    def recall(self, query: str, limit: int) -> Sequence[Mapping[str, Any]]:
        """At most `limit` memories as records `{"content", "source", "relevance"}`, the most relevant first.

        `content` and `source` of a memory are texts; `relevance` is a number by which the memories of all layers are
        ordered. `query` is the title and the text of the task, at most 10,000 characters."""
        ...


class Effects(Protocol):
    """Outside effects that happen only once (`context.EffectStore`; docs/files.md, "Outside effects")."""

    def once(
        self,
        name: str,
        look_up: Callable[[], Json | None],
        do: Callable[[], Json],
        *,
        is_new: bool = False,
        **detail: Any,
    ) -> Json:
        """The receipt of the effect `name`: the recorded one, else the result of `look_up`, which searches for the
        effect by its marker.  With `is_new` no other process can have caused the effect, so it is not searched for
        unless an intent is recorded.

        If there is neither a recorded receipt of an effect nor one from `look_up`, the intent is written and synced,
        `do` runs, and its result is recorded as the receipt."""
        ...

    def receipt(self, name: str) -> Json | None:
        """The recorded receipt of the effect `name`; None if there is none."""
        ...

    def intended(self) -> frozenset[str]:
        """The names of all outside effects with an intent, completed or not."""
        ...


Public = NewType("Public", str)
"""A text that may be published: only `issue/publish_filter.py` makes such texts, and forges accept only such texts."""


class Redact(Protocol):
    """Masks the declared secrets in a text, by their exact values and encodings of them."""

    def __call__(self, text: str) -> str: ...


Listener = Callable[[str, Mapping[str, Any]], None]
"""A function that is called with each event as (event name, fields); an error of the function does not affect the
caller (see `observe/events.py`)."""

Lines = Iterator[bytes]
