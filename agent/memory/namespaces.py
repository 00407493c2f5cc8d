"""Checks namespaces of memory records, like `/facts/{actorId}/`, turns prefixes into index ranges, and expands
templates."""

from __future__ import annotations

import hashlib
import re

from agent.errors import UsageError

_NAMESPACE = re.compile(r"/(?:(?!\.{1,2}/)[A-Za-z0-9_.-]+/)*")
_PART = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9_.-]+")
_OTHER = re.compile(r"[^A-Za-z0-9_.-]+")
LONGEST = 512
LONGEST_PLAIN = 200
"""Maximum length of an actor's name without the hash and the suffix `--confidential`, which may follow."""


def check_namespace(namespace: str) -> str:
    """Check a namespace and return it unchanged.  Raises UsageError if the namespace does not have the form `/a/b/`."""
    if len(namespace) > LONGEST or not _NAMESPACE.fullmatch(namespace):
        raise UsageError(
            f"{namespace[:80]!r} is no namespace; it begins and ends with `/`, has at most {LONGEST} characters, and "
            f"its parts are letters, digits, `_`, `.` and `-`, but not `.` or `..` alone"
        )
    return namespace


def check_name(name: str, what: str) -> str:
    """Check the name of an actor or session and return it unchanged.  Raises UsageError if the name cannot be a part of
    a namespace."""
    if not _PART.fullmatch(name) or len(name) > 255:
        raise UsageError(
            f"{what} {name[:80]!r} is not allowed; allowed are 1 to 255 letters, digits, `_`, `.` and `-` "
            f"(`agent.memory.namespaces.actor_name` makes one of any text)"
        )
    return name


def span(prefix: str) -> tuple[str, str]:
    """The index range of the namespaces below `prefix`, which ends in `/`: (first, end) with first <= namespace < end.

    `end` is the prefix with its last `/` replaced by `0`, the next character in ASCII. For example, the index range of
    the prefix `/actors/a/` leaves out `/actors/a2/`.
    """
    check_namespace(prefix)
    return prefix, prefix[:-1] + "0"


def expand(template: str, actor_id: str, session_id: str | None = None) -> str:
    """The namespace that results from a template like `/episodes/{actorId}/{sessionId}/`. Without a session the result
    is the part of the namespace before `{sessionId}`. Raises UsageError for an actor or session that is not allowed."""
    check_name(actor_id, "actor")
    if session_id is None:
        template = template.partition("{sessionId}")[0]
    else:
        check_name(session_id, "session")
    return check_namespace(template.replace("{actorId}", actor_id).replace("{sessionId}", session_id or ""))


def actor_name(*parts: str) -> str:
    """Make the name of an actor from any texts: other characters than letters, digits, `_`, `.` and `-` become `-`, and
    `--` joins the texts."""
    made = [_OTHER.sub("-", part).strip("-") for part in parts]
    return "--".join(part for part in made if part.strip("."))[:255] or "nobody"


def actor_of(template: str, *, instance: str, owner: str, repo: str) -> str:
    """The name of the actor for a repository, by the template in `memory.actor`.

    If a part of the name was changed by `actor_name`, contains `--`, or the name is too long, a hash of the unchanged
    parts follows.  Because of this hash in the name of an actor, two repositories do not get the same actor by chance,
    such as `acme/web` and `acme-web`, or the confidential issues of `shop` and a repository `shop--confidential`.
    """
    values = {"instance": instance, "owner": owner, "repo": repo}
    parts = [re.sub(r"\{(\w+)\}", lambda found: values[found[1]], part) for part in template.split("/")]
    name = actor_name(*parts)
    changed = [part for part, form in zip(parts, template.split("/"), strict=True) if part != form and _changes(part)]
    if not changed and len(name) <= LONGEST_PLAIN:
        return name
    digest = hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()
    return f"{name[:LONGEST_PLAIN]}--{digest[:12]}"


def _changes(part: str) -> bool:
    """Whether the part of an actor's name could also result from another text."""
    return part != "" and (actor_name(part) != part or "--" in part)


def of_actor(strategy: str, actor_id: str) -> str:
    """The namespace of the records of a memory strategy for an actor; it is also the prefix of the namespaces of single
    sessions."""
    return check_namespace(f"/{strategy}/{check_name(actor_id, 'actor')}/")


def of_session(strategy: str, actor_id: str, session_id: str) -> str:
    """The namespace of the records of a memory strategy for one session of an actor."""
    return check_namespace(f"{of_actor(strategy, actor_id)}{check_name(session_id, 'session')}/")


def actor_in(namespace: str) -> str:
    """The actor in a namespace like `/episodes/{actor}/{session}/`, "" if it names no actor."""
    parts = namespace.strip("/").split("/")
    return parts[1] if len(parts) > 1 else ""


def session_of(namespace: str) -> str:
    """The session in a namespace like `/episodes/{actor}/{session}/`, "" if it names no session."""
    parts = namespace.strip("/").split("/")
    return parts[2] if len(parts) == 3 else ""


def scope(namespace: str) -> str:
    """The first two parts of a namespace, like `/episodes/{actor}/`.  `memory.cap` limits the number of records below a
    prefix like `/episodes/{actor}/`."""
    parts = namespace.strip("/").split("/")[:2]
    return f"/{'/'.join(parts)}/" if parts[0] else "/"
