"""Determines from git's messages why the remote refused a branch: the error code for the task's row, and advice for a
person.

The patterns match messages of git, GitHub, GitLab, Forgejo and Gitea (routers/private/hook_pre_receive.go).
"""

from __future__ import annotations

import re

OTHER = ("push_rejected", "look at the rules of the repository; what was committed is kept")

TOO_LARGE = r"returned error: 413|HTTP 413"
"""A pattern for the message of a proxy that refuses a push as too large, as git reports it: a repetition of the same
push would fail too."""

_CROSSED = r"cannot lock ref .*(reference already exists|File exists|but expected)"


_RULES = (
    (
        r"signed[- ]off|sign-?off|\bDCO\b",
        "a rule wants every commit signed off (DCO): set `commit.sign_off: true`, and `commit.author` to the account",
    ),
    (
        (
            r"verified signature|unverified commit|must be (?:\w+ )?signed|unsigned|not signed"
            r"|signature (is )?(?:required|missing|invalid)"
        ),
        (
            "a rule wants signed commits: set `commit.signing_key`, and give the account the public half of that key; "
            "for a GitHub App set `commit.signing: github`"
        ),
    ),
    (
        r"commit message|commitlint|conventional commit",
        "a rule says how a commit message must look: set `commit.template` to one that follows it",
    ),
    (
        r"branch[- ]name",
        "a rule says how branches must be called: set `branch.prefix` to what it allows",
    ),
    (
        r"(?:author|committer)(?:'s)?\b|cannot push commits for|GH007|private email",
        "a rule says who may have written a commit: set `commit.author` to the account's name and mail address",
    ),
)
"""Messages about a host's rules for commits, as phrased by GitHub's rulesets, GitLab's push rules and common hooks, and
for each the key of config.yaml that satisfies the rule. docs.github.com "Available rules for rulesets", docs.gitlab.com
"Push rules"."""

_KNOWN = (
    *((pattern, OTHER[0], f"{advice}, or {OTHER[1]}") for pattern, advice in _RULES),
    (r"archived", "repository_archived", "the repository is archived and read-only; unarchive it"),
    (
        r"protected branch|protected ref|branch \S{1,255} is protected|GH006|GH013|repository rule violations",
        "branch_protected",
        "a rule protects this name; let the account push branches that begin with {prefix}, or set `branch.prefix`",
    ),
    (
        TOO_LARGE,
        "push_too_large",
        "something on the way takes no push so large; raise its limit (nginx: client_max_body_size) or leave files out",
    ),
    (
        (
            r"permission to \S+ denied|permission denied for writing|not allowed to (push|upload)|read[- ]only"
            r"|insufficient permission"
        ),
        "push_forbidden",
        "the account may not push here; give it the right to (Write on GitHub and Forgejo, Developer on GitLab)",
    ),
    (
        _CROSSED,
        "branch_moved",
        "somebody pushes to the branch at this very moment; ask for it again",
    ),
    (
        r"cannot lock ref|directory file conflict|refname conflict|there is already a branch|exists; cannot create",
        "branch_taken",
        "a branch of another name is in the way of this one; rename or remove it, or set `branch.prefix`",
    ),
    (
        r"stale info|fetch first|non-fast-forward",
        "branch_moved",
        "somebody moved the branch at this very moment; ask for it again",
    ),
)


_ILL = re.compile(
    r"unpacker error|unpack failed|failed to update ref|internal (?:server )?error|missing necessary objects"
    r"|remote failed to report status|no space left|cannot allocate memory|out of memory|temporarily unavailable"
    r"|disk quota exceeded|too many open files|unable to write|try again later|timed? ?out|maintenance"
    r"|unable to migrate objects to permanent storage|transaction failed to start|fatal error in commit_refs",
    re.IGNORECASE,
)
"""Reasons of a faulty remote as git receives them (builtin/receive-pack.c, send-pack.c, strerror(3)), in the brackets
behind a refused branch or after `remote unpack failed`. GitHub says `fatal error in commit_refs` when it could not
store a branch."""

