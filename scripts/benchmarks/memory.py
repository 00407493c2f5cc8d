"""Memory does not grow with the conversation: peak RSS for 1 GiB of messages, less that for 1 MiB.

One process appends groups of 16 KiB messages (durability none) and is measured; others open the store again and
build request.json, one for each wire.
"""

from __future__ import annotations

import json
import sys
from itertools import islice
from pathlib import Path
from typing import Any

from benchmarks import children, machine
from benchmarks.figures import at_most

SMALL, LARGE = 1 << 20, 1 << 30
MESSAGE = 16 << 10
ALLOWED = 8.0  # MiB
WIRES = ("openai", "lmstudio", "ollama", "anthropic")


def measure() -> dict[str, Any]:
    peaks: dict[tuple[str, int], float] = {}
    for size in (SMALL, LARGE):
        with children.workplace(needed=4 * size) as place:
            for step in ("append", "reopen", *WIRES):
                machine.say(f"{size >> 20} MiB, {step}")
                peaks[step, size] = children.run("memory", step, size, place)["peak"] / machine.MIB
    return {
        f"memory.{step}": at_most(
            peaks[step, LARGE] - peaks[step, SMALL],
            ALLOWED,
            1.0,
            "MiB",
            f"{step}: peak RSS with 1 GiB above that with 1 MiB, against the {ALLOWED:g} MiB allowed",
            peak_large=round(peaks[step, LARGE], 1),
            peak_small=round(peaks[step, SMALL], 1),
        )
        for step in ("append", "reopen", *WIRES)
    }


def part(step: str, size: int, place: Path) -> None:
    """One process."""
    from agent.context import MessageStore
    from agent.llm import make_client
    from benchmarks import texts
    from benchmarks.settings import settings

    provider = step if step in WIRES else "openai"
    chosen = settings(place, provider)
    store = MessageStore(place, chosen)
    if step == "append":
        append(store, texts.of_size(MESSAGE), size)
    elif step != "reopen":
        client = make_client(chosen, store, place)
        from agent.llm.client import RequestBody
        from agent.values import Span

        spans = (Span(store.get_current_context_file()),)
        shape = client.lines.check(spans)
        with client.request(RequestBody(spans, shape), keep=False) as path:
            assert path.stat().st_size > size * 0.9
    print(json.dumps({"peak": machine.peak(), "messages": store.last_seq}))


def append(store: Any, contents: Any, size: int) -> None:
    """`size` bytes of content: system prompt, briefing, then an answer with a call and its result, in turn."""
    store.add_message("system", "You are a careful coding agent.")
    store.add_message("user", "Mend the sum.")
    for number, text in enumerate(islice(contents, size // MESSAGE)):
        if number % 2 == 0:
            call = {"id": f"call_{number:08d}", "name": "run_command", "arguments": {"command": f"make {number}"}}
            store.add_message("assistant", text, tool_calls=[call])
        else:
            store.add_message("tool", text, tool_name="run_command")


if __name__ == "__main__":
    part(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))
