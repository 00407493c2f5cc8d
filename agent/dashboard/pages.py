"""Builds the content of each page as a value that can be written as JSON; the HTML templates and the JSON answers use
the same value.

The functions of `pages.py` block, so they run in threads of the server. A part that cannot be read is named in
`problems`, and the rest of the page is shown.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from agent.commands.timeline import is_held, lies_elsewhere
from agent.context.comments import question_of
from agent.daemon.task_reasons import TaskReasons
from agent.dashboard import charts, conversation, helper_process, peers, task_list, task_parts
from agent.dashboard.file_window import LAST_LINES, read_before, read_bytes
from agent.errors import MakimonoError, UsageError
from agent.taskqueue import row_holder
from agent.taskqueue.row_holder import hostname
from agent.wiring.folders import folder_of, is_uuid

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from agent.config import Settings
    from agent.dashboard.ledger_reader import LedgerReader
    from agent.taskqueue import Row
    from agent.values import Json

ASKED = "asked"
"""The outcome of a task that waits for a person's answer."""
MOST_FACTS = 1 << 20
"""The maximum number of bytes of a task's `metadata.json` or `end.json`; a longer file counts as damaged."""
PARTS = (
    *("timeline", "plan", "change", "request", "compactions", "requests", "memory", "deliberations", "effects", "log"),
)
"""The parts of a task's page, in the order of its navigation."""


class Pages:
    """The pages that one server shows."""

    def __init__(self, settings: Settings, reader: LedgerReader) -> None:
        self.settings = settings
        self.reader = reader

    def tasks(self, query: task_list.TaskListQuery) -> Json:
        """The value of the page with the list of tasks."""
        try:
            with self.reader.ledger() as ledger:
                return {"page": "tasks", "problems": [], **task_list.list_page(self.settings, ledger, query)}
        except MakimonoError as error:
            empty: Json = {"query": {"status": "", "text": "", "host": "", "repository": "", "page": 1}}
            return {"page": "tasks", "problems": [str(error)], **empty, "tasks": [], "counts": {}, "total": 0}

    def task(self, prefix: str, part: str, given: dict[str, str]) -> Json | None:
        """The value of one part of a task's page; None if there is no such task.

        `given` are the parameters of the address. With `before`, a list shows only records before that number; with
        `at`, the conversation begins at the message with that number. Raises UsageError if `before` or `at` is neither
        empty nor a number of 1 to 15 digits.
        """
        before, at = _number(given, "before"), _number(given, "at")
        view = self.head(prefix)
        if view is None:
            return None
        view["part"], view["parts"] = part, list(PARTS)
        folder = self.folder(view)
        if (other := self._of_peer(view, part, given)) is not None:
            return other
        if folder is None:
            return {**view, "shown": None}
        view["shown"] = None
        with _named_problems(view):
            view["shown"] = self._part(part, folder, view, before, at)
        return view

    def _part(self, part: str, folder: Path, view: Json, before: int | None, at: int | None) -> Any:
        """The value of one part of a task's page; None for a part that has no value of its own."""
        if part in task_parts.LISTS:
            return task_parts.LISTS[part](folder, before)
        match part:
            case "timeline":
                return self._timeline(folder, view, before, at)
            case "request":
                return helper_process.run(self.settings, "preview", view["task"]["uuid"])
            case "plan":
                return task_parts.plan(folder)
            case "change":
                return task_parts.change(folder, view["_row"])
            case "log":
                return task_parts.log(folder)
        return None

    def record(self, prefix: str, part: str, number: int, given: dict[str, str]) -> Json | None:
        """The value of the page of one message (`part` is `messages`) or one compaction; None if this record, its task
        or, on this host, the task's folder does not exist."""
        view = self.head(prefix)
        if view is None:
            return None
        view["part"], view["parts"], view["number"] = part, list(PARTS), number
        if (other := self._of_peer(view, f"{part}/{number}", given)) is not None:
            return other
        if (folder := self.folder(view)) is None:
            return None
        view["shown"] = None
        with _named_problems(view):
            read = conversation.message if part == "messages" else task_parts.compaction
            view["shown"] = read(folder, number)
        return view if view["shown"] is not None or view["problems"] else None

    def head(self, prefix: str) -> Json | None:
        """The facts about a task that each of its pages shows; None if there is no such task.

        If the ledger cannot be read or has no row of the task, the facts come from the task's folder, which is found
        only by a whole uuid. If the ledger cannot be read and no folder is found, the page shows only this problem.
        """
        problem, is_known = "the ledger has no row of this task; this is what its folder has", False
        try:
            with self.reader.ledger() as ledger:
                prefix = ledger.resolve(prefix)
                if found := ledger.db.run("ledger_get", uuid=prefix):  # no row is found if it was removed meanwhile
                    reasons = TaskReasons(self.settings, ledger, row_holder.owner(self.settings.base_dir))
                    return self._head(prefix, task_list.row_of(found[0]), reasons)
        except UsageError:
            pass
        except MakimonoError as error:
            problem, is_known = str(error), True
        folder = folder_of(self.settings, prefix) if is_uuid(prefix) else None
        if folder is not None:
            return self._without_row(prefix, folder, problem)
        if not is_known:
            return None
        return {"page": "task", "task": {"uuid": prefix}, "problems": [problem], "_row": None, "_folder": None}

    def _of_peer(self, view: Json, part: str, given: dict[str, str]) -> Json | None:
        """The same page, requested from the host that has the conversation; None if this host has it, if
        `dashboard.peers` does not name that host, if another host's dashboard has sent this request, or if that host
        does not answer, which the page names as a problem."""
        row = view["_row"]
        address = self.settings.dashboard.peers.get(row.hostname or "") if row is not None else None
        if not view.get("elsewhere") or address is None or given.get(peers.ASKED) is not None:
            return None
        try:
            found = peers.page_of(self.settings, address, row.uuid, part, given)
        except MakimonoError as error:
            view["problems"].append(str(error))
            return None
        shown = found.get("shown")
        problems = found.get("problems")
        return {
            **view,
            "peer": row.hostname,
            "shown": shown if isinstance(shown, dict) else None,
            "problems": [*view["problems"], *(problems if isinstance(problems, list) else [])],
        }

    def folder(self, view: Json) -> Path | None:
        """The folder from which a task's page is read; None if this host has none."""
        found: Path | None = view["_folder"]
        return found

    def _head(self, uuid: str, found: Row | task_list.DamagedRow, reasons: TaskReasons) -> Json:
        folder = folder_of(self.settings, uuid)
        shown = task_list.listed_row(self.settings, reasons, found, {})
        row = None if isinstance(found, task_list.DamagedRow) else found
        problems = [found.why] if isinstance(found, task_list.DamagedRow) else []
        elsewhere = "" if row is None else lies_elsewhere(self.settings, row, folder)
        if folder is None and not elsewhere:
            problems.append("there is no folder of this task: it was never started, or the folder was removed")
        return {
            "page": "task",
            "task": shown,
            "host": hostname(),
            "elsewhere": elsewhere,
            "is_live": folder is not None and is_held(folder),
            "question": _question(folder) if row is not None and row.outcome == ASKED else "",
            "problems": problems,
            "_row": row,
            "_folder": folder,
        }

    def _without_row(self, uuid: str, folder: Path, problem: str) -> Json:
        """The facts about a task of which the row cannot be read or does not exist."""
        import orjson

        facts: Json = {"uuid": uuid, "waits": []}
        problems = [problem]
        for name in ("metadata.json", "end.json"):
            try:
                found = orjson.loads(read_bytes(folder / name, MOST_FACTS))
                facts |= {
                    key: found.get(key)
                    for key in ("title", "user", "created_at", "status", "completed_at")
                    if key in found
                }
            except FileNotFoundError:
                continue
            except (OSError, ValueError, AttributeError) as error:
                problems.append(f"{name} cannot be read: {error}")
        return {
            "page": "task",
            "task": facts,
            "host": hostname(),
            "elsewhere": "",
            "is_live": is_held(folder),
            "problems": problems,
            "_row": None,
            "_folder": folder,
        }

    def _timeline(self, folder: Path, view: Json, before: int | None, at: int | None) -> Json:
        found = conversation.part(folder, before=before, start=at)
        chart = None
        if view["_row"] is not None and before is None and at is None:
            threshold = self.settings.context_storage.compression_threshold
            chart = charts.tokens(folder, view["_row"], threshold)
        return {**found, "chart": chart}


