"""`deliberate` asks the reviewers about a question, a file, a change or an issue.

Requests to reviewers are recorded in a new folder below `base_dir/deliberations/`, and `limits.tokens` and
`limits.cost` limit one deliberation as they limit one task.  `deliberate` publishes nothing.
"""

from __future__ import annotations

import hashlib
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from agent import clock, durable_files, prompts
from agent.commands.solve_issue import on_a_forge, on_the_tracker
from agent.consensus import ConsensusEngine, ConsensusRequest, StreamingEmitter
from agent.consensus.change import code_around, diff_of, rules_of
from agent.consensus.errors import BudgetExceeded
from agent.consensus.material import Material
from agent.consensus.record import DeliberationRecord
from agent.consensus.reviewers import open_reviewers
from agent.context import RequestStore
from agent.context.deliberations import DeliberationStore
from agent.errors import DiskError, GitError, UsageError
from agent.gitcmd import git
from agent.observe.events import Events, to_log
from agent.security.redact import masker_of
from agent.security.sanitise import clean
from agent.values import End, Outcome
from agent.wiring.folders import DELIBERATIONS
from agent.wiring.wiring import Wiring
from agent.worker.task_templates import present_templates

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from agent.config import Settings
    from agent.consensus import ConsensusDecision
    from agent.values import Json

ABOUT_A_CHANGE = "Is this change right, harmless and complete enough to be merged?"
ABOUT_AN_ISSUE = "Should this be done, and is it described well enough to be worked on?"
LARGEST = 1 << 20
PATIENCE = 2.0
"""Seconds that a consumer of streamed answers has to receive the last events after an interruption."""
MODES = ("vote", "debate")


@dataclass(frozen=True, slots=True)
class Deliberated:
    """The decision of the reviewers, the folder with its record, and `session`, the id of the deliberation."""

    decision: ConsensusDecision
    folder: Path
    session: str


def deliberate(
    settings: Settings, request: ConsensusRequest, *, consumer: Callable[[Json], None] | None = None
) -> Deliberated:
    """Let the reviewers deliberate; `consumer` gets the events of their streamed answers.

    Raises ConfigError, DiskError, KeyboardInterrupt, and Interrupted when the deliberation reaches a limit.
    """
    session = uuid4().hex[:12]
    top = durable_files.make_dir(settings.base_dir, durable_files.passable()) / DELIBERATIONS
    stamp = clock.stamp()[:19].replace(":", "").replace("-", "")
    folder = durable_files.make_dir(durable_files.make_dir(top) / f"{stamp}-{session}")
    redact = masker_of(settings)
    emitter = StreamingEmitter(consumer, session=session)
    events = Events([to_log])
    with (
        present_templates(settings, events),
        _closed_at_the_end(emitter),
        closing(RequestStore(folder, redact=redact)) as requests,
        closing(DeliberationStore(folder, redact=redact)) as store,
        open_reviewers(
            settings,
            requests,
            events=events,
            gate=lambda: limit_of(settings, requests),
            templates=prompts.accepted_names(),
        ) as reviewers,
    ):
        subject = hashlib.sha256(request.prompt.encode("utf-8", "replace")).hexdigest()
        record = DeliberationRecord.open(store, subject)
        requests.events = events
        engine = ConsensusEngine(settings, reviewers, emitter=emitter, record=record, events=events)
        try:
            decision = engine.execute(request)
        finally:
            requests.sync(force=True)
            store.sync(force=True)
    if isinstance(emitter.failure, DiskError):
        raise emitter.failure
    return Deliberated(decision, folder, session)


@contextmanager
def _closed_at_the_end(emitter: StreamingEmitter) -> Iterator[None]:
    """A context manager that closes the emitter of streamed answers at its end; after an error, Ctrl-C or SIGTERM it
    does not wait for a consumer that reads nothing."""
    try:
        yield
        emitter.close()
    except BaseException:
        emitter.close(PATIENCE)
        raise


def limit_of(settings: Settings, requests: RequestStore) -> Outcome | None:
    """The outcome that ends the deliberation when its requests have used up `limits.tokens` or `limits.cost`; None
    while they have not."""
    sums = requests.sums()
    for key, limit, used in (
        ("tokens", settings.limits.tokens, sums.prompt + sums.completion),
        ("cost", settings.limits.cost, sums.cost),
    ):
        if limit is not None and used >= limit:
            said = f"`limits.{key}` is {limit:g}; {used:.6g} were used. Raise it in config.yaml"
            return Outcome(End.LIMIT, code=f"limit_{key}", summary=said)
    return None


