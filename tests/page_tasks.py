"""Tasks in every state with every kind of record, made by the program's own stores, for tests of the page in a browser.

`say` makes each text that comes from outside: `plain` leaves it as it is, for pages that people look at; `hostile` adds
what harms a page that takes a text for HTML, a style, a script, a template or a terminal's order.
"""

import fcntl
import json
import os
from contextlib import ExitStack, closing
from datetime import timedelta

from agent import clock
from agent.config import load
from agent.context import TaskContextManager
from agent.context.deliberations import DeliberationStore
from agent.context.recalled import RecalledStore
from agent.context.requests import RequestStore
from agent.daemon.health import HealthFile
from agent.daemon.program_version import lock_of
from agent.store.configured_ledger import LedgerKind
from agent.taskqueue import row_holder
from agent.values import End, Outcome, Usage
from agent.wiring.memory import open_memory

RUNNING = "1a000000-0000-4000-8000-000000000001"
COMPLETED = "2b000000-0000-4000-8000-000000000002"
FAILED = "3c000000-0000-4000-8000-000000000003"
STOPPED = "4d000000-0000-4000-8000-000000000004"
PAUSED = "5e000000-0000-4000-8000-000000000005"
QUEUED = "6f000000-0000-4000-8000-000000000006"

MARK = "window.owned"
"""What every hostile script sets."""
HOSTILE = (
    f"<script>{MARK}=1</script></script></textarea></title></pre></style><img src=x onerror={MARK}=2>"
    f"<svg onload={MARK}=3><a href=javascript:{MARK}=4>a</a></svg>\"' onmouseover='{MARK}=5' autofocus onfocus='{MARK}=6"
    "<style>*{display:none!important}</style><link rel=stylesheet href=http://192.0.2.1/x.css>"
    "<img src=http://192.0.2.1/x.png><iframe src=http://192.0.2.1/></iframe><meta http-equiv=refresh content=0;url=/x>"
    f"<form action=http://192.0.2.1/><input name=form_token><base href=http://192.0.2.1/> javascript:{MARK}=7"
    "{{ 7 * 7 }} {% for x in y %} ${7*7} \x1b]0;owned\x07\x1b[2J\x1b[31m \u202egnp.txt\u202c \u200b\u2066x\u2069 \x00\x08 &lt;b&gt;"
)
LONG = "W" * 100_000


def plain(text):
    return text


def hostile(text):
    return f"{text} {HOSTILE}"


DIFF = """diff --git a/{name} b/{name}
index 3f1d2a9..8c0e1b4 100644
--- a/{name}
+++ b/{name}
@@ -18,7 +18,7 @@ def total(invoice):
     nets = {{}}
     for line in invoice.lines:
-        taxes[line.rate] = taxes.get(line.rate, 0) + round(line.tax, 2)
+        nets[line.rate] = nets.get(line.rate, 0) + line.net
     return nets
 # {text}
"""


