"""Namespaces: their form, their prefixes as ranges of an index, and the templates of the configuration."""

from __future__ import annotations

import re

from agent.errors import UsageError

_NAMESPACE = re.compile(r"/(?:[A-Za-z0-9_.-]+/)*")
_PART = re.compile(r"[A-Za-z0-9_.-]+")
_OTHER = re.compile(r"[^A-Za-z0-9_.-]+")
LONGEST = 512


def check_namespace(namespace: str) -> str:
    """The namespace itself; UsageError when it has not the form `/a/b/`."""
    if len(namespace) > LONGEST or not _NAMESPACE.fullmatch(namespace):
        raise UsageError(
            f"{namespace[:80]!r} is no namespace; it begins and ends with `/`, has at most {LONGEST} characters, and "
            f"its parts are letters, digits, `_`, `.` and `-`"
        )
    return namespace


def check_name(name: str, what: str) -> str:
    """The actor or session itself; UsageError when it cannot be a part of a namespace."""
    if not _PART.fullmatch(name) or len(name) > 255:
        raise UsageError(
            f"{what} {name[:80]!r} is not allowed; allowed are 1 to 255 letters, digits, `_`, `.` and `-` "
            f"(`agent.memory.namespaces.actor_name` makes one of any text)"
        )
    return name


def span(prefix: str) -> tuple[str, str]:
    """(first, end) of the namespaces below `prefix`, which ends in `/`: first <= namespace < end.

    `0` is the character after `/`, so `/actors/a/` never meets `/actors/a2/`.
    """
    check_namespace(prefix)
    return prefix, prefix[:-1] + "0"


def expand(template: str, actor_id: str, session_id: str | None = None) -> str:
    """The namespace of a template; without a session, the part of it above `{sessionId}`.  UsageError for a name that
    is not allowed."""
    check_name(actor_id, "actor")
    if session_id is None:
        template = template.partition("{sessionId}")[0]
    else:
        check_name(session_id, "session")
    return check_namespace(template.replace("{actorId}", actor_id).replace("{sessionId}", session_id or ""))


def actor_name(*parts: str) -> str:
    """An actor of any texts: each with `-` for other characters, joined by `--`."""
    made = [_OTHER.sub("-", part).strip("-") for part in parts]
    return "--".join(part for part in made if part)[:255] or "nobody"


def actor_of(template: str, *, instance: str, owner: str, repo: str) -> str:
    """The actor that `memory.actor` gives for a repository."""
    values = {"instance": instance, "owner": owner, "repo": repo}
    return actor_name(*(re.sub(r"\{(\w+)\}", lambda found: values[found[1]], part) for part in template.split("/")))


def session_of(namespace: str) -> str:
    """The session that the namespace names (`/episodes/{actor}/{session}/`), "" for none."""
    parts = namespace.strip("/").split("/")
    return parts[2] if len(parts) == 3 else ""


def scope(namespace: str) -> str:
    """The first two parts, by which records are counted: `/episodes/{actor}/`."""
    parts = namespace.strip("/").split("/")[:2]
    return f"/{'/'.join(parts)}/" if parts[0] else "/"
