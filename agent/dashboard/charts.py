"""Computes plots as numbers for the SVG of the templates: lines, bars and marks in a view box, with texts for the axes.

The server makes the plots; the page needs no script for them. Every coordinate is finite and within the view box.
"""

from __future__ import annotations

import math
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from agent import clock
from agent.dashboard.conversation import COMPACTIONS, REQUESTS
from agent.dashboard.file_window import newest, read_before, sampled
from agent.store.jsonl import as_int

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from agent.taskqueue import Ledger, Row
    from agent.values import Json

WIDTH, HEIGHT = 720, 160
POINTS = 300
"""The number of places in a long `requests.jsonl` from which the plot of a task takes a request each."""
MOST_MARKS = 200
DAYS = 30
HOURS = 48


def tokens(folder: Path, row: Row, threshold: float) -> Json | None:
    """The plot of the prompt tokens of a task, request by request, with the window of the model, the threshold at which
    the view is compacted, and the compactions; None if, of the requests that are read, fewer than two are of turns and
    have a reported number of prompt tokens. Raises OSError."""
    window = sampled(folder / REQUESTS, POINTS)
    turns = [one for one in window.records if one.get("purpose") == "turn" and _prompt(one) > 0]
    if len(turns) < 2:
        return None
    size = row.context_length or 0
    last = newest(folder / REQUESTS)
    count = max(0 if last is None else int(last["seq"]), turns[-1]["seq"])
    highest = max([_prompt(one) for one in turns] + [size])
    first = turns[0]["seq"]
    points = [_point(one["seq"] - first, count - first, _prompt(one), highest) for one in turns]
    compactions = read_before(folder / COMPACTIONS, MOST_MARKS, id_key="id").records
    places = [one["requests"] for one in compactions if isinstance(one.get("requests"), int)]
    return {
        "points": " ".join(f"{x:g},{y:g}" for x, y in points),
        "window": _height(size, highest) if size else None,
        "mark": _height(size * threshold, highest) if size else None,
        "compactions": [_x(one - first, count - first) for one in places if first <= one <= count],
        "highest": highest,
        "size": size,
        "count": count,
        "sample": len(turns) if window.size > 1 << 16 else 0,
    }


def days(records: Iterable[Mapping[str, Any]]) -> Json:
    """The plot of tasks and cost for each of the last DAYS days, from the query `page_days`."""
    known = {str(one["day"]): one for one in records}
    today = clock.now().date()
    names = [(today - timedelta(days=back)).isoformat() for back in range(DAYS - 1, -1, -1)]
    counts = [int((known.get(name) or {}).get("count") or 0) for name in names]
    costs = [float((known.get(name) or {}).get("cost") or 0.0) for name in names]
    return {
        "tasks": _bars(names, counts),
        "cost": _bars(names, costs),
        "total_tasks": sum(counts),
        "total_cost": sum(costs),
        "first": names[0],
        "last": names[-1],
    }


def queue(ledger: Ledger) -> Json:
    """The plot of the tasks that waited for their first start, and of those between first start and end, in each of the
    last HOURS hours."""
    now = clock.now()
    since = now - timedelta(hours=HOURS)
    rows = ledger.db.run("page_times", since=clock.stamp(since))
    changes: dict[str, list[int]] = {"queued": [0] * (HOURS + 2), "running": [0] * (HOURS + 2)}
    for row in rows:
        created, started, completed = (_hour(row[name], since) for name in ("created_at", "started_at", "completed_at"))
        if created is None:
            continue
        end = HOURS if completed is None else completed
        begun = end if started is None else min(started, end)
        for name, first, last in (("queued", created, begun), ("running", begun, end)):
            if (name == "queued" or started is not None) and last >= first:
                changes[name][first] += 1
                changes[name][last + 1] -= 1
    series = {name: _running(values)[: HOURS + 1] for name, values in changes.items()}
    highest = max(1, *series["queued"], *series["running"])
    return {
        "highest": highest,
        "first": clock.stamp(since)[:16],
        "last": clock.stamp(now)[:16],
        **{
            name: " ".join(
                f"{x:g},{y:g}" for x, y in (_point(at, HOURS, one, highest) for at, one in enumerate(values))
            )
            for name, values in series.items()
        },
    }


def _bars(names: Sequence[str], values: Sequence[float]) -> Json:
    highest = max(values, default=0.0)
    width = WIDTH / max(1, len(values))
    bars = [
        {
            "x": round(number * width + 1, 1),
            "width": round(width - 2, 1),
            "y": _height(value, highest),
            "height": round(HEIGHT - _height(value, highest), 1),
            "name": name,
            "value": value,
        }
        for number, (name, value) in enumerate(zip(names, values, strict=True))
    ]
    return {"bars": bars, "highest": highest}


def _point(x: float, width: float, y: float, height: float) -> tuple[float, float]:
    return _x(x, width), _height(y, height)


def _x(x: float, width: float) -> float:
    return round(min(1.0, max(0.0, x / width)) * WIDTH, 1) if width > 0 else 0.0


def _height(value: float, highest: float) -> float:
    share = value / highest if highest > 0 and math.isfinite(value) else 0.0
    return round(HEIGHT * (1.0 - min(1.0, max(0.0, share))), 1)


def _prompt(record: Json) -> int:
    usage = record.get("usage")
    value = usage.get("prompt_tokens") if isinstance(usage, dict) else None
    return as_int(value) or 0


def _hour(stamp: Any, since: Any) -> int | None:
    """The number of whole hours between `since` and a time: 0 for an earlier time, at most HOURS; None for a missing or
    malformed time."""
    if not stamp:
        return None
    try:
        passed = (clock.parse(str(stamp)) - since).total_seconds() / 3600
    except (ValueError, TypeError):
        return None
    return min(HOURS, max(0, int(passed)))


def _running(values: Iterable[int]) -> list[int]:
    found, total = [], 0
    for one in values:
        total += one
        found.append(total)
    return found
