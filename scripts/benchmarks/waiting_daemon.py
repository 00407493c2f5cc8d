"""The daemon of `waiting`, in a process of its own.

As small as `main.py`, because multiprocessing runs the main module of a daemon once more in each worker.
"""

import sys
from pathlib import Path

if __name__ == "__main__":
    from benchmarks.waiting import part

    part(Path(sys.argv[1]))
