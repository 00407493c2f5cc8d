"""Makes the list of tasks: filtered, searched, sorted and paged by the ledger, with the reason why each task waits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from agent.daemon.health import read_health
from agent.daemon.task_reasons import TaskReasons
from agent.errors import RowUnreadable, UsageError
from agent.taskqueue import Row, row_holder
from agent.values import Status
from agent.wiring.private_tracker import issue_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from agent.config import Settings
    from agent.taskqueue import Ledger
    from agent.values import Json

PAGE = 50
MOST_PAGES = 10_000
LONGEST_SEARCH = 200

SORTS = ("created_at", "heartbeat_at", "status", "title", "total_tokens", "cost")
FACTS = (
    *("uuid", "status", "outcome", "requested", "title", "user", "attempt", "hostname", "priority", "parent_uuid"),
    *("created_at", "started_at", "completed_at", "heartbeat_at", "not_before", "error_code", "error_message"),
    *("llm_provider", "model", "context_length", "llm_call_count", "tool_call_count", "compression_count", "last_seq"),
    *("prompt_tokens", "completion_tokens", "cached_tokens", "estimated_tokens", "total_tokens", "cost"),
    *("branch", "url", "pull_state", "head_commit", "base_commit", "task_source", "owner", "repo", "started_by"),
    "requested_by",
)
"""The columns of a row that a page shows."""
HERE = ("daemon", "worker", "disk")
"""Codes of reasons to wait that hold for this host alone; another host of a shared ledger may start the task."""


@dataclass(frozen=True, slots=True)
class TaskListQuery:
    """The filter, search, order and position of a page of the task list. `text` is searched for in titles, uuids,
    issues, people, branches and errors."""

    status: str = ""
    host: str = ""
    repository: str = ""
    text: str = ""
    sort: str = "created_at"
    descending: bool = True
    page: int = 1

    @classmethod
    def from_parameters(cls, given: Mapping[str, str]) -> TaskListQuery:
        """The query in the parameters of an address; an empty parameter counts as missing. Raises UsageError for a
        value that is not allowed."""
        page = given.get("page", "") or "1"
        if not (page.isascii() and page.isdigit()):
            raise UsageError(f"page is {page[:20]!r}; allowed are numbers from 1")
        return cls(
            status=_one_of("status", given, ("", *Status)),
            host=_searched(given.get("host", "")),
            repository=_searched(given.get("repository", "")),
            text=_searched(given.get("text", "").strip()),
            sort=_one_of("sort", given, SORTS) or SORTS[0],
            descending=_one_of("order", given, ("desc", "asc")) != "asc",
            page=min(max(1, int(page[:9])), MOST_PAGES),
        )

    def address(self, **changes: Any) -> str:
        """The address of the task list for this query, with the values in `changes` in place of its own."""
        values = {
            "status": self.status,
            "host": self.host,
            "repository": self.repository,
            "text": self.text,
            "sort": "" if self.sort == "created_at" else self.sort,
            "order": "" if self.descending else "asc",
            "page": self.page if self.page > 1 else "",
        } | changes
        given = urlencode({name: value for name, value in values.items() if value})
        return f"/tasks?{given}" if given else "/tasks"

    def parameters(self) -> dict[str, str | None]:
        """The parameters for the SQL queries of `store/sql/page.sql`."""
        escaped = self.text.lower().replace("!", "!!").replace("%", "!%").replace("_", "!_")
        return {
            "host": self.host or None,
            "repository": self.repository or None,
            "text": f"%{escaped}%" if escaped else None,
        }


def _one_of(name: str, given: Mapping[str, str], allowed: Sequence[str]) -> str:
    """The value of a parameter, "" if it is missing. Raises UsageError for a value that is not allowed."""
    value = given.get(name, "")
    if value and value not in allowed:
        raise UsageError(f"{name} is {value[:40]!r}; allowed are {', '.join(filter(None, allowed))}")
    return value


def _searched(text: str) -> str:
    return text.replace("\0", "")[:LONGEST_SEARCH]  # PostgreSQL refuses NUL


def list_page(settings: Settings, ledger: Ledger, query: TaskListQuery) -> Json:
    """The value of one page of the task list."""
    reasons = TaskReasons(settings, ledger, row_holder.owner(settings.base_dir))
    name = f"page_tasks_{query.sort}_{'desc' if query.descending else 'asc'}"
    chosen = query.parameters()
    records = ledger.db.run(name, status=query.status or None, **chosen, limit=PAGE + 1, offset=PAGE * (query.page - 1))
    counts = {one["status"]: int(one["count"]) for one in ledger.db.run("page_count", **chosen)}
    issues: dict[str, str | None] = {}
    rows = [row_of(record) for record in records[:PAGE]]
    tasks = [listed_row(settings, reasons, row, issues) for row in rows]
    return {
        "query": {
            **{field: getattr(query, field) for field in ("status", "host", "repository", "text", "sort", "page")},
            "order": "desc" if query.descending else "asc",
        },
        "counts": {str(status): counts.get(str(status), 0) for status in Status},
        "total": counts.get(query.status, 0) if query.status else sum(counts.values()),
        "tasks": tasks,
        "hosts": [one["hostname"] for one in ledger.db.run("page_hosts")],
        "repositories": [f"{one['owner']}/{one['repo']}" for one in ledger.db.run("page_repositories")],
        "waiting": list(dict.fromkeys((*read_health(settings).why, *reasons.notes(_legible(rows))))),
        "workers": {"running": reasons.workers, "most": settings.scheduling.max_workers},
        "links": _links(query, more=len(records) > PAGE),
    }


def _links(query: TaskListQuery, *, more: bool) -> Json:
    sorts = {
        name: query.address(sort=name, order="asc" if query.sort == name and query.descending else "", page="")
        for name in SORTS
    }
    return {
        "previous": query.address(page=query.page - 1 if query.page > 2 else "") if query.page > 1 else "",
        "next": query.address(page=query.page + 1) if more else "",
        "sorts": sorts,
        "statuses": {"": query.address(status="", page="")}
        | {str(status): query.address(status=str(status), page="") for status in Status},
    }


@dataclass(frozen=True, slots=True)
class DamagedRow:
    """A row of the ledger that cannot be shown, and the reason."""

    uuid: str
    why: str


def row_of(record: Mapping[str, Any]) -> Row | DamagedRow:
    """The row in a record of the ledger; a DamagedRow if the record cannot be read."""
    try:
        return Row.from_record(record)
    except (RowUnreadable, ValueError) as error:
        return DamagedRow(str(record.get("uuid")), str(error))


def listed_row(settings: Settings, reasons: TaskReasons, row: Row | DamagedRow, issues: dict[str, str | None]) -> Json:
    """The values that a page shows of one row of the ledger, with the reason why the task waits (`waits_for`: the code
    of the reason); a damaged row has only its uuid and the reason why it cannot be shown. `issues` caches the issue's
    address for each private tracker."""
    if isinstance(row, DamagedRow):
        return {"uuid": row.uuid, "damage": row.why, "waits": []}
    if row.key.is_in_folder and row.instance not in issues:
        issues[row.instance] = issue_of(settings, row.instance)
    reason = reasons.find_reason(row)
    waits: Json = {"waits": [], "waits_for": ""}
    if reason is not None:
        here = "" if row_holder.is_alone(settings) or reason.code not in HERE else f"on {row_holder.hostname()}: "
        waits = {"waits": [f"{here}{reason.text}"], "waits_for": reason.code, "until": reason.until}
    return {**facts(settings, row, issues.get(row.instance)), **waits}


def _legible(rows: list[Row | DamagedRow]) -> list[Row]:
    return [row for row in rows if isinstance(row, Row)]


def facts(settings: Settings, row: Row, issue: str | None) -> Json:
    """The columns of a row that a page shows. `issue` is the file or address of the issue of a private tracker, None
    for any other task. The cost is None if it is 0 and the row names no provider with a configured price."""
    shown = {name: getattr(row, name) for name in FACTS}
    priced = row.llm_provider is not None and _is_priced(settings, row.llm_provider)
    return {
        **shown,
        "status": str(row.status),
        "turns": row.turns,
        "task": issue or str(row.key).removeprefix("local:local/"),
        "cost": row.cost if row.cost or priced else None,
    }


def _is_priced(settings: Settings, provider: str) -> bool:
    from agent.errors import MakimonoError

    try:
        return settings.provider_of(provider).price is not None
    except MakimonoError:  # the provider that the row names is not configured any more
        return False
