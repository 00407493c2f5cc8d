"""Error answers of our loopback GitLab."""

from __future__ import annotations


class Refused(Exception):
    """An error answer."""

    def __init__(self, status, body, headers=None):
        super().__init__(status)
        self.status, self.body, self.headers = status, body, headers or {}


def missing(what=""):
    return Refused(404, {"message": f"404 {what} Not Found" if what else "404 Not found"})


def forbidden():
    return Refused(403, {"message": "403 Forbidden"})
