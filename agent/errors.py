"""The tree of the errors that this program raises on purpose, except errors of a single package.

    MakimonoError
    ├── ConfigError              a key, file or variable is wrong                       exit 2
    │   ├── PlugInRefused        a plug-in is not pinned, has changed, or may be written by others
    │   └── CommandRefused       others may write the file that a configured command comes from, or its program
    ├── UsageError               an argument or uuid that does not exist                exit 2
    ├── HostError                the machine lacks something that the program needs     exit 3
    │   ├── DiskError            a write failed: disk full, read-only, not permitted
    │   ├── SandboxUnavailable   commands cannot be isolated here
    │   ├── BrokerAway           the message broker does not answer; the ledger is polled meanwhile
    │   ├── ReplicaAway          the storage of the replica does not answer; what it lacks is written later
    │   ├── MemoryUnavailable    memory.db cannot be read or written; tasks go on without it
    │   └── LockHeld             another process holds a lock, for example that of a task's folder
    ├── ContextError             the stored files of a task cannot be used as requested
    ├── RecordRefused            a store refuses a record that would make its file invalid (also a ValueError)
    ├── LedgerError              the ledger refused an operation, or its database failed
    │   ├── ClaimLost            the row could not be claimed
    │   ├── Fenced               this process does not own the task any more, and must stop at once
    │   └── RowUnreadable        one row has an invalid value in a column
    ├── GitError                 a git command failed
    │   ├── GitKilled            a signal that this program did not send killed git
    │   ├── GitStarved           this host gave git no memory, process, thread or open file
    │   └── RemoteAway           the remote cannot be reached
    ├── WorkError                the repository cannot be worked on
    │   ├── RepositoryMissing    no repository at the address
    │   ├── BaseMissing          the base branch does not exist
    │   ├── SetupFailed          the command `workspace.setup` failed
    │   ├── RemoteRefused        the remote refused access: 401, 403
    │   ├── RulesRefused         the work tree has files that git must not read; carries `findings`
    │   ├── RebaseConflict       commits conflict with the new base; carries `paths`
    │   ├── PushRejected         the remote refused the branch; `code` says why
    │   ├── LfsRefused           the remote refuses to accept or send the content of Git LFS files
    │   ├── ContentWrong         the content of a Git LFS file does not match its pointer
    │   └── PolicyViolation      the change contains a secret or a guarded path; carries `findings`
    ├── ForgeError               the forge refused a request or cannot be read
    │   ├── IssueUnreadable      one issue cannot be read (broken front matter, deleted)
    │   ├── ForgeUnreachable     no connection, 5xx after all retries; `maybe`: the change may have been made
    │   │   └── AnswerOdd        status 200, but a field of the answer is missing or invalid
    │   ├── ForgeLimited         too many requests; carries `retry_after`
    │   ├── ForgeAccessRefused   401, 403: the token is missing, wrong, expired, or lacks a right
    │   └── ForgeRefused         any other 4xx; carries `status`
    ├── ReachError               the proxy of a sandbox did not carry out a request of a command
    │   ├── HostRefused          the host is not allowed
    │   ├── HostUnreached        the host is allowed but cannot be reached
    │   └── RequestUnreadable    the proxy does not support a request of this form
    ├── PictureRefused           a picture of an issue that is not sent to the model
    ├── StopHeard                a wait ended because the task shall stop or pause; nothing has failed
    ├── EndedBefore              the forge already shows the end of this task; carries `status`
    ├── TakenElsewhere           another daemon of the same account has the issue
    ├── ToolError                a tool call cannot be executed; the model gets the message
    └── ModelError               the model's server refused or failed
        ├── ModelUnreachable     no connection or a temporary fault, after all retries   exit 3
        ├── ModelStalled         the stream was idle or cut, or the whole call took too long
        ├── RateLimited          too many requests; carries `retry_after`
        ├── QuotaExhausted       no money or no quota is left; never retried
        ├── AccessRefused        401, 403                                               exit 3
        ├── ModelNotFound        404, or the model is not loaded                        exit 3
        ├── ContextOverflow      the prompt is too long; carries `limit` and `requested` if known
        ├── RequestTooLarge      one request exceeds a per-minute limit; waiting does not help
        ├── HistoryRefused       the message list is not legal for this server
        ├── RequestRefused       any other refusal
        │   └── ToolsRefused     the model has no tool calls, or its server was started without them
        └── AnswerUnreadable     status 200, but no answer in the body (HTML, no choices, bad JSON)
            ├── ShapeWrong       a field of the answer has another type than the API specifies
            └── CallUnreadable   the model wrote a tool call that its server cannot parse

Errors that only one package uses are defined in a module of that package, for example those of `agent/window/` in
`window/base.py`.

Ends of a run that are no failures are not errors: "done", "limit reached", "asked a question" and "stopped" are values
of `values.Outcome`.  The first argument of an error is the message for a person: what was found, what is allowed and
what to do.
"""

