"""The parts of a task's page beside its conversation: plan, change, compactions, recalled memories, deliberations,
outside effects, log, and requests to models.

A part that is a list shows the newest records of one file; the parameter `before`, the number of the oldest record that
is shown, leads to older records.
"""

from __future__ import annotations

import re
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import orjson

from agent.context.deliberations import DECISION, STATEMENT
from agent.context.outside_effects import ROW
from agent.dashboard.conversation import (
    COMPACTIONS,
    EXCERPT,
    LONGEST_TEXT,
    MESSAGES,
    REQUESTS,
    TOOLS,
    as_text,
    compaction_line,
    cut,
    request_line,
    word_end,
)
from agent.dashboard.file_window import newest, offset_of, page_before, read_before, read_bytes, read_from
from agent.errors import MakimonoError
from agent.tools.planning import UpdatePlan

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from agent.dashboard.file_window import FileWindow
    from agent.taskqueue import Row
    from agent.values import Json

COUNT = 100
PLAN_CALLS = 2000
"""The number of newest tool calls among which the model's newest plan is searched for."""
LOG_BYTES = 256 << 10
COMMIT = re.compile(r"[0-9a-f]{40,64}")
MOST_DIFF = 1 << 20
"""The maximum number of bytes of a task's diff that the page shows."""
CHANGE_SECONDS = 6.0
"""The maximum run time in seconds of the git command that writes the diff for the page; less than the whole page has
(`app.PAGE_SECONDS`)."""
MOST_LINES = 10_000
"""The maximum number of lines of a task's diff that the page shows."""


def newest_records(
    folder: Path, name: str, build: Callable[[Json], Json], before: int | None, id_key: str = "seq"
) -> Json:
    """The newest COUNT records of a file, the newest first, each converted by `build`; if `before` is given, only
    records before that number. Raises OSError."""
    path = folder / name
    end = None if before is None else offset_of(path, before, key=id_key, id_key=id_key)
    window = page_before(path, COUNT, end=end, id_key=id_key)
    numbers = [record[id_key] for record in window.records]
    return {
        "records": [build(record) for record in reversed(window.records)],
        "older": numbers[0] if numbers and window.start > 0 else None,
        "bytes": window.size,
        "damage": list(window.damage),
    }


def plan(folder: Path) -> Json:
    """The newest plan of the model: `items` with `text` and `status`, and the time when it was written. The plan is
    read from the newest successful call of `update_plan` among the last PLAN_CALLS tool calls, or else from the
    carry-over of the newest compaction."""
    window = read_before(folder / TOOLS, PLAN_CALLS)
    for record in reversed(window.records):
        if record.get("tool") == UpdatePlan.name and record.get("status") == "success":
            arguments = record.get("args")
            items = arguments.get("items") if isinstance(arguments, dict) else None
            if isinstance(items, list):
                return {"items": [_step(one) for one in items], "at": record.get("timestamp"), "damage": []}
    if (last := newest(folder / COMPACTIONS, id_key="id")) is not None:
        state = last.get("carried")
        items = state.get("plan") if isinstance(state, dict) else None
        if isinstance(items, list):
            return {"items": [_step(one) for one in items], "at": last.get("timestamp"), "damage": []}
    return {"items": [], "at": None, "damage": list(window.damage)}


def _step(item: Any) -> Json:
    if isinstance(item, dict):
        return {"text": as_text(item.get("text")), "status": str(item.get("status") or "")}
    return {"text": as_text(item), "status": ""}


def change(folder: Path, row: Row | None, seconds: float = CHANGE_SECONDS) -> Json:
    """The change of the task as a diff: a patch file in the task's folder, if there is one, else the difference of the
    last pushed commit from the base commit, for which git has `seconds`. `why` says why the diff is missing, empty or
    cut; "" for a whole diff."""
    from agent.work import changes

    for name in ("changes.patch", "tree.patch", "committed.patch"):
        with suppress(FileNotFoundError):
            return _diff(read_bytes(folder / name, MOST_DIFF + 1), f"the file {name} of the task")
    if row is None:
        return {"files": [], "source": "", "why": "the ledger has the commits of the task, and it cannot be read"}
    git = folder / "git"
    if not (COMMIT.fullmatch(row.base_commit or "") and COMMIT.fullmatch(row.head_commit or "")):
        return {"files": [], "source": "", "why": "the task has not pushed a commit yet"}
    if not git.is_dir():
        why = f"the commits are on the branch {row.branch}; their objects are not in the task's folder any more"
        return {"files": [], "source": "", "why": why}
    data = bytearray()
    try:
        commits = str(row.base_commit), str(row.head_commit)
        for chunk in changes.diff(git, *commits, seconds=seconds, most=MOST_DIFF + 1):
            data += chunk
            if len(data) > MOST_DIFF:
                break
    except MakimonoError as error:
        return {"files": [], "source": "", "why": str(error)}
    return _diff(bytes(data), f"{str(row.base_commit)[:12]}..{str(row.head_commit)[:12]}")


