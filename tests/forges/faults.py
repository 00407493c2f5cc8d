"""Faults on demand of our loopback forges: an answer that replaces the real one of the next matching requests, or a cut
connection."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

CHANGE = "change"  # as a verb: every one but GET


@dataclass
class Fault:
    """The next `times` matching requests get `status`, `headers` and `body`, or no answer at all (`cut`: the connection
    ends).  -1: all of them.  The first `skip` matching requests are answered normally.

    `verb` is one verb, "*", or CHANGE; `path` a regular expression; only bodies of at least `over` characters match.
    `after`: the server executes the request first.  `call` is called before the answer, or the cut.
    """

    verb: str
    path: str
    status: int = 500
    body: object = None
    headers: dict = field(default_factory=dict)
    times: int = 1
    after: bool = False
    cut: bool = False
    skip: int = 0
    over: int = 0
    call: object = None

    def fits(self, verb, path, size=0):
        of_verb = self.verb in ("*", verb) or (self.verb == CHANGE and verb not in ("GET", "HEAD"))
        return of_verb and re.search(self.path, path) is not None and size >= self.over


def take(faults, verb, path, size=0):
    """The fault for this request, None for none.  It is counted, and removed when it is used up."""
    for fault in faults:
        if fault.fits(verb, path, size):
            if fault.skip:
                fault.skip -= 1
                continue
            fault.times -= 1
            if not fault.times:
                faults.remove(fault)
            return fault
    return None