from __future__ import annotations


class MakimonoError(Exception):
    """The root of all errors of this program.

    `code` is a stable identifier for the column `tasks.error_code`; `exit_code` is the exit code of the command line.
    """

    code = "error"
    exit_code = 1


class ConfigError(MakimonoError):
    """A key, file or variable of the configuration is wrong."""

    code = "config"
    exit_code = 2


class PlugInRefused(ConfigError):
    """A plug-in is not pinned, has changed since it was pinned, or can be written by other users."""

    code = "plugin_refused"


class CommandRefused(ConfigError):
    """A configured command is not run: other users can write its program or the file that configures it, or it is set
    in a file in which no command is permitted."""

    code = "command_refused"


class UsageError(MakimonoError):
    """The arguments of a command name something that does not exist, or ask for something that cannot be done."""

    code = "usage"
    exit_code = 2


class HostError(MakimonoError):
    """The machine lacks something that the program needs, such as a program or a kernel feature."""

    code = "surroundings"
    exit_code = 3


class DiskError(HostError):
    """A write to the disk failed: disk full, read-only, not permitted. A failed write (DiskError) leaves the data
    intact that was written before."""

    code = "disk"


class SandboxUnavailable(HostError):
    """Commands cannot be isolated on this machine; the message of the error says what an administrator can do."""

    code = "sandbox_unavailable"


class BrokerAway(HostError):
    """The message broker does not answer, or the connection to it was cut. The program later tries a new connection; no
    task is lost, since the daemon polls the ledger meanwhile."""

    code = "broker_away"


class ReplicaAway(HostError):
    """The storage that holds the replica of the task folders does not answer, or refuses a request.

    When the storage answers again, the program writes what the replica of the task folders lacks.
    """

    code = "replica_away"


class MemoryUnavailable(HostError):
    """The file memory.db is damaged, locked, from a newer version of the program, or on a disk that fails.

    Without a usable memory.db the task continues without long-term memory.
    """

    code = "memory"


class LockHeld(HostError):
    """Another live process holds a lock, for example that of a task's folder."""

    code = "lock_held"


class ContextError(MakimonoError):
    """The stored files of a task cannot be used as requested, for example because they do not have the expected
    content, the task has ended, or its uuid cannot name a folder."""

    code = "context"


class RecordRefused(MakimonoError, ValueError):
    """A store of a task refuses a message, a summary, a compaction or a tool call that would make its files invalid.

    The refused record was not written to the file, and the next record can be added. RecordRefused is also a
    ValueError: if the program itself made the refused record, that is a mistake of the program, and the log has the
    traceback.
    """

    code = "record_refused"


class LedgerError(MakimonoError):
    """The ledger (the database of tasks) refused an operation, or its database failed."""

    code = "ledger"


class ClaimLost(LedgerError):
    """The task could not be claimed: its row in the ledger is missing, not `queued` or not due yet, or another process
    holds the lock of the task."""

    code = "claim_lost"


