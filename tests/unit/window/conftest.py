"""Conversations in the real stores, and a model client for the window that writes summaries."""

import itertools

import pytest
from summaries import honest

from agent.config import settings_of
from agent.context import MessageStore
from agent.window import make_window


class Writer:
    """The part of a model client that the window uses.  `answers` are texts, functions of the request, or errors; the
    last one is repeated."""

    provider = "ollama"
    model = "phi4"

    def __init__(self, *answers, window=None, room=None):
        self.answers = list(answers) or [honest]
        self.window = window
        self.room = room
        self.tools = ()
        self.last = None
        self.requests = []

    def loaded_window(self):
        return self.window

    def get_summary(self, path):
        text = path.read_text(encoding="utf-8")
        if self.room is not None:
            self.room(text)
        self.requests.append(text)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, BaseException):
            raise answer
        return answer(text) if callable(answer) else answer


class Task:
    """A conversation in a folder, with its window."""

    def __init__(self, folder, writer, *, context_length=8192, ratios=None, **storage):
        self.folder = folder
        self.writer = writer
        self.told = []
        self.settings = settings_of(
            {
                "context_storage": storage,
                "llm": {"provider": "ollama", "ollama": {"model": "phi4", "context_length": context_length}},
            }
        )
        folder.mkdir(exist_ok=True)
        self.store = MessageStore(folder, self.settings, ratios=ratios)
        self.fence = ""
        self.window = make_window(self.settings, self, writer, events=self)
        self.compressor = self.window.compressor
        self.calls = 0

    def get_message_store(self):
        return self.store

    def get_summary_store(self):
        return self.store.summaries

    def emit(self, name, /, **fields):
        self.told.append((name, fields))

    def events(self, name):
        return [fields for told, fields in self.told if told == name]

    def heard(self):
        """Set the state after the first report: no margin for an unknown vocabulary."""
        self.window.assembler.heard = True
        return self

    def begin(self, system="You are a careful agent.", task="Fix the bug in main.py. RULE: never touch setup.py."):
        self.store.add_message("system", system)
        self.store.add_message("user", task)
        return self

    def begin_large(self, tokens):
        """Begin with a briefing of about `tokens`, by the counter."""
        return self.begin(task="word " * round(tokens / (self.store.counter.count("word " * 1000) / 1000)))

    def group(self, size=400, calls=1, name="read_file", *, usage=None, text=None, **arguments):
        """Add an assistant message (`text`) with calls and results of about `size` tokens each; `usage` is its report."""
        ids = []
        for _ in range(calls):
            self.calls += 1
            ids.append(f"call_{self.calls}")
        self.store.add_message(
            "assistant",
            text or f"Step {self.calls}.",
            tool_calls=[{"id": one, "name": name, "arguments": arguments or {"path": f"f{one}.py"}} for one in ids],
            usage=usage,
        )
        for number, one in enumerate(ids):
            self.store.add_message(
                "tool", f"line {number} of the file\n" * (size // 6), tool_call_id=one, tool_seq=self.calls
            )
        return self

    def fill(self, groups, size=400):
        for _ in range(groups):
            self.group(size)
        return self

    def fill_to_mark(self, size=400):
        """Add groups until a compaction is due.  The request still fits if a group is smaller than the distance from the
        mark to the limit."""
        while not self.compressor.should_compress():
            self.group(size)
        assert self.window.assembler.tokens_in_use() <= self.window.limits.input_limit
        return self

    def view(self):
        return list(self.window.assembler.assemble().messages)

    def current(self):
        return self.store.get_current_context_file().read_bytes()


@pytest.fixture
def new_task(tmp_path):
    made = itertools.count()
    tasks = []

    def make(*answers, window=None, room=None, folder=None, **storage):
        """A new task, or with `folder` an existing one, as another process would resume it."""
        folder = folder or tmp_path / f"task{next(made)}"
        tasks.append(Task(folder, Writer(*answers, window=window, room=room), **storage))
        return tasks[-1]

    yield make
    for task in tasks:
        task.store.close()
