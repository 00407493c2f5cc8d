"""Tasks that have ended, with real folders and rows, for tests of what long-term memory takes from them."""

from agent.context import TaskContextManager
from agent.security.fence import fence
from agent.values import End, Outcome, Status, Usage
from agent.wiring.memory import actor_of_task
from agent.worker.final_state import FinalState
from agent.worker.task_facts import DELIVERY, ORIGIN

SUMMARY = "total() rounded each price; now it rounds the sum once."


def call(tool, result="", status="success", **args):
    """One tool call; `result` of a command begins with `[exit code N]`."""
    return tool, args, result, status


def command(line, code=0, output=""):
    return call("run_command", f"[exit code {code}]\n{output}", command=line)


def end_task(
    here,
    number=1,
    *,
    title="Round once",
    body="Please use unittest, not pytest.",
    author="alice",
    comments=(),
    calls=(),
    plan=("Write a failing test", "Round the sum once"),
    summary=SUMMARY,
    origin=(),
    delivery=(),
    memories="",
    status=Status.COMPLETED,
    end=End.FINISHED,
    uuid=None,
    **row,
):
    """End a task in `here` (`run_home.Place`); returns its uuid.  `comments` are texts, or pairs of a text and the
    identity of the comment; `calls` are those of `call`."""
    here.issue(number, title, body=body)
    ledger = here.ledger
    made = ledger.enqueue(here.key(number), uuid=uuid, user=author, title=title, **row)
    claim = ledger.claim(made, here.wiring.owner, 60)
    context = TaskContextManager(
        claim.key, made, here.settings, title=title, attempt=claim.attempt, database=here.wiring.db
    )
    fenced = [
        fence(title, context.fence, source="issue title", author=author),
        fence(body, context.fence, source="issue", author=author),
    ]
    recalled = fence(memories, context.fence, source="memories") if memories else ""
    store = context.get_message_store()
    store.add_message("system", "You work.")
    store.add_message("user", "\n\n".join([recalled, "# The task", *fenced]), kind="task")
    store.add_message("assistant", "Yes.", usage=Usage(100, 20))
    for one in comments:
        text, named = (one, ()) if isinstance(one, str) else (one[0], [one[1]])
        said = fence(text, context.fence, source="comment", author="bob")
        store.add_message("user", said, kind="comment", comments=named)
        store.add_message("assistant", "Yes.", usage=Usage(100, 20))
    steps = call("update_plan", items=[{"text": step, "status": "done"} for step in plan])
    for number_, (tool, args, result, how) in enumerate((*calls, *([steps] if plan else []))):
        name = f"call-{number_}"
        store.add_message("assistant", "", tool_calls=[{"id": name, "name": tool, "arguments": args}])
        seq = context.get_tool_store().add_tool_call(tool, args, result, how, 1)
        store.add_message("tool", result, tool, tool_call_id=name, tool_seq=seq)
    effects = context.get_effect_store()
    actor = actor_of_task(here.settings, claim.key)
    said = {"actor": actor, "author": author, "author_may_ask": True, "comments_may_ask": True, "confidential": False}
    effects.done(ORIGIN, said | {"mirror": "", "base": "main", "base_commit": None} | dict(origin))
    effects.done(DELIVERY, {"commit": "c0ffee", "files": ["calc.py"], "check": None, "pull": None} | dict(delivery))
    outcome = Outcome(end, summary, "Round the sum once")
    FinalState(status, "" if status is Status.COMPLETED else "broken", "", outcome).save(context)
    context.set_columns(branch="makimono/1-x")
    if status is Status.COMPLETED:
        context.complete(outcome)
    else:
        context.fail("It broke.", "broken")
    return made
