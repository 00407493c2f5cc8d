"""The vocabulary: frozen values and small protocols that every floor shares.

No I/O, no imports of this program.  Identity and storage live elsewhere (`context`, `store`); wire forms live in
`llm/wire_*.py`.  Protocols at the end are what a room needs of a higher floor or of a neighbour: `run/wiring.py`
hands the real thing in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NewType, Protocol

if TYPE_CHECKING:
    from pathlib import Path

Json = dict[str, Any]


# --- tasks ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TaskKey:
    """What a task is about, wherever it runs.  `instance` is the forge's host, or the local tracker's path."""

    task_source: str
    owner: str
    repo: str
    task_type: str
    task_id: str
    instance: str = ""

    def to_dict(self) -> dict[str, str]:
        """The seed's mapping (seed 002, 3.1), with `instance`."""
        return {
            "task_source": self.task_source,
            "instance": self.instance,
            "owner": self.owner,
            "repo": self.repo,
            "task_type": self.task_type,
            "task_id": self.task_id,
        }

    @classmethod
    def of(cls, key: TaskKey | Mapping[str, Any]) -> TaskKey:
        """From the seed's mapping; unknown keys (`uuid`, `user`) are ignored, `instance` may be missing."""
        if isinstance(key, TaskKey):
            return key
        names = ("task_source", "owner", "repo", "task_type", "task_id")
        missing = [name for name in names if key.get(name) in (None, "")]
        if missing:
            raise ValueError(f"task key lacks {', '.join(missing)}; it needs {', '.join(names)}")
        source, owner, repo, kind, number = (str(key[name]) for name in names)
        return cls(source, owner, repo, kind, number, str(key.get("instance") or ""))

    def __str__(self) -> str:
        return f"{self.task_source}:{self.owner}/{self.repo}#{self.task_id}"


class Status(StrEnum):
    """The states of a row in `tasks` (design: section 4)."""

    QUEUED = "queued"
    RUNNING = "running"
    PAUSED = "paused"
    COMPLETED = "completed"
    FAILED = "failed"
    STOPPED = "stopped"


OPEN_STATUSES = (Status.QUEUED, Status.RUNNING, Status.PAUSED)
CLOSED_STATUSES = (Status.COMPLETED, Status.FAILED, Status.STOPPED)


class End(StrEnum):
    """How the loop ended.  None of them is an error."""

    FINISHED = "finished"  # the model called `finish`
    ANSWERED = "answered"  # words without a call, again after two hints
    ASKED = "asked"  # `ask_user`: the task waits for a person
    PAUSED = "paused"
    STOPPED = "stopped"  # a person said stop
    DRAINED = "drained"  # the daemon is going down: the row goes back to the queue
    LIMIT = "limit"  # turns, tokens, money, wall time
    REPEATING = "repeating"  # the same call with the same result after a nudge
    FAILED = "failed"  # cannot go on; `code` says why


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run came to: `code` is a stable word, `title` one line, `summary` Markdown for a person."""

    end: End
    summary: str = ""
    title: str = ""
    code: str = ""

    def to_dict(self) -> dict[str, str]:
        return {"end": str(self.end), "title": self.title, "summary": self.summary, "code": self.code}

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Outcome:
        """From what `to_dict` wrote."""
        return cls(End(record["end"]), record["summary"], record["title"], record["code"])


# --- messages ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Usage:
    """The provider's own numbers for one answer, in tokens.

    `prompt` includes what was `cached`; `completion` includes `reasoning`, the part of the answer that was thinking.
    `reasoning` is None where the server does not report it, which is not 0.
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
        """`reasoning_tokens` is absent where it was not reported."""
        counts = {"prompt_tokens": self.prompt, "completion_tokens": self.completion, "cached_tokens": self.cached}
        return counts if self.reasoning is None else counts | {"reasoning_tokens": self.reasoning}

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Usage:
        """From what `to_dict` wrote."""
        return cls(
            int(record.get("prompt_tokens") or 0),
            int(record.get("completion_tokens") or 0),
            int(record.get("cached_tokens") or 0),
            None if record.get("reasoning_tokens") is None else int(record["reasoning_tokens"]),
        )


@dataclass(frozen=True, slots=True)
class Answer:
    """One whole answer of a model, after its last byte.

    `calls` are `{"id", "name", "arguments": dict}`; a call whose arguments were not a JSON object has
    `arguments: {}` and `"invalid": "what was found"` beside it and must not be run.  `fields` are what only the server
    understands and may want back with the message (reasoning, signatures), `call_fields` the same for each of `calls`.
    `dropped`: so many calls behind them were left out, since no answer may have that many.
    `request` is its line in requests.jsonl, None where none is kept.  `refused`: its text stood in the field for a
    refusal (OpenAI's wire).
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


@dataclass(frozen=True, slots=True)
class Span:
    """Bytes `start` to `end` of a JSONL file of OpenAI messages (whole lines); `end` None means to the end."""

    path: Path
    start: int = 0
    end: int | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """One request, as spans of files, before any byte is copied.

    `tokens` is the estimate of everything that is sent (tools and overhead included), `limit` what the input may
    be, `output` what is reserved for the answer (0: do not send a limit).  `metadata` goes to the log.
    """

    spans: tuple[Span, ...]
    tokens: int = 0
    limit: int = 0
    output: int = 0
    metadata: Mapping[str, Any] = field(default_factory=dict)


# --- tools ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What one tool call came to.

    `content` is exactly what the model gets (capped, redacted).  `status` is "success" or "error".  `output` names
    the file below the task's folder that holds the whole text when it was cut.  `outcome` ends the run.
    """

    content: str
    status: str = "success"
    duration_ms: int = 0
    output: str | None = None
    error: str | None = None
    outcome: Outcome | None = None


