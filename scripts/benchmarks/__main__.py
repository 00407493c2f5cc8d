"""`scripts/bench [NAME…]`: run, print one JSON object, exit 1 when a limit is missed."""

from __future__ import annotations

import argparse
import json
import sys
import time
from importlib import import_module

from benchmarks import machine

BENCHES = {
    "memory": "peak memory of appending, reopening and building requests, 1 GiB against 1 MiB",
    "append": "add_message against a bare os.write of the same lines, and the 200,000th against the 1,000th",
    "request": "building request.json of 100 MB, against cp and against the json module",
    "peer": "a task of 400 turns against mini-swe-agent: CPU a turn and peak memory",
    "long": "a task of 6,000 turns: CPU of a turn at its end against that at its beginning, growth of memory",
    "waiting": "100 workers that wait for a model: memory of each",
    "first_byte": "from the claim to the first byte of the first request, against `import openai`",
    "scale": "1,000 queued tasks, 50 workers at once, a model that answers in 50 ms",
    "idle": "the daemon for ten minutes with no task: CPU, memory, descriptors, WAL, log",
    "quiet": "a daemon without tasks on PostgreSQL, alone and with each broker: questions, wake-ups, CPU",
    "fleet": "20 daemons on PostgreSQL with 200 rows each: questions, connections and CPU of a daemon",
    "images": "requests with eight pictures: CPU, view, memory, and what a task without any pays",
    "planning": "p95 of planning a request with 100 messages and 1,000 memories, and behind 100,000 messages",
    "memory_store": "long-term memory: import, retrieval, the history of 20,000 commits, RSS",
    "page": "the page: 10,000 tasks, one task of 200,000 messages and 1 GiB, ten open pages: time, memory, CPU",
    "patterns": "each pattern that reads foreign text, on a megabyte of its worst input: CPU",
    "consensus": "30 changes, scripted reviewers: false approvals, tokens and time of single, vote and debate",
    "deliberation": "a deliberation on servers with three slots and with one; 1,000 reloads while tasks run",
    "fidelity": "facts of a task that are still in its requests after 1, 3 and 10 compactions",
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/bench", description="Measure the figures of docs/bench.md.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one or more of {', '.join(BENCHES)}; all by itself")
    parser.add_argument("--list", action="store_true", help="name the benches and exit")
    chosen = parser.parse_args()
    if chosen.list:
        print("\n".join(f"{name:12} {what}" for name, what in BENCHES.items()))
        return 0
    if unknown := [name for name in chosen.names if name not in BENCHES]:
        parser.error(f"no bench {', '.join(unknown)}; there are {', '.join(BENCHES)}")
    figures = {}
    for name in chosen.names or BENCHES:
        print(f"bench: {name}: {BENCHES[name]}", file=sys.stderr, flush=True)
        started = time.monotonic()
        found = import_module(f"benchmarks.{name}").measure()
        figures |= found
        for figure, seen in found.items():
            print(f"bench:   {figure} {seen['ratio']} ({seen['ours']}, {seen['other']})", file=sys.stderr, flush=True)
        print(f"bench: {name}: {time.monotonic() - started:.0f} s", file=sys.stderr, flush=True)
    missed = [name for name, figure in figures.items() if not figure["ok"]]
    print(json.dumps({"machine": machine.describe(), "figures": figures, "missed": missed}, indent=2))
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