class Fenced(LedgerError):
    """This process does not own the task any more: a newer attempt has its row, or the row is missing or not running.
    The process must stop at once and change nothing outside."""

    code = "fenced"


class RowUnreadable(LedgerError):
    """A column of one row of the ledger has an invalid value, which this program does not write. The message of
    RowUnreadable names the row and the column."""

    code = "row_unreadable"


class GitError(MakimonoError):
    """A git command failed; the message of the error has the last lines of git's stderr."""

    code = "git"

    def __init__(self, message: str, *, returncode: int = 1, stderr: str = "") -> None:
        super().__init__(message)
        self.returncode = returncode
        self.stderr = stderr


class GitKilled(GitError):
    """A git command was killed by a signal that this program did not send (out of memory, an operator)."""

    code = "git_killed"


class GitStarved(GitError):
    """This host refused to give a git command memory, a process, a thread or an open file.

    GitStarved does not mean that the repository is damaged.
    """

    code = "git_starved"


class RemoteAway(GitError):
    """The remote of a repository cannot be reached: no connection, a connection that was cut, a status 5xx, no answer
    in time."""

    code = "git_unreachable"


class WorkError(MakimonoError):
    """The repository cannot be worked on."""

    code = "work"


class RepositoryMissing(WorkError):
    """There is no git repository at the configured address."""

    code = "repository_missing"


class BaseMissing(WorkError):
    """The base branch that the issue or the configuration names does not exist."""

    code = "base_missing"


class SetupFailed(WorkError):
    """The command `workspace.setup` failed; the message of the error has the end of the command's output.

    `passing`: the cause of the failed setup is temporary (the network, or a lack of memory, processes or open files on
    this host), so a later attempt may succeed.
    """

    code = "setup_failed"

    def __init__(self, message: str, *, passing: bool = False) -> None:
        super().__init__(message)
        self.passing = passing


class RemoteRefused(WorkError):
    """The remote refused access (401, 403): the token is wrong, expired, or lacks a right. `stderr` is what git printed
    when the remote refused access."""

    code = "git_access"

    def __init__(self, message: str, *, stderr: str = "") -> None:
        super().__init__(message)
        self.stderr = stderr


class ReachError(MakimonoError):
    """The proxy of a sandbox did not carry out a request of a command that runs in the sandbox. The command gets the
    message of the error as the answer of the proxy."""

    code = "reach"


class HostRefused(ReachError):
    """The host in the request of a sandboxed command is not in the allow-list, or has an address that may not be
    reached."""

    code = "host_refused"


class HostUnreached(ReachError):
    """The host in the request of a sandboxed command is allowed but cannot be reached: no such name, no connection."""

    code = "host_unreached"


class RequestUnreadable(ReachError):
    """The proxy of the sandbox does not support requests of the form that the command sent."""

    code = "request_unreadable"


class RulesRefused(WorkError):
    """The work tree contains a file that git must not read: an ignore, attribute, module or mailmap file, or a file of
    a nested repository. `findings` has a line for each of the first faults, and one with the number of the others."""

    code = "rules_refused"

    def __init__(self, findings: tuple[str, ...]) -> None:
        super().__init__(f"git cannot look at the work tree: {'; '.join(findings)}")
        self.findings = findings


class RebaseConflict(WorkError):
    """Commits conflict with the commit onto which they are to be rebased; the repository was not changed.

    `paths` are the paths with conflicts, in printable form.
    """

    code = "conflict"

    def __init__(self, message: str, *, paths: tuple[str, ...]) -> None:
        super().__init__(message)
        self.paths = paths


class PushRejected(WorkError):
    """The remote refused the content of the pushed branch, not the credentials.

    `code` is the error code of the refused push for the task's row (`work/push_errors.py`).
    """

    code = "push_rejected"

    def __init__(self, message: str, *, code: str = "push_rejected") -> None:
        super().__init__(message)
        self.code = code