_REASON = re.compile(r"^(?: ! \[remote [^\]\n]++\].* -> \S+ \(|error: remote unpack failed: )(.*)", re.MULTILINE)
_IN_BACKTICKS = re.compile(r"`[^`]*+`")

_ILL_HOOK = re.compile(
    r"^remote:[ \t]*(?:(?:error|fatal|gitlab|gitea|forgejo):[ \t]*)*(?:"
    r"internal (?:server )?(?:connection )?error[.!]?[ \t]*$|fatal error in commit_refs|out of memory"
    r"|(?:failed to authorize your git request: )?internal api (?:unreachable|error \(5\d\d\))"
    r"|api is not accessible|unable to contact (?:gitea|forgejo)|unpack failed|unable to write (?:loose object|sha1))"
    r"|^remote: .*(?:: (?:no space left on device|cannot allocate memory|disk quota exceeded|too many open files"
    r"|resource temporarily unavailable)|(?:connection|operation|request) timed out)[.!]?[ \t]*$"
    r"|^remote: .*\b(?:is|currently|now) (?:in|under|down for) maintenance(?![\w/-]|\.\w)",
    re.IGNORECASE | re.MULTILINE,
)
"""Lines of a faulty remote: of hooks of GitLab (gitlab-shell, client/gitlabnet.go), Gitea and Forgejo (modules/private)
that do not reach their server, and of git on the remote. A hook that refuses a commit may quote the name of a file or
its text, so a single word of `_ILL` proves nothing in a line of a hook."""

_PASSING = (
    (
        r"branch is currently checked out",
        "a person has the branch checked out there: check out another one (`git switch -`)",
    ),
    (
        r"unable to create temporary object directory|insufficient permission for adding an object",
        "this user may not write there: give it the right to",
    ),
)


def remedy(stderr: str) -> str:
    """Advice for a person if following the advice, or waiting, lets the same push succeed; else "".

    A message about a faulty remote is used only if no other reason of the refusal is known.
    """
    found = next((advice for pattern, advice in _PASSING if re.search(pattern, stderr, re.IGNORECASE)), "")
    if not found and classify(stderr) == OTHER and _is_ill(stderr):
        return "the other side could not store it just now: look at its disk, memory and log"
    return found


def _is_ill(stderr: str) -> bool:
    """Whether git, or a hook on the remote, reports a fault of the remote itself."""
    # GitHub names a file in backticks: refusing to allow … to update workflow `.github/workflows/x.yml`
    reasons = (_IN_BACKTICKS.sub("", found[1]) for found in _REASON.finditer(stderr))
    return any(map(_ILL.search, reasons)) or _ILL_HOOK.search(stderr) is not None


def classify(stderr: str, prefix: str = "makimono/") -> tuple[str, str]:
    """(error code, advice) for a refused push; OTHER if no pattern matches.

    `prefix` is the prefix of the program's branches.
    """
    for pattern, code, advice in _KNOWN:
        if re.search(pattern, stderr, re.IGNORECASE):
            return code, advice.replace("{prefix}", prefix)
    return OTHER


def is_crossed(stderr: str) -> bool:
    """Whether git reports that another push has changed or locked the branch meanwhile, for example one of an
    interrupted attempt of this task."""
    return re.search(_CROSSED, stderr, re.IGNORECASE) is not None


def is_locked(stderr: str) -> bool:
    """Whether the branch is locked on the remote, by a push that is running or by one that was killed."""
    return any("cannot lock ref" in line and ".lock': File exists" in line for line in stderr.split("\n"))


def is_archived(stderr: str) -> bool:
    """Whether git was refused because the repository is archived, in which case a new token does not help."""
    return classify(stderr)[0] == "repository_archived"