def _diff(data: bytes, source: str) -> Json:
    """A diff split by files: each file with its name, its lines (`kind` is add, remove, place or same), and the numbers
    of added and removed lines."""
    files: list[Json] = []
    lines = data[:MOST_DIFF].decode("utf-8", "replace").split("\n", MOST_LINES)
    for line in lines[:MOST_LINES]:
        if line.startswith("diff --git ") or not files:
            files.append(
                {"name": line.removeprefix("diff --git ").rpartition(" b/")[2], "lines": [], "added": 0, "removed": 0}
            )
            if line.startswith("diff --git "):
                continue
        one = files[-1]
        kind = "same"
        if line.startswith("+") and not line.startswith("+++ "):
            kind, one["added"] = "add", one["added"] + 1
        elif line.startswith("-") and not line.startswith("--- "):
            kind, one["removed"] = "remove", one["removed"] + 1
        elif line.startswith("@@"):
            kind = "place"
        elif line.startswith(("index ", "+++ ", "--- ")):
            continue
        one["lines"].append({"kind": kind, "text": line if len(line) <= 2000 else f"{line[: word_end(line, 2000)]}…"})
    why = "" if data.strip() else "nothing differs"
    if len(lines) > MOST_LINES:
        why = f"only the first {MOST_LINES:,} lines are shown"
    elif len(data) > MOST_DIFF:
        why = f"only the first {MOST_DIFF >> 20} MiB are shown"
    return {"files": files if data.strip() else [], "source": source, "why": why}


def compaction(folder: Path, number: int) -> Json | None:
    """One compaction: the first COUNT of the messages that it covers, the number of all of them, and the summary and
    the carry-over that the model sees after it; None if no compaction has this number."""
    record, damage = _record(folder / COMPACTIONS, number, "id")
    if record is None:
        return None
    start, end = record.get("start_seq"), record.get("end_seq")
    before: list[Json] = []
    if isinstance(start, int) and isinstance(end, int):
        path = folder / MESSAGES
        window = read_from(path, offset_of(path, start), min(COUNT, max(0, end - start + 1)))
        before = [
            {"seq": one["seq"], "role": one.get("role"), "tokens": one.get("tokens"), **cut(one.get("content"), 300)}
            for one in window.records
        ]
    summary: Json | None = None
    if isinstance(named := record.get("summary_id"), int):
        found, more = _record(folder / "summaries.jsonl", named, "id")
        damage += more
        if found is not None:
            summary = {"tokens": found.get("summary_tokens"), **cut(found.get("summary"), LONGEST_TEXT)}
    return {
        **compaction_line(record),
        "before": before,
        "left_out": end - start + 1 if isinstance(start, int) and isinstance(end, int) else 0,
        "summary": summary,
        "carried": _carried(record.get("carried")),
        "largest": record.get("largest"),
        "damage": damage,
    }


def _carried(value: Any) -> list[Json]:
    """The carry-over of a compaction as names and texts."""
    if value is None:
        return []
    if not isinstance(value, dict):
        return [{"name": "", **cut(value, EXCERPT)}]
    return [{"name": str(name), **cut(_lines(one), EXCERPT)} for name, one in value.items()]


def _lines(value: Any) -> Any:
    if isinstance(value, list):
        return "\n".join(as_text((one.get("text") or one) if isinstance(one, dict) else one) for one in value)
    return value


def compactions(folder: Path, before: int | None) -> Json:
    """The newest compactions of a task."""
    return newest_records(folder, COMPACTIONS, compaction_line, before, "id")


def requests(folder: Path, before: int | None) -> Json:
    """The newest requests of a task to models, with their latencies, tokens and cost."""
    return newest_records(folder, REQUESTS, request_line, before)