class LfsRefused(WorkError):
    """The remote refuses to accept or to send the content of Git LFS files."""

    code = "lfs_refused"


class ContentWrong(WorkError):
    """The content of a Git LFS file does not match its pointer: the copy is damaged, the server sent other content, or
    the file changed while it was read. The wrong content of the Git LFS file was not stored."""

    code = "lfs_content"


class PolicyViolation(WorkError):
    """The change contains a secret or a guarded path; `findings` lists them without values."""

    code = "policy"

    def __init__(self, message: str, *, findings: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.findings = findings


class ForgeError(MakimonoError):
    """The forge (where tasks come from) refused a request or cannot be read."""

    code = "forge"


class IssueUnreadable(ForgeError):
    """An issue, or all issues of one repository, cannot be read or worked on; the rest of the forge can be used. `code`
    is the error code that is written to the row of the task."""

    code = "issue_unreadable"

    def __init__(self, message: str, *, code: str = "issue_unreadable") -> None:
        super().__init__(message)
        self.code = code


class ForgeUnreachable(ForgeError):
    """The forge could not be reached: there was no connection, a connection was cut, or the status was 5xx after every
    retry.

    `maybe`: the request was sent and would change something on the forge, so the change may have been made; the caller
    must check this before a retry.
    """

    code = "forge_unreachable"

    def __init__(self, message: str, *, maybe: bool = False) -> None:
        super().__init__(message)
        self.maybe = maybe


class AnswerOdd(ForgeUnreachable):
    """An answer of the forge with status 200 lacks a field or has an unexpected value; it probably comes from a proxy,
    a server that is starting, or another API. The message of AnswerOdd names the request, the field and the value."""

    code = "forge_odd"


class ForgeLimited(ForgeError):
    """The forge asks for fewer requests, or its rate limit is used up. `retry_after` is the number of seconds to wait
    before the next request to the forge."""

    code = "forge_limited"

    def __init__(self, message: str, *, retry_after: float) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class ForgeAccessRefused(ForgeError):
    """The forge answered with 401 or 403: the token is missing, wrong, expired, or lacks a right."""

    code = "forge_access"


class ForgeRefused(ForgeError):
    """The forge answered with a 4xx status that no other class here covers.

    `status` is the HTTP status, `reasons` are the errors that the forge names for single fields of the request.
    """

    code = "forge_refused"

    def __init__(self, message: str, *, status: int, reasons: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.status = status
        self.reasons = reasons


class PictureRefused(MakimonoError):
    """A picture in an issue is not sent to the model. The message of PictureRefused gives the reason, for people and
    for the model."""

    code = "picture"


class StopHeard(MakimonoError):
    """A wait (for git on a work tree, a fetch, a lock) ended because the task shall stop or pause, or reached a limit.

    StopHeard does not mean that the operation for which the program waited has failed."""

    code = "stop_heard"


class TakenElsewhere(MakimonoError):
    """Another daemon that uses the same account, but another ledger, works on the issue; this task does nothing."""

    code = "taken_elsewhere"


class EndedBefore(MakimonoError):
    """The issue already has the final comment of this task although the task's row is open: a backup of the ledger was
    restored that is older than the end of the task.  `status` is the final status that the label of the issue shows."""

    code = "ended_before"

    def __init__(self, message: str, *, status: str) -> None:
        super().__init__(message)
        self.status = status


class ToolError(MakimonoError):
    """A tool call of the model cannot be executed. The model gets the message of a ToolError as the result of the
    call."""

    code = "tool"


class ModelError(MakimonoError):
    """The server of the model refused a request, or failed.

    `tries` is the number of times that the same request may be sent before the error is final.  `quote`, `codes` and
    `params` are the text, the error codes and the parameters in the server's answer (`llm/error_mapping.py` sets these
    and `tries`).
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
    """The model's server could not be reached, or had a temporary fault (for example 408, 409 or most 5xx) after every
    retry."""

    code = "model_unreachable"
    exit_code = 3


class ModelStalled(ModelError):
    """The server took or sent nothing for too long or cut its answer off, or the whole call took longer than allowed.

    No part of the stalled answer was used.

    `answering`: the server was still sending its answer when the time was up.
    """

    code = "model_stalled"
    answering = False


class RateLimited(ModelError):
    """The model's server asks for fewer requests. `retry_after` is the number of seconds to wait before the next
    request to the model, None if the server gives none."""

    code = "rate_limited"

    def __init__(self, message: str, *, status: int | None = None, retry_after: float | None = None) -> None:
        super().__init__(message, status=status)
        self.retry_after = retry_after


class QuotaExhausted(ModelError):
    """The account at the model's provider has no quota or money left. A request that failed for lack of quota is never
    retried."""

    code = "quota_exhausted"


class AccessRefused(ModelError):
    """The model's server refused access (mostly 401 or 403): the key is missing, wrong, or lacks a right, or the
    provider does not serve this region."""

    code = "access_refused"
    exit_code = 3


class ModelNotFound(ModelError):
    """The model's server answered with 404 or 410, or no such model is loaded."""

    code = "model_not_found"
    exit_code = 3


class ContextOverflow(ModelError):
    """The prompt is too long for the model, or leaves no space for the requested answer.

    `limit` (for prompt and answer together, or for the prompt alone) and `requested` (the size of the prompt) are
    numbers of tokens, None if unknown."""

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
    """One request to the model is larger than a per-minute limit (429). Waiting does not help when one request exceeds
    the limit per minute; a smaller request does."""

    code = "request_too_large"


class HistoryRefused(ModelError):
    """The message list is not legal (a result without a call, a call without a result, a template error): the check
    before the request found that, or the server reports it."""

    code = "history_refused"


class RequestRefused(ModelError):
    """The model's server refused a request (mostly with a 4xx status) for a reason that no other class here covers.

    `unexplained`: the program knows neither the error code nor the text of the server's answer, so the request may have
    been too long.
    """

    code = "request_refused"

    def __init__(self, message: str, *, status: int | None = None, unexplained: bool = False) -> None:
        super().__init__(message, status=status)
        self.unexplained = unexplained


class ToolsRefused(RequestRefused):
    """The model cannot call tools, or its server was started with options under which it cannot."""

    code = "tools_refused"


class AnswerUnreadable(ModelError):
    """The model's server sent no usable answer: mostly status 200 with a body that contains no answer, for example
    because `base_url` is wrong."""

    code = "answer_unreadable"


class ShapeWrong(AnswerUnreadable):
    """A field in the answer of the model's server has another type than the provider's API specifies."""

    code = "answer_shape"


class CallUnreadable(AnswerUnreadable):
    """The model wrote a tool call that its own server cannot parse, or that it refuses. After CallUnreadable, the same
    request to the model may succeed when it is sent again.
    """

    code = "call_unreadable"


MISTAKES: tuple[type[Exception], ...] = (
    *(ArithmeticError, AssertionError, AttributeError, LookupError, NameError, NotImplementedError),
    *(RecursionError, TypeError, ValueError),
)
"""Python errors that indicate a mistake of this program, which would occur again.

A Python error that is neither in MISTAKES nor in the tree of this program's errors, such as OSError, comes from the
host. An error class of this program that also inherits from a class in MISTAKES counts as a mistake of the program
where no code handles it.
"""


def is_unforeseen(error: BaseException | None) -> bool:
    """Whether the error or one of its causes is a mistake (MISTAKES), so that the log needs a traceback."""
    seen: set[int] = set()
    # In Python an error can be its own cause, so the loop remembers the errors it has seen.
    while error is not None and id(error) not in seen:
        if isinstance(error, MISTAKES):
            return True
        seen.add(id(error))
        error = error.__cause__
    return False
