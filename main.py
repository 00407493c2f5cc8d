#!/usr/bin/env python3
"""Makimono's entry: `./main.py COMMAND`, with the packages that `scripts/setup` put into `.venv`."""

import os
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
VENV = HERE / ".venv"


def start() -> int:
    """Run the command line; switch to `.venv` first when this Python lacks the packages."""
    sys.path.insert(0, str(HERE))
    try:
        from agent.cli.main import main
    except ModuleNotFoundError as error:
        python = VENV / "bin" / "python"
        runs = os.access(python, os.X_OK)
        if (error.name or "").startswith("agent") or Path(sys.prefix) == VENV or not runs:
            advice = "run scripts/setup first"
            if VENV.is_dir() and not runs:
                advice = f"this user cannot run {python}: run scripts/setup as this user, in a clone that is yours"
            print(f"makimono: {error}; {advice}", file=sys.stderr)  # noqa: T201 - no room is loaded yet
            return 3
        os.execv(python, [str(python), str(HERE / "main.py"), *sys.argv[1:]])  # noqa: S606 - the same program again
    return main(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(start())
