"""Connects to an SFTP server, for `remote_storage.py`, with fsspec's driver and paramiko.

By itself fsspec's driver trusts every host key, waits for an answer without a limit, and passes each option to paramiko
unchecked.  This module checks the key of the SFTP server against known_hosts files, limits every wait, and checks
the options.  `sftp.py` is imported only if `context_storage.replica` is an SFTP address.

The behaviour of the libraries is described in docs.paramiko.org (`SSHClient.connect`, `MissingHostKeyPolicy`) and
sshd(8), "SSH_KNOWN_HOSTS FILE FORMAT".
"""

from __future__ import annotations

import base64
import hashlib
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, unquote

import paramiko  # type: ignore[import-untyped]
from fsspec.implementations.sftp import SFTPFileSystem

from agent.config.url_passwords import hide_password
from agent.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from urllib.parse import SplitResult

KNOWN_HOSTS = ("~/.ssh/known_hosts", "/etc/ssh/ssh_known_hosts")
"""The files with known host keys that are used unless the address names one with the option `known_hosts`."""

ANSWER_SECONDS = 60.0
"""Maximum seconds to wait for an answer of the SFTP server on an open connection."""

KEEPALIVE_SECONDS = 30
"""Seconds between two keep-alive messages: a turn of a task may take minutes, and firewalls and servers close
connections without traffic."""

CONNECT_SECONDS = {"timeout": 10.0, "banner_timeout": 30.0, "auth_timeout": 30.0, "channel_timeout": 30.0}

TRUTH = {"true": True, "1": True, "false": False, "0": False}


def _truth(text: str) -> bool:
    return TRUTH[text.lower()]


OPTIONS: Mapping[str, Callable[[str], Any]] = {
    "known_hosts": str,
    "key_filename": str,
    "passphrase": str,
    "look_for_keys": _truth,
    "allow_agent": _truth,
    "compress": _truth,
    **dict.fromkeys(CONNECT_SECONDS, float),
}
"""Name of an option that the query of an SFTP address may contain → function that converts its text."""


class KnownHosts(paramiko.MissingHostKeyPolicy):  # type: ignore[misc]
    """A policy for paramiko: accepts a server only if a known_hosts file contains its key."""

    def __init__(self, files: Sequence[str]) -> None:
        self.files = files

    def missing_host_key(self, _client: object, hostname: str, key: Any) -> None:
        """Check the key of the SFTP server; called by paramiko. Raises SSHException."""
        known = paramiko.HostKeys()
        for name in self.files:
            with suppress(OSError):  # a missing or unreadable known_hosts file counts as empty
                known.load(str(Path(name).expanduser()))
        found = known.lookup(hostname) or {}
        if key.get_name() in found and found[key.get_name()] == key:
            return
        digest = base64.b64encode(hashlib.sha256(key.asbytes()).digest()).decode().rstrip("=")
        what = f"the {key.get_name()} key SHA256:{digest} of {hostname}"
        if key.get_name() in found:
            raise paramiko.SSHException(
                f"{what} is not the known one: the server has a new key, or somebody else answers; after a check "
                f"replace its line in {' or '.join(self.files)}"
            )
        raise paramiko.SSHException(
            f"{what} is in none of {', '.join(self.files)}; check it and add it, with ssh-keyscan for example, or name "
            "the file as `known_hosts` in the query of the address"
        )


def check_options(address: str, parts: SplitResult) -> dict[str, Any]:
    """The options for `connect`, from the parts of an SFTP address.  Raises ConfigError for an address without a host,
    and for an option that is unknown or has a wrong value."""
    if not parts.hostname:
        raise ConfigError(f"context_storage.replica: {hide_password(address)} has no host; write sftp://user@host/path")
    found: dict[str, Any] = dict(CONNECT_SECONDS)
    for name, text in parse_qsl(parts.query):
        if name not in OPTIONS:
            raise ConfigError(
                f"context_storage.replica: {hide_password(address)} has the option {name!r}; "
                f"allowed are {', '.join(OPTIONS)}"
            )
        try:
            found[name] = OPTIONS[name](text)
        except (ValueError, KeyError):
            wanted = "a number of seconds" if name in CONNECT_SECONDS else "true or false"
            raise ConfigError(f"context_storage.replica: {hide_password(address)}: {name} must be {wanted}") from None
    files = [found.pop("known_hosts")] if "known_hosts" in found else list(KNOWN_HOSTS)
    found["host_key_policy"] = KnownHosts(files)
    if parts.port:
        found["port"] = parts.port
    if parts.username:
        found["username"] = unquote(parts.username)
    if parts.password:
        found["password"] = unquote(parts.password)
    return {"host": parts.hostname, **found}


def connect(options: Mapping[str, Any]) -> Any:
    """Open a connection to the SFTP server and return fsspec's file system object for it. Raises the errors of paramiko
    and of sockets."""
    made = SFTPFileSystem(**options, skip_instance_cache=True)
    made.ftp.get_channel().settimeout(ANSWER_SECONDS)
    made.client.get_transport().set_keepalive(KEEPALIVE_SECONDS)
    return made


def close(made: Any) -> None:
    """Close the connection of a file system object from `connect`; errors are ignored, since the connection may be
    broken."""
    with suppress(Exception):
        made.client.close()