@dataclass(frozen=True, slots=True)
class Contact:
    """What a command had to do with one host and port of the network: connections, and bytes that went out and came
    in.  `refused` says why it was not reached, "" when it was; `connections` are then the tries."""

    host: str
    port: int
    connections: int
    sent: int = 0
    received: int = 0
    refused: str = ""


@dataclass(frozen=True, slots=True)
class Finished:
    """One command, run to its end.  `returncode` is negative for a signal; `output` is capped head + tail."""

    returncode: int
    output: bytes
    duration: float
    timed_out: bool = False
    dropped: int = 0  # bytes between head and tail that `output` lacks
    spool: Path | None = None  # file with the whole output, when one was asked for and something was dropped
    why: str = ""  # why it was ended before its time, where that lies in the command
    contacts: tuple[Contact, ...] = ()  # hosts that it reached, or was refused


# --- protocols -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FileChange:
    """One file that differs from the base of the work.  `how` is "changed", "new", "deleted" or "renamed" (`source`
    is then its old path); `added` and `removed` count lines, None for a binary file.  Paths are fit to be shown."""

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
    """The work tree as it is now, for what a compaction carries."""

    def changes(self) -> Sequence[FileChange]:
        """Files that differ from the base, the one that was written last at the end.  Any error may be raised; it is
        taken for "not known"."""
        ...

    def text(self, path: str) -> str | None:
        """The content of a file, masked; None for one that is none, binary, large, or may hold a secret."""
        ...


class Counter(Protocol):
    """Counts tokens.  `exact` is False for estimates; `name` tells which tokenizer ("o200k_base", "bytes:o200k")."""

    name: str
    exact: bool

    def count(self, text: str) -> int:
        """Tokens of `text`; never raises for any string."""
        ...


class Ratios(Protocol):
    """The learnt ratio reported/estimated per model, kept in tasks.db."""

    def get(self, model: str) -> float:
        """1.0 when nothing was learnt."""
        ...

    def learn(self, model: str, estimated: int, reported: int) -> float:
        """Take one pair in; returns the new ratio."""
        ...


@dataclass(frozen=True, slots=True)
class Said:
    """What a person wrote, as the model gets it: the fenced text, and the pictures that belong to it."""

    text: str
    images: tuple[Json, ...] = ()


class Messages(Protocol):
    """What a model client and the planner need of `context.MessageStore`."""

    @property
    def last_seq(self) -> int:
        """The number of the newest message, 0 before the first."""
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
        """Append; returns `seq`.  `provider_fields`: what only the answering server understands, where it gave some.
        `images`: pictures of a user's message, files below the task's folder."""
        ...

    def get_current_context_file(self, unsummarized_file_path: Path | None = None) -> Path:
        """The view that is sent."""
        ...

    def sync(self) -> None:
        """Make what was appended durable (`context_storage.durability`)."""
        ...


class Control(Protocol):
    """How the outside reaches a running task.  `poll` is cheap and may be called every second."""

    def poll(self, *, answering: bool = False) -> Outcome | None:
        """An outcome (STOPPED, PAUSED, DRAINED) when the task must end now, else None.  `answering`: a model's answer
        is under way, for which a drain waits a while."""
        ...


class MemoryLayer(Protocol):
    """One layer of long-term memory as the assembler sees it.

    It is asked in another thread than the one that built it.  Whatever it raises, and an answer that takes longer than
    10 seconds, leaves it out and does not end the task.
    """

    def recall(self, query: str, limit: int) -> Sequence[Mapping[str, Any]]:
        """At most `limit` of `{"content", "source", "relevance"}`, most relevant first: two texts and a number, which
        orders the memories of all layers.  `query` is the title and the text of the task, at most 10,000 characters."""
        ...


class Effects(Protocol):
    """Outside effects that happen once (`context.EffectStore`; design: section 8)."""

    def once(
        self,
        name: str,
        look_up: Callable[[], Json | None],
        do: Callable[[], Json],
        **detail: Any,
    ) -> Json:
        """The receipt of effect `name`: the recorded one, else what `look_up` finds by the marker, else intent is
        written and synced, `do` runs, and what it returns is recorded as the receipt."""
        ...

    def receipt(self, name: str) -> Json | None:
        """The receipt, None when the effect is not known to have happened."""
        ...

    def intended(self) -> frozenset[str]:
        """Names of all effects that were intended, whatever came of them."""
        ...


Public = NewType("Public", str)
"""A text that may leave: `run/publishable.py` alone makes it, and forges post nothing else."""


class Redact(Protocol):
    """Masks declared secrets by exact value and its encodings."""

    def __call__(self, text: str) -> str: ...


Listener = Callable[[str, Mapping[str, Any]], None]
"""Hears `(event name, fields)`; may fail alone (see `observe/events.py`)."""

Lines = Iterator[bytes]
