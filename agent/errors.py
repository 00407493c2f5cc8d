"""Every error this program raises on purpose, in one tree.

    MakimonoError
    ├── ConfigError              a key, file or variable is wrong                       exit 2
    ├── UsageError               an argument or uuid that does not exist                exit 2
    ├── SurroundingsError        the machine does not give what is needed               exit 3
    │   ├── DiskError            full, read-only, not permitted
    │   ├── SandboxUnavailable   commands cannot be isolated here
    │   ├── BrokerAway           the broker does not answer; the ledger is polled meanwhile
    │   ├── ReplicaAway          the place of the replica does not answer; it is caught up later
    │   └── LockHeld             another process owns the folder
    ├── ContextError             a task's folder is not what it should be
    ├── LedgerError              the ledger refused
    │   ├── ClaimLost            the row was not ours to take
    │   ├── Fenced               a newer attempt owns the task: stop at once
    │   └── RowUnreadable        one row has something in a column that cannot be there
    ├── GitError                 a git command failed
    │   ├── GitKilled            ended by a signal from outside
    │   ├── GitStarved           this host gave it no memory, process, thread or open file
    │   └── RemoteAway           the other side cannot be reached
    ├── WorkError                the repository cannot be worked on
    │   ├── RepositoryMissing    nothing at the address
    │   ├── BaseMissing          the base branch does not exist
    │   ├── SetupFailed          `workspace.setup` did not end well
    │   ├── RemoteRefused        git was not let in: 401, 403
    │   ├── RulesRefused         an ignore or attribute file that git must not read; carries `findings`
    │   ├── RebaseConflict       commits do not go on top of another one; carries `paths`
    │   ├── PushRejected         the other side refused the branch; `code` says why
    │   ├── LfsRefused           the other side does not take, or give, the content of Git LFS files
    │   └── PolicyViolation      a secret or a guarded path in what would be published
    ├── ForgeError               the place where tasks come from refused
    │   ├── IssueUnreadable      this one issue cannot be read (broken front matter, gone)
    │   ├── ForgeUnreachable     no connection, 5xx after all retries; says whether it may have happened
    │   │   └── AnswerOdd        200, and a field of the answer is not what it must be
    │   ├── ForgeLimited         slow down; carries `retry_after`
    │   ├── ForgeAccessRefused   401, 403: the token is missing, wrong, expired, or lacks a right
    │   └── ForgeRefused         any other 4xx; carries `status`
    ├── ReachError               a command asked the proxy of its sandbox for something that it did not get
    │   ├── HostRefused          a host that it may not reach
    │   ├── HostUnreached        one that could not be reached
    │   └── RequestUnreadable    in a way that the proxy does not serve
    ├── PictureRefused           a picture of an issue that is not sent to the model
    ├── StopHeard                a wait of ours ended because the task was told to end; no fault of anything
    ├── EndedBefore              the forge says that this very task has ended; carries `status`
    ├── TakenElsewhere           another daemon of the same account has the issue
    ├── ToolError                a tool call that cannot be done; its text goes to the model
    └── ModelError               the model's server refused or failed
        ├── ModelUnreachable     no connection, 5xx after all retries                    exit 3
        ├── ModelStalled         stream idle, cut, or the whole call too long
        ├── RateLimited          slow down; carries `retry_after`
        ├── QuotaExhausted       no money or no quota left; never retried
        ├── AccessRefused        401, 403                                                exit 3
        ├── ModelNotFound        404 or model not loaded                                 exit 3
        ├── ContextOverflow      prompt too long; carries `limit` and `requested` if told
        ├── RequestTooLarge      one request over a per-minute limit; waiting never helps
        ├── HistoryRefused       the message list is not legal for this wire
        ├── RequestRefused       any other 4xx
        │   └── ToolsRefused     the model, or its server as it was started, has no tool calls
        └── AnswerUnreadable     200 without an answer in it (HTML, no choices, bad JSON)
            └── CallUnreadable   the model wrote a call that its server cannot read

Stops are not errors: "done", "limit reached", "asked a question", "told to stop" travel as `values.Outcome`.
The first argument is the message for a person: it names what was found, what is allowed and what to do.
"""

from __future__ import annotations


class MakimonoError(Exception):
    """Root.  `code` is the stable word in `tasks.error_code`; `exit_code` what the command line ends with."""

    code = "error"
    exit_code = 1


class ConfigError(MakimonoError):
    """A key, file or variable of the configuration is wrong."""

    code = "config"
    exit_code = 2


class UsageError(MakimonoError):
    """The command line names something that does not exist or cannot be done."""

    code = "usage"
    exit_code = 2


class SurroundingsError(MakimonoError):
    """The machine does not give what is needed."""

    code = "surroundings"
    exit_code = 3


class DiskError(SurroundingsError):
    """A write failed: disk full, read-only, not permitted.  What was there before is unharmed."""

    code = "disk"


