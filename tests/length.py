"""How many cases the crash tests and some whole runs cover: the short form, or with MAKIMONO_LONG=1 the long one.

`scripts/crash --mutants` sets MAKIMONO_CRASH_AT, a regular expression: then only the matching points are tested.
"""

import os
import re
import subprocess
import zlib
from pathlib import Path

LONG = os.environ.get("MAKIMONO_LONG") == "1"
AT = os.environ.get("MAKIMONO_CRASH_AT", "")
TOLD = []


def either(short, long):
    """`short` in the ordinary run, `long` in the long one."""
    return long if LONG else short


def some(items, short, kind=str):
    """All `items` in the long form, else `short` of them, distributed over their kinds, in their order."""
    if AT:
        return spread([item for item in items if re.search(AT, str(item))], short)
    if LONG:
        return list(items)
    kinds = {}
    for item in items:
        kinds.setdefault(re.sub(r"[0-9a-f-]{36}|\d+", "", kind(item)), item)
    return spread(list(kinds.values()), short)


FORGE = re.compile(r"(?<![\w.])(github-emulate|github|gitlab|forgejo|local)(?![\w.])")
"""The forge in the parameters of a test id, but not the one in `.github/workflows` or `local.repos`."""


def one_forge(ids):
    """The test ids that the ordinary run skips because the same test runs on another forge.

    All adapters pass one contract (tests/contract).  So a whole run or a test of intake that exists for several
    forges is done on one of them.  A hash of the test's name selects the forge, so that each forge gets a share.
    """
    if LONG or AT:
        return set()
    found = {}
    for one in ids:
        name, bracket, parameters = one.partition("[")
        same, count = FORGE.subn("*", parameters, count=1)
        if count:
            found.setdefault(name + bracket + same, []).append(one)
    left = set()
    for same, twins in found.items():
        left |= set(twins) - {sorted(twins)[zlib.crc32(same.encode()) % len(twins)]}
    return left


ROOT = Path(__file__).resolve().parents[1]
TURNS = 3


def not_this_turn():
    """The files of `by_turns.txt` that an ordinary run leaves to the runs of the next commits; in an archive without
    history the turn is the first."""
    if LONG or AT:
        return set()
    lines = (ROOT / "tests" / "by_turns.txt").read_text(encoding="utf-8").splitlines()
    files = [line for line in lines if line and not line.startswith("#")]
    counted = subprocess.run(["git", "rev-list", "--count", "HEAD"], cwd=ROOT, capture_output=True, text=True)
    turn = int(counted.stdout) % TURNS if counted.returncode == 0 else 0
    return {file for number, file in enumerate(files) if number % TURNS != turn}


def spread(items, number):
    """At most `number` of the items, evenly spaced."""
    if len(items) <= number:
        return items
    return [items[round(index * (len(items) - 1) / (number - 1))] for index in range(number)]


def tell(what):
    """Add a line to the summary at the end of the test run (`conftest.py`)."""
    TOLD.append(what)
