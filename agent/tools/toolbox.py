"""The toolbox: every tool call goes through here, and comes back as a result that the model can be shown.

Check the arguments, run, clean, mask declared secrets, cap, keep the whole text in `outputs/`, remember what matters.
Does not record: the loop writes the result to tools.jsonl and the messages.  Called by the loop and by nothing else.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from agent import clock
from agent.errors import DiskError, ToolError
from agent.tools import cap
from agent.tools.base import TOOLS, Place, Product, Run, Tool
from agent.tools.check import checked, mended
from agent.tools.kinds import size_text
from agent.tools.lines import decoded, shorten
from agent.tools.outputs import Outputs, Whole, blocks, masked
from agent.tools.planning import AFTER_THE_END, ending
from agent.tools.reading import present
from agent.tools.room import CAP, LEAST, PER_RESULT, SMALLEST, Room, room_of
from agent.tools.running import overwritten
from agent.tools.state import State
from agent.tools.text import UTF8, fit, printed, size_of
from agent.tools.tree import Tree
from agent.values import ToolResult

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from jsonschema.protocols import Validator

    from agent.config import Settings
    from agent.values import Json, Outcome, Redact

TIMEOUT = 120.0
MAX_TIMEOUT = 1800.0


def hidden(what: str, whole: Whole) -> str:
    r"""The words that stand for a text which the model would not read."""
    return (
        f"({what}; it is not shown. As text, with odd bytes as \\xNN, it has {size_text(whole.size)}: "
        f'read_output("{whole.name}") shows it)'
    )


class Toolbox:
    """The tools of one task.

    `root` is the work tree, `context_dir` the task's folder.  `run` executes a command isolated (None: commands are
    refused), `clean` takes escape sequences and invisible characters out of a text and must leave everything that
    people see, `redact` masks secrets, `lookup(seq)` gives the recorded result of a call, `message(seq)` the text of a
    message.  As root, new files get `owner_uid`.
    `cap_chars` is the room of one result, counted in UTF-8 bytes so that no script costs more tokens
    than another; None: `room_of` the configured window.  Times are in seconds.  `extra_tools` follow the built-in ones.
    `why_left_out(path)` says why no commit will have a path, "" when one will.
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
        self._fixed = cap_chars is not None
        if cap_chars is None:
            cap_chars = CAP if settings is None else room_of(settings.provider().context_length)
        self.budget = Room(cap_chars)
        self.outputs = Outputs(context_dir)
        self._redact, self._clean = redact, clean
        self._tree = tree = Tree(root, owner_uid)
        self._state = State(tree)
        self._last: Mapping[str, Any] = {}
        place = Place(
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
        """Bytes of one result."""
        return self.budget.most

    def follow(self, window: Callable[[], int], results: Callable[[], int], count: Callable[[str], int]) -> None:
        """Cap by the window in force from now on: `window` is its tokens, `results` the tokens that all results of one
        answer share, `count` the task's counter."""

        def budget() -> int:
            if not self._fixed:
                self.budget.most = room_of(window())
            return results()

        self.budget.follow(budget, count)

    def expect(self, calls: int) -> None:
        """An answer with so many calls begins: their results share one budget."""
        self.budget.expect(calls)

    def schemas(self) -> list[Json]:
        """The tools in OpenAI's form, always in the same order."""
        return [
            {
                "type": "function",
                "function": {"name": tool.name, "description": tool.description, "parameters": tool.parameters},
            }
            for tool in self.tools.values()
        ]

    def run(self, name: str, arguments: object) -> ToolResult:
        """Run one call.  Whatever the tool does wrong is a result; only DiskError (the task's own disk) is raised."""
        started = clock.monotonic()
        try:
            result = self._result(self._called(name, arguments))
        except DiskError:
            raise
        except ToolError as error:
            text = self._mask(str(error))
            result = ToolResult(self._capped(text)[0], status="error", error=text[:500])
        except Exception as error:  # noqa: BLE001 - a fault of one tool must not end the task; the model is told and goes on
            text = self._mask(f"{name} failed inside: {type(error).__name__}: {error}")[:2000]
            result = ToolResult(fit(text), status="error", error=fit(text))
        self.budget.spend(result.content)
        if isinstance(arguments, dict):
            self._state.note(name, self.mended(name, arguments), result.status)
        duration = int((clock.monotonic() - started) * 1000)
        return ToolResult(result.content, result.status, duration, result.output, result.error, result.outcome)

    def mended(self, name: str, arguments: Any) -> Any:
        """The arguments as the tool takes them, for the record; those of an unknown tool, or odd ones, as they are."""
        tool = self.tools.get(name)
        return arguments if tool is None or not isinstance(arguments, dict) else mended(arguments, tool.parameters)

    def plan(self) -> list[dict[str, str]]:
        """The plan as the model last gave it: `{"text", "status"}` items."""
        return [dict(item) for item in self._state.plan]

    def written(self) -> list[str]:
        """Every path that `write_file` or `edit_file` wrote, restored calls included."""
        return list(self._state.written)

    def present(self, path: str, most: int) -> str | None:
        """The text of a file of the work tree as it is now, cleaned and masked; None for one that is not there, is no
        regular text file, or has more than `most` bytes."""
        try:
            found = present(self._tree, path, most)
        except ToolError:
            return None
        return self._mask(found) if found is not None else None

    @property
    def has_run(self) -> bool:
        """Whether a call has succeeded that looked at the work or changed it, restored ones included."""
        return self._state.has_run

    def state(self) -> Json:
        """What a compaction carries over: `{"plan", "files_read", "files_changed"}`."""
        return self._state.to_dict()

    def restore(self, records: Iterable[Mapping[str, Any]]) -> None:
        """Take in the records of tools.jsonl, oldest first (after a restart)."""
        for record in records:
            arguments = record.get("args")
            if isinstance(arguments, dict):
                self._state.note(str(record.get("tool")), arguments, str(record.get("status")))
                if record.get("error") != AFTER_THE_END:
                    self._last = record

    def restored_outcome(self) -> Outcome | None:
        """How the newest restored call ended the run (`finish`, `ask_user`), None when it did not."""
        last = self._last
        if last.get("status") != "success" or last.get("tool") not in ("finish", "ask_user"):
            return None
        return ending(str(last["tool"]), last["args"])

    def _called(self, name: str, arguments: object) -> Product:
        tool = self.tools.get(name)
        if tool is None:
            raise ToolError(f"there is no tool {fit(str(name))!r}; the tools are {', '.join(self.tools)}")
        return tool.run(checked(name, arguments, tool.parameters, self._validator(tool)))

    def _validator(self, tool: Tool) -> Validator:
        """Made at the tool's first call: a task calls few of them, and most of a worker's life is waiting."""
        from jsonschema import Draft202012Validator  # heavy, and the search child does without

        if tool.name not in self._validators:
            self._validators[tool.name] = Draft202012Validator(tool.parameters)
        return self._validators[tool.name]

    def _result(self, product: Product) -> ToolResult:
        """Clean, mask and cap what the tool made."""
        text = "" if product.hidden and product.dropped else self._mask(product.text)
        head = shorten(self._mask(product.head), self.room // 4)
        whole = None
        room = self.room - size_of(head) - 1
        try:
            if product.dropped and product.spool is not None:
                with product.spool.open("rb") as file:
                    lost = max(0, product.total - os.fstat(file.fileno()).st_size)
                    raw = blocks(file.fileno())
                    text_of = map(printed, raw) if product.hidden else decoded(raw, UTF8)
                    whole = self.outputs.keep(masked(text_of, self._redact if product.hidden else self._mask_raw), lost)
        finally:
            if product.dropped and product.spool is not None:
                product.spool.unlink(missing_ok=True)  # ours
        output: str | None
        if product.hidden:
            whole = whole or self.outputs.keep([text])
            body, output = hidden(product.hidden, whole), whole.name
        else:
            body, output = self._capped(text, room, whole, paged=product.paged, head=head)
        content = "\n".join(part for part in (head, body) if part)
        error = head[:500] if product.status == "error" else None
        return ToolResult(fit(content), product.status, output=output, error=error, outcome=product.outcome)

    def _mask(self, text: str) -> str:
        return self._redact(self._clean(text)) if text else text

    def _mask_raw(self, text: str) -> str:
        return self._mask(overwritten(text))

    def _capped(
        self, text: str, room: int | None = None, whole: Whole | None = None, *, paged: bool = False, head: str = ""
    ) -> tuple[str, str | None]:
        """(text within the room and, with `head`, within its part of the tokens; name of the stored output or None)."""
        room = max(LEAST // 2, self.room if room is None else room)
        tokens = self.budget.tokens
        if tokens is not None:
            tokens = max(1, tokens - self.budget.count(head) - PER_RESULT)
        cut = cap.cut(text, room, more=whole is not None, longest=room if paged else cap.LINE)
        if cut is None and (tokens is None or self.budget.count(text) <= tokens):
            return fit(text), None
        whole = whole or self.outputs.keep([text])
        return self._shown(text, cut, whole, min(room, size_of(text)), tokens), whole.name

    def _shown(self, text: str, cut: cap.Cut | None, whole: Whole, room: int, tokens: int | None) -> str:
        """Head and tail of a text that is stored, as much as has at most `tokens`, or SMALLEST bytes."""
        while True:
            shown = fit((cut or cap.cut(text, room, more=True)).shown(whole))
            found = self.budget.count(shown)
            if tokens is None or found <= tokens or room <= SMALLEST:
                return shown
            room = max(SMALLEST, min(room * 7 // 8, room * tokens // found))
            cut = None

    def keep(self, text: str) -> str:
        """Keep a text in `outputs/`; its name for `read_output`."""
        return self.outputs.keep([self._redact(text)]).name

    def shortened(self, text: str, tokens: int) -> str:
        """`text` where it has at most `tokens`, else its head and tail; the whole is kept for `read_output` then."""
        text = self._redact(text)
        if self.budget.count(text) <= tokens:
            return text
        return self._shown(text, None, self.outputs.keep([text]), min(size_of(text), tokens * 8), tokens)
