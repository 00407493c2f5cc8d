"""How much of the crash tests, and of some whole runs, is done: the short form, or with MAKIMONO_LONG=1 the long one.

`scripts/crash --mutants` sets MAKIMONO_CRASH_AT, a regular expression: then only the points that it finds are walked.
"""

import os
import re
import zlib

LONG = os.environ.get("MAKIMONO_LONG") == "1"
AT = os.environ.get("MAKIMONO_CRASH_AT", "")
TOLD = []


def either(short, long):
    """`short` in the ordinary run, `long` in the long one."""
    return long if LONG else short


def some(items, short, kind=str):
    """All `items` in the long form, else `short` of them, spread over their kinds in their order."""
    if AT:
        return spread([item for item in items if re.search(AT, str(item))], short)
    if LONG:
        return list(items)
    kinds = {}
    for item in items:
        kinds.setdefault(re.sub(r"[0-9a-f-]{36}|\d+", "", kind(item)), item)
    return spread(list(kinds.values()), short)


def one_forge(ids):
    """Those of the test ids that the ordinary run leaves out, since the same test runs on the other forge.

    Both adapters pass one contract (tests/contract).  A whole run that both have is therefore done on one of them, and
    the name of the test decides which, so that about half of them run on each.
    """
    if LONG or AT:
        return set()
    left = set()
    for one in ids:
        twin = one.replace("github", "gitlab")
        if twin != one and twin in ids:
            left.add(one if zlib.crc32(twin.encode()) & 1 else twin)
    return left


def spread(items, number):
    """At most `number` of them, at even distances."""
    if len(items) <= number:
        return items
    return [items[round(index * (len(items) - 1) / (number - 1))] for index in range(number)]


def tell(what):
    """A line for the end of the run (`conftest.py`)."""
    TOLD.append(what)
