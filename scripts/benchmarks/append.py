"""Appending costs a few times what the kernel takes, and the same for the 200,000th message as for the 1,000th.

Blocks of `add_message` and of bare writes take turns in one process; CPU time of a block, medians over blocks.
"""

from __future__ import annotations

import json
import os
import time
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import children, machine
from benchmarks.figures import at_most, median

if TYPE_CHECKING:
    from collections.abc import Callable

MESSAGES = 200_000
SIZE = 2_000  # characters
BLOCK = 100
AROUND = 10  # blocks on each side of the 1,000th message, and twice as many up to the 200,000th


def measure() -> dict[str, Any]:
    with children.workplace(needed=3 << 30) as place:
        blocks = children.run("append", place)
    ours, bare = blocks["ours"], blocks["bare"]
    at = 1_000 // BLOCK
    first, last = median(ours[at - AROUND + 1 : at + AROUND + 1]), median(ours[-2 * AROUND :])
    return {
        "append.rate": at_most(
            median(ours) / BLOCK * 1e6,
            median(bare) / BLOCK * 1e6,
            3.0,
            "µs of CPU a message",
            "add_message of 2 KB messages against a bare os.write of the same two lines with orjson",
        ),
        "append.growth": at_most(
            last / BLOCK * 1e6,
            first / BLOCK * 1e6,
            1.3,
            "µs of CPU a message",
            "add_message around the 200,000th message against around the 1,000th",
        ),
    }


def part(place: Path) -> None:
    """Alternate blocks of both kinds."""
    import orjson

    from agent.context import MessageStore
    from benchmarks import texts
    from benchmarks.settings import settings

    (place / "ours").mkdir()
    store = MessageStore(place / "ours", settings(place))
    store.add_message("system", "You are a careful coding agent.")
    store.add_message("user", "Mend the sum.")
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
    facts, view = (os.open(place / name, flags, 0o600) for name in ("messages.jsonl", "current.jsonl"))
    contents = texts.of_size(SIZE)
    stamp = "2026-01-31T09:15:00.123456Z"

    def add(batch: list[str], seq: int) -> None:
        for offset, text in enumerate(batch):
            store.add_message("assistant" if (seq + offset) % 2 else "user", text)

    def write(batch: list[str], seq: int) -> None:
        for offset, text in enumerate(batch):
            role = "assistant" if (seq + offset) % 2 else "user"
            record = {"seq": seq + offset, "role": role, "content": text, "timestamp": stamp, "tokens": 500}
            os.write(facts, orjson.dumps(record, option=orjson.OPT_APPEND_NEWLINE))
            os.write(view, orjson.dumps({"role": role, "content": text}, option=orjson.OPT_APPEND_NEWLINE))

    ours, bare = [], []
    for number in range(MESSAGES // BLOCK):
        seq = 3 + number * BLOCK
        # Each text is a new one for each way, as it is in a task: a text keeps its UTF-8 once that was asked for.
        first, second = ([text[:-1] + "." for text in islice(contents, BLOCK)] for _ in range(2))
        ours.append(cpu(add, first, seq))
        bare.append(cpu(write, second, seq))
    print(json.dumps({"ours": ours, "bare": bare, "peak": machine.peak()}))


def cpu(do: Callable[[list[str], int], None], batch: list[str], seq: int) -> float:
    """CPU seconds of one block."""
    started = time.process_time()
    do(batch, seq)
    return time.process_time() - started


if __name__ == "__main__":
    import sys

    part(Path(sys.argv[1]))
