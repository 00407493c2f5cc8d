"""A task's real stores, client, window and loop with a loopback server: turns one after another, with restarts
between."""

from contextlib import ExitStack, closing, contextmanager

from llm_servers import TOOL, Heard

from agent.config import settings_of
from agent.context import TaskContextManager
from agent.llm import make_client
from agent.loop import Loop
from agent.window import make_window

KEY = {"task_source": "github", "owner": "o", "repo": "r", "task_type": "issue", "task_id": "7"}


class Talk:
    """`server` has `url` and `close`; `keys` are configuration keys of the provider."""

    def __init__(self, folder, wire, server, *, model="m", issue="Fix the bug in a.py.", **keys):
        self.server = server
        provider = {"model": model, "base_url": server.url, "api_key": "k", **keys}
        self.config = {
            "context_storage": {"base_dir": str(folder), "durability": "none", "strategy": "sliding_window"},
            "llm": {"provider": wire, wire: provider},
        }
        self.heard = Heard()
        self.open()
        self.store.add_message("system", "You are careful.")
        self.store.add_message("user", issue)

    def open(self):
        settings = settings_of(self.config)
        self.context = TaskContextManager(KEY, "u-1", settings)
        self.store = self.context.get_message_store()
        client = make_client(settings, self.store, self.context.context_dir, tools=[TOOL], events=self.heard)
        self.window = make_window(settings, self.context, client, events=self.heard)
        parts = dict.fromkeys(("tools", "repetition", "control", "limits", "new_comments", "heartbeat"))
        self.loop = Loop(context=self.context, model=client, window=self.window, events=self.heard, **parts)

    def restart(self):
        self.loop.model.close()
        self.context.close()
        self.open()

    def fill(self, groups, result):
        """Add turns of another model, or from before the server reported token counts: no report covers them."""
        for number in range(groups):
            call = {"id": f"old{number}", "name": "read_file", "arguments": {"path": f"f{number}.py"}}
            self.store.add_message("assistant", f"Step {number}.", tool_calls=[call])
            self.store.add_message("tool", result, tool_call_id=call["id"])
        return self

    def turn(self, result="ok"):
        """One answer; each of its calls gets `result`.  After an answer without calls, `result` is the person's next
        message."""
        text, calls = self.loop.query()
        for one in calls:
            self.store.add_message("tool", result, tool_call_id=one["id"])
        if not calls:
            self.store.add_message("user", result)
        if self.window.needs_compaction():
            self.window.compact()
        return text, calls

    def close(self):
        self.loop.model.close()
        self.context.close()
        self.server.close()


@contextmanager
def talks(folder):
    """start(wire, server, **keys) → Talk; each is closed at the end."""
    with ExitStack() as made:
        yield lambda wire, server, **keys: made.enter_context(closing(Talk(folder, wire, server, **keys)))
