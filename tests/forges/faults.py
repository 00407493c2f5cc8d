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
    `after`: the server executes the request first.  `call` is called before the answer, or the cut.  `git`: the fault
    is for the requests of git, and only for these.
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
    git: bool = False

    def fits(self, verb, path, size=0):
        of_verb = self.verb in ("*", verb) or (self.verb == CHANGE and verb not in ("GET", "HEAD"))
        return of_verb and re.search(self.path, path) is not None and size >= self.over


PAGE = "<!DOCTYPE html><html><head><title>Sign in</title></head><body>Log in to go on</body></html>"
"""A page as a proxy answers it.  It has no line breaks, so that git takes it for an empty repository."""


def page(server, status=200, text=PAGE, verb="*", path="", **more):
    """From now on the forge answers this page to every matching request of its API and of git."""
    kind = {"Content-Type": "text/html; charset=utf-8"}
    for git in (False, True):
        server.fault(verb, path, status=status, body=text.encode(), headers=kind, times=-1, git=git, **more)


def answer_git(handler, fault):
    """Send the answer of a fault to a request of git."""
    handler.send_response_only(fault.status)
    for name, value in {**fault.headers, "Content-Length": str(len(fault.body))}.items():
        handler.send_header(name, value)
    handler.end_headers()
    handler.wfile.write(fault.body)


def take(faults, verb, path, size=0, *, git=False):
    """The fault for this request, None for none.  It is counted, and removed when it is used up."""
    for fault in faults:
        if fault.git == git and fault.fits(verb, path, size):
            if fault.skip:
                fault.skip -= 1
                continue
            fault.times -= 1
            if not fault.times:
                faults.remove(fault)
            return fault
    return None
