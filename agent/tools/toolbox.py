"""The toolbox: runs every tool call, and returns a result that is safe to show to the model.

The steps of a tool call are: check the arguments, run the tool, clean the result, mask declared secrets, cap the
result, store the whole text in `outputs/` unless the result shows all of it, update the state of the work
(`work_state.py`). The toolbox records no result: the loop writes each result to tools.jsonl and to the messages.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from agent import clock
from agent.error_text import named
from agent.errors import DiskError, ToolError
from agent.observe import log
from agent.tools import truncate
from agent.tools.arguments import repair, validate
from agent.tools.base import TOOLS, RawResult, Run, Tool, ToolContext
from agent.tools.encodings import UTF8, escape_surrogates, printable, size_of
from agent.tools.file_types import size_text
from agent.tools.lines import decoded, shorten_line
from agent.tools.outputs import Outputs, StoredOutput, blocks, masked
from agent.tools.planning import AFTER_THE_END, outcome_of
from agent.tools.read_file import read_whole
from agent.tools.result_budget import CAP, LEAST, PER_RESULT, SMALLEST, ResultBudget, room_of
from agent.tools.run_command import overwritten
from agent.tools.work_state import WorkState
from agent.tools.work_tree import Tree
from agent.values import ToolResult

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from jsonschema.protocols import Validator

    from agent.config import Settings
    from agent.tools.result_budget import ResultWindow
    from agent.values import Json, Outcome, Redact

TIMEOUT = 120.0
MAX_TIMEOUT = 1800.0


def hidden(what: str, whole: StoredOutput) -> str:
    r"""The note that the model gets instead of an output that is not readable text (binary data, for example)."""
    return (
        f"({what}; it is not shown. As text, with odd bytes as \\xNN, it has {size_text(whole.size)}: "
        f'read_output("{whole.name}") shows it)'
    )


class Toolbox:
    """The tools of one task.

    `root` is the work tree, `context_dir` the task's folder. `run` executes a command in isolation; if it is None,
    commands are refused. `clean` removes escape sequences and invisible characters from a text and must leave all
    visible text unchanged. `redact` masks secrets, `lookup(seq)` returns the recorded result of a tool call,
    `message(seq)` the text of a message. When this process runs as root, new files belong to `owner_uid`. `cap_chars`
    is the maximum size of one result, in UTF-8 bytes, since a character of another script takes more bytes and more
    tokens than an ASCII character; None means `room_of` the window (CAP without `settings`). Every time-out is in
    seconds. `extra_tools` are listed after the built-in tools. `why_left_out(path)` is the reason why commits exclude a
    path, "" if they include it.
    """

    def __init__(
        self,
        *,
        root: Path,
        context_dir: Path,
        run: Run | None,
        redact: Redact,
        clean: Callable[[str], str],
        lookup: Callable[[int], str | None],
        owner_uid: int | None = None,
        settings: Settings | None = None,
        why_left_out: Callable[[str], str] = lambda _path: "",
        extra_tools: Sequence[Tool] = (),
        message: Callable[[int], str | None] = lambda _seq: None,
        cap_chars: int | None = None,
        timeout: float = TIMEOUT,
        max_timeout: float = MAX_TIMEOUT,
    ) -> None:
        fixed = cap_chars is not None
        if cap_chars is None:
            cap_chars = CAP if settings is None else room_of(settings.provider().context_length)
        self.budget = ResultBudget(cap_chars, fixed=fixed)
        self.outputs = Outputs(context_dir)
        self._redact, self._clean = redact, clean
        self._tree = tree = Tree(root, owner_uid)
        self._state = WorkState(tree)
        self._last: Mapping[str, Any] = {}
        place = ToolContext(
            tree=tree,
            outputs=self.outputs,
            run=run,
            lookup=lookup,
            room=self.budget,
            timeout=min(timeout, max_timeout),
            max_timeout=max_timeout,
            why_left_out=why_left_out,
            message=message,
            network=() if settings is None else settings.sandbox.network,
        )
        built: list[Tool] = [TOOLS.load(name)(place) for name in TOOLS.entries]
        self.tools: dict[str, Tool] = {tool.name: tool for tool in [*built, *extra_tools]}
        self._validators: dict[str, Validator] = {}

    @property
    def room(self) -> int:
        """The maximum bytes of the next result."""
        return self.budget.most

    def limit_tokens(self, window: ResultWindow) -> None:
        """From now on the limits of results follow the size of `window`, which is read again at the start of each
        answer."""
        self.budget.limit_tokens(window)

    def start_answer(self, calls: int) -> None:
        """Begin an answer with `calls` calls; the results of these calls share one budget."""
        self.budget.start_answer(calls)

    def schemas(self) -> list[Json]:
        """The schemas of the tools in OpenAI's form, always in the same order."""
        return [
            {
                "type": "function",
                "function": {"name": tool.name, "description": tool.description, "parameters": tool.parameters},
            }
            for tool in self.tools.values()
        ]

    def run(self, name: str, arguments: object) -> ToolResult:
        """Run one tool call. Every fault of a tool becomes a result for the model; only DiskError is raised, because a
        task whose disk fails cannot go on."""
        started = clock.monotonic()
        try:
            result = self._result(self._run_tool(name, arguments))
        except DiskError:
            raise
        except ToolError as error:
            text = self._mask(str(error))
            result = ToolResult(self._capped(text)[0], status="error", error=text[:500])
        except Exception as error:  # noqa: BLE001 - a fault of one tool must not end the task
            log.mistake("tools", name, error)
            text = self._mask(f"{name} failed inside: {named(error)}")[:2000]
            result = ToolResult(escape_surrogates(text), status="error", error=escape_surrogates(text))
        self.budget.spend(result.content)
        if isinstance(arguments, dict):
            self._state.record(name, self.repair_arguments(name, arguments), result.status)
        duration = int((clock.monotonic() - started) * 1000)
        return ToolResult(result.content, result.status, duration, result.output, result.error, result.outcome)

    def repair_arguments(self, name: str, arguments: Any) -> Any:
        """The arguments after the repairs with which `run` executes the call; arguments of an unknown tool, or that are
        no object, are returned unchanged."""
        tool = self.tools.get(name)
        return arguments if tool is None or not isinstance(arguments, dict) else repair(arguments, tool.parameters)

    def plan(self) -> list[dict[str, str]]:
        """The newest plan of the model, as `{"text", "status"}` items."""
        return [dict(item) for item in self._state.plan]

    def written_paths(self) -> list[str]:
        """Every path that `write_file` or `edit_file` wrote, including calls that were restored."""
        return list(self._state.written)

    def current_text(self, path: str, most: int) -> str | None:
        """The present text of a file of the work tree, cleaned and masked.

        Returns None for a path that is refused or cannot be opened, a file that is not a regular text file, and a file
        with more than `most` bytes.
        """
        try:
            found = read_whole(self._tree, path, most)
        except ToolError:
            return None
        return self._mask(found) if found is not None else None

    @property
    def has_run(self) -> bool:
        """Whether a call that reads or changes the work has succeeded, including calls that were restored."""
        return self._state.has_run

    def state(self) -> Json:
        """The state that a compaction carries over: `{"plan", "files_read", "files_changed"}`."""
        return self._state.to_dict()

    def restore(self, records: Iterable[Mapping[str, Any]]) -> None:
        """After a restart: add the tool calls in the records of tools.jsonl, oldest first, to the state of the work."""
        for record in records:
            arguments = record.get("args")
            if isinstance(arguments, dict):
                self._state.record(str(record.get("tool")), arguments, str(record.get("status")))
                if record.get("error") != AFTER_THE_END:
                    self._last = record

    def restored_outcome(self) -> Outcome | None:
        """The outcome with which the newest restored call ended the run (`finish`, `ask_user`), None if that call did
        not end it."""
        last = self._last
        if last.get("status") != "success" or last.get("tool") not in ("finish", "ask_user"):
            return None
        return outcome_of(str(last["tool"]), last["args"])

    def _run_tool(self, name: str, arguments: object) -> RawResult:
        tool = self.tools.get(name)
        if tool is None:
            raise ToolError(f"there is no tool {escape_surrogates(str(name))!r}; the tools are {', '.join(self.tools)}")
        return tool.run(validate(name, arguments, tool.parameters, self._validator(tool)))

    def _validator(self, tool: Tool) -> Validator:
        """The validator of a tool's arguments; it is created at the first call of the tool, since a task does not call
        every tool."""
        # jsonschema is imported here because its import takes long and the child process of a search does not need it
        from jsonschema import Draft202012Validator

        if tool.name not in self._validators:
            self._validators[tool.name] = Draft202012Validator(tool.parameters)
        return self._validators[tool.name]

    def _result(self, product: RawResult) -> ToolResult:
        """Clean, mask and cap the result of a tool."""
        text = "" if product.hidden and product.dropped else self._mask(product.text)
        head = shorten_line(self._mask(product.head), self.room // 4)
        whole = None
        room = self.room - size_of(head) - 1
        try:
            if product.dropped and product.spool is not None:
                with product.spool.open("rb") as file:
                    lost = max(0, product.total - os.fstat(file.fileno()).st_size)
                    raw = blocks(file.fileno())
                    text_of = map(printable, raw) if product.hidden else decoded(raw, UTF8)
                    whole = self.outputs.store(
                        masked(text_of, self._redact if product.hidden else self._mask_raw), lost
                    )
        finally:
            if product.dropped and product.spool is not None:
                product.spool.unlink(missing_ok=True)  # only this result uses the spool file  # ours
        output: str | None
        if product.hidden:
            whole = whole or self.outputs.store([text])
            body, output = hidden(product.hidden, whole), whole.name
        else:
            body, output = self._capped(text, room, whole, paged=product.paged, head=head)
        content = "\n".join(part for part in (head, body) if part)
        error = head[:500] if product.status == "error" else None
        return ToolResult(
            escape_surrogates(content), product.status, output=output, error=error, outcome=product.outcome
        )

    def _mask(self, text: str) -> str:
        return self._redact(self._clean(text)) if text else text

    def _mask_raw(self, text: str) -> str:
        return self._mask(overwritten(text))

    def _capped(
        self,
        text: str,
        room: int | None = None,
        whole: StoredOutput | None = None,
        *,
        paged: bool = False,
        head: str = "",
    ) -> tuple[str, str | None]:
        """(the text, cut to `room` bytes and to the tokens that the budget has for this result, minus those of `head`;
        name of the stored output, None if nothing is cut)."""
        room = max(LEAST // 2, self.room if room is None else room)
        tokens = self.budget.tokens
        if tokens is not None:
            tokens = max(1, tokens - self.budget.count(head) - PER_RESULT)
        cut = truncate.truncate(text, room, more=whole is not None, longest=room if paged else truncate.LINE)
        if cut is None and (tokens is None or self.budget.count(text) <= tokens):
            return escape_surrogates(text), None
        whole = whole or self.outputs.store([text])
        return self._head_and_tail(text, cut, whole, min(room, size_of(text)), tokens), whole.name

    def _head_and_tail(
        self, text: str, cut: truncate.Truncated | None, whole: StoredOutput, room: int, tokens: int | None
    ) -> str:
        """Head and tail of a stored text, in at most `tokens` tokens, but at least SMALLEST bytes."""
        while True:
            shown = escape_surrogates((cut or truncate.truncate(text, room, more=True)).text(whole))
            found = self.budget.count(shown)
            if tokens is None or found <= tokens or room <= SMALLEST:
                return shown
            room = max(SMALLEST, min(room * 7 // 8, room * tokens // found))
            cut = None

    def store_output(self, text: str) -> str:
        """Mask the secrets in a text and store it in `outputs/`; returns the name by which `read_output` finds it."""
        return self.outputs.store([self._redact(text)]).name

    def shorten(self, text: str, tokens: int) -> str:
        """`text` if it has at most `tokens` tokens, else its head and tail; the whole text is then stored for
        `read_output`."""
        text = self._redact(text)
        if self.budget.count(text) <= tokens:
            return text
        return self._head_and_tail(text, None, self.outputs.store([text]), min(size_of(text), tokens * 8), tokens)