class SandboxUnavailable(SurroundingsError):
    """Commands cannot be isolated on this machine; the message says what an administrator can do."""

    code = "sandbox_unavailable"


class BrokerAway(SurroundingsError):
    """The broker does not answer, or the connection was cut.  A new connection may mend it; no task is lost by it."""

    code = "broker_away"


class ReplicaAway(SurroundingsError):
    """The place of the replica does not answer, or refuses.  What is missing there is written when it answers again."""

    code = "replica_away"


class LockHeld(SurroundingsError):
    """Another live process owns the folder."""

    code = "lock_held"


class ContextError(MakimonoError):
    """A task's folder is not what it should be."""

    code = "context"


class LedgerError(MakimonoError):
    """The ledger refused an operation."""

    code = "ledger"


class ClaimLost(LedgerError):
    """The row was not `queued` any more, or another process holds the task's lock."""

    code = "claim_lost"


class Fenced(LedgerError):
    """A newer attempt owns the task.  The holder of the old one must stop without another outside effect."""

    code = "fenced"


class RowUnreadable(LedgerError):
    """One row has something in a column that cannot be there; somebody else wrote it.  The message names both."""

    code = "row_unreadable"


class GitError(MakimonoError):
    """A git command failed; the message carries its last lines of stderr."""

    code = "git"

    def __init__(self, message: str, *, returncode: int = 1, stderr: str = "") -> None:
        super().__init__(message)
        self.returncode = returncode
        self.stderr = stderr


class GitKilled(GitError):
    """A git command was killed by a signal that did not come from here (out of memory, an operator)."""

    code = "git_killed"


class GitStarved(GitError):
    """This host gave a git command no memory, process, thread or open file.  It says nothing about the repository."""

    code = "git_starved"


class RemoteAway(GitError):
    """The other side of a repository cannot be reached: no connection, a cut one, 5xx, no answer in time."""

    code = "git_unreachable"


class WorkError(MakimonoError):
    """The repository cannot be worked on."""

    code = "work"


class RepositoryMissing(WorkError):
    """There is no git repository at the address."""

    code = "repository_missing"


class BaseMissing(WorkError):
    """The base branch that the issue or the configuration names does not exist."""

    code = "base_missing"


class SetupFailed(WorkError):
    """`workspace.setup` failed; the message carries the end of its output.  `passing`: for want of the network,
    or of what this host had none of (memory, processes, open files)."""

    code = "setup_failed"

    def __init__(self, message: str, *, passing: bool = False) -> None:
        super().__init__(message)
        self.passing = passing


class RemoteRefused(WorkError):
    """Git was not let in (401, 403): the token is wrong, expired, or lacks a right.  `stderr` is what git said."""

    code = "git_access"

    def __init__(self, message: str, *, stderr: str = "") -> None:
        super().__init__(message)
        self.stderr = stderr


class ReachError(MakimonoError):
    """A command asked the proxy of its sandbox for something that it did not get.  The message goes to the command."""

    code = "reach"


class HostRefused(ReachError):
    """The host is not in the allow-list, or is at an address that is not reached."""

    code = "host_refused"


class HostUnreached(ReachError):
    """The host may be reached, and was not: no such name, no connection."""

    code = "host_unreached"


class RequestUnreadable(ReachError):
    """The request is none that the proxy serves."""

    code = "request_unreadable"


class RulesRefused(WorkError):
    """Files of the tree that git reads as rules are none that it may read.  `findings` has a line for each."""

    code = "rules_refused"

    def __init__(self, findings: tuple[str, ...]) -> None:
        super().__init__(f"git cannot look at the work tree: {'; '.join(findings)}")
        self.findings = findings


class RebaseConflict(WorkError):
    """Commits cannot be made again on top of another one; nothing was changed.  `paths` are fit to be shown."""

    code = "conflict"

    def __init__(self, message: str, *, paths: tuple[str, ...]) -> None:
        super().__init__(message)
        self.paths = paths


class PushRejected(WorkError):
    """The remote refused the branch for what it is, not for who asks.  `code` is the row's (`work/refusals.py`)."""

    code = "push_rejected"

    def __init__(self, message: str, *, code: str = "push_rejected") -> None:
        super().__init__(message)
        self.code = code


class LfsRefused(WorkError):
    """The other side does not take, or give, the content of Git LFS files."""

    code = "lfs_refused"


