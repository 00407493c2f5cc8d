"""Texts of a given size that look like what an agent reads: source code, English, some Japanese, line breaks."""

from __future__ import annotations

import json
import sysconfig
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

JAPANESE = "合計は一度だけ丸める。各価格を丸めてから足すと、端数の誤差が積み重なる。\n"
MODULES = ("argparse", "ast", "calendar", "datetime", "difflib", "inspect", "logging/__init__", "subprocess", "tarfile")


def source() -> str:
    """A few modules of the standard library, and a line of Japanese in one text of four or so."""
    library = Path(sysconfig.get_path("stdlib"))
    lines = [
        line
        for name in MODULES
        for line in (library / f"{name}.py").read_text(encoding="utf-8").splitlines(keepends=True)
    ]
    for at in range(0, len(lines), 400):
        lines[at] += JAPANESE
    return "".join(lines)


def of_size(size: int, count: int = 97) -> Iterator[str]:
    """Without end, `count` different texts of `size` characters in turn."""
    text = source()
    step = max(1, (len(text) - size) // count)
    return cycle([text[start : start + size] for start in range(0, step * count, step)])


def group(number: int, text: str) -> list[dict[str, object]]:
    """A call and its result, in OpenAI's form."""
    call = {
        "id": f"call_{number:08d}",
        "type": "function",
        "function": {"name": "run_command", "arguments": json.dumps({"command": f"sed -n {number},+200p tarfile.py"})},
    }
    return [
        {"role": "assistant", "content": "I look at the next part of the file.", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": call["id"], "content": text},
    ]