@contextmanager
def _named_problems(view: Json) -> Iterator[None]:
    """A context manager in which an error of a file or of this program becomes a problem that the page names."""
    try:
        yield
    except OSError as error:
        view["problems"].append(f"a file of the task cannot be read: {error}")
    except MakimonoError as error:
        view["problems"].append(str(error))


def _question(folder: Path | None) -> str:
    """The newest question of the model to a person; "" if the last LAST_LINES messages have none or cannot be read."""
    if folder is None:
        return ""
    try:
        newest = read_before(folder / conversation.MESSAGES, LAST_LINES).records
    except OSError:
        return ""
    return next((found for one in reversed(newest) if (found := question_in(one))), "")


def question_in(record: Json) -> str:
    """The question in a message, "" if it has none or is damaged."""
    try:
        return question_of(record)
    except (AttributeError, TypeError):
        return ""


def public(view: Json) -> Json:
    """The value of a page without the entries that only this process needs, of which the names begin with `_`."""
    return {name: value for name, value in view.items() if not name.startswith("_")}


def _number(given: dict[str, str], name: str) -> int | None:
    """The number in a parameter of the address; None if the parameter is missing or empty. Raises UsageError."""
    text = given.get(name)
    if text and whole_number(text) is None:
        raise UsageError(f"{name} is {text[:20]!r}; allowed are whole numbers of at most 15 digits")
    return whole_number(text)


def whole_number(text: str | None) -> int | None:
    """The number in `text`, if `text` consists of 1 to 15 digits; None for any other text."""
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 16 else None
