"""Requests with pictures: CPU of each turn, size of the view, peak memory, and what a task without pictures pays.

A conversation of 200 groups whose briefing has eight pictures of 1.15 million pixels (noise: none is small).  The
other side reads the same files, encodes them in base64 and writes them with the lines of the view: the least that any
program must do for the same request.
"""

from __future__ import annotations

import base64
import io
import json
import random
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks import children, machine
from benchmarks.figures import at_most

PICTURES = 8
GROUPS = 200
ROUNDS = 5
SIZE = (1072, 1072)


def measure() -> dict[str, Any]:
    with children.workplace() as place:
        make(place)
        with_them = children.run("images", place, "with")
        without = children.run("images", place, "without")
        idle, importing = children.run("images", place, "idle"), children.run("images", place, "import")
    mib = 1 << 20
    return {
        "images.request": at_most(
            with_them["ours"],
            with_them["least"],
            3.0,
            "s of CPU",
            "request.json with eight pictures for OpenAI, against reading, encoding and writing the same",
        ),
        "images.view": at_most(
            with_them["view"],
            without["view"],
            1.1,
            "bytes",
            "current.jsonl with the pictures, against the same conversation without",
        ),
        "images.memory": at_most(
            (with_them["peak"] - without["peak"]) / mib,
            with_them["sent"] / mib,
            4.0,
            "MiB",
            "peak RSS with the pictures less that without, against the bytes of the pictures in a request",
        ),
        "images.import": at_most(
            (importing["peak"] - idle["peak"]) / mib,
            1.0,
            4.0,
            "MiB",
            "what a worker pays for pictures before a task has any: RSS after importing what finds and fetches them",
        ),
    }


def make(place: Path) -> None:
    """The picture files, one time for all parts."""
    from PIL import Image

    dice = random.Random(7)
    (place / "images").mkdir()
    for number in range(1, PICTURES + 1):
        image = Image.frombytes("RGB", SIZE, dice.randbytes(SIZE[0] * SIZE[1] * 3))
        out = io.BytesIO()
        image.save(out, "JPEG", quality=88)
        (place / "images" / f"{number:04d}.jpeg").write_bytes(out.getvalue())


def part(place: Path, what: str) -> None:
    if what in ("idle", "import"):
        import agent.worker.briefing

        if what == "import":
            import agent.worker.issue_pictures  # noqa: F401
        print(json.dumps({"peak": machine.peak()}))
        return
    from agent.context import MessageStore
    from agent.llm import make_client
    from agent.llm.client import RequestBody
    from agent.security.pictures import tokens_of
    from agent.values import Span
    from benchmarks.settings import settings

    folder = place / what
    folder.mkdir()
    (folder / "images").symlink_to(place / "images")
    files = sorted((place / "images").iterdir())
    pictures = [
        {
            "file": f"images/{path.name}",
            "media_type": "image/jpeg",
            "width": SIZE[0],
            "height": SIZE[1],
            "tokens": tokens_of(*SIZE),
        }
        for path in files
    ]
    chosen = settings(folder, "openai")
    store = MessageStore(folder, chosen)
    store.add_message("system", "You are careful.")
    store.add_message("user", "Mend what the pictures show.", images=pictures if what == "with" else ())
    for number in range(GROUPS):
        call = {"id": f"call_{number}", "name": "read_file", "arguments": {"path": "a.py"}}
        store.add_message("assistant", "", tool_calls=[call])
        store.add_message("tool", f"line {number}\n" * 100, tool_call_id=f"call_{number}")
    client = make_client(chosen, store, folder)
    spans = (Span(store.current_path),)
    best: dict[str, float] = {}
    sent = 0
    for number in range(ROUNDS):
        machine.say(f"round {number + 1} of {ROUNDS}")
        started = time.process_time()
        shape = client.lines.check(spans)
        with client.request(RequestBody(spans, shape), keep=False) as path:
            sent = path.stat().st_size
        best["ours"] = min(best.get("ours", 9e9), time.process_time() - started)
        started = time.process_time()
        with (folder / "least.json").open("wb") as out:
            for file in files if what == "with" else ():
                out.write(base64.b64encode(file.read_bytes()))
            out.write(store.current_path.read_bytes())
        best["least"] = min(best.get("least", 9e9), time.process_time() - started)
    view = store.current_path.stat().st_size
    print(json.dumps({**best, "view": view, "sent": sent, "peak": machine.peak()}))


if __name__ == "__main__":
    part(Path(sys.argv[1]), sys.argv[2])
