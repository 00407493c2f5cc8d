#!/usr/bin/env python3
"""Repeat the failed tests of a whole run, alone, if they are few.  Its argument is the file
that tests/conftest.py writes, a JSON list of the ids of tests.

Six processes on two cores can make a test late that waits for another process.  Such a failure is told from one that
stays: a test that passes alone is named in the output, and the run passes.  The exit status is 1 if a test fails again,
or if more than `MOST` failed, since so many failures have a cause in common.
"""

import json
import subprocess
import sys
from pathlib import Path

MOST = 3


def main(written: Path) -> int:
    """Print what is repeated, repeat it, and return the exit status."""
    failed = json.loads(written.read_text(encoding="utf-8"))
    if not 0 < len(failed) <= MOST:
        return 1
    print(f"\nrepeated alone: {', '.join(failed)}", flush=True)
    done = subprocess.run([sys.executable, "-m", "pytest", "-q", *failed], check=False)
    if done.returncode:
        return 1
    print(f"\n{len(failed)} of the tests failed beside others and passed alone: {', '.join(failed)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