class PolicyViolation(WorkError):
    """What would be published holds a secret or touches a guarded path; `findings` lists them without values."""

    code = "policy"

    def __init__(self, message: str, *, findings: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.findings = findings


class ForgeError(MakimonoError):
    """The place where tasks come from refused or cannot be read."""

    code = "forge"


class IssueUnreadable(ForgeError):
    """This one issue cannot be read, or not be worked on where it is; the others go on.  `code` is the row's."""

    code = "issue_unreadable"

    def __init__(self, message: str, *, code: str = "issue_unreadable") -> None:
        super().__init__(message)
        self.code = code


class ForgeUnreachable(ForgeError):
    """No connection, a cut one, or 5xx after every retry.  `maybe`: a change was sent and may have happened, so look
    before it is made again."""

    code = "forge_unreachable"

    def __init__(self, message: str, *, maybe: bool = False) -> None:
        super().__init__(message)
        self.maybe = maybe


class AnswerOdd(ForgeUnreachable):
    """An answer of 200 lacks a field, or has something else in it: a proxy, a host that starts, an API of another kind.
    The message names the request, the field, and what was found."""

    code = "forge_odd"


class ForgeLimited(ForgeError):
    """The forge asks to slow down, or the budget of requests is used up.  `retry_after` is in seconds."""

    code = "forge_limited"

    def __init__(self, message: str, *, retry_after: float) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class ForgeAccessRefused(ForgeError):
    """401 or 403: the token is missing, wrong, expired, or lacks a right."""

    code = "forge_access"


class ForgeRefused(ForgeError):
    """Any other 4xx.  `status` is HTTP's, `reasons` what the forge said of each field."""

    code = "forge_refused"

    def __init__(self, message: str, *, status: int, reasons: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.status = status
        self.reasons = reasons


class PictureRefused(MakimonoError):
    """A picture that is not sent to a model.  Its text says why, for the person and the model."""

    code = "picture"


class StopHeard(MakimonoError):
    """A wait of this program (git beside a work tree, a fetch, a lock) ended because the task was told to stop or to
    wait, or reached a limit; it says nothing of what was waited for."""

    code = "stop_heard"


class TakenElsewhere(MakimonoError):
    """Another daemon of the same account, which has a ledger of its own, has the issue: nothing is done here."""

    code = "taken_elsewhere"


class EndedBefore(MakimonoError):
    """The final comment of this very task stands on the issue: the row is older than the end (a backup that was put
    back).  `status` is the end that the label shows."""

    code = "ended_before"

    def __init__(self, message: str, *, status: str) -> None:
        super().__init__(message)
        self.status = status


class ToolError(MakimonoError):
    """A tool call that cannot be done.  Its text is the result that the model sees."""

    code = "tool"


class ModelError(MakimonoError):
    """The model's server refused or failed.

    `tries` is how often the same request may be sent in all before this error stands; `quote`, `codes` and `params` are
    the words, the codes and the parameters of the server's answer (`llm/faults.py` sets all four).
    """

    code = "model"
    tries = 1
    quote = ""
    codes: tuple[str, ...] = ()
    params: tuple[str, ...] = ()

    def __init__(self, message: str, *, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class ModelUnreachable(ModelError):
    """No connection, or 5xx after every retry."""

    code = "model_unreachable"
    exit_code = 3


class ModelStalled(ModelError):
    """The stream went idle or was cut, or the whole call took longer than allowed.  Nothing of it was acted on.

    `answering`: the server was writing its answer all the time, and the time was up."""

    code = "model_stalled"
    answering = False


class RateLimited(ModelError):
    """The server asks to slow down.  `retry_after` is in seconds, None when it did not say."""

    code = "rate_limited"

    def __init__(self, message: str, *, status: int | None = None, retry_after: float | None = None) -> None:
        super().__init__(message, status=status)
        self.retry_after = retry_after


class QuotaExhausted(ModelError):
    """No quota or money left.  Never retried."""

    code = "quota_exhausted"


class AccessRefused(ModelError):
    """401 or 403: the key is missing, wrong, or lacks a right."""

    code = "access_refused"
    exit_code = 3


class ModelNotFound(ModelError):
    """404, or no such model is loaded."""

    code = "model_not_found"
    exit_code = 3


class ContextOverflow(ModelError):
    """The prompt is too long for the model.  `limit` and `requested` are tokens, None when the text did not say."""

    code = "context_overflow"

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        limit: int | None = None,
        requested: int | None = None,
    ) -> None:
        super().__init__(message, status=status)
        self.limit = limit
        self.requested = requested


class RequestTooLarge(ContextOverflow):
    """One request is larger than a per-minute limit (429).  Waiting never helps; a smaller request does."""

    code = "request_too_large"


class HistoryRefused(ModelError):
    """The server says the message list is not legal (orphan result, unanswered call, template error)."""

    code = "history_refused"


class RequestRefused(ModelError):
    """Any other 4xx.  `unexplained`: no code and no wording of it is known, so it may have been for the length."""

    code = "request_refused"

    def __init__(self, message: str, *, status: int | None = None, unexplained: bool = False) -> None:
        super().__init__(message, status=status)
        self.unexplained = unexplained


class ToolsRefused(RequestRefused):
    """The model, or its server as it was started, has no tool calls."""

    code = "tools_refused"


class AnswerUnreadable(ModelError):
    """The status was good and there is no answer in the body."""

    code = "answer_unreadable"


class CallUnreadable(AnswerUnreadable):
    """The model wrote a call that its own server cannot read.  The same request may come out well."""

    code = "call_unreadable"