def with_mode(settings: Settings, rounds: int | None, mode: str | None) -> Settings:
    """The settings with the number of rounds that the command line gives by `rounds` and `mode`; the mode `vote` means
    no rounds of debate. Raises UsageError if `rounds` and `mode` contradict each other."""
    if mode == "vote":
        if rounds:
            raise UsageError(f"--mode vote has no rounds of debate; leave out --rounds {rounds}")
        rounds = 0
    elif mode == "debate" and rounds is None:
        rounds = max(1, settings.consensus.rounds)
    elif mode == "debate" and rounds == 0:
        raise UsageError("--mode debate needs at least one round; use --mode vote, or --rounds 1")
    if rounds is None:
        return settings
    section = settings.consensus.model_copy(update={"rounds": rounds})
    return settings.model_copy(update={"consensus": section})


# --- the question ---------------------------------------------------------------------------------------------


def about_a_file(path: Path) -> ConsensusRequest:
    """The deliberation request for the question in a file. Raises UsageError when the file cannot be read."""
    try:
        with path.open("rb") as file:
            data = file.read(LARGEST + 1)
    except OSError as error:
        raise UsageError(f"--file {path}: {error.strerror or error}; give a text file") from error
    if len(data) > LARGEST:
        raise UsageError(f"--file {path}: larger than {LARGEST >> 20} MiB; give a shorter text")
    text = data.decode("utf-8", "replace")
    if not text.strip():
        raise UsageError(f"--file {path}: it is empty; write what is to be decided")
    return ConsensusRequest(text)


def about_a_change(span: str, repository: Path) -> ConsensusRequest:
    """The deliberation request for the change of a range of commits: `A..B`, `A...B` (since their common ancestor), or
    `A` (up to HEAD).

    Raises UsageError when the repository or a commit does not exist, or when the range has no change.
    """
    git_dir = _git_dir(repository)
    between = "..." if "..." in span else ".."
    first, _, last = span.partition(between)
    old, new = (_commit(git_dir, name or "HEAD", span) for name in (first, last))
    if between == "...":
        done = git("merge-base", old, new, git_dir=git_dir, check=False)
        old = done.output.decode().strip()
        if not old:
            raise UsageError(f"--diff {span}: the two have no common ancestor; use {first}..{last}")
    try:
        diff = diff_of(git_dir, old, new)
    except BudgetExceeded as error:
        raise UsageError(f"--diff {span}: {error}; name a smaller range") from error
    if not diff.strip():
        raise UsageError(f"--diff {span}: nothing differs in {repository}; name two commits that differ")
    material = Material(diff=diff, rules=rules_of(git_dir, old), code=code_around(git_dir, new, diff))
    return ConsensusRequest(ABOUT_A_CHANGE, material=material)


def about_an_issue(settings: Settings, address: str) -> ConsensusRequest:
    """Make the deliberation request from the title and body of the issue with this address: a URL on a configured
    forge, or a number (`#3`) or file of the local tracker. Raises UsageError for an unknown address, or ForgeError."""
    with ExitStack() as opened:
        task = on_the_tracker(settings, address)
        if task is None:
            wiring = opened.enter_context(closing(Wiring(settings)))
            task = opened.enter_context(on_a_forge(wiring, address, "the text by --file"))
        assert task.forge is not None, "a forge gave it"
        issue = task.forge.read_issue(task.get_task_key())
    title, body = clean(issue.title, limit=500).text, clean(issue.body, limit=LARGEST).text
    return ConsensusRequest(f"{ABOUT_AN_ISSUE}\n\n# {title}\n\n{body}")


def _git_dir(repository: Path) -> Path:
    path = repository.absolute()
    for folder in (path, *path.parents):
        own = folder / ".git"
        if own.is_dir():
            return own
        if own.is_file():  # in a linked work tree, `.git` is a file with the path of the git directory
            text = own.read_text(encoding="utf-8", errors="replace").removeprefix("gitdir:").strip()
            return (folder / text).resolve()
        if (folder / "HEAD").is_file() and (folder / "objects").is_dir():
            return folder
    raise UsageError(f"--repo {repository}: there is no git repository; give the folder of one")


def _commit(git_dir: Path, name: str, span: str) -> str:
    try:
        done = git("rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}", git_dir=git_dir)
    except GitError as error:
        raise UsageError(f"--diff {span}: {git_dir} has no commit {name!r}; `git log` shows those it has") from error
    return done.output.decode().strip()


def as_json(done: Deliberated) -> dict[str, Any]:
    """The result of `deliberate` as an object for `--json`."""
    failures = dict(done.decision.failures)
    return {"session": done.session, **done.decision.to_dict(), "failures": failures, "folder": str(done.folder)}
