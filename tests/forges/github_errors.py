"""Error answers of our loopback GitHub, in GitHub's shapes."""

from __future__ import annotations

MAX_BODY = 65_536
MAX_TITLE = 256
MAX_LABEL, MAX_LABEL_DESCRIPTION = 50, 100
"""Characters: github/docs#32156 and docs.github.com/en/rest/issues/labels ("Create a label"); for titles and texts
dead-claudia/github-limits."""
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


def check_text(resource, body):
    """Refuse a title or text that is too long, and a title without a visible character."""
    if "title" in body and not (body["title"] or "").strip():
        raise invalid(resource, "title", "missing_field")
    _check_lengths(resource, body, {"title": MAX_TITLE, "body": MAX_BODY})


def check_label(body):
    if not (body.get("name", "x") or "").strip():
        raise invalid("Label", "name", "missing_field")
    _check_lengths("Label", body, {"name": MAX_LABEL, "description": MAX_LABEL_DESCRIPTION})


def _check_lengths(resource, body, longest):
    for field, most in longest.items():
        if len(body.get(field) or "") > most:
            raise invalid(resource, field, "custom", f"{field} is too long (maximum is {most} characters)")


def invalid(resource, field, code="invalid", message=None):
    error = {"resource": resource, "field": field, "code": code} | ({"message": message} if message else {})
    return Refused(422, "Validation Failed", [error])