class TasksHome:
    """`folder` with config.yaml and contexts/, in which tasks of every state lie, and a daemon that seems to run.

    `running` is the open context of the task that runs.  `record` is a record of long-term memory.
    """

    def __init__(self, folder, say, extra=""):
        self.folder, self.say = folder, say
        (folder / "tracker" / "issues").mkdir(parents=True)
        self.config = folder / "config.yaml"
        self.config.write_text(
            "llm: {provider: openai, openai: {model: gpt-4o, context_length: 128000, base_url: 'http://127.0.0.1:9/v1',\n"
            "  api_key: key-of-the-test, price: {input: 2.5, cached: 1.25, output: 10}}}\n"
            "local: {tracker: tracker, repos: {default: repo.git}}\n"
            "context_storage: {durability: none}\nsandbox: {kind: none}\nmemory: {enabled: true}\n" + extra
        )
        self.settings = load(self.config, environ={})
        self.open = ExitStack()
        self.ledger = LedgerKind.from_settings(self.settings).open()
        self.open.callback(self.ledger.close)
        self._daemon()
        self._tasks()
        self._memory()

    def close(self):
        self.open.close()

    def set(self, uuid, **columns):
        names = ", ".join(f"{name} = :{name}" for name in columns)
        self.ledger.db.execute(f"UPDATE tasks SET {names} WHERE uuid = :uuid", uuid=uuid, **columns)

    def row(self, uuid):
        return self.ledger.get(uuid)

    def key(self, number, repo="billing"):
        names = {"task_source": "github", "instance": "github.com", "owner": "example", "repo": repo}
        return {**names, "task_type": "issue", "task_id": str(number)}

    def local(self, number, title="An issue"):
        """Queue a task of the local tracker, whose issue orders can change; returns its uuid."""
        text = f"---\ntitle: {title}\nlabels: [coding agent]\nauthor: alice\nstate: open\n---\nPlease.\n"
        (self.folder / "tracker" / "issues" / f"{number}.md").write_text(text)
        key = {"task_source": "local", "instance": str(self.folder / "tracker"), "owner": "local", "repo": "default"}
        return self.ledger.enqueue({**key, "task_type": "issue", "task_id": str(number)}, title=title, user="alice")

    def context(self, uuid, number, title, repo="billing", **more):
        return TaskContextManager(
            self.key(number, repo), uuid, self.settings, title=self.say(title), user=self.say("alice"), **more
        )

    def _daemon(self):
        lock = lock_of(self.settings)
        lock.parent.mkdir(parents=True, exist_ok=True)
        held = self.open.enter_context(lock.open("a"))
        fcntl.flock(held, fcntl.LOCK_EX)
        health = HealthFile(self.settings)
        health.write([])
        later = clock.now().timestamp() + 86_400  # a daemon whose last sign is old counts as hung
        os.utime(health.path, (later, later))

    def _tasks(self):
        say = self.say
        self.ledger.enqueue(self.key(31), uuid=QUEUED, title=say("Show totals in the currency of the customer"))
        paused = self.context(PAUSED, 28, "Which of the two VAT numbers belongs on the invoice?")
        self._work(paused, turns=2)
        paused.paused("question", say("A person has to answer the question on the issue."))
        paused.close()
        stopped = self.context(STOPPED, 25, "Drop support for the old export format")
        self._work(stopped, turns=1)
        stopped.stopped(say("Not needed any more."))
        failed = self.context(FAILED, 22, "Speed up the nightly report", repo="reports")
        self._work(failed, turns=3)
        failed.fail(say("The check `python3 -m unittest` fails on the base commit."), "check_failed")
        done = self.context(COMPLETED, 17, "Round tax once for each rate")
        self._work(done, turns=6)
        done.set_columns(branch=say("makimono/17-round-tax"), url="https://github.com/example/billing/pull/18")
        done.complete(Outcome(End.FINISHED))
        self.running = self.context(RUNNING, 30, "Reject invoices without a due date")
        self._work(self.running, turns=9, every=True)
        self.running.set_columns(branch=say("makimono/30-due-date"))
        fcntl.flock(self.open.enter_context((self.running.context_dir / "lock").open("a")), fcntl.LOCK_EX)
        self.set(RUNNING, lease_owner=row_holder.owner(self.settings.base_dir))
        if say is hostile:
            self.set(RUNNING, url=f"javascript:{MARK}=8")
        self.open.callback(self.running.close)
        for uuid, hours in ((RUNNING, 0.2), (QUEUED, 0.5), (PAUSED, 3), (STOPPED, 5), (FAILED, 26), (COMPLETED, 49)):
            begun = clock.now() - timedelta(hours=hours)
            self.set(uuid, created_at=clock.stamp(begun))
            if uuid != QUEUED:
                self.set(uuid, started_at=clock.stamp(begun + timedelta(minutes=1)))
            if uuid in (STOPPED, FAILED, COMPLETED):
                self.set(uuid, completed_at=clock.stamp(begun + timedelta(minutes=9)))

    def _work(self, context, turns, every=False):
        say, folder = self.say, context.context_dir
        messages, tools = context.get_message_store(), context.get_tool_store()
        requests = RequestStore(folder)
        messages.add_message("system", say("You are a coding agent. You work on one issue in one repository."))
        messages.add_message(
            "user", say("Invoices without a due date are accepted. They should be refused."), kind="task"
        )
        steps = ["Write a failing test", "Refuse the invoice", "Run the tests", "Describe the rule"]
        calls = [
            ("update_plan", {"items": [{"text": say(one), "status": "pending"} for one in steps]}, "0 of 4 done"),
            ("run_command", {"command": say("python3 -m unittest -q")}, "Ran 41 tests in 0.412s\n\nOK"),
            ("read_file", {"path": say("billing/invoice.py")}, "def total(invoice):\n    ..."),
            ("search", {"pattern": say("due_date")}, "billing/invoice.py:12: due_date: date | None = None"),
            ("edit_file", {"path": say("tests/test_invoice.py")}, "tests/test_invoice.py: 1 place changed"),
            ("run_command", {"command": say("python3 -m unittest -q")}, "FAILED (failures=1)"),
            ("edit_file", {"path": say("billing/invoice.py")}, "billing/invoice.py: 1 place changed"),
            ("run_command", {"command": say("python3 -m unittest -q")}, "Ran 42 tests in 0.420s\n\nOK"),
            (
                "update_plan",
                {
                    "items": [
                        {"text": say(one), "status": "in_progress" if one == steps[3] else "done"} for one in steps
                    ]
                },
                "3 of 4 done",
            ),
        ]
        for number, (tool, arguments, output) in enumerate(calls[:turns]):
            tokens = 38_000 + 9_500 * number - (48_000 if number > 6 else 0)
            begun = requests.begin(purpose="turn", provider="openai", model="gpt-4o", tokens=tokens)
            more = (
                {"status": "error", "error": say("HTTP 503: overloaded")} if every and number == 4 else {"status": "ok"}
            )
            usage = Usage(tokens, 180 + 20 * number)
            request = requests.end(
                begun, usage=usage, cost=tokens * 2.5e-6, duration_ms=2100 + 300 * number, first_token_ms=410, **more
            )
            call = {"id": f"c{number}", "name": tool, "arguments": arguments}
            text = say("Now the next step.") if every else ""
            messages.add_message(
                "assistant", text, tool_calls=[call], usage=usage, request=request, finish_reason="tool_calls"
            )
            failed = "FAILED" in output
            status = "error" if failed else "success"
            seq = tools.add_tool_call(
                tool, arguments, say(output), status, 120, error=say("exit code 1") if failed else None
            )
            whole = say(output) + (LONG if self.say is hostile and number == 1 else "")
            messages.add_message("tool", whole, tool, tool_call_id=call["id"], tool_seq=seq)
            if every and number == 6:
                carried = {
                    "plan": [{"text": say(one), "status": "done"} for one in steps[:2]],
                    "files": say("invoice.py"),
                }
                messages.compact(
                    strategy="summary", end_seq=8, summary=say("A test fails; the rule is missing."), carried=carried
                )
        requests.close()
        if every:
            self._records(context, folder)
        context.heartbeat()

    def _records(self, context, folder):
        say = self.say
        recalled = RecalledStore(folder)
        hit = {
            "id": say("mem-7f3a"),
            "kind": "record",
            "layer": "facts",
            "score": 0.61,
            "source": say("issue 17"),
            "tokens": 42,
        }
        left = {**hit, "why": say("below the relevance that is asked for")}
        recalled.add(
            "briefing",
            say("Reject invoices without a due date"),
            hits=[hit],
            dropped=[left],
            missing={say("files"): say("the history is not indexed yet")},
            text=say("- Amounts are rounded half up (issue 17)."),
        )
        recalled.close()
        votes = DeliberationStore(folder)
        for persona, vote in (("correctness", "APPROVE"), ("safety", "APPROVE"), ("upkeep", "CONDITIONAL")):
            payload = {
                "vote": vote,
                "reason": say("The rule is tested."),
                "conditions": [say("Name the rule in the docs.")],
            }
            votes.add(
                "statement", 1, persona=say(persona), phase="VOTING", round=1, payload=payload, model=say("gpt-4o")
            )
        result = {"decision": "CONDITIONAL", "reason": say("Two approve."), "all_conditions": [say("Name the rule.")]}
        votes.add("decision", 1, result=result)
        votes.close()
        context.get_effect_store().once(say("progress"), lambda: None, lambda: {"id": say("7")})
        lines = [
            {
                "timestamp": clock.stamp(),
                "level": "info",
                "event": say("turn_ended"),
                "turn": 9,
                "model": say("gpt-4o"),
            },
            {"timestamp": clock.stamp(), "level": "warning", "event": "request_repeated", "why": say("HTTP 503")},
        ]
        (folder / "worker.log").write_text("".join(json.dumps(one) + "\n" for one in lines))
        text = DIFF.format(name=say("billing/invoice.py").replace("\x00", ""), text=say("Net sums by rate."))
        (folder / "changes.patch").write_text(text)

    def _memory(self):
        say, namespace = self.say, "/facts/example--billing/"
        with closing(open_memory(self.settings, "test")) as store:
            event = store.create_event("example--billing", COMPLETED, say("We round half up."), source="issue")
            more = {"strategy": "facts", "event_ids": [event]}
            store.create_memory_record(
                "/preferences/example--billing/", say("Use unittest."), strategy="preferences", event_ids=[event]
            )
            record = store.create_memory_record(
                namespace, say("Amounts are rounded half up."), title=say("Rounding"), **more
            )
            self.record = record.id
