"""Namespaces of memory records, like `/facts/{actorId}/`: checks, prefixes as index ranges, and templates."""

from __future__ import annotations

import hashlib
import re

from agent.errors import UsageError

_NAMESPACE = re.compile(r"/(?:(?!\.{1,2}/)[A-Za-z0-9_.-]+/)*")
_PART = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9_.-]+")
_OTHER = re.compile(r"[^A-Za-z0-9_.-]+")
LONGEST = 512
LONGEST_PLAIN = 200
"""Characters of an actor without hash; `--confidential` and a hash may follow."""


def check_namespace(namespace: str) -> str:
    """Return the namespace unchanged.  Raises UsageError when the namespace does not have the form `/a/b/`."""
    if len(namespace) > LONGEST or not _NAMESPACE.fullmatch(namespace):
        raise UsageError(
            f"{namespace[:80]!r} is no namespace; it begins and ends with `/`, has at most {LONGEST} characters, and "
            f"its parts are letters, digits, `_`, `.` and `-`, but not `.` or `..` alone"
        )
    return namespace


def check_name(name: str, what: str) -> str:
    """Return the actor or session unchanged.  Raises UsageError when the text cannot be a part of a namespace."""
    if not _PART.fullmatch(name) or len(name) > 255:
        raise UsageError(
            f"{what} {name[:80]!r} is not allowed; allowed are 1 to 255 letters, digits, `_`, `.` and `-` "
            f"(`agent.memory.namespaces.actor_name` makes one of any text)"
        )
    return name


def span(prefix: str) -> tuple[str, str]:
    """The index range of the namespaces below `prefix`, which ends in `/`: (first, end) with first <= namespace < end.

    `end` has `0` in place of the last `/`, the next character.  So the range of `/actors/a/` leaves out `/actors/a2/`.
    """
    check_namespace(prefix)
    return prefix, prefix[:-1] + "0"


def expand(template: str, actor_id: str, session_id: str | None = None) -> str:
    """The namespace for a template like `/episodes/{actorId}/{sessionId}/`.  Without a session the result is the prefix
    before `{sessionId}`.  Raises UsageError for an actor or session that is not allowed."""
    check_name(actor_id, "actor")
    if session_id is None:
        template = template.partition("{sessionId}")[0]
    else:
        check_name(session_id, "session")
    return check_namespace(template.replace("{actorId}", actor_id).replace("{sessionId}", session_id or ""))


def actor_name(*parts: str) -> str:
    """An actor made from any texts: characters that are not allowed become `-`, and `--` joins the parts."""
    made = [_OTHER.sub("-", part).strip("-") for part in parts]
    return "--".join(part for part in made if part.strip("."))[:255] or "nobody"


def actor_of(template: str, *, instance: str, owner: str, repo: str) -> str:
    """The actor of a repository, from the template in `memory.actor`.

    If a part does not remain as it is, or could be read as two parts, a hash of the parts follows.  So two repositories
    never have one actor by chance, like `acme/web` and `acme-web`, or the confidential issues of `shop` and a
    repository `shop--confidential`.
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
    """Whether another text could become the same part of an actor."""
    return part != "" and (actor_name(part) != part or "--" in part)


def of_actor(strategy: str, actor_id: str) -> str:
    """The namespace of the records of a strategy that belong to all sessions, and the prefix of those of one."""
    return check_namespace(f"/{strategy}/{check_name(actor_id, 'actor')}/")


def of_session(strategy: str, actor_id: str, session_id: str) -> str:
    """The namespace of the records of a strategy that belong to one session."""
    return check_namespace(f"{of_actor(strategy, actor_id)}{check_name(session_id, 'session')}/")


def actor_in(namespace: str) -> str:
    """The actor in a namespace like `/episodes/{actor}/{session}/`, "" for none."""
    parts = namespace.strip("/").split("/")
    return parts[1] if len(parts) > 1 else ""


def session_of(namespace: str) -> str:
    """The session in a namespace like `/episodes/{actor}/{session}/`, "" for none."""
    parts = namespace.strip("/").split("/")
    return parts[2] if len(parts) == 3 else ""


def scope(namespace: str) -> str:
    """The first two parts of a namespace, like `/episodes/{actor}/`.  `memory.cap` limits the records below it."""
    parts = namespace.strip("/").split("/")[:2]
    return f"/{'/'.join(parts)}/" if parts[0] else "/"
