"""The daemon of `waiting`, in a process of its own."""

import sys
from pathlib import Path

if __name__ == "__main__":
    from benchmarks.waiting import part

    part(Path(sys.argv[1]))
