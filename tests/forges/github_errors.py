"""Error answers of our loopback GitHub, in GitHub's shapes."""

from __future__ import annotations

MAX_BODY = 65_536
DOCS = "https://docs.github.com/rest"


class Refused(Exception):
    """An error answer."""

    def __init__(self, status, message, errors=None, headers=()):
        self.status = status
        self.body = {"message": message, "documentation_url": DOCS}
        if status < 500 and status != 422:
            self.body["status"] = str(status)
        if errors is not None:
            self.body["errors"] = errors
        self.headers = dict(headers)


def missing():
    return Refused(404, "Not Found")


def invalid(resource, field, code="invalid", message=None):
    error = {"resource": resource, "field": field, "code": code} | ({"message": message} if message else {})
    return Refused(422, "Validation Failed", [error])