def recalled(folder: Path, before: int | None) -> Json:
    """The newest retrievals of a task from long-term memory, with hits and scores."""
    return newest_records(folder, "recalled.jsonl", _retrieval, before)


def _retrieval(record: Json) -> Json:
    hits, dropped = record.get("hits"), record.get("dropped")
    missing = record.get("missing")
    return {
        "seq": record["seq"],
        "at": record.get("timestamp"),
        "purpose": record.get("purpose"),
        "tokens": record.get("tokens"),
        "query": cut(record.get("query"), 500)["text"],
        "hits": [one for one in hits if isinstance(one, dict)] if isinstance(hits, list) else [],
        "dropped": [one for one in dropped if isinstance(one, dict)] if isinstance(dropped, list) else [],
        "missing": missing if isinstance(missing, dict) else {},
        **cut(record.get("text"), EXCERPT),
    }


def deliberations(folder: Path, before: int | None) -> Json:
    """The newest lines of a task's deliberations: votes with their reasons, failures, decisions."""
    return newest_records(folder, "deliberations.jsonl", _deliberation, before)


def _deliberation(record: Json) -> Json:
    names = ("deliberation", "kind", "persona", "phase", "round", "model", "code", "error")
    shown = {name: record.get(name) for name in names}
    payload = record.get("payload") if record.get("kind") == STATEMENT else record.get("result")
    vote, reason, conditions = "", "", []
    if isinstance(payload, dict):
        vote = str(payload.get("decision" if record.get("kind") == DECISION else "vote") or "")
        reason = cut(payload.get("reason"), EXCERPT)["text"]
        found = payload.get("conditions" if record.get("kind") == STATEMENT else "all_conditions")
        conditions = [cut(one, 500)["text"] for one in found] if isinstance(found, list) else []
    return {
        "seq": record["seq"],
        "at": record.get("timestamp"),
        **shown,
        "vote": vote,
        "reason": reason,
        "conditions": conditions,
    }


def effects(folder: Path, before: int | None) -> Json:
    """The newest intents and receipts of outside effects, without receipts that only store columns of the row."""
    found = newest_records(folder, "effects.jsonl", _effect, before)
    return {**found, "records": [one for one in found["records"] if one["name"] != ROW]}


def _effect(record: Json) -> Json:
    names = ("seq", "name", "state")
    what = record.get("receipt") if record.get("state") == "receipt" else record.get("detail")
    return {**{name: record.get(name) for name in names}, "at": record.get("timestamp"), **cut(what or "", 1000)}


LISTS = {
    "compactions": compactions,
    "requests": requests,
    "memory": recalled,
    "deliberations": deliberations,
    "effects": effects,
}
"""The parts of a task's page that are lists of records, each with the function that reads its list."""


def log(folder: Path) -> Json:
    """The lines in the last LOG_BYTES of a task's worker.log, the newest first; lines that are not JSON are only
    counted, in `damage`."""
    path = folder / "worker.log"
    try:
        size = path.lstat().st_size
        data = read_bytes(path, LOG_BYTES, at=max(0, size - LOG_BYTES))
    except FileNotFoundError:
        return {"records": [], "bytes": 0, "cut": False, "damage": []}
    lines = data.split(b"\n")
    if size > LOG_BYTES:
        lines = lines[1:]
    records, bad = [], 0
    for line in reversed(lines):
        if not line.strip():
            continue
        try:
            found = orjson.loads(line)
        except orjson.JSONDecodeError:
            bad += 1
            continue
        if isinstance(found, dict):
            fields = {key: value for key, value in found.items() if key not in ("at", "timestamp", "level", "event")}
            at = found.get("at") or found.get("timestamp")
            text = cut(fields, 2000)["text"]
            records.append({"at": at, "level": found.get("level"), "event": found.get("event"), "text": text})
    damage = [f"worker.log: {bad} line(s) are not JSON"] if bad else []
    return {"records": records, "bytes": size, "cut": size > LOG_BYTES, "damage": damage}


def _record(path: Path, number: int, id_key: str) -> tuple[Json | None, list[str]]:
    window: FileWindow = read_from(path, offset_of(path, number, key=id_key, id_key=id_key), 1, id_key=id_key)
    found = window.records[0] if window.records and window.records[0][id_key] == number else None
    return found, list(window.damage)
