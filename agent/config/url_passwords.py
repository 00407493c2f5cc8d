"""Finds passwords in addresses by their position, even if they are short or not declared as secrets."""

from __future__ import annotations

import re
from urllib.parse import urlsplit, urlunsplit

MASK = "********"
_LOGIN = re.compile(r"(?<=:/)(/?+[^\s/?#@:\"'<>]{0,200}+:)[^\s/?#@\"'<>]{1,400}+@")
_NAME = r"[^\s?=&#\"'<>]"
_TELLING = r"(?:key|token|secret|passw|(?<![a-z])sig|sig(?:nature)?=)"
_QUERY = re.compile(rf"([?&](?:code|(?={_NAME}*?{_TELLING}){_NAME}++)=)[^\s&#\"'<>]{{1,2000}}+", re.IGNORECASE)


def is_telling(name: str) -> bool:
    """Whether the value of a query parameter with this name is a secret, as for `key`, `access_token`,
    `X-Amz-Signature` and `code`."""
    return _QUERY.search(f"?{name}=x") is not None


def without_passwords(text: str) -> str:
    """`text` with masks for passwords (`scheme://user:password@host`) and for secret query values (`?access_token=`).

    An address that was stored as a path and so lost a slash (`https:/user:password@host`) is masked too.
    """
    if ":/" not in text:
        return text
    text = _LOGIN.sub(rf"\1{MASK}@", text) if "@" in text else text
    return _QUERY.sub(rf"\1{MASK}", text) if "?" in text else text


_ASSIGNED = re.compile(r"\b(\w*(?:key|token|secret|passw\w*)=)(?!\$)[^\s;&|'\"]{1,2000}+", re.IGNORECASE)


_OPTION = re.compile(
    r"((?<![\w-])--?[\w-]{0,40}?(?:key|token|secret|pass(?:w(?:or)?d|phrase)?)(?:=|[ \t]{1,9}|\",[ ]\"))"
    r"(?![-$])[^\s;&|'\"]{1,2000}+",
    re.IGNORECASE,
)
"""Matches an option with a secret's name and its value, in a shell command or in a list of arguments as JSON."""


def shown_command(command: str) -> str:
    """A shell command, or a list of arguments as JSON, for display: with masks for passwords in addresses, for values
    of variables with a secret's name (`PIP_PASSWORD=…`), and for values of options with a secret's name (`--token
    …`)."""
    return _OPTION.sub(rf"\1{MASK}", _ASSIGNED.sub(rf"\1{MASK}", without_passwords(command)))


def hide_password(address: str) -> str:
    """An address for display, with its user, but without its password, query and fragment. A text without a scheme,
    such as a path, is returned unchanged."""
    parts = urlsplit(address)
    if not parts.scheme:
        return address
    user, at, host = parts.netloc.rpartition("@")
    return urlunsplit((parts.scheme, f"{user.partition(':')[0]}{at}{host}", parts.path, "", ""))
